"""One run of the agent: data about it, its log, and the task that writes it. `Runs` starts and ends them."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

import msgspec

from holodeck.core.encoder import Encoder
from holodeck.core.events import Emit, Ending
from holodeck.core.messages import now
from holodeck.core.owner import Owner
from holodeck.core.request import RunRequest
from holodeck.errors import HoloDeckError
from holodeck.runs.log import RunLog
from holodeck.runs.port import RunRecord, RunResult, RunState, state_after
from holodeck.runs.session_queue import QueueSlot
from holodeck.sessions.port import Conversation

OpenEncoder: TypeAlias = Callable[["Run", str | None], Encoder]
"""Makes the encoder of one reader from a run and an Accept header. It must not hold the run, which holds it."""


@dataclass(kw_only=True, eq=False, slots=True, weakref_slot=True)
class Run:
    """A run that goes on, or that can be read again."""

    request: RunRequest
    run_id: str
    session_id: str
    owner: Owner
    log: RunLog
    created_at: datetime = field(default_factory=now)
    finished_at: datetime | None = None
    begun: float = field(default_factory=time.monotonic)
    ended: float | None = None
    state: RunState = RunState.QUEUED
    result: RunResult | None = None
    conversation: Conversation | None = None  # while it goes on
    readers: int = 0
    stopped_by: HoloDeckError | None = None
    task: "asyncio.Task[None] | None" = None
    grace: asyncio.TimerHandle | None = None
    size: int = 0  # of log and request in bytes, about; known when it has ended
    open_encoder: OpenEncoder | None = None  # how the wire that started it encodes it
    fingerprint: bytes = b""  # of the request, if it has an idempotency key
    deadline: asyncio.TimerHandle | None = None
    earlier: "Run | None" = None  # the part that this run continues under the same id: it ended with an interrupt
    first_number: int = 0  # the number of the log's first event, as readers count over all parts
    is_new_session: bool = False  # the client named a session that has expired, or is unknown
    slot: QueueSlot | None = None
    is_first: bool = True  # among the runs of its session, in all processes, when it came
    behind: frozenset[str] = frozenset()  # the runs of its session that were in progress when it came
    record: RunRecord | None = None  # as it is stored, if it is
    is_rebuilt: bool = False  # from its messages, since its log is gone: it has not the events that clients have seen
    root: str = ""  # the first run of its chain: each run answers what the one before waited for
    wanted: asyncio.Event | None = None  # set by a reader: a run that a crash cut waits for one before it goes on
    is_remote: bool = False  # another process has it; the log is filled from its copy
    later: "Run | None" = None  # of a remote run: the part that another process has added after a crash
    emit: Emit = field(init=False)

    def __post_init__(self) -> None:
        self.root = self.root or self.run_id
        self.log.on_ending = self._note_ending
        self.emit = self.log.append

    def release(self) -> None:
        """Drops observers, which reference the run, so that no cycle keeps the log; and what only a live run needs.

        A task holds the context of the request that started it.
        """
        self.log.observers, self.log.on_ending, self.conversation, self.slot = (), None, None, None
        if not self.is_remote:
            self.task = None
        self.request = msgspec.structs.replace(self.request, client_tools=(), context=(), resume=())

    def _note_ending(self, event: Ending) -> None:
        self.state = state_after(event)
        self.finished_at, self.ended = now(), time.monotonic()

    @property
    def parts(self) -> "list[Run]":
        """The runs that readers of this id follow, oldest first; this one is the last."""
        parts = [self]
        while (earlier := parts[-1].earlier) is not None:
            parts.append(earlier)
        return parts[::-1]

    @property
    def events(self) -> int:
        """How many events all parts have written."""
        return sum(len(part.log) for part in self.parts)

    @property
    def next_number(self) -> int:
        """The number of the next event. After a crash it is more than the count: numbers go on at a multiple of `HOLE`."""
        return self.first_number + len(self.log)

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far, whatever the clock on the wall did meanwhile (D09)."""
        return (time.monotonic() if self.ended is None else self.ended) - self.begun

    async def done(self) -> None:
        """Waits for the run's end; a waiter that is cancelled does not take the run with it."""
        if self.task is not None:
            await asyncio.wait({self.task})
