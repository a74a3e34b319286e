"""One run of the agent: data about it, its log, and the task that writes it. `Runs` starts and ends them.

Also what the runs of a session share. `SessionQueue` lets them run one at a time, in the order in which they came
(SRV-16). `SessionFeeds` notifies the readers of `GET /sessions/{id}/events` when one starts.
"""

import asyncio
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from holodeck.core.events import (
    Emit,
    Ending,
    Observer,
    Outcome,
    RunFailed,
    RunFinished,
    before_anything_is_stored,
    failure,
)
from holodeck.core.messages import INTERRUPTED, now
from holodeck.core.owner import OwnedId, Owner
from holodeck.core.request import RunRequest
from holodeck.core.zones import is_zone
from holodeck.errors import HoloDeckError
from holodeck.models.port import Prompt
from holodeck.runs.log import RunLog, size_of_messages
from holodeck.runs.port import RunRecord, RunResult, RunState
from holodeck.sessions.port import Conversation

CANCEL_SECONDS = 1.0


class SessionQueue:
    """Queues of runs by session. A session without a run takes no memory."""

    def __init__(self) -> None:
        self._queues: dict[OwnedId, list[QueueSlot]] = {}  # short lists: even an empty deque is larger

    def busy(self, key: OwnedId) -> bool:
        return key in self._queues

    def waiting(self, key: OwnedId) -> int:
        """How many runs are in the queue, including the running one."""
        return len(self._queues.get(key, ()))

    def take(self, key: OwnedId) -> "QueueSlot":
        queue = self._queues.setdefault(key, [])
        slot = QueueSlot(self, key, is_free=not queue)
        queue.append(slot)
        return slot

    def release(self, key: OwnedId, slot: "QueueSlot") -> None:
        """Idempotent."""
        queue = self._queues.get(key)
        if queue is None or slot not in queue:
            return
        queue.remove(slot)
        if queue:
            queue[0].free()
        else:
            del self._queues[key]


@dataclass(slots=True, eq=False)
class QueueSlot:
    """A slot in one queue. Entering waits for its turn; leaving lets the next one enter, even after an error."""

    _queue: SessionQueue
    _key: OwnedId
    is_free: bool  # whether it is this slot's turn
    _waiter: "asyncio.Future[None] | None" = None

    async def __aenter__(self) -> None:
        try:
            if not self.is_free:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
        except BaseException:
            self.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def free(self) -> None:
        self.is_free = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def release(self) -> None:
        """Releases a slot that is no longer used, or will not be."""
        self._queue.release(self._key, self)


class RunMeter(Observer, ABC):
    """Counts what one run spends. This package knows no limits: whatever starts the run passes its meter."""

    @abstractmethod
    def follow(self, run: "Run") -> None:
        """Called before the run's first event."""

    @abstractmethod
    async def reserve(self, prompt: Prompt) -> None:
        """Called before each model call. An error that it raises ends the run."""


