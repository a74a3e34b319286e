"""The context of the current request: the facts that all its log lines carry (ORC-09).

A task that a request starts inherits them, so the lines of a run name the request that started it.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(slots=True)
class RequestContext:
    """The facts, filled in as they become known: the id first, the conversation when the body was read."""

    request_id: str | None = None
    user_id: str | None = None
    conversation_id: str | None = None
    client: str | None = None  # the socket's address or, behind a trusted proxy, the one that it reports (T31)
    tenant: str | None = None
    credential_id: str | None = None
    key_id: str | None = None  # the same if the credential is one client's own; a token's id names its issuer only
    rate_limit: tuple[str, str] | None = None  # RateLimit-Policy and RateLimit of an admitted request
    authenticated: bool = False  # a credential names the user; otherwise any client may write any name
    failed: bool = False  # the run that the request started failed
    tools_called: list[str] = field(default_factory=list)  # tools called by that run, each name once


_NO_REQUEST = RequestContext()
_current: ContextVar[RequestContext] = ContextVar("holodeck request", default=_NO_REQUEST)

current: Callable[[], RequestContext] = _current.get

enter: Callable[[RequestContext], object] = _current.set
"""Set for the rest of this task, and for those it starts."""
