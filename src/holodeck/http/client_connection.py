"""One connection, and the response that arrives on it.

Bytes go from the socket through the parser to the body's sink in one call: `Response.read_into`. No task is woken for a
chunk, and nothing without a reader is buffered.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from functools import partial
from http import HTTPStatus
from typing import cast

import httptools

from holodeck.http.failures import ConnectionBroken, HttpError, NotHttp
from holodeck.http.unpacking import Unpacker, unpacker

LONGEST_HEAD = 65_536
MAX_NON_BODY_BYTES = 4 * 2**20  # bytes of one answer that carry no body: trailers, framing overhead
A_LOT = 65_536  # bytes in one read; after this many, other tasks run first

_OK = int(HTTPStatus.OK)  # in Python 3.11, reading a member of an enum calls a function
_CODINGS = frozenset({"chunked", "identity"})
Sink = Callable[[bytes], bool]  # takes a piece of the body; returns whether that was enough


class Response:
    """The answer to one request: its head has arrived, `read_into` reads its body."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers  # names in lower case; if a name repeats, the first
        self.over = False  # the whole body has arrived
        self._done = False  # the body is complete, or never will be
        self._sink: Sink | None = None
        self._context: Context | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._early: list[bytes] = []  # chunks received before a sink was attached
        self._failure: BaseException | None = None
        self._unpack = unpacker(headers.get("content-encoding", ""))

    @property
    def content_type(self) -> str:
        """The media type in lower case, without parameters; empty if the header is absent."""
        stated = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return stated or "application/octet-stream"

    async def read_into(self, sink: Sink) -> None:
        """Passes every piece of the body to `sink` until it has enough, or the body ends. Raises what `sink` raises.

        Pieces are passed on as they arrive, in the caller's context.
        """
        if self._unpack is not None:
            sink = partial(_unpacked, self._unpack, sink)
        while self._early:
            if sink(self._early.pop(0)):
                return
        if not self._done:
            self._sink, self._context = sink, copy_context()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._sink = self._context = self._waiter = None
        if self._failure is not None:
            raise self._failure
        if self.over and self._unpack is not None and not self._unpack.whole:
            raise ConnectionBroken("the server's compressed response is incomplete")

    async def read(self, limit: int) -> bytes:
        """Returns the body. Of a longer one it stops reading after `limit` bytes, and returns a few more than those."""
        body = bytearray()

        def add(piece: bytes) -> bool:
            body.extend(piece)
            return len(body) > limit

        await self.read_into(add)
        return bytes(body)

    def take(self, piece: bytes) -> None:
        if self._done:
            return None  # it belongs to an unsolicited response, or to one whose reader has left
        sink, context = self._sink, self._context
        if sink is None or context is None:
            return self._early.append(piece)
        try:
            enough = context.run(sink, piece)
        except Exception as error:  # noqa: BLE001  `read_into` raises it
            return self.end(error)
        if enough:
            self._wake()
        return None

    def end(self, failure: BaseException | None = None) -> None:
        """Ends the body: complete, or broken off by `failure`."""
        if self._done:
            return
        self._done = True
        self.over = failure is None
        self._failure = failure
        self._wake()

    def _wake(self) -> None:
        self._sink = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _text(value: bytes) -> str:
    """Decodes a header value: HTTP defines Latin-1, servers send UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _unpacked(unpack: Unpacker, sink: Sink, piece: bytes) -> bool:
    """Decompresses only what is read: a response that is refused by its head costs nothing."""
    unpacked = unpack.take(piece)
    return bool(unpacked) and sink(unpacked)


class ClientConnection(asyncio.Protocol):
    """One connection to a server: one request at a time, each answered before the next."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.idle_since = 0.0
        self.keepalive = 0.0  # seconds that the connection may be idle
        self.lost = False
        self._asked: asyncio.Future[Response] | None = None  # done when the head of the response has arrived
        self._response: Response | None = None
        self._headers: dict[str, str] = {}
        self._head_size = 0
        self._ended = True  # no request is open
        self._usable = True  # for one more request
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # the parser calls it for every chunk: nothing is cheaper
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(  # deviations that other clients accept, too
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    @property
    def idle_until(self) -> float:
        return self.idle_since + self.keepalive

    @property
    def keep_alive_header(self) -> str:
        """The server's Keep-Alive header; empty if it sent none."""
        return self._headers.get("keep-alive", "")

    @property
    def reusable(self) -> bool:
        return self._ended and self._usable and not self.lost

    async def ask(self, head: bytes, body: bytes = b"") -> Response:
        """Sends a request and waits for the head of its answer."""
        if self.lost:
            raise ConnectionBroken("the server closed the connection before the request was sent")
        self._ended, self._response, self._head_size = False, None, 0
        self._headers = {}
        self._asked = asyncio.get_running_loop().create_future()
        if len(body) > A_LOT:
            self.transport.writelines((head, body))
        else:
            self.transport.write(head + body)
        try:
            return await self._asked
        finally:
            self._asked = None

    def drop(self) -> None:
        """Closes the connection, whatever is in progress."""
        self.lost = True
        self.transport.abort()

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return self.drop()  # unsolicited data
        failure = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            failure = NotHttp("the server wants to switch to another protocol")
        except httptools.HttpParserError as error:
            ours = error.__context__  # the exception that a callback raised
            failure = ours if isinstance(ours, NotHttp) else NotHttp(f"the server's response is not HTTP: {error}")
        if self._response is None:
            self._head_size += len(data)
            if failure is None and self._head_size > LONGEST_HEAD:
                failure = NotHttp("the head of the server's response is too large")
        elif self._pieces:
            self._pass_on(self._response)
        else:
            self._head_size += len(data)
            if failure is None and self._head_size > MAX_NON_BODY_BYTES:
                failure = NotHttp("the server's response has too little data between its chunk headers")
        if failure is not None:
            self._fail(failure)
        elif len(data) >= A_LOT:
            self._yield_to_loop()
        return None

    def connection_lost(self, exc: BaseException | None) -> None:
        dropped, self.lost = self.lost, True
        if not self._ended:
            if exc is None and not dropped and self._response is not None and not self._is_framed():
                self._ended = True
                self._response.end()
            else:
                self._fail(ConnectionBroken("the server closed the connection before the end of its response"))
        self._response = None
        del self._parser  # it calls our methods: a cycle, which would keep the run that the response is for

    # Called by the parser

    def on_message_begin(self) -> None:
        if self._ended:
            self._usable = False  # an answer without a request

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._response is not None:
            return  # a trailer
        key, text = name.decode("latin-1").lower(), _text(value.strip(b" \t"))
        if key not in self._headers:
            self._headers[key] = text
        elif key == "transfer-encoding":
            self._headers[key] += f", {text}"

    def on_headers_complete(self) -> None:
        if self._ended:
            return
        status = self._parser.get_status_code()
        if status < _OK:
            if status <= HTTPStatus.SWITCHING_PROTOCOLS and status != HTTPStatus.CONTINUE:
                raise NotHttp("unexpected 1xx response")
            self._headers = {}  # the real answer follows
            return
        if self._headers.get("transfer-encoding", "chunked").lower() not in _CODINGS:
            raise NotHttp("the server's response has an encoding that was not requested")
        self._response = Response(status, self._headers)
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(self._response)

    def on_message_complete(self) -> None:
        if self._response is None or self._ended:
            self._pieces.clear()  # llhttp allows some interim answers to have a body
            return
        self._ended = True
        self._usable = self._usable and self._parser.should_keep_alive()
        self._pass_on(self._response)
        self._response.end()

    def _pass_on(self, response: Response) -> None:
        pieces = self._pieces
        if pieces:
            response.take(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            pieces.clear()

    def _is_framed(self) -> bool:
        """Whether the response has a length or chunks. Otherwise it ends with the connection."""
        coding = self._headers.get("transfer-encoding")
        return "content-length" in self._headers if coding is None else coding.lower() == "chunked"

    def _fail(self, failure: HttpError) -> None:
        self._ended, self._usable = True, False
        if self._response is not None:
            self._response.end(failure)  # does nothing to a complete answer
        elif self._asked is not None and not self._asked.done():
            self._asked.set_exception(failure)

    def _yield_to_loop(self) -> None:
        """Pauses for one loop iteration, so that a fast peer cannot starve the others."""
        if not self.transport.is_closing() and self.transport.is_reading():
            self.transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._resume_reading)

    def _resume_reading(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()
