"""The settings of one model endpoint: its address, its options, its time limits.

Every API has the same settings; each API's request builder writes them in its own form. None leaves a setting to
the provider.
"""

from typing import Any

import msgspec

from holodeck.core.messages import UserMessage
from holodeck.models.port import Prompt
from holodeck.resilience.retry import Backoff


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. Only content counts as a sign of life: comments, pings and role-only deltas do not."""

    connect: float = 10.0
    first_token: float = 60.0  # from the request to the first piece of the answer
    idle: float = 30.0  # between two pieces
    total: float = 600.0  # the whole reply with its retries


class Reasoning(msgspec.Struct, frozen=True, kw_only=True):
    """How much the model thinks before it answers, and whether it shows its thoughts."""

    effort: str | None = None  # none, minimal, low, medium, high, xhigh, max
    budget_tokens: int | None = None
    summary: str | None = None  # none, auto, concise, detailed


_FREE_CHOICES = frozenset({"auto", "none"})


def lower_of(one: int | None, other: int | None) -> int | None:
    """The lower one of two limits; None is no limit."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


class EndpointSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings. `provider_tools` and `extra` go into the request body unchanged; `extra` overrides other members."""

    model: str
    provider: str = "openai_compatible"
    endpoint: str | None = None
    api_key: str | None = None
    headers: dict[str, str] = {}
    auth_token: str | None = None  # Anthropic only: a bearer token instead of a key
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning: Reasoning | None = None
    verbosity: str | None = None  # low, medium, high
    stop: tuple[str, ...] = ()
    seed: int | None = None
    tool_choice: str | None = None  # auto, none, required, or the name of a tool
    parallel_tool_calls: bool | None = None
    service_tier: str | None = None
    provider_tools: tuple[dict[str, Any], ...] = ()  # tools that the provider runs itself
    cache: str = "off"  # off, auto, 1h: prompt caching, for APIs whose requests must ask for it
    betas: tuple[str, ...] = ()  # Anthropic only: values of the header anthropic-beta
    vision: bool = False  # chat completions only: whether images that tools return are sent
    extra: dict[str, Any] = {}
    deadlines: Deadlines = Deadlines()
    backoff: Backoff = Backoff()
    key_advice: str | None = None  # names the setting to check if the key is missing or wrong; None: the agent file's
    endpoint_option: str = "model.endpoint"  # the setting that names the endpoint
    debug: bool = False  # the listener gets the endpoint's own events too

    def __repr__(self) -> str:
        endpoint = (self.endpoint or "default").partition("?")[0]  # a query may hold a key
        key = "set" if self.api_key or self.auth_token else "not set"
        return (
            f"EndpointSettings(provider={self.provider!r}, model={self.model!r}, endpoint={endpoint!r}, api_key {key})"
        )

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
