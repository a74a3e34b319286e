"""The HTTP/1.1 server: reads requests from sockets and calls an ASGI application, with limits and deadlines (T17, T32).

`HttpServer` listens and holds what its connections share. `ServerConnection` parses requests with httptools and keeps
them in order. `ServerExchange` is one request with its answer: ASGI's `receive` and `send`, and the extension `Connection`
that the stream uses to write at once, to detect a disconnect and to cut off a client that reads nothing.

At any moment a connection is waiting for a request's head, inside a request, or draining the rest of a body after an
early answer. It has a deadline for the first and the last, and for a client that does not read the rest of its answer.
Inside a request, `metered` in `holodeck.server.connection` and the stream keep time. There are also limits for:

- the size of a head and its number of lines;
- the transfer codings of a body, to `chunked`;
- the requests that wait behind the one being answered;
- the requests that begin in one iteration of the event loop.

HTTP/1.0 has neither chunks nor `100 Continue` (RFC 9112, 6.1; RFC 9110, 10.1.1): an answer of unknown length ends with
its connection, and the last event of a stream shows whether all of it arrived. `holodeck.server.app` does not need this
module: any ASGI server can serve the application, without these limits.
"""

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Container, Coroutine, Iterable, Sequence
from contextlib import suppress
from contextvars import Context
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from itertools import chain
from socket import socket
from typing import Any, cast
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp, Message

from holodeck.config.limit_schema import RequestLimits
from holodeck.errors import HoloDeckError, InternalError, InvalidRequest
from holodeck.server.connection import (
    CONNECTION,
    FOR_MONITORS,
    NOT_COPIED,
    ConnectionLimit,
    ConnectionVerdict,
    too_many_connections,
    unsent_bytes,
)
from holodeck.wires.problem import problem

log = logging.getLogger(__name__)

FRAMING = 8  # framing of a chunked body may be this many times its content: sizes, extensions, trailers
_LINGER_STEP = 1024 * 1024  # bytes that earn another `linger_seconds`
MAX_PIPELINED = 2  # requests that wait behind the one being answered; one more closes the connection
MAX_UNREAD = 64 * 1024  # bytes of a body that the application has not taken: more are left in the kernel
STARTED_AT_ONCE = 8  # requests of a group: short iterations keep monitors from waiting
HELD_SECONDS = 0.01
BACKLOG = 2048
_HEADER_FRAMING = len(b": \r\n")
_STATUS_LINES = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}
_BAD_REQUEST = "Invalid HTTP request received."
_VERSIONS = ("1.1", "1.0")
_NO_BODY = {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}
_HEADER_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*\r\n")

Headers = list[tuple[bytes, bytes]]


