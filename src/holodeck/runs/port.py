"""The port of run stores: the runs, their endings, and a copy of the events of runs that a crash cut.

Sessions hold messages; run stores hold the requests: idempotency keys, states, endings. Both are written in the same
transaction, so they never disagree.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from holodeck.core.events import Ending, Event, Outcome, RunFailed
from holodeck.core.messages import INTERRUPTED, now
from holodeck.core.owner import Owner
from holodeck.core.request import RunRequest
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


class RunKey(NamedTuple):
    """Names one request of one owner on one wire."""

    wire: str
    owner: Owner
    name: str
    header_name: str = "key"  # what the client has to look at if it is taken; the same for all keys of a wire
    part: bytes = b""  # distinguishes a resume under a run's own id from the request that began the run


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
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


class RunStore(Protocol):
    """Keeps records of runs and, as long as they can be read again, a copy of their logs.

    A record is kept as long after the run's end as a session after its last use, a day at least; an idempotency key for
    a day.
    """

    def register(self, record: RunRecord) -> None:
        """Notes a run that begins. It is stored together with the first thing that its conversation stores."""

    async def begin(self, record: RunRecord) -> None:
        """Stores it now: for a run that waits for its turn, or that shows something before it stores something."""

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
        self,
        *,
        owner: Owner,
        session_id: str | None = None,
        root: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Sequence[RunRecord]:
        """The owner's runs, newest first: of one session or one chain, and older than the run `before`, if given."""

    async def remove(self, run_id: str, *, owner: Owner) -> bool:
        """Deletes one record with its copy of the log; whether there was one. The session keeps its messages."""

    async def unfinished(self) -> Sequence[RunRecord]:
        """Runs that a process of this store left without an ending, oldest first."""

    async def events(self, record: RunRecord) -> list[Event]:
        """What is left of the run's log, from its first event on."""

    def follow(self, record: RunRecord, log: RunLog) -> None:
        """Copies the log from now on, as one more reader. Never waits and never fails."""
