"""Every error of every route as RFC 9457 problem+json (SRV-17)."""

import logging
import math
from collections.abc import Callable
from typing import TypeAlias

from starlette.responses import Response

from holodeck.errors import HoloDeckError, InternalError, RequestError
from holodeck.telemetry.log_context import current
from holodeck.wires.problem import CONTENT_TYPE, ProblemDetail, problem

log = logging.getLogger(__name__)

Describe: TypeAlias = Callable[[HoloDeckError, str | None], ProblemDetail]
"""Makes the problem of an error and a request id. A wire may add members of its own."""


def answer_to(error: Exception) -> Response:
    return problem_response(known(error))


def known(error: Exception) -> HoloDeckError:
    """Returns the error itself. Other exceptions are logged with a traceback, and the client gets a generic error."""
    if isinstance(error, HoloDeckError):
        return error
    log.error("an unexpected error in a request", exc_info=error)
    return InternalError("The request failed because of an internal error; see the server's log.")


def problem_response(error: HoloDeckError, describe: Describe = problem) -> Response:
    described = describe(error, current().request_id)
    return Response(described.to_json(), described.status, headers_of(error), media_type=CONTENT_TYPE)


def headers_of(error: HoloDeckError) -> dict[str, str]:
    """Returns the headers of the answer to this error, besides the content type."""
    headers = dict(error.headers) if isinstance(error, RequestError) else {}
    if error.challenge is not None:
        headers["WWW-Authenticate"] = error.challenge
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(0, math.ceil(error.retry_after)))  # whole seconds: RFC 9110, 10.2.3
    return headers
