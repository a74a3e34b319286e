"""The outermost layer of every request: its id, its two lines in the log, its place in the figures (ORC-09, SRV-18)."""

import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holodeck.core.ids import is_request_id, new_request_id
from holodeck.core.text import one_line
from holodeck.telemetry.context import RequestContext, enter
from holodeck.telemetry.logs import event_log
from holodeck.telemetry.metrics import Metrics

PROBES = frozenset({"/health", "/ready", "/health/agent", "/metrics"})  # asked every few seconds: only for debugging
_MAX_SHOWN = 200
_MAX_DIGITS = 19
_FIRST_ERROR = 400  # of HTTP statuses


class RequestTrace:
    def __init__(
        self, app: ASGIApp, metrics: Metrics, *, quiet: Callable[[Scope], bool] = lambda _scope: False
    ) -> None:
        """`quiet` says which requests are logged for debugging only, besides those of monitors."""
        self._app, self._metrics, self._quiet = app, metrics, quiet
        self._log = event_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _id_of(scope)
        client = scope["client"][0] if scope.get("client") else None
        context = RequestContext(request_id=request_id, client=client)
        enter(context)
        tell = self._log.debug if scope["path"] in PROBES or self._quiet(scope) else self._log.info
        details = {"method": scope["method"], "path": one_line(scope["path"], _MAX_SHOWN)}
        tell("request_received", details={**details, "input_length": _length_of(scope)})
        begun, status = time.monotonic(), None

        async def tagged(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, tagged)
        finally:
            seconds = time.monotonic() - begun
            self._metrics.answered(scope["method"], getattr(scope.get("route"), "path", None), status, seconds)
            success = status is not None and status < _FIRST_ERROR and not context.failed
            outcome = {"status": status, "success": success, "tools_called": context.tools_called}
            tell("request_completed", duration_ms=seconds * 1000, details={**details, **outcome})


def _length_of(scope: Scope) -> int | None:
    """The size of the body in bytes, as the client declares it; None for a body in chunks."""
    given = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(given) if given.isdigit() and len(given) < _MAX_DIGITS else None


def _id_of(scope: Scope) -> str:
    """The client's, if it is one of ours by its form; nothing else may get into logs and headers."""
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"").decode("latin-1")
    return given if is_request_id(given) else new_request_id()
