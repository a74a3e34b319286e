"""The port of run stores: records of runs, their endings, and copies of the logs of runs that a crash interrupted.

Sessions hold messages. Run stores hold the requests: idempotency keys, states, endings. Both are written in the same
transaction, so they never disagree.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from holodeck.core.events import Ending, Event
from holodeck.core.messages import ToolExecution, now
from holodeck.core.owner import OwnedId, Owner
from holodeck.core.request import RunRequest
from holodeck.errors import InvalidRequest
from holodeck.runs.log import RunLog


class RunState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"  # its process ended in the middle of it


class RunExists(InvalidRequest):
    """Another request, perhaps at another process, has started this run."""

    def __init__(self, message: str) -> None:
        super().__init__(message, field="runId")


class RunKey(NamedTuple):
    """Names one request of one owner on one wire."""

    wire: str
    owner: Owner
    name: str
    header_name: str = "key"  # what the client has to check if the key is taken; the same for all keys of a wire
    part: bytes = b""  # distinguishes a resume under a run's own id from the request that began the run


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run as data. `request` is what the run needs to continue after a crash (`kept_of` in `run.py`)."""

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
    recovered: int = 0  # how often a process has taken it over after a crash
    replica: str = ""  # the process that runs it, where several share a store
    stop_wanted: bool = False  # another process was asked to stop it


class RunResult(msgspec.Struct, frozen=True, gc=False):
    """The result of a finished run, for clients that ask for the whole answer."""

    text: str | None
    executions: Sequence[ToolExecution]
    output: Any = None  # the final answer as a value of the agent's output type


class Begun(NamedTuple):
    """The position of a run among the runs of its session."""

    is_first: bool = True
    ahead: frozenset[str] = frozenset()  # the runs that have not ended


class Pulse(NamedTuple):
    """The news that a process gets when it reports that it is alive."""

    is_alive: bool = True  # False: the others considered it dead
    stops: Sequence[OwnedId] = ()  # its runs that are to be stopped
    followed: Sequence[OwnedId] = ()  # its runs that another process has read since the last beat
    gone: Sequence[OwnedId] = ()  # its runs that were deleted, or taken over
    awaited: Sequence[OwnedId] = ()  # its runs that others of the same session wait for
    left: bool = False  # another process has left: its runs can be taken over


class RunStore(Protocol):
    """Keeps records of runs and, while they can be read again, a copy of their logs.

    A record is kept as long after the run's end as a session after its last use, and at least a day. An idempotency key
    is kept for a day.
    """

    outlives_process: bool  # whether the next process finds what is stored here

    def register(self, record: RunRecord) -> None:
        """Notes a new run. It is stored together with the first thing that its conversation stores."""

    async def begin(self, record: RunRecord) -> Begun:
        """Stores a run at once: it waits for its turn, or shows events before its first commit.

        Raises RunExists if another request has started it.
        """

    async def stored(self, record: RunRecord) -> None:
        """Waits until a run that was just registered or begun is durable: its client is about to get its id."""

    async def store_request(self, record: RunRecord) -> bool:
        """Stores the current request of a run that is in progress. Durable when it returns.

        Does nothing and returns False if the run has ended meanwhile, was deleted, or is another process's by now.
        """

    def release(self, record: RunRecord) -> None:
        """Drops the note of a run that ended before anything of it was stored. Idempotent."""

    async def take_up(self, record: RunRecord) -> None:
        """Counts that a process continues a run that another one left. Raises LostClaim if it lost the run meanwhile."""

    async def end(self, record: RunRecord, ending: Ending) -> bool:
        """Stores the ending of a run that ended without its conversation.

        False if it is not stored: another process has the run and decides how it ends, or the run was deleted.
        """

    async def find(self, run_id: str, *, owner: Owner) -> RunRecord | None: ...

    async def by_key(self, wire: str, key: str, *, owner: Owner) -> RunRecord | None:
        """The run that was started with this idempotency key in the last day."""

    async def runs_of(
        self, *, owner: Owner, session_id: str | None = None, root: str | None = None, limit: int = 100
    ) -> Sequence[RunRecord]:
        """The owner's runs, newest first. With a session or a chain, only its runs."""

    async def equal_runs(self, fingerprint: bytes, *, owner: Owner, seconds: float) -> Sequence[RunRecord]:
        """The owner's runs of equal requests that have not ended, or did so in the last seconds, oldest first.

        A store in memory returns none: its process knows them.
        """

    async def remove(self, run_id: str, *, owner: Owner) -> bool:
        """Deletes one record and its copy of the log, and returns whether it existed.

        The session keeps its messages.
        """

    async def unfinished(self) -> Sequence[RunRecord]:
        """Runs without an ending, oldest first."""

    async def events(self, record: RunRecord, first: int = 0) -> list[tuple[int, list[Event]]]:
        """The log's copy from event `first` on, in pieces without gaps, each with the number of its first event.

        A part that another process has added after a crash begins at a multiple of `PART_STRIDE`.
        """

    def follow(self, record: RunRecord, log: RunLog, first_number: int = 0) -> None:
        """Copies the log, as one more reader. Its first event has this number. Never waits and never fails."""


