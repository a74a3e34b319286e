"""The exceptions that clients and users see, as one tree.

    HoloDeckError
    ├── ConfigError            the agent file is wrong                     (exit code 1)
    ├── StartError             it is right, but cannot start               (exit code 2)
    ├── RequestError           the client can do something about it        4xx
    │   ├── InvalidRequest  Unauthorized  Forbidden  NotFound  AgentNotFound  SessionNotFound  RunNotFound
    │   └── MethodNotAllowed  SessionBusy  SessionDeleted  PayloadTooLarge  UnsupportedMediaType  RateLimited
    ├── ServerError            the server, or a service behind it, failed          5xx
    │   ├── InternalError  NotReady  AuthUnavailable  LimitsUnavailable  ShuttingDown  Overloaded  ToolUnavailable  RunTimeout  BudgetExceeded  StorageFull  StoreUnavailable  StoreRefused
    │   └── ModelError         the model endpoint failed; `reason` says how
    │       ├── ModelUnreachable   ModelRejected (auth, bad request)  ContextOverflow
    │       ├── ModelInterrupted   ModelTruncated   ModelProtocolError   ContentFiltered
    │       └── ModelTimeout       ModelStalled   ModelUnavailable (rate limit, overload, open breaker)
    └── Cancelled              a user stopped the run; not a failure

`code` is the one vocabulary for problem `type`, RUN_ERROR.code, error_type and log lines. `reason` refines it.
A subclass that a single module raises stands beside it, such as `QuotaExceeded` or `KeyFileError`.
A message is safe to show to any client: no secret, no stack trace, no path of the server.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

PROBLEM_BASE = "https://holodeck.dev/errors/"


class HoloDeckError(Exception):
    code: ClassVar[str] = "internal-error"
    status: int = 500
    title: ClassVar[str] = "Something went wrong"
    retryable: ClassVar[bool] = False
    reason: str | None = None
    retry_after: float | None = None
    challenge: str | None = None  # WWW-Authenticate: how the client can authenticate
    session_id: str | None = None  # the session that a failed run left behind

    @property
    def message(self) -> str:
        return str(self) or self.title


class ConfigError(HoloDeckError):
    """A mistake in an agent file, with its position."""

    code = "invalid-config"
    title = "The agent file is not valid"
    exit_code: ClassVar[int] = 1


class StartError(HoloDeckError):
    """The configuration is valid, but something it needs is missing."""

    code = "start-failed"
    title = "The agent cannot start"
    exit_code: ClassVar[int] = 2


class RequestError(HoloDeckError):
    status = 400
    title = "The request cannot be served"
    headers: Mapping[str, str] = MappingProxyType({})  # headers that the answer has to carry, such as Allow

    def __init__(self, message: str = "", *, reason: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason or self.reason
        self.retry_after = self.retry_after if retry_after is None else retry_after


class InvalidRequest(RequestError):
    code, status, title = "invalid-request", 422, "The request is not valid"
    field: str | None = None
    schema: Mapping[str, Any] | None = None  # the valid form, as JSON Schema

    def __init__(
        self, message: str, *, status: int = 422, field: str | None = None, schema: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status  # 400: not JSON. 422: fails validation
        self.field = field
        self.schema = schema


class Unauthorized(RequestError):
    code, status, title = "unauthorized", 401, "Authentication is required"


class Forbidden(RequestError):
    code, status, title = "forbidden", 403, "This is not allowed"


class NotFound(RequestError):
    code, status, title = "not-found", 404, "Not found"


class AgentNotFound(RequestError):
    code, status, title = "agent-not-found", 404, "There is no such agent"


class SessionNotFound(RequestError):
    code, status, title = "session-not-found", 404, "There is no such session"


class RunNotFound(RequestError):
    code, status, title = "run-not-found", 404, "There is no such run"


class MethodNotAllowed(RequestError):
    code, status, title = "method-not-allowed", 405, "This method is not allowed here"


class SessionBusy(RequestError):
    code, status, title, retryable = "session-busy", 409, "The session has a run in progress", True
    retry_after = 2.0


class LostClaim(RequestError):
    """Another process writes to the session now, so this run may not."""

    code, status, title, retryable = "session-taken", 409, "Another process has taken this session over", True


class SessionDeleted(RequestError):
    """The session was deleted during a run, which can store nothing more."""

    code, status, title = "session-deleted", 410, "The conversation was deleted"

    def __init__(self, message: str = "This conversation was deleted while its run was in progress.") -> None:
        super().__init__(message)


class SessionFull(RequestError):
    code, status, title = "session-full", 413, "The conversation is too long"


class PayloadTooLarge(RequestError):
    code, status, title = "payload-too-large", 413, "The request is too large"


class UnsupportedMediaType(RequestError):
    code, status, title = "unsupported-media-type", 415, "This content type is not supported"


class RateLimited(RequestError):
    code, status, title, retryable = "rate-limited", 429, "Too many requests", True


class ServerError(HoloDeckError):
    pass


class InternalError(ServerError):
    code, status, title = "internal-error", 500, "Internal server error"


class ToolUnavailable(ServerError):
    code, status, title, retryable = "tool-unavailable", 502, "A tool cannot be reached", True


class NotReady(ServerError):
    code, status, title, retryable = "not-ready", 503, "The agent is not ready yet", True
    retry_after = 1.0


class AuthUnavailable(ServerError):
    """Credentials cannot be checked now. Not 401: clients answer that with a new sign-in, in a loop."""

    code, status, title, retryable = "auth-unavailable", 503, "Credentials cannot be checked at the moment", True
    retry_after = 5.0


class LimitsUnavailable(ServerError):
    """The store of limits is down, and `limits.when_store_is_down` is refuse."""

    code, status, title, retryable = "limits-unavailable", 503, "Limits cannot be checked at the moment", True
    retry_after = 5.0


class ShuttingDown(ServerError):
    code, status, title, retryable = "shutting-down", 503, "The server is shutting down", True
    retry_after = 5.0


class Overloaded(ServerError):
    code, status, title, retryable = "overloaded", 503, "Too many concurrent runs", True
    retry_after = 2.0


class StorageFull(ServerError):
    """A disk, or its equivalent, temporarily refused a write (D10)."""

    code, status, title, retryable = "storage-full", 507, "Out of storage space", True


class StoreUnavailable(ServerError):
    """The session store cannot be read or written at the moment. Its data was neither lost nor reset."""

    code, status, title, retryable = "store-unavailable", 503, "Conversations cannot be stored at the moment", True


class StoreRefused(ServerError):
    """The session store refuses one statement because of its data. Trying again would not help; other sessions work."""

    code, status, title = "store-refused", 500, "The session store refuses this"


class SessionNewer(ServerError):
    code, status, title = "session-newer", 503, "A newer version of HoloDeck wrote this session"


class SessionBroken(ServerError):
    code, status, title = "session-broken", 500, "This session cannot be read"


class RunInterrupted(ServerError):
    """The server process ended in the middle of the run."""

    code, status, title, retryable = "interrupted", 503, "A crash of the server interrupted the run", True


class BudgetExceeded(ServerError):
    """The run needed more than `loop.budget` allows. `reason` names the budget: tokens, seconds, tool_calls."""

    code, status, title = "budget-exceeded", 500, "The run has used up its budget"

    def __init__(self, reason: str = "", limit: float = 0) -> None:
        super().__init__(f"Stopped: the run has used up its budget of {limit:g} {reason} (loop.budget.{reason}).")
        self.reason = reason


class RunTimeout(ServerError):
    """The run passed a deadline. `reason` names it: iteration_timeout or run_timeout."""

    code, status, title, retryable = "timeout", 504, "The run took too long", True

    def __init__(self, message: str = "", reason: str = "iteration_timeout") -> None:
        super().__init__(message)
        self.reason = reason


class ModelError(ServerError):
    """The model endpoint failed. `started`: the answer had begun, so the call must not be repeated silently."""

    code, status, title = "model-error", 502, "The model failed"
    reason = "upstream_error"
    started: bool = False
    model: str | None = None  # the model that failed, which need not be the agent's first one
    of_request: bool = False  # the endpoint refused the content, e.g. an image: it would refuse it again
    of_model: bool = False  # the endpoint has no such model, or the account no credit for it: another model may answer

    def __init__(self, message: str = "", *, started: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.started = started
        self.retry_after = retry_after


class ModelUnreachable(ModelError):
    reason, retryable = "upstream_unavailable", True


class ModelRejected(ModelError):
    """The endpoint refused the request; a retry will not help."""

    reason = "upstream_rejected"


class ModelAuthFailed(ModelRejected):
    reason = "upstream_auth"


class ContextOverflow(ModelRejected):
    reason = "context_overflow"


class ModelInterrupted(ModelError):
    """The connection broke after the answer had begun."""

    reason, retryable = "upstream_interrupted", True


class ModelTruncated(ModelError):
    """The stream ended without a finish reason and without [DONE], as if it were complete."""

    reason, retryable = "upstream_truncated", True


class ModelProtocolError(ModelError):
    """The endpoint sent something that no OpenAI-compatible endpoint sends."""

    reason = "upstream_protocol_error"


class ContentFiltered(ModelError):
    reason = "content_filter"


class BadToolArguments(ModelError):
    """The model kept sending tool arguments that cannot be used."""

    reason = "bad_tool_arguments"


class EmptyReply(ModelError):
    """The model's answer was empty, and no tool ran: there is nothing to show."""

    reason = "empty_reply"


