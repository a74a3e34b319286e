"""uvicorn's HTTP/1.1 protocol with the limits and deadlines that it lacks (T17, T32).

At any moment a connection is waiting for a request's head, inside a request, or draining the rest of a body after an
early answer. This module sets a deadline for the first and the last, and for a client that does not read the
rest of its answer. Inside a request, `metered` in `holodeck.server.connection` and the stream keep time.

This module also limits:

- the size of a head and its number of lines;
- the transfer codings of a body, to `chunked`;
- the requests that wait behind the one being answered;
- the requests that begin in one iteration of the event loop.

The protocol passes itself to the stream, which has to detect a disconnect and to cut off a client that reads nothing.

This is the only module that touches uvicorn's internals, which change without notice: `pyproject.toml` allows one minor
version, and `tests/server/test_uvicorn_members.py` names each member that is used here. `holodeck.server.app` does not
need this module: any ASGI server can serve the application, without these limits.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from itertools import chain
from typing import Any, ClassVar, cast

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGI3Application, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from holodeck.config.limit_schema import RequestLimits
from holodeck.errors import InvalidRequest
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

FRAMING = 8  # framing of a chunked body may be this many times its content: sizes, extensions, trailers
_LINGER_STEP = 1024 * 1024  # bytes that earn another `linger_seconds`
MAX_PIPELINED = 2  # requests that wait behind the one being answered; one more closes the connection
STARTED_AT_ONCE = 8  # requests of a group: short iterations keep monitors from waiting
HELD_SECONDS = 0.01
_HEADER_FRAMING = len(b": \r\n")
_BAD_REQUEST = "Invalid HTTP request received."


class _RefusedHead(Exception):
    """Stops the parser in the middle of a read. The server answers the request with this status."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class _PipelineFull(Exception):
    """Stops the parser in the middle of a read: too many requests wait."""


class _Nowhere(list[tuple[bytes, bytes]]):
    """A list that discards what is appended."""

    def append(self, _header: tuple[bytes, bytes]) -> None:
        pass


_NOWHERE = _Nowhere()


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


