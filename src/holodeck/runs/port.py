"""The port of run stores: the runs, their endings, and a copy of the events of runs that a crash cut.

Sessions hold messages; run stores hold the requests: idempotency keys, states, endings. Both are written in the same
transaction, so they never disagree.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from holodeck.core.events import Ending, Event, Outcome, RunFailed
from holodeck.core.messages import INTERRUPTED, now
from holodeck.core.owner import OwnedId, Owner
from holodeck.core.request import RunRequest
from holodeck.core.tools import ToolExecution
from holodeck.core.zones import is_zone
from holodeck.errors import InvalidRequest
from holodeck.runs.log import RunLog


class RunState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"  # its process ended in the middle of it


def state_after(ending: Ending) -> RunState:
    if isinstance(ending, RunFailed):
        return RunState.INTERRUPTED if ending.code == INTERRUPTED else RunState.FAILED
    return RunState.CANCELLED if ending.outcome is Outcome.CANCELLED else RunState.FINISHED


class RunExists(InvalidRequest):
    """Another request, perhaps at another process, has started this run."""

    def __init__(self, message: str) -> None:
        super().__init__(message, field="runId")


class RunKey(NamedTuple):
    """Names one request of one owner on one wire."""

    wire: str
    owner: Owner
    name: str
    header_name: str = "key"  # what the client has to look at if it is taken; the same for all keys of a wire
    part: bytes = b""  # distinguishes a resume under a run's own id from the request that began the run


MAX_KEPT_BYTES = 128 * 1024
"""How much a stored request may keep of client tools, context and state together, as JSON."""


def kept_of(request: RunRequest) -> RunRequest:
    """What is stored of a request: what a run that goes on after a crash needs, and no more.

    Of the client's properties that is the time zone. A request whose tools, context and state are too long is stored
    without them, and marked: its run cannot go on.
    """
    zone = request.properties.get("timezone")
    properties = {"timezone": zone} if isinstance(zone, str) and is_zone(zone) else {}
    kept = msgspec.structs.replace(request, properties=properties, resume=())
    shown = (request.client_tools, request.context, request.state)
    if shown == ((), (), None) or len(msgspec.json.encode(shown)) <= MAX_KEPT_BYTES:
        return kept
    return msgspec.structs.replace(kept, client_tools=(), context=(), state=None, shortened=True)


def kept_after_end(request: RunRequest) -> RunRequest:
    """What is stored of a request whose run has ended: its messages are in the session, and nothing goes on."""
    return msgspec.structs.replace(request, messages=(), client_tools=(), context=(), state=None)


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run as data. `request` is what a run that goes on after a crash needs of its request (`kept_of`)."""

    run_id: str
    owner: Owner
    session_id: str
    wire: str = ""
    key: str | None = None  # the client's idempotency key
    fingerprint: bytes = b""
    request: RunRequest = RunRequest()
    root: str = ""  # the first run of its chain: each answers what the one before waited for; empty: the run itself
    state: RunState = RunState.RUNNING
    created_at: datetime = msgspec.field(default_factory=now)
    finished_at: datetime | None = None
    ending: Ending | None = None
    recovered: int = 0  # how often a process has taken it up after a crash
    replica: str = ""  # the process that has it, where several share a store
    stop_wanted: bool = False  # another process was asked to stop it


class RunResult(msgspec.Struct, frozen=True, gc=False):
    """What clients that ask for the whole answer are shown of a run that has ended."""

    text: str | None
    executions: Sequence[ToolExecution]
    output: Any = None  # the final answer as a value of the agent's output type


class Begun(NamedTuple):
    """Where a run stands among the runs of its session."""

    is_first: bool = True
    ahead: frozenset[str] = frozenset()  # the runs that have not ended


class Pulse(NamedTuple):
    """What a process learns when it shows that it is alive."""

    is_alive: bool = True  # False: the others took it for dead
    stops: Sequence[OwnedId] = ()  # its runs that are to be stopped
    followed: Sequence[OwnedId] = ()  # its runs that another process has read since the last look
    gone: Sequence[OwnedId] = ()  # its runs that were deleted, or taken over
    awaited: Sequence[OwnedId] = ()  # its runs that others of the same session wait for
    left: bool = False  # another process has left: its runs can be taken over


