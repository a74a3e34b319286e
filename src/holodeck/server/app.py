"""The ASGI application: runs the checks that every request goes through, then calls its endpoint.

Any ASGI server can serve it. Under a server other than ours, `lifespan` starts and stops the agent. An application that
mounts this one uses `AgentServer.running`, because mounts get no `lifespan` events.

`RequestTrace` records each request: its id, its two lines in the log, its count in the metrics (ORC-09, SRV-18).
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from holodeck._version import __version__
from holodeck.core.ids import is_request_id, new_request_id
from holodeck.core.text import one_line
from holodeck.errors import InternalError, NotFound
from holodeck.server.agent_server import RATE_LIMIT, SLOT, AgentServer, Slot
from holodeck.server.connection import BodyRoom, MeteredBody, metered
from holodeck.server.guard import HostCheck, OriginCheck, origin_of
from holodeck.server.identity import PRINCIPAL
from holodeck.server.openapi import document
from holodeck.server.routes import health, me, metrics, pages, playground, runs, sessions
from holodeck.server.routing import Match, Operation, Router
from holodeck.server.wires import ENCODERS, WIRES, wires_of
from holodeck.telemetry.log_context import RequestContext, enter
from holodeck.telemetry.logs import event_log
from holodeck.telemetry.metrics import Metrics

_MAX_SHOWN = 200
_MAX_DIGITS = 19
_UNAUTHORIZED = 401
_FIRST_ERROR = 400  # the lowest HTTP status of an error

_POLICY = 1008  # the close code of a refused WebSocket: policy violation

ON_EVERY_SERVER = (runs, sessions, me, health, metrics, pages, playground)


class RequestTrace:
    """One request, from its first byte to the end of its answer."""

    __slots__ = ("_begun", "_context", "_details", "_log", "_metrics", "_operation", "request_id")

    def __init__(self, scope: Scope, operation: Operation | None, metrics: Metrics, *, quiet: bool = False) -> None:
        """A `quiet` request, such as a monitor's, is logged at debug level only."""
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"").decode("latin-1")  # only an id may get into logs and headers
        self.request_id = given if given and is_request_id(given) else new_request_id()
        self._context = RequestContext(request_id=self.request_id)
        enter(self._context)
        self._metrics, self._operation, self._begun = metrics, operation, time.monotonic()
        quiet = quiet or (operation is not None and operation.is_probe)
        self._log = event_log.debug if quiet else event_log.info
        self._details = {"method": scope["method"], "path": one_line(scope["path"], _MAX_SHOWN)}
        length = headers.get(b"content-length", b"")  # as the client declares it; a chunked body has none
        known = int(length) if length.isdigit() and len(length) < _MAX_DIGITS else None
        self._log("request_received", details={**self._details, "input_length": known})

    def end(self, status: int | None) -> None:
        seconds, context = time.monotonic() - self._begun, self._context
        path = None if self._operation is None else self._operation.path
        self._metrics.answered(self._details["method"], path, status, seconds)
        success = status is not None and status < _FIRST_ERROR and not context.failed
        outcome = {"status": status, "success": success, "tools_called": context.tools_called}
        self._log("request_completed", duration_ms=seconds * 1000, details={**self._details, **outcome})


