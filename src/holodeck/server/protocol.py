"""uvicorn's HTTP/1.1 protocol with the deadlines that it lacks (T17).

At any moment a connection is waiting for a request's head, inside a request, or draining what a client still sends
after it has its answer. The first and the last have a deadline here, and so has a client that does not take the rest of
its answer; inside a request `holodeck.server.limits` and the stream keep time. Also hands itself to the stream, which
must know of a client that leaves, and be able to cut off one that takes nothing.
"""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holodeck.errors import InvalidRequest
from holodeck.server.connection import CONNECTION, unsent_bytes
from holodeck.server.connection_limit import FOR_MONITORS, ConnectionLimit, ConnectionVerdict, too_many_connections
from holodeck.server.http10 import UnframedCycle
from holodeck.server.joined_head import JoinedHead
from holodeck.server.options import RequestLimits
from holodeck.wires.problem import problem

FRAMING = 8  # times as much as in it may come around a body in chunks: sizes, extensions, trailers
_PHRASES = {
    400: b"Bad Request",
    408: b"Request Timeout",
    413: b"Content Too Large",
    431: b"Request Header Fields Too Large",
}


class _Nowhere(list[tuple[bytes, bytes]]):
    def append(self, _header: tuple[bytes, bytes]) -> None:
        """Keeps nothing."""


_NOWHERE = _Nowhere()