class RunStore(Protocol):
    """Keeps records of runs and, as long as they can be read again, a copy of their logs.

    A record is kept as long after the run's end as a session after its last use, a day at least; an idempotency key for
    a day.
    """

    outlives_process: bool  # whether the next process finds what is stored here

    def register(self, record: RunRecord) -> None:
        """Notes a run that begins. It is stored together with the first thing that its conversation stores."""

    async def begin(self, record: RunRecord) -> Begun:
        """Stores it now: for a run that waits for its turn, or that shows something before it stores something.

        RunExists if another request has started it.
        """

    async def stored(self, record: RunRecord) -> None:
        """Waits until a run that has just been registered, or begun, is durable: its client is about to get its id."""

    async def store_request(self, record: RunRecord) -> None:
        """Stores the request of a run that is in progress, as it is now; durable when it returns.

        A run that has ended meanwhile, or was deleted, stays as it is.
        """

    def release(self, record: RunRecord) -> None:
        """Drops the note of a run that ended before anything of it was stored. Idempotent."""

    async def take_up(self, record: RunRecord) -> None:
        """Counts that a process goes on with a run that another one left."""

    async def end(self, record: RunRecord, ending: Ending) -> None:
        """Stores the ending of a run that ended without its conversation."""

    async def find(self, run_id: str, *, owner: Owner) -> RunRecord | None: ...

    async def by_key(self, wire: str, key: str, *, owner: Owner) -> RunRecord | None:
        """The run that was started with this idempotency key in the last day."""

    async def runs_of(
        self, *, owner: Owner, session_id: str | None = None, root: str | None = None, limit: int = 100
    ) -> Sequence[RunRecord]:
        """The owner's runs, newest first; of one session or one chain, if given."""

    async def remove(self, run_id: str, *, owner: Owner) -> bool:
        """Deletes one record with its copy of the log; whether there was one. The session keeps its messages."""

    async def unfinished(self) -> Sequence[RunRecord]:
        """Runs without an ending, oldest first."""

    async def events(self, record: RunRecord, first: int = 0) -> list[tuple[int, list[Event]]]:
        """The log's copy from event `first` on, in pieces without gaps, each with the number of its first event.

        A part that another process has added after a crash begins at a multiple of `HOLE`.
        """

    def follow(self, record: RunRecord, log: RunLog, first_number: int = 0) -> None:
        """Copies the log, as one more reader. Its first event has this number. Never waits and never fails."""


class SessionWatch(Protocol):
    """Notices that runs of one session have begun or ended, in any process."""

    async def wait(self, seconds: float) -> None:
        """Waits for a change since the last wait, or since the watch was opened, and no longer than so.

        It may return without one.
        """

    def close(self) -> None: ...


@runtime_checkable
class SharedRunStore(RunStore, Protocol):
    """A store that several processes share: any of them finds, reads and stops the runs of all."""

    replica: str  # this process
    on_pulse: Callable[[Pulse], None]  # called with what other processes want of its runs, between two beats

    async def join(self) -> None:
        """Enters this process among those that share the store. Idempotent."""

    async def begin(self, record: RunRecord, *, continues: bool = False) -> Begun:
        """Stores a run. One that has ended is begun again only by the part that `continues` it under its own id.

        RunExists for any other request with its id: it may have looked for the run before another process stored it.
        """

    async def turn(self, record: RunRecord) -> None:
        """Waits until no run of its session is before it, in any process. LostClaim if it was deleted meanwhile."""

    async def withdraw(self, record: RunRecord) -> None:
        """Removes a run that was begun and is refused: its key is free again."""

    async def open_runs(self, *, owner: Owner, session_id: str | None = None) -> Sequence[RunRecord]:
        """The owner's runs that have not ended, oldest first; of one session, if it is given."""

    async def want_stop(self, record: RunRecord) -> bool:
        """Asks the process that has the run to stop it; False if it has ended."""

    async def note_followed(self, runs: Sequence[OwnedId]) -> None:
        """Lets the processes that have these runs know that they have readers here."""

    def watch_session(self, session_id: str, *, owner: Owner) -> SessionWatch: ...

    async def wait_for_more(self, record: RunRecord, first: int) -> None:
        """Waits until the copy of a run's log may have event `first`, and not long."""

    def stop_waiting(self, record: RunRecord) -> None:
        """The copy of this run's log is not followed any more."""

    async def beat(self) -> Pulse:
        """Shows the others that this process is alive."""

    async def take_over(self, seconds: float) -> Sequence[RunRecord]:
        """Takes the runs of processes that have left or have been still for so long. They are this process's now."""