class JoinedHead:
    """The part of a transport that uvicorn's response uses, for one answer: sends the head with the first body bytes.

    uvicorn writes them one after the other, and each write to a socket costs more than all our work for a token. So the
    head waits for the next write, but not long: the first event of a run follows when the disk has stored its message,
    within a millisecond. If nothing follows, the head is sent alone.
    """

    __slots__ = ("_end", "_held", "_loop", "_timer", "_transport", "is_out")
    _timer: asyncio.TimerHandle  # while the head waits

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, end: Callable[[], None] | None = None
    ) -> None:
        """`end` closes the connection, in place of the transport's own `close`."""
        self._transport, self._loop = transport, loop
        self._end = end or transport.close
        self._held = b""
        self.is_out = False  # the head was sent, so body bytes may go to the transport directly

    def write(self, data: bytes) -> None:
        if self._held and len(data) > NOT_COPIED:
            self.flush()
        if self.is_out:
            self._transport.write(data)
        elif self._held:
            self._timer.cancel()  # else it would wake the loop for nothing
            data, self._held, self.is_out = self._held + data, b"", True
            self._transport.write(data)
        else:
            self._held = data
            self._timer = self._loop.call_later(HELD_SECONDS, self.flush)

    def close(self) -> None:
        self.flush()
        self._end()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def flush(self) -> None:
        if self._held:
            self.write(b"")


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits and deadlines. `with_limits` makes the class that uvicorn instantiates."""

    __slots__ = (  # not in the instance dictionary with uvicorn's members: beyond thirty it takes twice the memory
        "_address",
        "_answered",
        "_body_size",
        "_deadline",
        "_declines",
        "_entry",
        "_flush",
        "_head_size",
        "_ignores_input",
        "_in_body",
        "_in_head",
        "_linger_limit",
        "_lingered",
        "_unsent",
        "_whole_app",
        "when_lost",
    )
    limits: ClassVar[RequestLimits] = RequestLimits()
    connection_limit: ClassVar[ConnectionLimit]
    starts: ClassVar[PacedStarts]

    @classmethod
    def with_limits(cls, limits: RequestLimits, connection_limit: ConnectionLimit) -> "type[TimedProtocol]":
        settings = {"limits": limits, "connection_limit": connection_limit, "starts": PacedStarts()}
        return type(cls.__name__, (cls,), {"__slots__": (), **settings})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._in_head = False
        self._in_body = False
        self._declines = False
        self._ignores_input = False
        self._head_size = 0
        self._lingered = 0
        self._linger_limit = self.limits.max_linger
        self._body_size = 0
        self._flush: asyncio.TimerHandle | None = None
        self._unsent = 0
        self.when_lost: Callable[[], None] | None = None  # set by the answer in progress
        self._entry = ConnectionVerdict.SERVED
        self._whole_app = self.app
        self._answered: RequestResponseCycle | None = None  # uvicorn's `cycle` is the last request that was read

    @property
    def has_whole_body(self) -> bool:
        return not self._in_body

    def write_at_once(self, take: Callable[[], bytes]) -> int | None:
        """Also returns None for HTTP/1.0, and while another request waits behind the one being answered."""
        cycle = self.cycle
        if self.flow.write_paused or cycle is None or cycle.chunked_encoding is not True:
            return None
        body = take()
        if body and not cycle.disconnected:
            head = cast("JoinedHead", cycle.transport)
            if len(body) <= NOT_COPIED:
                (self.transport if head.is_out else head).write(b"%x\r\n%b\r\n" % (len(body), body))
            else:
                head.flush()
                self.transport.writelines((b"%x\r\n" % len(body), body, b"\r\n"))
        return len(body)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._arm(self.limits.head_seconds)
        self._address = self.client[0] if self.client else ""
        self._entry = self.connection_limit.enter(self._address)
        if self._entry is ConnectionVerdict.CLOSED:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self.connection_limit.leave(self._address)
        if self._flush is not None:
            self._flush.cancel()
        super().connection_lost(exc)
        self._release()
        if self.when_lost is not None:
            self.when_lost()

    def _release(self) -> None:
        """Wakes the request that is being answered, and frees those behind it.

        Each refers to this connection. Without this they would stay until a full garbage collection, which is rare.
        """
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()
        for cycle, _ in self.pipeline:
            cycle.on_response = _do_nothing
            cycle.disconnected = True
        self.pipeline.clear()
        self._answered = self.cycle = None  # type: ignore[assignment]  # uvicorn begins with None as well
        self.scope = {}  # type: ignore[typeddict-item]  # its extension refers to this connection

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Starts a request. Requests of monitors skip the queue: they measure how soon the server answers."""
        start = partial(self._start_now, cycle, app)
        if cycle.scope["raw_path"] in FOR_MONITORS:
            start()
        else:
            self.starts.begin(start, self.loop)

    def _start_now(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if not cycle.disconnected:
            self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        if self._ignores_input:
            self._unset_keepalive_if_required()
            self._discard(len(data))
            return
        self._feed(data)
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > self.limits.max_head:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request's headers are too large.")
            elif self._deadline is None and not self._answering():  # most heads arrive whole and need no deadline
                self._arm(self.limits.head_seconds)
        elif self._in_body:
            self._count_body(len(data))
        elif self._between_requests() and self._deadline is None and not self.transport.is_closing():
            self._arm(self.limits.idle_seconds)  # the bytes did not begin a request: empty lines, for example

    def _count_body(self, size: int) -> None:
        self._body_size += size
        if not self._answering():
            self._discard(size)
        elif self._body_size > FRAMING * self.limits.max_unmeasured_body and self._in_chunks():
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The framing of the chunked body is too large.")

    def _discard(self, size: int) -> None:
        """Counts discarded bytes. A client that keeps sending fast gets more time, up to a limit."""
        before, self._lingered = self._lingered, self._lingered + size
        if self._lingered > self._linger_limit:
            self.transport.abort()
        elif self._deadline is not None and self._lingered // _LINGER_STEP > before // _LINGER_STEP:
            self._arm(self.limits.linger_seconds)

    def _in_chunks(self) -> bool:
        return any(name == b"transfer-encoding" for name, _ in self.scope["headers"])

    def _feed(self, data: bytes) -> None:
        """Feeds the parser as uvicorn does, but declines upgrades."""
        self._unset_keepalive_if_required()
        try:
            rest: bytes | memoryview = data
            while rest:
                try:
                    self.parser.feed_data(rest)
                    rest = b""
                except httptools.HttpParserUpgrade as upgrade:
                    if not self._declines:  # CONNECT: the rest belongs to a tunnel that we do not open
                        self.cycle.keep_alive = False
                        return
                    rest = memoryview(rest)[upgrade.args[0] :]
                    self._decline_upgrade()
        except httptools.HttpParserError as error:
            self._stop_parsing(error.__context__)

    def _stop_parsing(self, reason: BaseException | None) -> None:
        """Handles a parser that failed, or that a callback stopped for `reason`."""
        if isinstance(reason, _PipelineFull):
            self.cycle.keep_alive = False  # closes the connection after the last accepted request's answer
            self._ignores_input, self._in_head = True, False
        elif isinstance(reason, _RefusedHead):
            self._refuse(reason.status, reason.detail)
        else:
            self.logger.warning(_BAD_REQUEST)
            self.send_400_response(_BAD_REQUEST)

    def _decline_upgrade(self) -> None:
        """Reads the head again without its `Upgrade` header.

        Java's client asks for HTTP/2 in its first request. The parser then takes the rest for that protocol, so the body
        would be lost. A server that does not want to switch continues as before (RFC 9110, 7.8).
        """
        self._declines = False
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
        self.parser.feed_data(b"\r\n".join([*lines, b"", b""]))

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            raise _PipelineFull
        super().on_message_begin()
        self.scope["extensions"] = {CONNECTION: self}  # type: ignore[dict-item]  # our own extension
        self._in_head, self._head_size = True, 0

    def on_headers_complete(self) -> None:
        self._declines = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._declines:
            return
        names = dict(self.headers)
        self._check_head(names)
        self._in_head, self._in_body, self._lingered, self._body_size = False, True, 0, 0
        sized = b"content-length" in names
        self._linger_limit = self.limits.max_refused_body if sized else self.limits.max_linger
        self._disarm()
        if not self.url.startswith(b"/"):
            self._believe_target()
        if self._entry is ConnectionVerdict.OVER_LIMIT:
            asks_how_it_is = self.url.partition(b"?")[0] in FOR_MONITORS
            self.app = self._whole_app if asks_how_it_is else too_many_connections
        super().on_headers_complete()
        if self.scope["http_version"] != "1.1":
            UnframedCycle.take_over(self.cycle)
        answer = JoinedHead(self.transport, self.loop, self._close)
        self.cycle.transport = answer  # type: ignore[assignment]  # has every method that the cycle uses
        self.headers = _NOWHERE  # discards trailers, which are not headers of the request

    def _check_head(self, names: Container[bytes]) -> None:
        """Refuses a head that is too large but arrived in one read, and transfer codings other than `chunked`."""
        headers = self.headers
        size = len(self.url) + sum(map(len, chain.from_iterable(headers))) + _HEADER_FRAMING * len(headers)
        if size > self.limits.max_head or len(headers) > self.limits.max_head_lines:
            raise _RefusedHead(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"The request's headers are too large: at most {self.limits.max_head:,} bytes "
                f"in {self.limits.max_head_lines} lines are read.",
            )
        if b"transfer-encoding" not in names:
            return
        codings = [value.strip(b" \t").lower() for name, value in headers if name == b"transfer-encoding"]
        if codings != [b"chunked"]:  # a proxy in front may see another end of the body (RFC 9112, 6.1)
            raise _RefusedHead(
                HTTPStatus.NOT_IMPLEMENTED, "Only one Transfer-Encoding is read, and it must be chunked."
            )

    def _believe_target(self) -> None:
        """Takes host and path from an absolute target URL, which overrides `Host` (RFC 9112, 3.2.2)."""
        target = httptools.parse_url(self.url)
        if target.host:
            self.url = (target.path or b"/") + (b"" if target.query is None else b"?" + target.query)
            name = b"[%b]" % target.host if b":" in target.host else target.host
            self._rename_host(name if target.port is None else b"%b:%d" % (name, target.port))
        elif self.parser.get_method() != b"OPTIONS":
            raise httptools.HttpParserInvalidURLError("* is the target of OPTIONS only")

    def _rename_host(self, host: bytes) -> None:
        named = any(name == b"host" for name, _ in self.headers)
        self.headers[:] = [(name, host if name == b"host" else value) for name, value in self.headers]
        if not named and self.parser.get_http_version() != "1.1":  # HTTP/1.1 requires it, and is refused without
            self.headers.append((b"host", host))

    def on_message_complete(self) -> None:
        if self._declines:
            return
        super().on_message_complete()
        self._in_body = False
        if self._between_requests():
            self._disarm()  # the deadline of draining
            self._arm(self.limits.idle_seconds)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._flush is None and self.transport.get_write_buffer_size():
            self._watch_flush()
        if (self._in_body or self._in_head) and not self._answering() and not self.transport.is_closing():
            self._arm(self.limits.linger_seconds if self._in_body else self.limits.head_seconds)

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, msg)

    def _between_requests(self) -> bool:
        return not self._in_head and not self._in_body and not self._answering()

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._deadline = self.loop.call_later(seconds, self._too_late)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self._in_head:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The request's headers arrived too slowly.")
        else:
            self.transport.abort()  # not close: it would wait for a client that may never read

    def _watch_flush(self) -> None:
        """Starts a deadline for a complete answer that is still in our buffer: closing would wait until it is sent."""
        self._unsent = unsent_bytes(self.transport)
        self._flush = self.loop.call_later(self.limits.flush_seconds, self._check_flush)

    def _check_flush(self) -> None:
        self._flush = None
        if not self.transport.get_write_buffer_size():
            return
        if unsent_bytes(self.transport) >= self._unsent and not self._answering():
            self.transport.abort()
        else:
            self._watch_flush()

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Answers without the application, and closes the connection."""
        self._in_head, self._linger_limit = False, self.limits.max_linger
        if self._answering() and (self.cycle.response_started or self.pipeline):
            self.transport.close()  # in the middle of another answer: nothing can be written
            return
        if self._answering():  # the application still reads the refused body: to it, the client has disconnected
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        refusal = problem(InvalidRequest(detail, status=status))
        body = refusal.to_json()
        head = (
            b"HTTP/1.1 %d %b\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\nconnection: close\r\n"
        )
        self.transport.write(head % (status, status.phrase.encode(), len(body)) + b"\r\n" + body)
        self._linger()

    def _close(self) -> None:
        """Ends the connection after an answer."""
        if self._in_body and not self.pipeline:
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
        self.flow.resume_reading()
        self.transport.write_eof()
        self._arm(self.limits.linger_seconds)


def _do_nothing() -> None:
    """Replaces a callback that must not be called any more."""


class UnframedCycle(RequestResponseCycle):
    """An answer to HTTP/1.0, which has neither chunks nor `100 Continue` (RFC 9112, 6.1; RFC 9110, 10.1.1).

    uvicorn sends both. Here an answer of unknown length ends with its connection, and the last event of a stream shows
    whether all of it arrived. uvicorn creates its own kind of cycle; `take_over` turns it into this one.
    """

    _open_ended = False

    @classmethod
    def take_over(cls, cycle: RequestResponseCycle) -> None:
        cycle.__class__ = cls  # its task holds it already: a new object would not be used
        cycle.keep_alive = cycle.waiting_for_100_continue = False

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start":
            self._open_ended = all(name.lower() != b"content-length" for name, _ in message["headers"])
            self.chunked_encoding = False if self._open_ended else None
        elif message["type"] == "http.response.body" and self._open_ended:
            self.expected_content_length = len(message.get("body", b""))  # accepts any length
        await super().send(message)


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handling, which would end the process by the signal instead of with 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_server(
    app: ASGIApp, limits: RequestLimits, connection_limit: ConnectionLimit, *, flush_seconds: int
) -> HttpServer:
    """Makes a uvicorn server for one application, with these limits. `flush_seconds`: time to send the last bytes."""
    return HttpServer(
        uvicorn.Config(
            cast("ASGI3Application", app),  # uvicorn's own type for the same
            http=TimedProtocol.with_limits(limits, connection_limit),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            reset_contextvars=True,  # else a pipelined request's log lines would name the previous one's user
            timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]  # fractions work; tests use them
            timeout_graceful_shutdown=flush_seconds,
        )
    )
