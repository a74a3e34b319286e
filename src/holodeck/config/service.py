"""`run_agent`: an agent in one call, for programs that have no agent file (seed 004).

It assembles the same parts as `build.py` does from YAML, and runs the same loop. Nothing is kept between two calls.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from holodeck.agent.agent_response import AgentResponse
from holodeck.agent.definition import AgentContext, AgentDefinition, TextInstructions
from holodeck.agent.loop import run
from holodeck.agent.settings import AgentLoopConfig, SystemPrompt
from holodeck.agent.structured_output import OutputType
from holodeck.core.events import Emit
from holodeck.core.messages import UserMessage, can_be_answered, text_of, unanswered
from holodeck.core.secrets import Redactor
from holodeck.core.zones import is_zone, local_zone
from holodeck.errors import InvalidRequest
from holodeck.models.chat_completions_model import OpenAIChatModel
from holodeck.models.chat_format import from_chat, system_of
from holodeck.models.endpoint_settings import Deadlines, EndpointSettings
from holodeck.models.port import Model
from holodeck.sessions.transcript import Transcript
from holodeck.tools.binding import BOUND, Tool, sources_of
from holodeck.tools.catalogue import Catalogue
from holodeck.tools.rules import ToolRules

GEMINI = "https://generativelanguage.googleapis.com/v1beta/openai/"


class AgentConfiguration(BaseModel):
    """The model and its parameters. Any OpenAI-compatible endpoint works; Gemini's is the default (AGT-02)."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    api_base_url: str = Field(default=GEMINI, pattern=r"^https?://[^\s/]+", max_length=2048)
    api_key: SecretStr = Field(
        default_factory=lambda: SecretStr(os.environ.get("GEMINI_API_KEY", "")), description="Default: GEMINI_API_KEY"
    )
    model_name: str = Field(default="gemini-2.5-flash", min_length=1, max_length=200)
    temperature: float = Field(default=1.0, ge=0.0, le=1.0)
    max_tokens: int = Field(default=1000, gt=0, le=1_000_000)
    timeout: float = Field(default=30, gt=0, le=3600, description="Seconds without new data from the endpoint")

    if TYPE_CHECKING:  # pydantic turns plain text into a SecretStr; type checkers need this

        def __init__(
            self,
            *,
            api_base_url: str = ...,
            api_key: str | SecretStr = ...,
            model_name: str = ...,
            temperature: float = ...,
            max_tokens: int = ...,
            timeout: float = ...,
        ) -> None: ...

    @field_validator("api_key")
    @classmethod
    def _given(cls, key: SecretStr) -> SecretStr:
        if not key.get_secret_value().strip():
            raise ValueError("no API key: set GEMINI_API_KEY, or pass api_key")
        return key

    def model(self) -> Model:
        is_gemini = self.api_base_url == GEMINI
        return OpenAIChatModel(
            EndpointSettings(
                provider="gemini" if is_gemini else "openai_compatible",
                key_advice=f"{'GEMINI_API_KEY or ' if is_gemini else ''}api_key of AgentConfiguration",
                endpoint_option="api_base_url of AgentConfiguration",
                endpoint=self.api_base_url,
                name=self.model_name,
                api_key=self.api_key,
                temperature=self.temperature,
                max_tokens=self.max_tokens,
                deadlines=Deadlines(connect=min(10.0, self.timeout), first_token=self.timeout, idle=self.timeout),
            )
        )


