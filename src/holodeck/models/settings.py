"""What an OpenAI-compatible model is told once: where it is, how it is asked, how long it may take."""

from typing import Any

import msgspec

from holodeck.resilience.retry import Backoff


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. Only content counts as a sign of life: comments, pings and role-only deltas do not."""

    connect: float = 10.0
    first_token: float = 60.0  # from the request to the first piece of the answer
    idle: float = 30.0  # between two pieces
    total: float = 600.0  # the whole reply with its retries


class ChatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`options` are further members of the request body, sent as they are (reasoning_effort, top_p, seed)."""

    model: str
    provider: str = "openai_compatible"
    endpoint: str | None = None
    api_key: str | None = None
    headers: dict[str, str] = {}
    temperature: float | None = None
    max_tokens: int | None = None
    options: dict[str, Any] = {}
    deadlines: Deadlines = Deadlines()
    backoff: Backoff = Backoff()
    debug: bool = False  # the listener hears the endpoint's own events too

    def __repr__(self) -> str:
        endpoint = (self.endpoint or "default").partition("?")[0]  # a query may hold a key
        key = "set" if self.api_key else "not set"
        return f"ChatSettings(provider={self.provider!r}, model={self.model!r}, endpoint={endpoint!r}, api_key {key})"