class TimedProtocol(HttpToolsProtocol):
    """Use `with_limits` to get a class that uvicorn can instantiate."""

    __slots__ = (  # not in the dictionary that uvicorn's own members are in: beyond thirty it takes twice the memory
        "_body_size",
        "_deadline",
        "_declines",
        "_entry",
        "_flush",
        "_head_size",
        "_in_body",
        "_in_head",
        "_lingered",
        "_unsent",
        "_whole_app",
        "when_lost",
    )
    limits: ClassVar[RequestLimits] = RequestLimits()
    connection_limit: ClassVar[ConnectionLimit]

    @classmethod
    def with_limits(cls, limits: RequestLimits, connection_limit: ConnectionLimit) -> "type[TimedProtocol]":
        return type(cls.__name__, (cls,), {"__slots__": (), "limits": limits, "connection_limit": connection_limit})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._in_head = False
        self._in_body = False
        self._declines = False
        self._head_size = 0
        self._lingered = 0
        self._body_size = 0
        self._flush: asyncio.TimerHandle | None = None
        self._unsent = 0
        self.when_lost: Callable[[], None] | None = None  # for the answer that is under way
        self._entry = ConnectionVerdict.SERVED
        self._whole_app = self.app

    @property
    def has_whole_body(self) -> bool:
        return not self._in_body

    @property
    def takes_more(self) -> bool:
        """Not in HTTP/1.0, and not while the next request waits behind the one that is answered."""
        return not self.flow.write_paused and self.cycle.chunked_encoding is True

    def write(self, body: bytes) -> None:
        if not self.cycle.disconnected:
            self.cycle.transport.write(b"%x\r\n%b\r\n" % (len(body), body))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._arm(self.limits.head_seconds)
        self._entry = self.connection_limit.enter()
        if self._entry is ConnectionVerdict.CLOSED:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self.connection_limit.leave()
        if self._flush is not None:
            self._flush.cancel()
        super().connection_lost(exc)
        if self.when_lost is not None:
            self.when_lost()

    def data_received(self, data: bytes) -> None:
        self._feed(data)
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > self.limits.max_head:
                self._refuse(431, "The request's headers are too large.")
        elif self._in_body:
            self._count_body(len(data))
        elif self._between_requests() and self._deadline is None and not self.transport.is_closing():
            self._arm(self.limits.idle_seconds)  # bytes that begin nothing, such as empty lines

    def _count_body(self, size: int) -> None:
        self._body_size += size
        if not self._answering():
            self._lingered += size
            if self._lingered > self.limits.max_linger:
                self.transport.abort()
        elif self._body_size > FRAMING * self.limits.max_unmeasured_body and self._in_chunks():
            self._refuse(413, "The body has more around it than in it.")

    def _in_chunks(self) -> bool:
        return any(name == b"transfer-encoding" for name, _ in self.scope["headers"])

    def _feed(self, data: bytes) -> None:
        """As uvicorn does, but for upgrades."""
        self._unset_keepalive_if_required()
        try:
            rest: bytes | memoryview = data
            while rest:
                try:
                    self.parser.feed_data(rest)
                    rest = b""
                except httptools.HttpParserUpgrade as upgrade:
                    if not self._declines:  # CONNECT: what follows is not for us, whatever it looks like
                        self.cycle.keep_alive = False
                        return
                    rest = memoryview(rest)[upgrade.args[0] :]
                    self._decline_upgrade()
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("Invalid HTTP request received.")

    def _decline_upgrade(self) -> None:
        """Reads the head again as if it had not asked for another protocol.

        Java's client asks for HTTP/2 with the first thing that it sends, and the parser takes what follows for that
        protocol: a body would be lost. A server that does not want to change goes on as before (RFC 9110, 7.8).
        """
        self._declines = False
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
        self.parser.feed_data(b"\r\n".join([*lines, b"", b""]))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CONNECTION: self}  # type: ignore[dict-item]  # our own extension
        self._in_head, self._head_size = True, 0
        if self._deadline is None and not self._answering():
            self._arm(self.limits.head_seconds)

    def on_headers_complete(self) -> None:
        self._declines = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._declines:
            return
        self._in_head, self._in_body, self._lingered, self._body_size = False, True, 0, 0
        self._disarm()
        if not self.url.startswith(b"/"):
            self._believe_target()
        if self._entry is ConnectionVerdict.OVER_LIMIT:
            asks_how_it_is = self.url.partition(b"?")[0] in FOR_MONITORS
            self.app = self._whole_app if asks_how_it_is else too_many_connections
        super().on_headers_complete()
        if self.scope["http_version"] != "1.1":
            UnframedCycle.take_over(self.cycle)
        self.cycle.transport = JoinedHead(self.transport, self.loop)  # type: ignore[assignment]  # all that it uses
        self.headers = _NOWHERE  # for what comes after a body, which is no header of the request

    def _believe_target(self) -> None:
        """A target that is a whole address says whom it is for, whatever `Host` says (RFC 9112, 3.2.2)."""
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
        if not named and self.parser.get_http_version() != "1.1":  # which must not do without
            self.headers.append((b"host", host))

    def on_message_complete(self) -> None:
        if self._declines:
            return
        super().on_message_complete()
        self._in_body = False
        if self._between_requests():
            self._disarm()  # it was draining
            self._arm(self.limits.idle_seconds)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._flush is None and self.transport.get_write_buffer_size():
            self._watch_flush()
        if (self._in_body or self._in_head) and not self._answering() and not self.transport.is_closing():
            self._arm(self.limits.linger_seconds if self._in_body else self.limits.head_seconds)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg)

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
            self._refuse(408, "The request's headers came too slowly.")
        else:
            self.transport.abort()  # not close: it would wait for a client that may never read

    def _watch_flush(self) -> None:
        """An answer that is complete may still wait in our buffer, and closing would wait with it."""
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

    def _refuse(self, status: int, detail: str) -> None:
        """An answer to what never became a request."""
        self._in_head = False
        if self._answering() and (self.cycle.response_started or self.pipeline):
            self.transport.close()  # in the middle of another answer: nothing can be said
            return
        told = problem(InvalidRequest(detail, status=status))
        body = told.to_json()
        head = (
            b"HTTP/1.1 %d %b\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\nconnection: close\r\n"
        )
        self.transport.write(head % (status, _PHRASES[status], len(body)) + b"\r\n" + body)
        self.transport.close()
