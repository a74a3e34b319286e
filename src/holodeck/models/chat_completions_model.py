"""Any endpoint that speaks OpenAI's chat completions, streaming.

`streamed` makes the requests, `answer` reads the events. Endpoints accept different members: we send what most accept
and leave out what one refuses. No behaviour is guessed from a model's name.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from msgspec.structs import replace

from holodeck.core.json_values import JsonObject
from holodeck.core.messages import AssistantMessage, Message
from holodeck.core.tools import ToolSchema
from holodeck.errors import ModelError, ModelRejected
from holodeck.models.answer import Answer
from holodeck.models.chat_format import is_signed, members_beyond_the_usual, to_chat, unsigned
from holodeck.models.diagnosis import EndpointRefusal
from holodeck.models.endpoint_settings import NO_REASONING, EndpointSettings, Reasoning
from holodeck.models.port import Listener, Prompt
from holodeck.models.providers import chat_url, is_gemini, models_url
from holodeck.models.response_body import AnswerStream
from holodeck.models.restrictions import RefusedMessages, Restrictions
from holodeck.models.streamed import ApiNotServed, StreamedModel, call_ids
from holodeck.models.structured import as_openai_names_it

_COMPLAINTS = frozenset({400, 422})
UNSIGNED, NO_THOUGHTS = "calls without a signature", "calls without thoughts"
_WANTED: Mapping[str, re.Pattern[str]] = {
    UNSIGNED: re.compile(r"missing an? \W?thought_signature", re.IGNORECASE),
    NO_THOUGHTS: re.compile(
        r"reasoning_content.{0,80}(?:is missing|must be passed back|is required)|missing.{0,20}reasoning_content",
        re.IGNORECASE | re.DOTALL,
    ),
}
_BAD_SIGNATURE = re.compile(  # another model, or project, made the signature
    r"(?:corrupted|invalid|not valid).{0,40}thought.?signature|thought.?signature.{0,40}(?:corrupted|invalid|not valid)",
    re.IGNORECASE,
)
_NO_SIGNATURE = "skip_thought_signature_validator"  # Google's value for a call that another provider's model made
_OF_MESSAGES = "messages[]."  # prefix of restrictions about members of messages

RESTRICTIONS: Mapping[str, re.Pattern[str]] = {
    "stream_options": re.compile(r"stream_options|include_usage"),
    "max_tokens": re.compile(r"max_completion_tokens"),  # newer OpenAI models require the other name
    "temperature": re.compile(
        r"temperature.{0,80}(not support|unsupported|only the default)|"
        r"(unsupported|not support).{0,80}temperature",
        re.IGNORECASE | re.DOTALL,
    ),
}
OPTIONAL = (
    "reasoning_effort", "verbosity", "top_p", "seed", "stop", "parallel_tool_calls", "tool_choice", "service_tier",
)  # fmt: skip  # optional members
_REFUSED = re.compile(
    r"unsupported|not support|unrecognized|unknown|not permitted|not allowed|unexpected|invalid", re.IGNORECASE
)


def body_of(settings: EndpointSettings, prompt: Prompt, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The request; `without` names the restrictions learned from earlier refusals."""
    tools = [*map(_tool, prompt.tools), *settings.provider_tools]
    if prompt.answers_now:  # small models repeat a call that they see offered, even with tool_choice: none
        prompt, tools = replace(prompt, tools=()), []
    body: dict[str, Any] = {
        "model": settings.name,
        "messages": _messages(settings, prompt, without),
        "stream": True,
    }
    if "stream_options" not in without:
        body["stream_options"] = {"include_usage": True}
    if settings.temperature is not None and "temperature" not in without:
        body["temperature"] = settings.temperature
    if (most := settings.most_tokens(prompt)) is not None:
        body["max_completion_tokens" if "max_tokens" in without else "max_tokens"] = most
    if tools:
        body["tools"] = tools
    if prompt.output is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": as_openai_names_it(prompt.output)}
    options = _options(settings, prompt)
    body |= {name: value for name, value in options.items() if value is not None and name not in without}
    return body | settings.extra


def refused_option(status: int, text: str, without: frozenset[str]) -> str | None:
    """The member to leave out after a refusal; None if the refusal is about something else."""
    if status not in _COMPLAINTS:
        return None
    known = next((name for name, words in RESTRICTIONS.items() if name not in without and words.search(text)), None)
    if known is None and _REFUSED.search(text):
        return next((name for name in OPTIONAL if name not in without and re.search(rf"\b{name}\b", text)), None)
    return known


def wanted_of_messages(status: int, text: str) -> str | None:
    """The member that an endpoint requires in another model's calls: Gemini a signature, DeepSeek and Kimi thoughts."""
    if status not in _COMPLAINTS:
        return None
    return next((name for name, words in _WANTED.items() if words.search(text)), None)


