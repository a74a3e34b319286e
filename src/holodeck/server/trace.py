"""What is recorded of every request: its id, its two lines in the log, its count in the metrics (ORC-09, SRV-18)."""

import time
from collections.abc import Mapping

from starlette.types import Scope

from holodeck.core.ids import is_request_id, new_request_id
from holodeck.core.text import one_line
from holodeck.server.routing import Operation
from holodeck.telemetry.log_context import RequestContext, enter
from holodeck.telemetry.logs import event_log
from holodeck.telemetry.metrics import Metrics

_MAX_SHOWN = 200
_MAX_DIGITS = 19
_FIRST_ERROR = 400  # of HTTP statuses


class RequestTrace:
    """One request, from its first byte to the end of its answer."""

    __slots__ = ("_begun", "_context", "_details", "_log", "_metrics", "_operation", "request_id")

    def __init__(self, scope: Scope, operation: Operation | None, metrics: Metrics, *, quiet: bool = False) -> None:
        """A `quiet` request is logged for debugging only, as those of monitors are."""
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"").decode("latin-1")  # nothing but an id may get into logs and headers
        self.request_id = given if is_request_id(given) else new_request_id()
        client = scope["client"][0] if scope.get("client") else None
        self._context = RequestContext(request_id=self.request_id, client=client)
        enter(self._context)
        self._metrics, self._operation, self._begun = metrics, operation, time.monotonic()
        quiet = quiet or (operation is not None and operation.is_probe)
        self._log = event_log.debug if quiet else event_log.info
        self._details = {"method": scope["method"], "path": one_line(scope["path"], _MAX_SHOWN)}
        self._log("request_received", details={**self._details, "input_length": _length_in(headers)})

    def end(self, status: int | None) -> None:
        seconds, context = time.monotonic() - self._begun, self._context
        path = None if self._operation is None else self._operation.path
        self._metrics.answered(self._details["method"], path, status, seconds)
        success = status is not None and status < _FIRST_ERROR and not context.failed
        outcome = {"status": status, "success": success, "tools_called": context.tools_called}
        self._log("request_completed", duration_ms=seconds * 1000, details={**self._details, **outcome})


def _length_in(headers: Mapping[bytes, bytes]) -> int | None:
    """The size of the body in bytes, as the client declares it; None for a body in chunks."""
    given = headers.get(b"content-length", b"")
    return int(given) if given.isdigit() and len(given) < _MAX_DIGITS else None
