"""Every error of every route as RFC 9457 problem+json (SRV-17)."""

import logging

from starlette.responses import Response

from holodeck.errors import HoloDeckError, InternalError, RequestError
from holodeck.telemetry.context import current
from holodeck.wires.problem import problem

log = logging.getLogger(__name__)


def answer_to(error: Exception) -> Response:
    """The answer to an error. One that is not ours is logged with its traceback; the client learns only that it happened."""
    if isinstance(error, HoloDeckError):
        return problem_response(error)
    log.error("an unexpected error in a request", exc_info=error)
    return problem_response(InternalError("The request failed because of an internal error; the server's log has it."))


def problem_response(error: HoloDeckError) -> Response:
    described = problem(error, instance=current().request_id)
    headers = {**described.headers, **(error.headers if isinstance(error, RequestError) else {})}
    if error.challenge is not None:
        headers["WWW-Authenticate"] = error.challenge
    return Response(described.to_json(), status_code=described.status, headers=headers)
