"""The streaming response: follows runs and writes new events, with one send per wake-up however many wait.

A run does not notice its readers. A slow reader finds more events per wake-up. The stream cuts off a reader that takes
nothing for `stall_timeout` seconds. It notices immediately when a reader leaves; the run then continues for its grace
period. Besides the request's own task there is one timer, idle while tokens flow. The encoder knows what the bytes
mean; the stream does not.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache, partial

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holodeck.config.agent_schema import ServerBlock
from holodeck.core.encoder import Encoder, bare
from holodeck.core.events import Event, MessagesReplaced
from holodeck.runs.log import ReplayGone
from holodeck.runs.middleware import NO_STAGES, EventMiddleware
from holodeck.runs.run import Run
from holodeck.runs.runs import Runs
from holodeck.server.agent_server import AgentServer
from holodeck.server.connection import NOT_COPIED, connection_of, unsent_bytes
from holodeck.wires import sse

log = logging.getLogger(__name__)

MAX_BATCH = 256  # events in one send: what waits for a slow reader stays in the log, not in its buffer


@cache
def _head(content_type: str) -> list[tuple[bytes, bytes]]:
    headers = {**sse.HEADERS, "Content-Type": content_type}
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


@dataclass
class Cursor:
    """The position of one reader in one run: `position` is the index in its log of the next event to send."""

    run: Run
    encoder: Encoder
    position: int = 0
    middleware: EventMiddleware = NO_STAGES
    has_more: bool = True  # whether `take` left something behind

    def __post_init__(self) -> None:
        """Refuses evicted events before the first byte is sent. Stages and encoders with state get the earlier events."""
        self.run.log.since(self.position, 0)
        if self.position > 0 and (not self.middleware.is_empty or self.encoder.needs_all_events):
            self._encode(0, self.run.log.since(0, self.position))

    def take(self) -> bytes:
        """Returns the new events, encoded. Empty if a middleware hides them all. Raises ReplayGone."""
        position, events = self.position, self.run.log.since(self.position, MAX_BATCH)
        self.position += len(events)
        self.has_more = len(events) == MAX_BATCH
        if self.middleware.is_empty:  # the path of nearly all tokens
            return self.encoder.encode_many(enumerate(events, self.run.first_number + position))
        return self._encode(position, events)

    def _encode(self, position: int, events: Sequence[Event]) -> bytes:
        batch = self.middleware(enumerate(events, self.run.first_number + position))
        if not self.encoder.shows_metadata:
            batch = ((n, bare(event)) for n, event in batch)
        return self.encoder.encode_many(batch)


class EventStream(Response):
    """Follows runs, one after the other, until the last has ended or the client is gone."""

    def __init__(
        self,
        runs: Runs,
        cursors: Sequence[Cursor],
        settings: ServerBlock,
        *,
        content_type: str,
        prefix: bytes = b"",
        returns: bool = False,
    ) -> None:
        """`returns`: its reader reconnects by itself if the connection ends without an ending."""
        self.status_code = 200
        self.background = None
        self.raw_headers = list(_head(content_type))
        self._runs, self._cursors, self._prefix = runs, list(cursors), prefix
        self._keepalive, self._stall = settings.keepalive, settings.runs.stall_timeout
        self._interval = min(self._keepalive, self._stall / 3)
        self._left, self._returns = False, returns
        self._complete = False
        self._silent = False
        self._sending = False
        self._since = 0.0  # since when it has been sending, or waiting
        self._unsent = 0
        self._due = 0.0  # when the timer should call
        self._waiter: asyncio.Future[None] | None = None
        self._again: Callable[[], None]  # see `_needed`

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":  # the headers alone
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body"})
            return
        self._loop, self._context = asyncio.get_running_loop(), copy_context()
        self._since = self._loop.time()
        self._send = send
        self._connection = connection_of(scope)
        for cursor in self._cursors:
            self._runs.attach(cursor.run, returns=self._returns)
        stop_watching = self._watch(receive)
        self._set_timer(self._since, self._interval)
        try:
            await asyncio.sleep(0)  # a run that just started: its first events are sent with the headers
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._stream()
        finally:
            self._timer.cancel()
            stop_watching()  # the connection references us and would keep us alive
            for cursor in self._cursors:
                self._runs.detach(cursor.run, returns=self._returns)

    async def _stream(self) -> None:
        if self._prefix:
            await self._write(self._prefix)
        for cursor in self._cursors:  # grows when another process continues the last run
            await self._follow(cursor, last=cursor is self._cursors[-1])
            later = cursor.run.later
            if later is not None and cursor is self._cursors[-1] and not self._complete:
                self._cursors.append(Cursor(later, cursor.encoder, middleware=cursor.middleware))
                self._runs.attach(later, returns=self._returns)
        if not self._left and not self._complete:
            await self._send({"type": "http.response.body", "body": await self._rest(), "more_body": False})

    async def _rest(self) -> bytes:
        """Returns what follows the last event, if it was not an ending."""
        return b""

    async def _follow(self, cursor: Cursor, *, last: bool) -> None:
        run_log = cursor.run.log
        try:
            while not self._left:
                if cursor.position < len(run_log):
                    body = cursor.take()
                    is_over = last and run_log.has_ending and cursor.run.later is None
                    await self._write(body, final=is_over and not cursor.has_more)
                elif run_log.ended:
                    return
                else:
                    await self._needed(cursor)
                    if self._silent:
                        await self._write(cursor.encoder.keepalive)
        except ReplayGone:
            self._drop("a client fell so far behind that its next events were evicted; it was disconnected")
            if self._connection is not None:  # else the server would log an unfinished answer
                await self._woken()

    async def _needed(self, cursor: Cursor) -> None:
        """Waits until the task is needed: backpressure, silence or the end. Until then callbacks forward the events."""
        self._waiter, run_log = self._loop.create_future(), cursor.run.log
        # Runs outside the run's own work and context: what a middleware logs belongs to this request.
        soon = partial(self._loop.call_soon, self._pass_on, cursor, self._waiter, context=self._context)
        self._again = partial(run_log.call_at_next, soon)
        self._again()
        try:
            await self._waiter
        finally:
            run_log.do_not_call(soon)
            del self._again  # avoids a reference cycle

    def _pass_on(self, cursor: Cursor, waiter: "asyncio.Future[None]") -> None:
        if waiter.done():
            return
        try:
            connection = self._connection
            if connection is not None and not cursor.run.log.ended:
                written = connection.write_at_once(cursor.take)
                if written:
                    self._silent, self._since = False, self._loop.time()
                if written is not None and not cursor.has_more:
                    self._again()
                    return
            waiter.set_result(None)
        except Exception as error:  # noqa: BLE001  any exception belongs to the task of the stream
            waiter.set_exception(RuntimeError("no more events") if isinstance(error, StopIteration) else error)

    async def _write(self, body: bytes, *, final: bool = False) -> None:
        if not body:
            return  # a middleware may hide all that was new
        self._sending, self._silent, self._since = True, False, self._loop.time()
        self._complete = final
        is_long, connection = len(body) > NOT_COPIED and not final, self._connection
        if not is_long or connection is None or connection.write_at_once(lambda: body) is None:
            await self._send({"type": "http.response.body", "body": body, "more_body": not final})
        self._sending, self._since = False, self._loop.time()

    def _watch(self, receive: Receive) -> Callable[[], object]:
        """Detects a disconnect: from the connection, or from `receive` behind another ASGI server."""
        if self._connection is None:
            return asyncio.ensure_future(self._listen(receive)).cancel
        if self._connection.transport.is_closing():  # it left earlier, for example while its files were read
            self._leave()
        self._connection.when_lost = self._leave
        return partial(setattr, self._connection, "when_lost", None)

    async def _listen(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        self._left = True
        self._wake()

    async def _woken(self) -> None:
        """Waits for the next `_wake`."""
        self._waiter = self._loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _tick(self) -> None:
        """The one timer: checks how long the stream has been sending or waiting.

        If the timer calls late, the server itself was paused. That time does not count against the client.
        """
        now = self._loop.time()
        if self._sending:
            if (late := now - self._due) > self._interval:
                self._since += late
            self._look_for_progress(now)
        limit = self._stall if self._sending else self._keepalive
        if now - self._since >= limit:
            if self._sending:
                self._drop(f"a client read nothing for {self._stall:g} s and was disconnected; its run continues")
                return
            self._silent, self._since = True, now
            self._wake()
        self._set_timer(now, min(max(self._since + limit - now, 0.001), self._interval))

    def _set_timer(self, now: float, seconds: float) -> None:
        self._due = now + seconds
        self._timer = self._loop.call_later(seconds, self._tick)

    def _look_for_progress(self, now: float) -> None:
        """A slow reader is allowed, a reader that takes nothing is not."""
        unsent = unsent_bytes(self._connection.transport) if self._connection else 0
        if unsent < self._unsent:
            self._since = now
        self._unsent = unsent

    def _drop(self, why: str) -> None:
        log.warning(why)
        self._leave()
        if self._connection is not None:
            self._connection.transport.abort()


def first_position(part: Run, first: int, encoder: Encoder) -> int:
    """Returns the index in the log of a part at which a reader begins. A copied log may lag behind its reader.

    In a rebuilt log, a reader that reconnects starts at the snapshot. Only encoders without state can; the others must
    read from the first event.
    """
    if part.is_rebuilt and 0 < first < part.first_number and not encoder.needs_all_events:
        return next((n for n, event in enumerate(part.log.kept) if isinstance(event, MessagesReplaced)), 0)
    position = max(0, first - part.first_number)
    return position if part.is_remote and not part.log.ended else min(position, len(part.log))


def follow(
    server: AgentServer,
    run: Run,
    *,
    accept: str | None = None,
    first: int = 0,
    returns: bool = False,
    encoder: Encoder | None = None,
) -> EventStream:
    """A run from event `first` on, with the earlier parts that it continues under the same id.

    The run's wire encodes it, unless an `encoder` is given. See `EventStream` for `returns`.
    """
    if encoder is None:
        encoder = server.encoders.get(run.request.wire, server.encoders[""])(server, run, accept)
    cursors = [Cursor(part, encoder, first_position(part, first, encoder), server.middleware()) for part in run.parts]
    return EventStream(server.runs, cursors, server.settings.block, content_type=encoder.content_type, returns=returns)