class InvalidOutput(ModelError):
    """The final answer did not match `response_format`, even after the model was asked again."""

    reason = "invalid_output"


class ModelTimeout(ModelError):
    code, status, title, retryable = "timeout", 504, "The model took too long", True
    reason = "upstream_timeout"


class ModelStalled(ModelTimeout):
    """An answer began, then nothing new came for `model.timeout` seconds."""

    reason = "upstream_stalled"


class ModelUnavailable(ModelError):
    """Overloaded, rate limited, or its circuit breaker is open."""

    code, status, title, retryable = "model-unavailable", 503, "The model is not available at the moment", True
    reason = "upstream_overloaded"


class Cancelled(HoloDeckError):
    code, status, title = "cancelled", 409, "The run was stopped"


def by_code(code: str, message: str, *, reason: str | None = None, retry_after: float | None = None) -> HoloDeckError:
    """Returns the error for an event's code, for wires that answer with a status. An unknown code is an internal error.

    It is looked up when needed, since modules define errors where they raise them.
    """
    kind = next((kind for known, kind in _kinds(RequestError, ServerError, Cancelled) if known == code), InternalError)
    error = kind.__new__(kind, message)  # bypasses `__init__`: its arguments are not in the event
    error.reason, error.retry_after = reason, retry_after
    return error


def _kinds(*roots: type[HoloDeckError]) -> Iterator[tuple[str, type[HoloDeckError]]]:
    """Yields each code with the class that introduces it. Subclasses refine the code by `reason` alone."""
    for root in roots:
        if "code" in vars(root):
            yield root.code, root
        yield from _kinds(*root.__subclasses__())