class Application:
    """The ASGI application. Routes find it as `request.app`."""

    def __init__(self, server: AgentServer) -> None:
        self.server, self._gate, self._settings = server, server.gate, server.settings
        wires = wires_of(server.settings.protocols)
        self._check_host = HostCheck(server.settings.access)
        self._check_origin = OriginCheck(
            server.settings.access,
            request_headers=[name for wire in wires for name in wire.request_headers],
            response_headers=[name for wire in wires for name in wire.response_headers],
            secured=server.gate.enabled,
            behind_proxy=server.access.proxy is not None,
        )
        self._bodies = BodyRoom(server.settings.block.limits.request.max_bodies)
        server.encoders = ENCODERS
        for wire in wires:
            if wire.prepare is not None:
                wire.prepare(server)
        self._operations = operations_of(server)
        self._router = Router(self._operations)
        self._routes = [routes for wire in wires for routes in reversed(wire.routes)]  # the last has the most addresses
        self._bases = sorted({wire.base for wire in wires if wire.base})
        self._off = [wire for wire in WIRES.values() if wire not in wires]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] == "websocket":  # from other ASGI servers: ours reads the request as HTTP
            await receive()
            # To the client this is HTTP 403.
            await send({"type": "websocket.close", "code": _POLICY, "reason": "WebSockets are not supported."})
            return
        if scope["type"] != "http":
            raise InternalError(f"Only HTTP is served here, not {scope['type']}.")
        if self._settings.root_path:
            scope["root_path"] = scope.get("root_path") or self._settings.root_path
        match = self._router.match(scope)
        if match.operation is None:
            match = self._explained(match, scope)
        quiet = self._gate.is_flooding(scope)
        trace = RequestTrace(scope, match.operation, self.server.metrics, quiet=quiet)
        origin = origin_of(scope)
        answer = _Sending(send, scope, trace.request_id, origin, self._check_origin, self._gate.challenge)
        scope["app"] = self
        scope[SLOT] = slot = Slot(self.server)
        try:
            await self._serve(match, origin, scope, receive, answer)
        except ClientDisconnect:
            pass  # the client disconnected while sending: there is no connection to answer on
        except Exception as error:  # every exception of an endpoint becomes a problem
            if answer.status is not None:
                raise  # the server closes the connection: a truncated answer must not look complete
            answer_error = match.answer_error if match.operation is None else match.operation.answer_error
            await answer_error(error)(scope, receive, answer)
        finally:
            slot.release()
            trace.end(answer.status)

    def _explained(self, match: Match, scope: Scope) -> Match:
        """Returns the error for an unknown address, in the form of the wire that the client seems to mean.

        The hint covers a wire that is off, a wire whose `base` the client left out, and a wire that serves addresses
        below the same prefix.
        """
        if not isinstance(match.error, NotFound):
            return match
        asked = scope["path"].removeprefix(scope.get("root_path", ""))
        for base in self._bases:
            path = base + asked
            if (found := self._router.match({"method": scope["method"], "path": path}).operation) is not None:
                end = f"It is at {path}: the base URL of the client must end with {base}."
                return match._replace(error=NotFound(f"{match.error.message} {end}"), answer_error=found.answer_error)
        for wire in self._off:
            if (found := Router(wire.operations).match(scope).operation) is not None:
                error = NotFound(f"{match.error.message} Start the server with --protocol {wire.name} to serve it.")
                return match._replace(error=error, answer_error=found.answer_error)
        if near := self._router.near(asked):
            match = match._replace(error=NotFound(f"{match.error.message} Did you mean {near}?"))
        beside = [routes for routes in self._routes if routes.prefix and asked.startswith(f"{routes.prefix}/")]
        nearest = max(beside, key=lambda routes: len(routes.prefix), default=None)
        return match if nearest is None else match._replace(answer_error=nearest.answer_error)

    async def _serve(
        self, match: Match, origin: str | None, scope: Scope, receive: Receive, answer: "_Sending"
    ) -> None:
        """Runs the checks, cheapest and most general first. Each raises the error that answers the request."""
        self._check_host(scope)
        is_static = match.operation is not None and match.operation.access.kind in ("static", "open")
        preflight = self._check_origin(scope, origin, is_static=is_static)
        if preflight is not None:
            await preflight(scope, receive, answer)
            return
        operation = match.operation
        if operation is None or not operation.before_ready:
            self.server.check_ready()
        limits = self._settings.block.limits.request
        largest = self._settings.max_upload if operation and operation.takes_files else limits.max_body
        body = metered(scope, receive, limits, min(largest, limits.max_bodies), self._bodies)
        if operation is None:
            raise match.error or InternalError("The router found neither an operation nor an error.")
        scope["route"], scope["path_params"] = operation, match.parameters
        answer.private = self._gate.enabled  # also a refusal, which `admit` raises
        left = await self._gate.admit(scope, operation.access)
        answer.private = self._gate.enabled and scope[PRINCIPAL] is not None
        try:
            try:
                response = await operation.endpoint(Request(scope, body))
            finally:
                if isinstance(body, MeteredBody):
                    body.release()
            await response(scope, receive, answer)  # not `body`: what still arrives is dropped, and must not count
        finally:
            if left is not None:
                left()

    @asynccontextmanager
    async def lifespan(self, _outer: object = None) -> AsyncIterator[None]:
        """Starts the agent and stops it at the end, for an outer application: its mounts get no lifespan events."""
        async with self.server.running():
            yield

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        started = False
        try:
            async with self.server.running():
                started = True
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Exception as error:
            failed = "shutdown" if started else "startup"
            await send({"type": f"lifespan.{failed}.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})

    def openapi(self) -> dict[str, Any]:
        agent = self.server.agent
        return document(
            title=agent.name,
            description=agent.description or "An agent, served by HoloDeck.",
            version=__version__,
            operations=self._operations,
            secured=self._gate.enabled,
            root_path=self._settings.root_path,
        )


@dataclass(slots=True, eq=False)
class _Sending:
    """`send` of one request: adds the headers that every answer has, and records the status.

    A `private` answer is for its principal only, so no cache may keep it. Every 401 has a challenge (RFC 9110, 15.5.2),
    including one for a key that was revoked during the request.
    """

    _send: Send
    _scope: Scope
    _request_id: str
    _origin: str | None
    _check_origin: OriginCheck
    _challenge: str
    private: bool = False
    status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message["headers"], (b"x-request-id", self._request_id.encode())]
            if (limit := self._scope.get(RATE_LIMIT)) is not None:  # how much is left of the tightest limit
                headers += [(b"ratelimit-policy", limit[0].encode()), (b"ratelimit", limit[1].encode())]
            if self.private:
                headers = [pair for pair in headers if pair[0].lower() != b"cache-control"]
                headers.append((b"cache-control", b"no-store"))
            if self.status == _UNAUTHORIZED and all(pair[0].lower() != b"www-authenticate" for pair in headers):
                headers.append((b"www-authenticate", f'{self._challenge}, error="invalid_token"'.encode()))
            lets_read = self._check_origin.lets_read
            message["headers"] = headers if self._origin is None else lets_read(self._origin, headers)
        await self._send(message)


def operations_of(server: AgentServer) -> list[Operation]:
    """Each operation once: wires of one family share operations."""
    wires = [operation for wire in wires_of(server.settings.protocols) for operation in wire.operations]
    wires = list({(operation.method, operation.path): operation for operation in wires}.values())
    return [*wires, *(operation for module in ON_EVERY_SERVER for operation in module.routes.operations)]