@dataclass(kw_only=True, eq=False, slots=True, weakref_slot=True)
class Run:
    """A run that is in progress, or that can be read again. The groups of its members say which class writes them."""

    # Fixed, except that the request and the record lose what is no longer needed.
    request: RunRequest
    run_id: str
    session_id: str
    owner: Owner
    log: RunLog
    created_at: datetime = field(default_factory=now)
    begun: float = field(default_factory=time.monotonic)
    fingerprint: bytes = b""  # hash of the request, if it has an idempotency key
    earlier: "Run | None" = None  # the part that this run continues under the same id; it ended with an interrupt
    first_number: int = 0  # the number of the log's first event, counted over all parts
    record: RunRecord | None = None  # as it is stored, if it is

    # `attach` and `detach`: its readers, and the time that it continues without any.
    readers: int = 0
    returning: int = 0  # readers (of `readers`) whose client reconnects automatically
    grace: asyncio.TimerHandle | None = None

    # `Runs`: its task and its place in the queue.
    task: "asyncio.Task[None] | None" = None
    stopped_by: HoloDeckError | None = None
    deadline: asyncio.TimerHandle | None = None
    size: int = 0  # approximate bytes of log and request; set when the run has ended
    slot: QueueSlot | None = None
    is_first: bool = True  # its position among the runs of its session, in all processes, when it was started
    behind: frozenset[str] = frozenset()  # the runs of its session that were in progress when it was started
    watched: frozenset[str] = frozenset()  # those of them that a client read then
    meter: RunMeter | None = None  # while it is in progress, if its owner has limits; set again after a crash

    # `RunExecutor`, while it is in progress. The log's ending sets the state and the times.
    state: RunState = RunState.QUEUED
    conversation: Conversation | None = None
    is_new_session: bool = False  # the client named a session that has expired, or is unknown
    root: str = ""  # the first run of its chain: each run answers what the one before waited for
    result: RunResult | None = None
    finished_at: datetime | None = None
    ended: float | None = None

    # `InterruptedRuns`, `StoredRuns` and `RemoteRuns`: for a run that another process had, or has.
    reader_arrived: asyncio.Event | None = None  # set by a reader; a run waits for it after a crash
    is_rebuilt: bool = False  # rebuilt from its messages, since its log is gone: clients have seen other events
    is_remote: bool = False  # another process has it; the log is filled from its copy
    later: "Run | None" = None  # for a remote run: the part that another process added after a crash

    _abandoned: "asyncio.Future[None] | None" = field(default=None, init=False)  # made by waiters
    emit: Emit = field(init=False)

    def __post_init__(self) -> None:
        self.root = self.root or self.run_id
        self.log.on_ending = partial(_note_ending, weakref.ref(self))  # a method would be a cycle of run and log
        self.emit = self.log.append

    def attach(self, *, returns: bool = False) -> None:
        """Adds a reader. One that `returns` reconnects by itself if its connection ends without an ending."""
        self.readers += 1
        self.returning += returns
        if self.reader_arrived is not None or self.grace is not None:
            self.note_reader()

    def detach(self, *, returns: bool = False) -> bool:
        """Removes a reader. Returns whether the run has no reader now and may need one."""
        self.readers -= 1
        self.returning -= returns
        return self.readers == 0 and not self.is_remote and not self.log.ended and not self.request.detached

    def note_reader(self) -> None:
        """Lets a run that waits for a reader after a crash continue, and ends its grace period."""
        if self.reader_arrived is not None:
            self.reader_arrived.set()
        if self.grace is not None:
            self.grace.cancel()
            self.grace = None

    def end_unless_read(self, seconds: float, end: Callable[[], object]) -> None:
        """Calls `end` after this time, unless a reader arrives before."""
        self.grace = asyncio.get_running_loop().call_later(seconds, end)

    def change_stored_request(self, **changes: Any) -> RunRecord | None:
        """Changes the request of the record, which the caller stores. None if the run is not stored."""
        if self.record is not None:
            request = msgspec.structs.replace(self.record.request, **changes)
            self.record = msgspec.structs.replace(self.record, request=request)
        return self.record

    def end_as(self, record: RunRecord, result: RunResult) -> None:
        """Takes the end of a run that ended in another process from its record."""
        self.state, self.finished_at, self.result = record.state, record.finished_at, result

    def abandon(self) -> None:
        """Wakes those who wait for the run: the server stops, and its task does not end."""
        if self._abandoned is not None and not self._abandoned.done():
            self._abandoned.set_result(None)

    @property
    def abandoned(self) -> "asyncio.Future[None]":
        """Done if the run was abandoned."""
        if self._abandoned is None:
            self._abandoned = asyncio.get_running_loop().create_future()
        return self._abandoned

    def release(self) -> None:
        """Drops what only a live run needs, and references that would keep the log alive.

        The observers and the run reference each other. The task holds the context of its request.
        """
        self.log.observers, self.log.on_ending, self.conversation, self.slot, self.meter = (), None, None, None, None
        if not self.is_remote:
            self.task = None
        request = self.request
        if request.client_tools or request.context or request.resume:
            self.request = msgspec.structs.replace(request, client_tools=(), context=(), resume=())

    @property
    def parts(self) -> "list[Run]":
        """The runs that readers of this id follow, oldest first. This run is the last one."""
        parts = [self]
        while (earlier := parts[-1].earlier) is not None:
            parts.append(earlier)
        return parts[::-1]

    @property
    def request_parts(self) -> "list[Run]":
        """The parts of its last request, oldest first. They are several after a crash; only the first one has the start."""
        parts = [self]
        while (earlier := parts[-1].earlier) is not None and earlier.log.ending is None:
            parts.append(earlier)
        return parts[::-1]

    @property
    def beginning(self) -> int:
        """The number of the first event of its request."""
        return self.request_parts[0].first_number

    @property
    def events(self) -> int:
        return sum(len(part.log) for part in self.parts)

    @property
    def next_number(self) -> int:
        """The number of the next event.

        After a crash it exceeds the count: numbering resumes at a multiple of `PART_STRIDE`.
        """
        return self.first_number + len(self.log)

    @property
    def is_being_stopped(self) -> bool:
        return self.task is not None and self.task.cancelling() > 0

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far, measured on the monotonic clock (D09)."""
        return (time.monotonic() if self.ended is None else self.ended) - self.begun

    async def done(self) -> None:
        """Waits for the run's end. Cancelling the waiter does not cancel the run."""
        if self.task is not None:
            await asyncio.wait({self.task})