class _RefusedHead(Exception):
    """Stops the parser in the middle of a read. The server answers the request with this status."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class _EndOfInput(Exception):
    """Stops the parser in the middle of a read: no further request of this connection is read."""


class PacedStarts:
    """Begins requests in groups, on average one request in an iteration of the event loop. All begin in order.

    If all requests that arrive in one iteration started before anything else, each for a part of a millisecond, a burst
    would delay every stream and every monitor. So after a group of n requests, none begins in n - 1 iterations. A group
    takes less CPU than the same requests one by one: its requests are in the same phase, whose code is in the caches, and
    the loop's thread and a store's take turns half as often.
    """

    __slots__ = ("_begun", "_loop", "_pause", "_waiting")

    def __init__(self) -> None:
        self._begun = 0  # requests of the group that began in this iteration
        self._pause = 0  # iterations until the next group
        self._waiting: deque[Callable[[], None]] = deque()

    def begin(self, start: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        if self._waiting or self._pause or self._begun == STARTED_AT_ONCE:
            self._waiting.append(start)
            return
        if self._begun == 0:
            loop.call_soon(self._next_turn)
        self._begun += 1
        start()

    def _next_turn(self) -> None:
        self._pause = max(self._begun - 1, self._pause - 1, 0)
        self._begun = 0 if self._pause else min(STARTED_AT_ONCE, len(self._waiting))
        if self._begun or self._pause:  # scheduled first: a start that raises must not block the others
            self._loop.call_soon(self._next_turn)
        for _ in range(self._begun):
            self._waiting.popleft()()


class HttpServer:
    """Serves one application on sockets that are bound already."""

    def __init__(self, app: ASGIApp, limits: RequestLimits, connection_limit: ConnectionLimit) -> None:
        self.app, self.limits, self.connection_limit = app, limits, connection_limit
        self.starts = PacedStarts()
        self.connections: set[ServerConnection] = set()
        self.emptied = asyncio.Event()  # set when the last connection is lost
        self.tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[asyncio.Server] = []
        self.second, self.date_line = 0, b""  # the time of day, as answers state it

    async def listen(self, sockets: Iterable[socket]) -> None:
        """Accepts connections from now on. The server closes the sockets when it stops."""
        loop = asyncio.get_running_loop()
        connect = partial(ServerConnection, self, loop)
        for each in sockets:
            self._listeners.append(await loop.create_server(connect, sock=each, backlog=BACKLOG))

    async def stop(self, seconds: float) -> None:
        """Closes idle connections, gives the answers in progress so many seconds, and cuts off the rest."""
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.finish()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if self.connections:
                    self.emptied.clear()
                    await self.emptied.wait()
                if self.tasks:
                    await asyncio.wait(self.tasks)
        for task in self.tasks:
            task.cancel()
        for connection in list(self.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # closes their sockets

    def set_date(self, second: int) -> None:
        self.second, self.date_line = second, f"date: {formatdate(second, usegmt=True)}\r\n".encode()


class ServerConnection(asyncio.Protocol):
    """A client's connection: its requests are read in order, and answered one after the other."""

    transport: asyncio.Transport

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self.server, self.loop, self._limits = server, loop, server.limits
        self._parser: Any = httptools.HttpRequestParser(self)  # refers to this object; None when the connection is lost
        self._url, self._headers = b"", Headers()
        self._in_head, self._head_size = False, 0
        self._is_new = True  # its first head has the time since it was accepted
        self._declines = False  # an upgrade: the head is read again without it
        self._reading: ServerExchange | None = None  # the request whose body is arriving
        self._body_size = 0
        self._answering: ServerExchange | None = None
        self.waiting: deque[ServerExchange] = deque()  # behind the one being answered
        self._ignores_input = False
        self._lingered, self._linger_limit = 0, server.limits.max_linger
        self.read_paused = False
        self.drained: asyncio.Event | None = None  # set when the client has read enough; None if we may write
        self._deadline: asyncio.TimerHandle | None = None
        self._flush: asyncio.TimerHandle | None = None
        self._unsent = 0

    # Called by the event loop

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # a stream's transport
        self.transport = transport
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self._client = peer[:2] if isinstance(peer, tuple) else None
        self._own_address = own[:2] if isinstance(own, tuple) else (own, None)  # a unix socket has a path
        self._arm(self._limits.head_seconds)
        self.server.connections.add(self)
        self._address = self._client[0] if self._client else ""
        self._verdict = self.server.connection_limit.enter(self._address)
        if self._verdict is ConnectionVerdict.CLOSED:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's signature
        if self._deadline is not None:
            self._deadline.cancel()
        self.server.connections.discard(self)
        if not self.server.connections:
            self.server.emptied.set()
        self.server.connection_limit.leave(self._address)
        if self._flush is not None:
            self._flush.cancel()
        answering, self._answering = self._answering, None
        if answering is not None:
            answering.disconnect()
        # Frees the requests that wait: a reference cycle would keep them until a full garbage collection, which is rare.
        for exchange in self.waiting:
            exchange.scope = None
        self.waiting.clear()
        self._reading = self._parser = None
        if self.drained is not None:
            self.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._ignores_input:
            self._discard(len(data))
            return
        end = len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            end = upgrade.args[0]
        except httptools.HttpParserError as error:
            self._stop_reading(error)
        if self._declines:
            self.data_received(self._head_without_upgrade() + data[end:])
        elif self._in_head:
            self._head_size += len(data)
            if self._head_size > self._limits.max_head:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request's headers are too large.")
            elif self._deadline is None and self._answering is None:  # most heads arrive whole and need no deadline
                self._arm(self._limits.head_seconds)
        elif self._reading is not None:
            self._count_body(self._reading, len(data))

    def pause_writing(self) -> None:
        self.drained = asyncio.Event()

    def resume_writing(self) -> None:
        drained, self.drained = self.drained, None
        if drained is not None:
            drained.set()

    # Reading

    def _head_without_upgrade(self) -> bytes:
        """Returns the head of a request that asks for another protocol, to be read again by a new parser.

        Java's client asks for HTTP/2 in its first request. The parser then takes the rest for that protocol and skips the
        body. A server that does not want to switch continues as before (RFC 9110, 7.8).
        """
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, self._parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self._headers if header[0] != b"upgrade"]
        self._parser, self._declines = httptools.HttpRequestParser(self), False
        return b"\r\n".join([*lines, b"", b""])

    def _stop_reading(self, error: httptools.HttpParserError) -> None:
        """Handles a parser that failed, or that a callback stopped."""
        reason = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
        if isinstance(reason, _RefusedHead):
            self._refuse(reason.status, reason.detail)
        elif not self._ignores_input:  # else these are bytes behind the last request
            is_defect = not isinstance(reason, httptools.HttpParserError)
            log.warning(_BAD_REQUEST, exc_info=reason if is_defect else None)
            self._refuse(HTTPStatus.BAD_REQUEST, _BAD_REQUEST)

    def on_message_begin(self) -> None:
        if len(self.waiting) >= MAX_PIPELINED:
            self.waiting[-1].keep_alive = False  # closes the connection after the last accepted request's answer
            self._ignores_input = True
        if self._ignores_input:
            raise _EndOfInput
        self._url, self._headers = b"", []
        self._in_head, self._head_size = True, 0
        if self._deadline is not None and not self._is_new:
            self._deadline.cancel()
            self._deadline = None

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it is a trailer, which is not a header of the request
            self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        parser = self._parser
        method, version = parser.get_method(), parser.get_http_version()
        is_tunnel = method == b"CONNECT"
        self._declines = parser.should_upgrade() and not is_tunnel
        if self._declines:
            return
        names = dict(self._headers)
        if version not in _VERSIONS:  # a request line without a version is HTTP/0.9 for the parser
            raise _RefusedHead(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "The server speaks HTTP/1.1 and HTTP/1.0.")
        self._check_head(names)
        path, query = self._target(method, version)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._in_head, self._is_new, self._lingered, self._body_size = False, False, 0, 0
        sized = b"content-length" in names
        self._linger_limit = self._limits.max_refused_body if sized else self._limits.max_linger
        exchange = ServerExchange(self, is_head=method == b"HEAD", may_chunk=version == "1.1")
        exchange.keep_alive = version == "1.1" and not is_tunnel and parser.should_keep_alive()
        exchange.expects_continue = version == "1.1" and names.get(b"expect", b"").lower() == b"100-continue"
        exchange.arrives_in_chunks = b"transfer-encoding" in names
        text = path.decode("ascii")
        exchange.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "method": method.decode("ascii"),
            "scheme": "http",
            "path": unquote(text) if "%" in text else text,
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
            "client": self._client,
            "server": self._own_address,
            "extensions": {CONNECTION: exchange},
        }
        self._reading = exchange
        if self._answering is None:
            self._begin(exchange)
        else:
            self.waiting.append(exchange)

    def _check_head(self, names: Container[bytes]) -> None:
        """Refuses a head that is too large but arrived in one read, and transfer codings other than `chunked`."""
        headers, limits = self._headers, self._limits
        size = len(self._url) + sum(map(len, chain.from_iterable(headers))) + _HEADER_FRAMING * len(headers)
        if size > limits.max_head or len(headers) > limits.max_head_lines:
            raise _RefusedHead(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"The request's headers are too large: at most {limits.max_head:,} bytes "
                f"in {limits.max_head_lines} lines are read.",
            )
        if b"transfer-encoding" not in names:
            return
        codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
        if codings != [b"chunked"]:  # a proxy in front may see another end of the body (RFC 9112, 6.1)
            raise _RefusedHead(
                HTTPStatus.NOT_IMPLEMENTED, "Only one Transfer-Encoding is read, and it must be chunked."
            )

    def _target(self, method: bytes, version: str) -> tuple[bytes, bytes]:
        """Returns path and query. The host of an absolute target URL overrides `Host` (RFC 9112, 3.2.2)."""
        target = httptools.parse_url(self._url)
        if target.host:
            name = b"[%b]" % target.host if b":" in target.host else target.host
            self._rename_host(name if target.port is None else b"%b:%d" % (name, target.port), version)
        elif not self._url.startswith(b"/") and method != b"OPTIONS":
            raise _RefusedHead(HTTPStatus.BAD_REQUEST, "* is the target of OPTIONS only.")
        return target.path or b"/", target.query or b""

    def _rename_host(self, host: bytes, version: str) -> None:
        named = any(name == b"host" for name, _ in self._headers)
        self._headers[:] = [(name, host if name == b"host" else value) for name, value in self._headers]
        if not named and version != "1.1":  # HTTP/1.1 requires it, and is refused without
            self._headers.append((b"host", host))

    def on_body(self, body: bytes) -> None:
        exchange = self._reading
        if exchange is None or exchange.is_complete:
            return
        exchange.body += body
        if len(exchange.body) > MAX_UNREAD and not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()
        if exchange.news is not None:
            exchange.wake()

    def on_message_complete(self) -> None:
        exchange, self._reading = self._reading, None
        if exchange is None:
            return  # an upgrade that is declined
        exchange.has_whole_body = True
        if exchange.news is not None:
            exchange.wake()
        self._ignores_input = self._ignores_input or not exchange.keep_alive  # RFC 9112, 9.6
        if self._answering is None:  # the answer was early
            self._arm(self._limits.idle_seconds)

    def resume_reading(self) -> None:
        if self.read_paused and not self.transport.is_closing():
            self.read_paused = False
            self.transport.resume_reading()

    def _count_body(self, exchange: "ServerExchange", size: int) -> None:
        self._body_size += size
        if exchange.is_complete:
            self._discard(size)
        elif self._body_size > FRAMING * self._limits.max_unmeasured_body and exchange.arrives_in_chunks:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The framing of the chunked body is too large.")

    def _discard(self, size: int) -> None:
        """Counts discarded bytes. A client that keeps sending fast gets more time, up to a limit."""
        before, self._lingered = self._lingered, self._lingered + size
        if self._lingered > self._linger_limit:
            self.transport.abort()
        elif self._deadline is not None and self._lingered // _LINGER_STEP > before // _LINGER_STEP:
            self._arm(self._limits.linger_seconds)

    # Answering

    def _begin(self, exchange: "ServerExchange") -> None:
        """Starts a request. Requests of monitors skip the queue: they measure how soon the server answers."""
        self._answering = exchange
        app = self.server.app
        is_of_monitor = exchange.scope is not None and exchange.scope["raw_path"] in FOR_MONITORS
        if self._verdict is ConnectionVerdict.OVER_LIMIT and not is_of_monitor:
            app = too_many_connections
        start = partial(exchange.start, app)
        if is_of_monitor:
            start()
        else:
            self.server.starts.begin(start, self.loop)

    def answered(self, exchange: "ServerExchange") -> None:
        self._answering = None
        if self.transport.get_write_buffer_size():
            self._watch_flush()
        if self.transport.is_closing():
            return
        if self.read_paused:  # the application has not read all of the body
            self.resume_reading()
        if not exchange.keep_alive:
            self._close()
        elif self.waiting:
            self._begin(self.waiting.popleft())
        elif self._reading is not None:
            self._arm(self._limits.linger_seconds)
        else:
            self._arm(self._limits.head_seconds if self._in_head else self._limits.idle_seconds)

    def fail(self, exchange: "ServerExchange") -> None:
        """Ends an answer that the application did not complete: it must not look complete."""
        if exchange.is_started:
            exchange.flush()
            self._answering = None
            if self.transport.get_write_buffer_size():
                self._watch_flush()
            self.transport.close()
        else:
            self._answer_with(InternalError("The server failed to answer the request."))

    def finish(self) -> None:
        """Closes the connection after the requests that it has."""
        last = self.waiting[-1] if self.waiting else self._answering
        if last is None:
            self.transport.close()
        else:
            last.keep_alive = False

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Refuses the request that is being read, and reads no further. The requests before it get their answers first."""
        self._in_head, self._linger_limit = False, self._limits.max_linger
        refused, self._reading = self._reading, None
        if self.waiting and refused is self.waiting[-1]:
            self.waiting.pop().scope = None
        if self._answering is not None and refused is not self._answering:
            self._ignores_input = True
            self.resume_reading()
            self.finish()
        elif refused is not None and refused.is_complete:
            self._linger()  # a second answer would be taken for that of the next request
        elif refused is not None and refused.is_started:
            self.transport.close()
        else:
            self._answer_with(InvalidRequest(detail, status=status))

    def _answer_with(self, error: HoloDeckError) -> None:
        """Answers without the application, and closes the connection."""
        answering, self._answering, self._reading = self._answering, None, None
        if answering is not None:  # the application may still read: to it, the client has disconnected
            answering.disconnect()
            is_head = answering.is_head
        else:  # the parser knows the method when it has seen the target
            is_head = bool(self._url) and self._parser.get_method() == b"HEAD"
        body = problem(error).to_json()
        head = b"content-type: application/problem+json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(_STATUS_LINES[error.status] + head + (b"" if is_head else body))
        self._linger()

    def _close(self) -> None:
        if self._reading is not None and not self.waiting:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        """Closes our side and keeps reading for a moment.

        The kernel answers bytes that arrive on a closed socket with a reset, and a reset destroys the answer before the
        client has read it (RFC 9112, 9.6).
        """
        if self.transport.is_closing() or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._ignores_input = True
        self.resume_reading()
        self.transport.write_eof()
        self._arm(self._limits.linger_seconds)

    # Deadlines

    def _arm(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        self._deadline = None
        if self._in_head:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The request's headers arrived too slowly.")
        elif self._reading is None and not self._ignores_input:
            self.transport.close()  # idle: sends the rest of an answer first
        else:
            self.transport.abort()  # not close: it would wait for a client that may never read

    def _watch_flush(self) -> None:
        """Starts a deadline for the rest of an answer in our buffer: closing would wait until it is sent."""
        if self._flush is not None:
            return
        self._unsent = unsent_bytes(self.transport)
        self._flush = self.loop.call_later(self._limits.flush_seconds, self._check_flush)

    def _check_flush(self) -> None:
        self._flush = None
        if not self.transport.get_write_buffer_size():
            return
        if unsent_bytes(self.transport) >= self._unsent and self._answering is None:
            self.transport.abort()
        else:
            self._watch_flush()


class ServerExchange:
    """One request and its answer. The application gets `receive`, `send`, and this as the extension CONNECTION.

    The head of an answer waits for its first body bytes, but not long: a write to a socket costs more than all our work
    for a token, and the first event of a run follows when the disk has stored its message, within a millisecond.
    """

    keep_alive: bool
    expects_continue: bool
    arrives_in_chunks: bool
    _timer: asyncio.TimerHandle  # while a head is held

    def __init__(self, connection: ServerConnection, *, is_head: bool, may_chunk: bool) -> None:
        self._connection, self.transport = connection, connection.transport
        self.is_head, self._may_chunk = is_head, may_chunk
        self.scope: dict[str, Any] | None = None  # until the application has it: it refers to this object
        self.body = bytearray()  # what the application has not taken
        self.has_whole_body = False
        self._is_read = False  # the application has the last piece
        self.news: asyncio.Event | None = None  # while the application waits
        self.is_disconnected = self.is_started = self.is_complete = False
        self.when_lost: Callable[[], None] | None = None
        self._is_chunked = False  # while chunks may be written
        self._left: int | None = None  # bytes until Content-Length
        self._held = b""

    def start(self, app: ASGIApp) -> None:
        scope, self.scope = self.scope, None
        if scope is None:
            return
        answer = cast("Coroutine[None, None, None]", app(scope, self.receive, self.send))
        # An empty context: else a pipelined request's log lines would name the previous one's user.
        task = self._connection.loop.create_task(answer, context=Context())
        self._connection.server.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._connection.server.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("The application failed to answer a request.", exc_info=error)
        if not self.is_complete and not self.is_disconnected:
            if error is None and not task.cancelled():
                log.error("The application ended without a complete answer.")
            self._connection.fail(self)

    def wake(self) -> None:
        """Wakes the application, if it waits in `receive`."""
        news, self.news = self.news, None
        if news is not None:
            news.set()

    def disconnect(self) -> None:
        """The client is gone, or gets no answer from the application."""
        self.is_disconnected, self._is_chunked = True, False
        self.scope = None  # if it has not begun, it does not begin
        if self._held:
            self._timer.cancel()
            self._held = b""
        self.wake()
        if self.when_lost is not None:
            self.when_lost()

    async def receive(self) -> Message:
        """ASGI's `receive`: the next piece of the body; after the last one, the end of the exchange."""
        if self.expects_continue:
            self.expects_continue = False
            if not self.body and not self.has_whole_body and not self.is_disconnected:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while True:
            if self.is_disconnected or self.is_complete:
                return {"type": "http.disconnect"}
            if self.body or (self.has_whole_body and not self._is_read):
                break
            self._connection.resume_reading()
            self.news = self.news or asyncio.Event()
            await self.news.wait()
        body, self.body, self._is_read = bytes(self.body), bytearray(), self.has_whole_body
        if self._connection.read_paused:
            self._connection.resume_reading()
        return {"type": "http.request", "body": body, "more_body": not self._is_read}

    async def send(self, message: Message) -> None:
        """ASGI's `send`. Waits while the client reads too slowly."""
        while (drained := self._connection.drained) is not None and not self.is_disconnected:
            await drained.wait()
        if self.is_disconnected:
            return
        kind = message["type"]
        if kind == "http.response.start" and not self.is_started:
            self._start_answer(message["status"], message.get("headers", ()))
        elif kind == "http.response.body" and self.is_started and not self.is_complete:
            self._add_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"The application sent {kind!r} at the wrong time.")

    def write_at_once(self, take: Callable[[], bytes]) -> int | None:
        """See `Connection`. Also returns None for HTTP/1.0, which has no chunks."""
        if not self._is_chunked or self._connection.drained is not None:
            return None
        body = take()
        if body and self._is_chunked:
            if self._held or len(body) > NOT_COPIED:
                self._add_body(body, more=True)
            else:
                self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return len(body)

    def _start_answer(self, status: int, headers: Iterable[Sequence[bytes]]) -> None:
        server = self._connection.server
        if (second := int(time.time())) != server.second:
            server.set_date(second)
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status, server.date_line]
        says_close = False
        for name, value in headers:
            line = b"%b: %b\r\n" % (name, value)
            if _HEADER_LINE.fullmatch(line) is None:
                raise RuntimeError(f"The application sent an invalid header: {line!r}.")
            if (key := name.lower()) == b"transfer-encoding":
                continue  # the server frames the body
            if key == b"content-length":
                self._left = int(value)
            elif key == b"connection" and b"close" in value.lower():
                says_close, self.keep_alive = True, False
            lines.append(line)
        if self.is_head or status in _NO_BODY:
            self.is_head, self._left = True, None
        elif self._left is None and self._may_chunk:
            self._is_chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive and not says_close:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        self.is_started, self.expects_continue = True, False
        self._held = b"".join(lines)
        self._timer = self._connection.loop.call_later(HELD_SECONDS, self.flush)

    def flush(self) -> None:
        """Sends a head that waits for its body."""
        if self._held:
            self._timer.cancel()
            self.transport.write(self._held)
            self._held = b""

    def _add_body(self, body: bytes, *, more: bool) -> None:
        if self._left is not None:
            self._count_down(len(body), more=more)
        pieces = [self._held] if self._held else []
        if self._held:
            self._timer.cancel()  # else it would wake the loop for nothing
            self._held = b""
        if self._is_chunked:
            if body:
                pieces += b"%x\r\n" % len(body), body, b"\r\n"
            if not more:
                pieces.append(b"0\r\n\r\n")
        elif not self.is_head:
            pieces.append(body)
        if len(body) > NOT_COPIED:
            self.transport.writelines(pieces)
        else:
            self.transport.write(b"".join(pieces))
        if not more:
            self.is_complete, self._is_chunked = True, False
            if self.news is not None:
                self.wake()
            self._connection.answered(self)

    def _count_down(self, size: int, *, more: bool) -> None:
        """Refuses a body that is not as long as its head says: the next answer would begin inside it."""
        self._left = (self._left or 0) - size
        if self._left < 0 or (self._left and not more):
            raise RuntimeError("The application's body is not as long as its Content-Length.")
