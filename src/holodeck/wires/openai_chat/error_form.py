"""Errors as clients of OpenAI read them: the member `error`, beside the members of a problem (RFC 9457).

Bad input is 400 here and not 422: the SDKs have a class for each status, and applications catch `BadRequestError`.
"""

from collections.abc import Mapping

import msgspec

from holodeck.core.text import clean, shorten
from holodeck.errors import AgentNotFound, HoloDeckError, InvalidRequest, RunNotFound, SessionBusy
from holodeck.wires.problem import MAX_DETAIL, ProblemDetail, problem

MODEL_NOT_FOUND, UNSUPPORTED, NO_PREVIOUS = OWN_CODES = (
    "model_not_found",
    "unsupported_parameter",
    "previous_response_not_found",
)
"""Codes that clients of OpenAI look for. All other errors have the code that they have on every wire."""
DO_NOT_RETRY: Mapping[str, str] = {"X-Should-Retry": "false"}
"""Keeps the SDKs from retrying. They would retry at 409 and from 500 on, and the tools would act twice."""

_UNPROCESSABLE, _BAD_REQUEST, _SERVER_ERROR = 422, 400, 500
_TOO_LARGE, _WRONG_TYPE = 413, 415
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ErrorMember(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    type: str
    param: str | None
    code: str


class ChatProblem(ProblemDetail, frozen=True, kw_only=True, omit_defaults=True):
    """A problem that has OpenAI's `error` as well."""

    error: ErrorMember


def model_not_found(message: str) -> AgentNotFound:
    error = AgentNotFound(message)
    error.reason = MODEL_NOT_FOUND
    return error


def previous_not_found(message: str) -> RunNotFound:
    error = RunNotFound(message)
    error.reason = NO_PREVIOUS
    return error


def unsupported(path: str, message: str) -> InvalidRequest:
    error = InvalidRequest(message, status=400, field=path)
    error.reason = UNSUPPORTED
    return error


def status_of(error: HoloDeckError) -> int:
    return _BAD_REQUEST if error.status == _UNPROCESSABLE else error.status


def error_member(error: HoloDeckError) -> ErrorMember:
    status, param = status_of(error), None
    if isinstance(error, InvalidRequest):
        param = None if error.field is None else clean(error.field)
    elif isinstance(error, AgentNotFound):
        param = "model"
    elif error.reason == NO_PREVIOUS:
        param = "previous_response_id"
    kind = "server_error" if status >= _SERVER_ERROR else _TYPES.get(status, "invalid_request_error")
    message = shorten(clean(error.message), MAX_DETAIL)
    code = error.reason if error.reason in OWN_CODES else error.code
    return ErrorMember(message=message, type=kind, param=param, code=code)


def chat_problem(error: HoloDeckError, instance: str | None = None) -> ChatProblem:
    """The problem for this error; `instance` is the id of the request."""
    members = msgspec.structs.asdict(problem(error, instance))
    return ChatProblem(**{**members, "status": status_of(error)}, error=error_member(error))


def retry_headers(error: HoloDeckError, *, begun: bool) -> Mapping[str, str]:
    """`begun`: a run was started for the request. A retry would repeat its work."""
    hopeless = isinstance(error, SessionBusy) or error.status in {_TOO_LARGE, _WRONG_TYPE}
    return DO_NOT_RETRY if begun or hopeless else {}