def _note_ending(ended: "weakref.ref[Run]", event: Ending) -> None:
    if (run := ended()) is not None:
        run.state = state_after(event)
        run.finished_at, run.ended = now(), time.monotonic()


def state_after(ending: Ending) -> RunState:
    if isinstance(ending, RunFailed):
        return RunState.INTERRUPTED if ending.code == INTERRUPTED else RunState.FAILED
    return RunState.CANCELLED if ending.outcome is Outcome.CANCELLED else RunState.FINISHED


MAX_KEPT_BYTES = 128 * 1024
"""How much of its client's tools, context, state and answers a stored request may keep, together, as JSON."""


MAX_ENCODING_BYTES = 16 * 1024
"""How long `RunRequest.encoding` of a run in progress may be in storage, as JSON."""

MAX_ENDED_ENCODING_BYTES = 2 * 1024
"""The same after the run's end. No limit of a store counts it, and it is kept until the session expires."""


def kept_of(request: RunRequest, agent_version: str = "") -> RunRequest:
    """Returns the part of a request that is stored: only what a run needs to continue after a crash.

    The only client property that it keeps is the time zone. If tools, context, state and answers are too long, they are
    left out and the request is marked: its run cannot continue. So is that of a run without a session: the store gets
    no message, context or state of it.
    """
    zone = request.properties.get("timezone")
    properties = {"timezone": zone} if isinstance(zone, str) and is_zone(zone) else {}
    encoding = _shortened(request.encoding, MAX_ENCODING_BYTES)
    kept = msgspec.structs.replace(request, properties=properties, encoding=encoding, agent_version=agent_version)
    if request.throw_away:
        return msgspec.structs.replace(kept_after_end(kept), files=(), warnings=(), shortened=True)
    shown = (request.client_tools, request.context, request.state, request.resume)
    if shown == ((), (), None, ()) or len(msgspec.json.encode(shown)) <= MAX_KEPT_BYTES:
        return kept
    return msgspec.structs.replace(kept, client_tools=(), context=(), state=None, resume=(), shortened=True)


def kept_after_end(request: RunRequest) -> RunRequest:
    """Returns the part of a request that is kept after its run has ended: its messages are in the session already."""
    encoding = _shortened(request.encoding, MAX_ENDED_ENCODING_BYTES)
    return msgspec.structs.replace(
        request, messages=(), client_tools=(), context=(), state=None, resume=(), encoding=encoding
    )