class SessionWatch(Protocol):
    """Notices that runs of one session have begun or ended, in any process."""

    async def wait(self, seconds: float) -> None:
        """Waits at most this long for a change since the last wait, or since the watch was opened.

        May return without one.
        """

    def close(self) -> None: ...


@runtime_checkable
class SharedRunStore(RunStore, Protocol):
    """A store shared by several processes: each of them finds, reads and stops the runs of all."""

    replica: str  # this process
    has_others: bool  # whether another process can take over what this one leaves when it stops
    processes: int  # how many share the store, this one included, as far as it knows
    carrier_is_up: bool | None  # whether the Valkey that carries logs responds; None without one
    clock: Callable[[], float]  # the clock of the store, in seconds since 1970: it dates the ends of runs
    on_pulse: Callable[[Pulse], None]  # called between two beats with what other processes want of its runs

    async def join(self) -> None:
        """Adds this process to those that share the store. Idempotent."""

    async def begin(self, record: RunRecord, *, continues: Ending | None = None) -> Begun:
        """Stores a run. A run that has ended is begun again only by the part that continues it under its own id.

        `continues` is the ending that this part has seen. Raises RunExists if the run has another one by now, and for
        any other request with its id: it may have looked for the run before another process stored it.
        """

    async def turn(self, record: RunRecord) -> None:
        """Waits until no run of its session is before it, in any process.

        Raises LostClaim if the run was deleted meanwhile.
        """

    async def withdraw(self, record: RunRecord) -> None:
        """Removes a run that was begun and then refused, which frees its key."""

    async def open_runs(self, *, owner: Owner, session_id: str | None = None) -> Sequence[RunRecord]:
        """The owner's runs that have not ended, oldest first; of one session, if it is given."""

    async def want_stop(self, record: RunRecord) -> bool:
        """Asks the process that has the run to stop it. False if it has ended."""

    async def note_followed(self, runs: Sequence[OwnedId]) -> None:
        """Notifies the processes that have these runs that readers follow them here."""

    def watch_session(self, session_id: str, *, owner: Owner) -> SessionWatch: ...

    async def wait_for_more(self, record: RunRecord, first: int) -> None:
        """Waits briefly until the copied log may contain event `first`."""

    def stop_waiting(self, record: RunRecord) -> None:
        """Stops following the copy of this run's log."""

    async def beat(self) -> Pulse:
        """Reports to the other processes that this one is alive."""

    async def take_over(self, seconds: float) -> Sequence[RunRecord]:
        """Moves to this process the runs of processes that left or were silent for this long.

        Waits for nothing but the database: it is part of the heartbeat.
        """

    async def seal(self, taken: Sequence[RunRecord]) -> None:
        """Closes the copies of the logs of runs that were taken over: their processes can add nothing more.

        Nothing depends on it. It may fail silently.
        """