async def run_agent(
    message_history: Sequence[Mapping[str, Any]],
    user_id: str,
    config: AgentConfiguration | None = None,
    *,
    tools: Iterable[Tool] = (),
    prompt: SystemPrompt | str | None = None,
    loop: AgentLoopConfig | None = None,
    timezone: str | None = None,
    output_type: Any = None,
    emit: Emit | None = None,
) -> AgentResponse:
    """Answers a conversation in the chat-completions format. `emit` gets the events as they happen.

    `tools` are plain functions, ToolBindings or toolsets, such as an MCP server. The runtime fills in an argument
    `user_id` of any of them; the model neither sees nor sets it (AGT-07).

    `prompt` is a SystemPrompt or your own text. The default is `SystemPrompt()`: an assistant for the user's tasks,
    which refuses other subjects and says so if it has no tools.

    With `output_type` (a pydantic model, dataclass, TypedDict, msgspec struct, any type that pydantic knows, or a JSON
    Schema), `response.output` is the final answer as a value of that type.

    Raises only for misuse: InvalidRequest, or pydantic's ValidationError for a bad configuration. Failures of a model,
    an endpoint or a tool are in the response.
    """
    _check_types(message_history, user_id, config, prompt)
    if timezone is not None and not is_zone(timezone):
        raise InvalidRequest(f"{timezone!r} is not a time zone; write e.g. Europe/Berlin.", field="timezone")
    messages, given = from_chat(message_history), list(tools)
    if not messages:
        raise InvalidRequest("message_history holds no message to answer.", field="message_history")
    if unanswered(messages):
        raise InvalidRequest("message_history holds a tool call without its result.", field="message_history")
    if not can_be_answered(messages):
        raise InvalidRequest(
            "message_history ends with an answer: there is nothing to answer.", field="message_history"
        )
    last = messages[-1]
    if isinstance(last, UserMessage) and not text_of(last.content).strip():
        raise InvalidRequest("The last message of message_history is blank.", field="message_history")
    settings = config or AgentConfiguration()
    redact = Redactor([settings.api_key.get_secret_value()])
    agent = AgentDefinition(
        name="agent",
        model=settings.model(),
        tools=Catalogue(sources_of(given, ToolRules(bind=BOUND), names_checked=True, redact=redact)),
        instructions=_Instructions(prompt or SystemPrompt(), system_of(message_history), has_tools=bool(given)),
        loop=loop or AgentLoopConfig(),
        output=None if output_type is None else OutputType.of(output_type),
    )
    transcript = Transcript(messages)
    context = AgentContext(conversation=transcript, user_id=user_id, timezone=timezone or local_zone())
    async with agent:
        response = await run(agent, context, emit or (lambda _event: None))
    return response.model_copy(update={"history": tuple(transcript.messages)})


def get_default_config() -> AgentConfiguration:
    """The configuration that `run_agent` uses if it is given none: Gemini, with the key in GEMINI_API_KEY."""
    return AgentConfiguration()


def _check_types(message_history: object, user_id: object, config: object, prompt: object) -> None:
    """Checks types, so that callers without a type checker get a clear error, too."""
    if not isinstance(prompt, SystemPrompt | str | None):
        raise InvalidRequest(f"prompt must be a SystemPrompt or a string, not {type(prompt).__name__}.", field="prompt")
    if config is not None and not isinstance(config, AgentConfiguration):
        raise InvalidRequest(
            f"config must be an AgentConfiguration, not {type(config).__name__}: write AgentConfiguration(api_key=…).",
            field="config",
        )
    if not isinstance(user_id, str) or not user_id.strip():
        raise InvalidRequest("user_id must be a non-empty string.", field="user_id")
    if not isinstance(message_history, list | tuple) or not all(isinstance(each, Mapping) for each in message_history):
        raise InvalidRequest("message_history must be a list of messages.", field="message_history")


class _Instructions:
    """The four parts of a SystemPrompt or the caller's own text, the history's own system messages, and the time. No part is a template."""

    def __init__(self, prompt: SystemPrompt | str, of_history: str, *, has_tools: bool) -> None:
        self._prompt, self._of_history, self._has_tools = prompt, of_history, has_tools

    def render(self, *, user_id: str, timezone: str) -> str:
        time = TextInstructions("It is {now}.").render(user_id=user_id, timezone=timezone)
        prompt = self._prompt
        if isinstance(prompt, SystemPrompt):
            prompt = prompt.to_prompt_string(user_id, has_tools=self._has_tools)
        return "\n\n".join(part for part in (prompt, self._of_history, time) if part)
