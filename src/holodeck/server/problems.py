"""Every error of every route as RFC 9457 problem+json (SRV-17).

The one broad `except` of the server is here: whatever nobody expected is logged with its traceback, and the client is
told no more than that it happened.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holodeck.core.text import one_line
from holodeck.errors import HoloDeckError, InternalError, InvalidRequest, MethodNotAllowed, NotFound
from holodeck.telemetry.context import current
from holodeck.wires.problem import FieldError, problem

log = logging.getLogger(__name__)

NOT_FOUND, METHOD_NOT_ALLOWED = 404, 405


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


def problem_response(
    error: HoloDeckError, errors: tuple[FieldError, ...] = (), headers: Mapping[str, str] | None = None
) -> Response:
    told = problem(error, instance=current().request_id, errors=errors)
    return Response(told.to_json(), status_code=told.status, headers={**told.headers, **(headers or {})})


async def _of_the_router(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  Starlette asks by type, its signature does not say so
    shown = one_line(request.scope["path"], 200)
    known: dict[int, HoloDeckError] = {
        NOT_FOUND: NotFound(f"There is nothing at {shown}."),
        METHOD_NOT_ALLOWED: MethodNotAllowed(f"{request.method} is not allowed at {shown}."),
    }
    found = known.get(error.status_code) or InvalidRequest(str(error.detail), status=error.status_code)
    return problem_response(found, headers=error.headers)


async def _of_validation(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101  as above
    errors = tuple(
        FieldError(".".join(str(part) for part in each["loc"]), str(each["msg"])) for each in error.errors()[:20]
    )
    detail = "; ".join(f"{each.field}: {each.message}" for each in errors)
    return problem_response(InvalidRequest(detail, field=errors[0].field if errors else None), errors)


HANDLERS: dict[int | type[Exception], Callable[[Request, Any], Any]] = {
    HTTPException: _of_the_router,
    RequestValidationError: _of_validation,
}
