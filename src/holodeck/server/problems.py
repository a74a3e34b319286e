"""Every error of every route as RFC 9457 problem+json (SRV-17).

The one broad `except` of the server is here: whatever nobody expected is logged with its traceback, and the client is
told no more than that it happened.
"""

import logging
from collections.abc import Mapping

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holodeck.errors import HoloDeckError, InternalError
from holodeck.telemetry.context import current
from holodeck.wires.problem import problem

log = logging.getLogger(__name__)


class Problems:
    """Turns errors into answers, as long as no answer has begun."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            return  # it left while it was sending: there is nobody to answer
        except Exception as error:
            if begun:
                raise  # the server closes the connection: an answer that breaks off must not look complete
            await answer_to(error)(scope, receive, send)


def answer_to(error: Exception) -> Response:
    if isinstance(error, HoloDeckError):
        return problem_response(error)
    log.error("an unexpected error in a request", exc_info=error)
    return problem_response(InternalError("The request failed because of an internal error; the server's log has it."))


def problem_response(error: HoloDeckError, headers: Mapping[str, str] | None = None) -> Response:
    told = problem(error, instance=current().request_id)
    challenge = {} if error.challenge is None else {"WWW-Authenticate": error.challenge}
    return Response(told.to_json(), status_code=told.status, headers={**told.headers, **challenge, **(headers or {})})