def ending_kept(request: RunRequest, ending: Ending) -> Ending:
    """Returns the ending as it is stored: the store gets no answer and no question of a run without a session."""
    if not request.throw_away or isinstance(ending, RunFailed):
        return ending
    return msgspec.structs.replace(ending, interrupts=(), pending_calls=(), warning=None, output=None)


def _shortened(encoding: Mapping[str, Any], limit: int) -> Mapping[str, Any]:
    """Returns an encoding without its longest members, so that it has at most `limit` bytes as JSON.

    Members of a nested object are removed one by one, like those of the encoding. Readers get the wire's default for a member that is left out.
    Nothing is left of an encoding that is not valid as JSON, since no store can keep it.
    """
    try:
        left = len(msgspec.json.encode(encoding)) if encoding else 0
    except ValueError:  # a surrogate
        return {}
    if left <= limit:
        return encoding
    kept = {name: dict(value) if isinstance(value, Mapping) else value for name, value in encoding.items()}
    members = [(kept, name) for name, value in kept.items() if not isinstance(value, dict)]
    members += [(value, name) for value in kept.values() if isinstance(value, dict) for name in value]
    sizes = [len(msgspec.json.encode((name, holder[name]))) - len("[,]") for holder, name in members]
    for size, (holder, name) in sorted(zip(sizes, members, strict=True), key=lambda each: each[0], reverse=True):
        if left <= limit:
            break
        del holder[name]
        left -= size
    return {name: value for name, value in kept.items() if value != {}}


def size_of_request(request: RunRequest) -> int:
    """The approximate bytes that a finished run keeps of its request, to show them to readers that reconnect."""
    values = request.state, request.properties, request.encoding
    try:
        return size_of_messages(request.messages) + len(msgspec.json.encode(values))
    except ValueError:  # a surrogate
        return size_of_messages(request.messages) + len(repr(values))


def ending_of(run: Run, error: HoloDeckError | None) -> Ending:
    """The ending of a run that did not end itself: with this error, or as stopped by a client if there is none.

    A run shows nothing before its message is stored.
    """
    ending = stopped(run) if error is None else failure(run.run_id, run.session_id, error)
    is_stored = len(run.log) > 0 or run.task is None or run.request.throw_away
    return ending if is_stored else before_anything_is_stored(ending)


def stopped(run: Run | RunRecord) -> RunFinished:
    """The ending of a run that a client has stopped."""
    return RunFinished(run.run_id, run.session_id, outcome=Outcome.CANCELLED, finish_reason="cancelled")


async def cancel_all(tasks: Collection["asyncio.Task[Any] | None"]) -> None:
    """Cancels tasks of a server that stops, and waits a moment for their ends: a cancelled statement waits for the store."""
    running = {task for task in tasks if task is not None}
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=CANCEL_SECONDS)


class SessionFeeds:
    """Callbacks by session. Each is called with every run that starts, and with None when no more follow."""

    def __init__(self) -> None:
        self._calls: dict[OwnedId, list[Callable[[Run | None], None]]] = {}
        self._closed = False

    @contextmanager
    def subscribed(self, session: OwnedId, call: Callable[[Run | None], None]) -> Iterator[None]:
        self._calls.setdefault(session, []).append(call)
        if self._closed:
            call(None)
        try:
            yield
        finally:
            calls = self._calls[session]
            calls.remove(call)
            if not calls:
                del self._calls[session]

    def started(self, session: OwnedId, run: Run) -> None:
        for call in self._calls.get(session, ()):
            call(run)

    def end(self, session: OwnedId) -> None:
        """Ends the feeds of a session that was deleted."""
        for call in self._calls.get(session, ()):
            call(None)

    def close(self) -> None:
        """Ends all feeds: no more runs start."""
        self._closed = True
        for session in self._calls:
            self.end(session)
