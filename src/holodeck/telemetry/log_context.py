"""The context of the current request: the facts that all its log lines carry (ORC-09).

A task that a request starts inherits them, so the lines of a run name the request that started it. They are for log
lines and error bodies only: who may do what, and whose limits count, is decided by the principal in the request's scope.
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
    tenant: str | None = None
    credential_id: str | None = None
    failed: bool = False  # the run that the request started failed
    tools_called: list[str] = field(default_factory=list)  # tools called by that run, each name once


_NO_REQUEST = RequestContext()
_current: ContextVar[RequestContext] = ContextVar("holodeck request", default=_NO_REQUEST)

current: Callable[[], RequestContext] = _current.get

enter: Callable[[RequestContext], object] = _current.set
"""Set for the rest of this task, and for those it starts."""
