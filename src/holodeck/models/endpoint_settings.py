"""The settings of one model endpoint: its address, its options, its time limits.

Every API has the same settings; each API's request builder writes them in its own form. None leaves a setting to
the provider.
"""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints

from holodeck.blocks import Block, Identifier, Secret, ShortText, Url
from holodeck.core.messages import UserMessage
from holodeck.models.port import Prompt
from holodeck.models.providers import PROVIDERS, ProviderName
from holodeck.resilience.retry import Backoff

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
SMALLEST_BUDGET = 1024  # thinking tokens: Anthropic's minimum
HeaderName = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. Only content counts as a sign of life: comments, pings and role-only deltas do not."""

    connect: float = 10.0
    first_token: float = 60.0  # from the request to the first piece of the answer
    idle: float = 30.0  # between two pieces
    total: float = 600.0  # the whole reply with its retries


class Reasoning(Block):
    """How much a reasoning model thinks before it answers."""

    effort: Effort | None = Field(None, description="How hard the model thinks; not every model knows every level")
    budget_tokens: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Maximum number of thinking tokens (anthropic, gemini); part of max_tokens",
    )
    summary: Literal["none", "auto", "concise", "detailed"] | None = Field(
        None, description="How much of the thoughts is shown; none hides them, if the provider can"
    )


NO_REASONING = Reasoning()  # used where the settings name none: building a pydantic model takes longer than its use


def _word(value: object) -> object:
    """Turns false into `off`: YAML reads a bare `off` as false."""
    return {True: "auto", False: "off"}[value] if isinstance(value, bool) else value


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class ModelOptions(Block):
    """One model behind one endpoint, and what its requests say.

    `provider_tools` and `extra` go into the request body unchanged; `extra` overrides other members.
    """

    model_config = ConfigDict(hide_input_in_errors=True)  # it may be a key

    provider: ProviderName = Field(description="Who serves the model; demo needs no key and no network")
    api: Literal["auto", "chat", "responses"] = Field(
        "auto",
        description="Chat completions or the Responses API. auto: Responses for OpenAI's own reasoning models",
    )
    name: ShortText = Field("", description="The provider's name of the model, e.g. gemini-2.5-flash")
    endpoint: Url | None = Field(
        None, description="The base URL of the API; every provider but openai_compatible and azure_openai has a default"
    )
    api_key: Secret | None = Field(None, description="Default: the provider's usual variable, e.g. GEMINI_API_KEY")
    auth_token: Secret | None = Field(None, description="anthropic only: a bearer token instead of a key")
    headers: dict[HeaderName, Secret] = Field(default={}, max_length=50, description="Sent with every request")
    betas: list[Identifier] = Field(
        default=[], max_length=20, description="Anthropic's models only: values of the header anthropic-beta"
    )
    temperature: float | None = Field(
        1.0, ge=0, le=2, description="0 is most predictable, higher is more varied; null: requests have none"
    )
    top_p: float | None = Field(None, gt=0, le=1, description="Nucleus sampling; set this or temperature, not both")
    max_tokens: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Maximum tokens of one reply, including reasoning; default: the provider's; Anthropic's models: 16,000, more with reasoning",
    )
    tool_choice: Identifier | None = Field(
        None,
        description="auto, none, required or a tool's name; a forced choice holds for the first call of a turn",
    )
    parallel_tool_calls: bool | None = Field(None, description="Whether one reply may ask for several tools")
    reasoning: Reasoning | None = Field(None, description="How much a reasoning model thinks")
    verbosity: Literal["low", "medium", "high"] | None = Field(None, description="How long answers are (OpenAI)")
    stop: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], BeforeValidator(_listed)] = Field(
        default=[], max_length=16, description="Texts at which the model stops writing"
    )
    seed: int | None = Field(None, ge=0, le=2**31 - 1, description="For roughly reproducible answers")
    service_tier: Identifier | None = Field(None, description="The provider's service tier, e.g. flex or priority")
    cache: Annotated[Literal["auto", "1h", "off"], BeforeValidator(_word)] = Field(
        "auto",
        description="Prompt caching, for providers whose requests must ask for it (anthropic, bedrock): 5 minutes, an hour, not at all",
    )
    provider_tools: list[Annotated[dict[str, Any], Field(min_length=1, max_length=100)]] = Field(
        default=[],
        max_length=50,
        description="Tools that the provider runs itself (web search, code execution), as its API writes them",
    )
    extra: dict[str, Any] = Field(
        default={}, max_length=100, description="Further members of the request, sent as they are"
    )
    vision: bool | Literal["auto"] = Field(
        "auto",
        description="Whether the model accepts images; else the server reads the text in them. auto: yes for openai, anthropic, gemini, azure, bedrock, vertex",
    )

    @property
    def plain_headers(self) -> dict[str, str]:
        return {name: value.get_secret_value() for name, value in self.headers.items()}

    @property
    def sees_images(self) -> bool:
        if self.vision == "auto":
            return self.provider in PROVIDERS and PROVIDERS[self.provider].sees_images
        return self.vision


_FREE_CHOICES = frozenset({"auto", "none"})


def lower_of(one: int | None, other: int | None) -> int | None:
    """The lower one of two limits; None is no limit."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


class EndpointSettings(ModelOptions):
    """The settings of a client. The key and the endpoint are those to use; None means none, or the provider's own."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    provider: ProviderName = "openai_compatible"
    deadlines: Deadlines = Deadlines()
    backoff: Backoff = Backoff()
    key_advice: str | None = None  # names the setting to check if the key is missing or wrong; None: the agent file's
    endpoint_option: str = "model.endpoint"  # the setting that names the endpoint
    debug: bool = False  # the listener gets the endpoint's own events too

    def __repr_args__(self) -> list[tuple[str, object]]:
        """The members that repr and str show. A query of the endpoint may hold a key, and so may `extra`."""
        endpoint = (self.endpoint or "default").partition("?")[0]
        key = self.api_key or self.auth_token
        return [("provider", self.provider), ("name", self.name), ("endpoint", endpoint), ("api_key", key)]

    def choice_of_tools(self, prompt: Prompt) -> str | None:
        """The tool choice for one call: auto, none, required, or a tool's name; None leaves it to the provider.

        A forced choice holds for the first call after a message of the user. After that the model may answer: forced
        in every call, it would never finish.
        """
        if not (prompt.tools or self.provider_tools):
            return None
        if prompt.answers_now:
            return "none"
        wanted = self.tool_choice if self.tool_choice == "none" else prompt.tool_choice or self.tool_choice
        if wanted is None or wanted in _FREE_CHOICES:
            return wanted
        answers_user = bool(prompt.messages) and isinstance(prompt.messages[-1], UserMessage)
        return wanted if answers_user else "auto"

    def calls_in_parallel(self, prompt: Prompt) -> bool | None:
        """Whether one reply may ask for several tools; None leaves it to the provider."""
        return False if prompt.one_call_at_a_time else self.parallel_tool_calls

    def most_tokens(self, prompt: Prompt) -> int | None:
        """The token limit of one reply: the lower of the client's and the settings'."""
        return lower_of(self.max_tokens, prompt.max_output_tokens)
