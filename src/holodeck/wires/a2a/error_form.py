"""Errors in the form of A2A: in JSON-RPC a code with details, over HTTP a status with the same details (AIP-193).

Errors that the protocol does not define, such as a limit, have a detail with our own code and domain.
"""

from typing import Any

from holodeck.core.text import clean, shorten
from holodeck.errors import HoloDeckError, InvalidRequest, RunNotFound, UnsupportedMediaType
from holodeck.wires.jsonrpc import ErrorObject, RpcError, error_object
from holodeck.wires.problem import MAX_DETAIL, problem

DOMAIN, OWN_DOMAIN = "a2a-protocol.org", "holodeck.dev"
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
_STATUS_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    410: "NOT_FOUND",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_UNPROCESSABLE = 422


class A2aError(RpcError):
    """An error that the protocol defines. `name` is its name in gRPC, `why` the reason in its details."""

    def __init__(self, rpc_code: int, why: str, name: str, message: str, *, status: int = 400) -> None:
        details = [{"@type": ERROR_INFO, "reason": why, "domain": DOMAIN, "metadata": {}}]
        super().__init__(rpc_code, message, status=status, data=details)
        self.name, self.why = name, why


def task_not_found(task_id: str) -> A2aError:
    """Raised also for tasks of other owners: a client must not find out whether a task exists."""
    return A2aError(-32001, "TASK_NOT_FOUND", "NOT_FOUND", f"There is no task {task_id!r}.", status=404)


def not_cancelable(task_id: str) -> A2aError:
    message = f"Task {task_id!r} has ended; it cannot be canceled."
    return A2aError(-32002, "TASK_NOT_CANCELABLE", "FAILED_PRECONDITION", message, status=409)


def push_not_supported() -> A2aError:
    message = "This server sends no push notifications; server.push.allow_hosts lists the hosts that it may call."
    return A2aError(-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED", "UNIMPLEMENTED", message)


def unsupported_operation(message: str) -> A2aError:
    return A2aError(-32004, "UNSUPPORTED_OPERATION", "UNIMPLEMENTED", message)


def content_type_not_supported(message: str) -> A2aError:
    return A2aError(-32005, "CONTENT_TYPE_NOT_SUPPORTED", "INVALID_ARGUMENT", message, status=415)


def version_not_supported(version: str | None, wanted: str) -> A2aError:
    """`version` is the one that the request names, if any. `wanted` is the one that defines such a request."""
    given = "names no version" if version is None else f"names version {version!r}"
    advice = f"Send the header A2A-Version: {wanted}; HTTP+JSON of 0.3 is below /a2a/v1."
    message = f"This request is one of version {wanted} but {given}. {advice}"
    return A2aError(-32009, "VERSION_NOT_SUPPORTED", "UNIMPLEMENTED", message)


def as_a2a(error: HoloDeckError) -> HoloDeckError:
    """Returns the protocol's own error, if it defines one for this case."""
    if isinstance(error, RunNotFound):
        return task_not_found("of this id")
    if isinstance(error, UnsupportedMediaType):
        return content_type_not_supported(error.message)
    return error


def details_of(error: HoloDeckError, instance: str | None) -> list[dict[str, Any]]:
    if isinstance(error, RpcError) and isinstance(error.data, list):
        return error.data
    described = problem(error, instance)
    metadata = {"type": described.type, "title": described.title}
    metadata |= {"reason": described.reason} if described.reason else {}
    info = {
        "@type": ERROR_INFO,
        "reason": error.code.upper().replace("-", "_"),
        "domain": OWN_DOMAIN,
        "metadata": metadata,
    }
    if not isinstance(error, InvalidRequest) or described.field is None:
        return [info]
    violation = {"field": described.field, "description": described.detail}
    return [info, {"@type": BAD_REQUEST, "fieldViolations": [violation]}]


def rpc_error(error: HoloDeckError, instance: str | None) -> ErrorObject:
    plain = error_object(error, instance)
    return ErrorObject(code=plain.code, message=plain.message, data=details_of(error, instance))


def http_error(error: HoloDeckError, instance: str | None) -> tuple[int, dict[str, Any]]:
    status = 400 if error.status == _UNPROCESSABLE else error.status
    name = error.name if isinstance(error, A2aError) else _STATUS_NAMES.get(status, "INTERNAL")
    message = shorten(clean(error.message), MAX_DETAIL)
    body = {"code": status, "status": name, "message": message, "details": details_of(error, instance)}
    return status, {"error": body}