def _messages(settings: EndpointSettings, prompt: Prompt, without: frozenset[str]) -> list[JsonObject]:
    """Fills in the members that the endpoint requires in calls of another model."""
    chats = to_chat(prompt, vision=settings.sees_images, without=_of_messages(without))
    for chat in chats if without else ():
        calls = chat.get("tool_calls")
        if calls and NO_THOUGHTS in without:
            chat.setdefault("reasoning_content", "")
        if calls and UNSIGNED in without and not any("extra_content" in call for call in calls):
            calls[0] = {**calls[0], "extra_content": {"google": {"thought_signature": _NO_SIGNATURE}}}
    return chats


def refused_of_messages(status: int, text: str, prompt: Prompt, without: frozenset[str]) -> str | None:
    """What to remove from earlier messages after the endpoint refused a member: often thoughts or signatures of another model."""
    if status not in _COMPLAINTS or "messages" not in text or not _REFUSED.search(text):
        return None
    for member in sorted(members_beyond_the_usual(prompt.messages)):
        restriction = f"{_OF_MESSAGES}{member}"
        if restriction not in without and re.search(rf"\b{re.escape(member)}\b", text):
            return restriction
    return None


def _of_messages(without: frozenset[str]) -> list[str]:
    return [name.removeprefix(_OF_MESSAGES) for name in without if name.startswith(_OF_MESSAGES)]


def _options(settings: EndpointSettings, prompt: Prompt) -> dict[str, Any]:
    """The optional members, None where the settings leave them to the provider."""
    reasoning = settings.reasoning or NO_REASONING
    choice = settings.choice_of_tools(prompt)
    names_tool = choice not in (None, "auto", "none", "required")
    return {
        "top_p": settings.top_p,
        "reasoning_effort": reasoning.effort,
        "verbosity": settings.verbosity,
        "stop": list(settings.stop) or None,
        "seed": settings.seed,
        "tool_choice": {"type": "function", "function": {"name": choice}} if names_tool else choice,
        "parallel_tool_calls": settings.calls_in_parallel(prompt) if prompt.tools else None,
        "service_tier": settings.service_tier,
        "extra_body": _gemini_thinking(reasoning) if is_gemini(settings.provider, settings.name) else None,
    }


def _gemini_thinking(reasoning: Reasoning) -> dict[str, Any] | None:
    """The thinking budget, and whether thoughts are shown, under the name that Gemini's OpenAI-compatible endpoint uses."""
    config: dict[str, Any] = {}
    if reasoning.budget_tokens is not None:
        config["thinking_budget"] = reasoning.budget_tokens
    if reasoning.summary is not None:
        config["include_thoughts"] = reasoning.summary != "none"
    return {"google": {"thinking_config": config}} if config else None


def _tool(tool: ToolSchema) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


log = logging.getLogger(__name__)


class OpenAIChatModel(StreamedModel):
    """One model behind one endpoint. The keyword arguments are those of StreamedModel."""

    native_output = True

    def __init__(self, settings: EndpointSettings, **others: Any) -> None:
        if "url" not in others:
            others |= {
                "url": chat_url(settings.provider, settings.endpoint),
                "models_url": models_url(settings.provider, settings.endpoint),
            }
        super().__init__(settings, **others)
        self._unsigned = RefusedMessages()  # they go back without their signatures

    def _body(self, prompt: Prompt, restrictions: Restrictions) -> dict[str, Any]:
        if self._unsigned:
            messages = [unsigned(each) if self._is_unsigned(each) else each for each in prompt.messages]
            prompt = replace(prompt, messages=messages)
        return body_of(self._settings, prompt, restrictions.without)

    def _is_unsigned(self, message: Message) -> TypeGuard[AssistantMessage]:
        return isinstance(message, AssistantMessage) and message.id in self._unsigned

    def _answer_stream(self, prompt: Prompt, listener: Listener) -> AnswerStream:
        return AnswerStream(Answer(listener, taken_ids=lambda: call_ids(prompt), debug=self._settings.debug))

    def _after(self, refusal: EndpointRefusal, prompt: Prompt, restrictions: Restrictions) -> Restrictions | None:
        status, text, without = refusal.status, refusal.text, restrictions.without
        if status in _COMPLAINTS and _BAD_SIGNATURE.search(text) and self._drops_signatures(prompt):
            return restrictions.and_without(UNSIGNED)
        if (wanted := wanted_of_messages(status, text)) is not None:
            return None if wanted in without else restrictions.and_without(wanted)
        refused = refused_of_messages(status, text, prompt, without)
        refused = refused or refused_option(status, text, without)
        return None if refused is None else restrictions.and_without(refused)

    def _drops_signatures(self, prompt: Prompt) -> bool:
        signed = [each.id for each in prompt.messages if isinstance(each, AssistantMessage) and is_signed(each)]
        refused = self._unsigned.learn(signed)
        if refused:
            log.warning("%s refused the signatures of %d earlier replies; they are dropped", self.name, refused)
        return bool(refused)

    def _failure_of(self, refusal: EndpointRefusal) -> ModelError:
        failure = super()._failure_of(refusal)
        is_of_other = type(failure) is ModelRejected and "v1/responses" in refusal.text
        return ApiNotServed(failure.message) if is_of_other else failure
