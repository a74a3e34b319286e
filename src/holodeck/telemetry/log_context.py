"""The request that is served right now: the facts that every log line of a request carries (ORC-09).

A task that a request starts inherits them, so the lines of a run name the request that asked for it.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(slots=True)
class RequestContext:
    """Filled in as they become known: the id first, the conversation when the body was read."""

    request_id: str | None = None
    user_id: str | None = None
    conversation_id: str | None = None
    client: str | None = None  # the socket's address; behind a trusted proxy, what that says (T31)
    tenant: str | None = None
    credential_id: str | None = None
    key_id: str | None = None  # the same if the credential is one client's own; a token's names its issuer only
    rate_limit: tuple[str, str] | None = None  # RateLimit-Policy and RateLimit of a request that was admitted
    authenticated: bool = False  # a credential says who the user is; else any client may write any name
    failed: bool = False  # the run that the request started failed
    tools_called: list[str] = field(default_factory=list)  # by that run, each name once


_NO_REQUEST = RequestContext()
_current: ContextVar[RequestContext] = ContextVar("holodeck request", default=_NO_REQUEST)

current: Callable[[], RequestContext] = _current.get

enter: Callable[[RequestContext], object] = _current.set
"""For the rest of this task, and for those it starts."""
