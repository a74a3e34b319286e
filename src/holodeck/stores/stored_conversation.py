"""A session as SQL stores keep it, its conversation as a run sees it, and what these stores have in common.

A session is one row for itself and one for each step of its history, with the same values in every store. A
conversation is the end of that history, decoded once. It makes one commit at a time. A store knows which sessions are
in use here, and cleans up.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from holodeck.core.events import Ending
from holodeck.core.messages import Message, PendingStep, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER, OwnedId, Owner
from holodeck.core.sizes import MB
from holodeck.errors import HoloDeckError, StoreUnavailable
from holodeck.sessions.port import KEEP, ServerSession, StoredSession, StoreLimits
from holodeck.sessions.recent_histories import RecentHistories
from holodeck.sessions.transcript import (
    READ,
    Committing,
    HeldParts,
    SessionChange,
    check_room,
    index_of_message,
    summary_after_cut,
    title_in,
    whole_turns,
)
from holodeck.stores import records

log = logging.getLogger(__name__)

ACCEPT_SECONDS = 0.002  # how long messages wait for a commit to join: one flush less if the model is fast
TTL_SECONDS = 30 * 24 * 3600.0
CLEAN_SECONDS = 60.0
DAY_SECONDS = 24 * 3600.0
AHEAD_SECONDS = 2 * DAY_SECONDS  # tolerated difference between a stored time and the clock
DOUBT_SECONDS = 3600.0  # shorter than the time between the daily restarts of a server
LAST_TIME = datetime(9999, 1, 1, tzinfo=UTC).timestamp()  # the latest that a session is shown with
LACKS_MESSAGES = "Earlier messages of this run could not be stored."
LOST = "Another process writes to this conversation now; this run can no longer store messages."
COLUMNS = "key, epoch, created, used, messages, steps, size, v, pending, state, summary, broken"

# The beginning of the first step that begins with a user's message, for the title: format it with both tables' names.
FIRST_STEP = (
    f"(SELECT substr(f.body, 1, {READ}) FROM {{steps}} f WHERE f.session = {{sessions}}.key AND f.by_user"
    " ORDER BY f.seq LIMIT 1)"
)

_PLAUSIBLE = datetime(2025, 1, 1, tzinfo=UTC).timestamp()  # an earlier wall clock is not set yet
_EPOCH, _MICROSECOND = datetime.fromtimestamp(0, UTC), timedelta(microseconds=1)

Step: TypeAlias = tuple[int, bool, bytes]
"""The message count, whether a user's message comes first, and the messages as JSON."""


class SessionWrite(msgspec.Struct, frozen=True):
    """What one transaction writes to a session.

    The first write of a conversation claims the session, as does each one that replaces the pending step: it raises the
    epoch, so that others who have the session open can write no more, and cannot remove the trace of the step's calls.
    """

    steps: Sequence[Step]
    parts: Mapping[str, bytes | None]
    ending: Ending | None
    cut: str | None  # the stored history is first cut before this user message, as `cut_before` does
    claims: bool


class SessionRow(msgspec.Struct, frozen=True):
    """A session as it is stored, without its messages. `key` None: not stored yet."""

    key: int | None
    epoch: int
    created: float
    used: float
    messages: int
    steps: int
    size: int
    v: int
    pending: bytes | None = None
    state: bytes | None = None
    summary: bytes | None = None
    broken: str | None = None

    def grown(self, steps: Sequence[Step], *, epoch: int, used: float) -> "SessionRow":
        """The row after these steps were added."""
        messages, size = self.messages, self.size
        for count, _, body in steps:
            messages += count
            size += len(body) - count - 1
        return msgspec.structs.replace(
            self, epoch=epoch, used=used, messages=messages, steps=self.steps + len(steps), size=size, v=records.VERSION
        )


def new_row(now: float, key: int | None = None) -> SessionRow:
    """An empty session."""
    return SessionRow(key, 0, now, now, 0, 0, 0, records.VERSION)


def steps_of(messages: Sequence[Message]) -> list[Step]:
    return [(len(turn), isinstance(turn[0], UserMessage), records.encode(turn)) for turn in whole_turns(messages)]


def size_of_steps(steps: Sequence[Step]) -> int:
    """The size of their messages in bytes, as `sessions.transcript.size_of` counts them."""
    size = 0
    for count, _, body in steps:
        size += len(body) - count - 1
    return size


def joined_steps(first: Sequence[Step], then: Sequence[Step]) -> list[Step]:
    """Joins consecutive steps. Two become one row if no user's message comes between them."""
    if not first or not then or then[0][1]:
        return [*first, *then]
    (count, by_user, body), (more, _, rest) = first[-1], then[0]
    return [*first[:-1], (count + more, by_user, body[:-1] + b"," + rest[1:]), *then[1:]]


def microseconds_of(moment: datetime) -> int:
    """Microseconds since 1970.

    Exact both ways: `described` truncates a time to microseconds, as do stores that compare it.
    """
    return (moment - _EPOCH) // _MICROSECOND


def seconds_of(moment: datetime, now: float) -> float:
    """Seconds since 1970 of a time that was not measured here; never later than now."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return min(now, max(0.0, (aware - _EPOCH).total_seconds()))


def described(owner: Owner, session_id: str, row: SessionRow, first_step: bytes | None = None) -> ServerSession:
    """Describes a session without its messages. It gets a title if the beginning of its first step is given.

    An invalid stored time is clamped, so that one damaged row does not break the list.
    """
    try:
        created, used = datetime.fromtimestamp(row.created, UTC), _EPOCH + int(row.used * 1e6) * _MICROSECOND
    except (ValueError, OverflowError, OSError):
        created, used = (
            datetime.fromtimestamp(min(max(0.0, each), LAST_TIME), UTC) for each in (row.created, row.used)
        )
    return ServerSession(
        session_id=session_id,
        owner=owner,
        created_at=created,
        last_activity=used,
        message_count=row.messages,
        size=row.size,
        title=title_in(first_step),
    )


class StoreClock:
    """The clock of a store: never behind what is stored, and not affected by changes of the wall clock."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()
        self._doubted_until = 0.0

    @property
    def is_doubted(self) -> bool:
        """Whether the wall clock may have been set ahead: then no session is deleted because of its age."""
        return time.monotonic() < self._doubted_until

    def begin(self, latest: float, now: float | None = None) -> None:
        """Starts the clock.

        `latest` is the newest stored time, `now` the time by the store's own clock if it has one. A stored time that is
        far ahead was written under a wrong clock: at that time all other sessions would have expired. If all stored times
        are far behind, either nothing was stored for days, or the clock is wrong now. So the operator has an hour to
        correct it before expired sessions are deleted. Each start begins that hour again.
        """
        wall = time.time() if now is None else now
        if latest and wall > latest + AHEAD_SECONDS:
            days = (wall - latest) / DAY_SECONDS
            log.warning("the last session was stored %.0f days ago by this clock; none is deleted for an hour", days)
            self._doubted_until = time.monotonic() + DOUBT_SECONDS
        if wall >= _PLAUSIBLE and latest > wall + AHEAD_SECONDS:
            log.warning("a session was stored at a time that is %.0f days ahead", (latest - wall) / DAY_SECONDS)
            latest = wall
        self._offset = max(latest, wall) - time.monotonic()

    def __call__(self) -> float:
        return self._offset + time.monotonic()


class _Store(Protocol):
    max_bytes: int
    histories: RecentHistories
    accepted: dict[OwnedId, Callable[[], None]]  # writes what a conversation has accepted and not begun to write
    awaited: Collection[OwnedId]  # runs whose client is answered as soon as something of them is stored

    async def read(self, session_id: str, *, owner: Owner) -> StoredSession | None: ...

    def grew(self, owner: Owner, added: int) -> None:
        """Adds these bytes, or subtracts them if negative, to what the owner stores."""

    def give_back(self, owner: Owner, session_id: str) -> None:
        """Notes that a run no longer uses the session."""


S = TypeVar("S", bound=_Store)


@dataclass(frozen=True, slots=True)
class _Accepted:
    """Messages that wait for a commit to join. They are written without one after `ACCEPT_SECONDS`."""

    steps: Sequence[Step]
    parts: Mapping[str, bytes | None]
    stored: "asyncio.Future[None]"
    timer: asyncio.TimerHandle


class StoredConversation(HeldParts, Committing, Generic[S]):
    """The common part of the stores' conversations. Each store implements how it reads and writes."""

    def __init__(self, store: S, session: OwnedId, run_id: str, row: SessionRow, messages: list[Message]) -> None:
        self._store, (self._owner, self._session_id), self._run_id = store, session, run_id
        self._row, self.messages = row, messages
        self.earlier = row.messages - len(messages)
        self._closed = False
        self._claimed = False
        self._cut: str | None = None  # the message before which the next commit cuts the history
        self._size = row.size  # after the history is cut
        self._writing: asyncio.Future[SessionRow] | None = None
        self._queued: asyncio.Task[None] | None = None  # the last commit that waits for its turn
        self._accepted: _Accepted | None = None
        self._gap: HoloDeckError | None = None  # why accepted messages are not stored: nothing may follow them
        self.pending = None if row.pending is None else records.pending_of(row.pending, row.v)
        self.state = None if row.state is None else records.state_of(row.state, row.v)
        self.summary = None if row.summary is None else records.summary_of(row.summary, row.v)

    @abstractmethod
    async def _older(self) -> list[Message]:
        """The messages of the session from its first one on."""

    @abstractmethod
    def _begin_write(self, write: SessionWrite) -> "asyncio.Future[SessionRow]":
        """Writes everything in one transaction. Raises SessionDeleted if the session was deleted meanwhile.

        The write continues if its caller is cancelled.
        """

    async def history(self) -> Sequence[Message]:
        if not self.earlier:
            return tuple(self.messages)
        session = self._owner, self._session_id
        return await self._store.histories.whole(session, self.earlier, self.messages, self._earlier_ones)

    async def stored(self) -> Sequence[Message]:
        found = await self._store.read(self._session_id, owner=self._owner)
        return () if found is None else found.messages

    async def _earlier_ones(self) -> Sequence[Message]:
        return (await self._older())[: self.earlier]

    async def rewind(self, before: str) -> None:
        messages = await self.history()
        kept = list(messages[: index_of_message(before, messages)])
        self.messages, self.earlier, self._cut = kept, 0, before
        self.pending, self.summary = None, summary_after_cut(self.summary, kept)
        self._size = size_of_steps(steps_of(kept))

    def _begin_commit(self, change: SessionChange, ending: Ending | None) -> "asyncio.Future[Any]":
        """Starts one transaction. The caller may be cancelled meanwhile.

        After accepted messages could not be stored, only an ending is: the rest would follow a gap in the history, and
        replace the pending step, which is the only trace of the calls in those messages.
        """
        steps, parts = self._encoded(change)
        if self._gap is not None and (steps or change.pending is not KEEP):
            raise copy(self._gap)
        before = self._writing if self._queued is None else self._queued
        if before is None:
            return self._start_writing(steps, parts, ending, change)
        self._queued = asyncio.ensure_future(self._write_after(before, steps, parts, ending, change))
        return self._queued

    async def _write_after(
        self,
        before: "asyncio.Future[Any]",
        steps: Sequence[Step],
        parts: Mapping[str, bytes | None],
        ending: Ending | None,
        change: SessionChange,
    ) -> None:
        """Writes in its turn. If the write before it fails, so does this one, unless it stores nothing but an ending."""
        try:
            await asyncio.wait({before})
            error = None if before.cancelled() else before.exception()
            if error is not None and (steps or "pending" in parts):
                raise error
            await self._start_writing(steps, parts, ending, change)
        finally:
            if self._queued is asyncio.current_task():
                self._queued = None

    def accept(self, messages: Sequence[Message], *, state: Any = KEEP) -> "asyncio.Future[None]":
        """Accepts messages.

        They wait a moment for the next commit: if the model answers immediately, one transaction is enough.
        """
        change = SessionChange(messages, state=state)
        steps, parts = self._encoded(change)
        self._add(change)
        loop, is_awaited = asyncio.get_running_loop(), (self._owner, self._run_id) in self._store.awaited
        timer = loop.call_later(0 if is_awaited else ACCEPT_SECONDS, self._write_accepted)
        self._accepted = accepted = _Accepted(steps, parts, loop.create_future(), timer)
        self._store.accepted[self._owner, self._session_id] = self._write_accepted
        return accepted.stored

    def _write_accepted(self) -> None:
        if self._accepted is not None:
            with suppress(HoloDeckError):  # the store is closed; the future has the error
                self._start_writing((), {}, None, None)

    def _encoded(self, change: SessionChange) -> tuple[list[Step], dict[str, bytes | None]]:
        """The steps and the changed parts of the session, encoded. Raises SessionFull if they do not fit."""
        steps = steps_of(change.messages) if change.messages else []
        size = self._size + (0 if self._accepted is None else size_of_steps(self._accepted.steps))
        if steps and size + (added := size_of_steps(steps)) > self._store.max_bytes:
            check_room(change.messages, added, size, self._store.max_bytes)
        is_older = self._row.v < records.VERSION  # all parts of a row have one version
        parts: dict[str, bytes | None] = {}
        for name in ("pending", "state", "summary"):
            part = getattr(change, name)
            if part is KEEP and is_older:
                part = getattr(self, name)
            if part is not KEEP:
                parts[name] = None if part is None else records.encode(part)
        return steps, parts

    async def begin_calls(self, step: PendingStep, *, state: Any = KEEP) -> None:
        await asyncio.shield(self._begin_commit(SessionChange((), step, state), None))

    def close(self) -> None:
        if not self._closed:
            self._write_accepted()
            self._closed = True
            self._store.give_back(self._owner, self._session_id)

    def _start_writing(
        self,
        steps: Sequence[Step],
        parts: Mapping[str, bytes | None],
        ending: Ending | None,
        change: SessionChange | None,
    ) -> "asyncio.Future[SessionRow]":
        """Writes these and all accepted messages. When they are stored, `change` is made to the parts in memory."""
        accepted, self._accepted = self._accepted, None
        if accepted is not None:
            accepted.timer.cancel()
            self._store.accepted.pop((self._owner, self._session_id), None)
            steps, parts = joined_steps(accepted.steps, steps), {**accepted.parts, **parts}
        cut = self._cut if steps or parts.get("pending") is not None else None  # an ending alone cuts nothing
        try:
            write = SessionWrite(steps, parts, ending, cut, claims=not self._claimed or "pending" in parts)
            self._writing = future = self._begin_write(write)
        except HoloDeckError as error:
            if accepted is not None:
                accepted.stored.set_exception(error)
            raise
        future.add_done_callback(partial(self._written, change, cut, None if accepted is None else accepted.stored))
        return future

    def _written(
        self,
        change: SessionChange | None,
        cut: str | None,
        stored: "asyncio.Future[None] | None",
        done: "asyncio.Future[SessionRow]",
    ) -> None:
        """Updates the parts in memory after a write.

        `stored` is the future of `accept`, if accepted messages were part of it.
        """
        self._writing = None
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if stored is not None and not stored.done():
            stored.set_result(None) if error is None else stored.set_exception(error)
        if error is not None:
            if stored is not None:
                self._gap = copy(error) if isinstance(error, HoloDeckError) else StoreUnavailable(LACKS_MESSAGES)
            return
        before, self._row, self._claimed = self._row, done.result(), True
        if cut is not None:
            self._cut = None
        if self._cut is None:
            self._size = self._row.size
        if change is not None:
            self._add(change)
        if self._row.size != before.size:
            self._store.grew(self._owner, self._row.size - before.size)


class _RemovesOldRuns(Protocol):
    async def remove_old(self) -> int: ...


class _Values(Protocol):
    async def remove_expired(self) -> int: ...


R = TypeVar("R", bound=_RemovesOldRuns)
V = TypeVar("V", bound=_Values)


class StoreSettings(StoreLimits, total=False):
    clock: Callable[[], float] | None


class SqlSessionStore(ABC, Generic[R, V]):
    values: V

    def __init__(
        self,
        agent: str,
        ttl_seconds: float = TTL_SECONDS,
        *,
        runs: R | None,
        max_per_user: int | None = None,
        spares_anonymous: bool = False,
        max_bytes: int = 4 * MB,
        max_owner_bytes: int | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.agent, self.max_bytes, self.runs = agent, max_bytes, runs
        self._ttl, self._max_per_user, self.max_owner_bytes = ttl_seconds, max_per_user, max_owner_bytes
        self._spares_anonymous = spares_anonymous
        self.now: Callable[[], float] = clock or StoreClock()
        self._in_use: Counter[OwnedId] = Counter()  # by the runs of this process
        self.awaited: Collection[OwnedId] = ()
        self.histories = RecentHistories()
        self.accepted: dict[OwnedId, Callable[[], None]] = {}  # starts to write what a conversation has accepted
        self._cleaner: asyncio.Task[None] | None = None

    def most_sessions(self, owner: Owner) -> int | None:
        """How many sessions the owner may have. None: any number."""
        return None if self._spares_anonymous and owner == ANONYMOUS_OWNER else self._max_per_user

    async def sessions_of(
        self, *, owner: Owner, limit: int = 100, after: ServerSession | None = None
    ) -> Sequence[ServerSession]:
        return await self._listed(owner, limit, after)

    async def all_sessions(self, limit: int = 1000) -> Sequence[ServerSession]:
        """Sessions of all owners, most recently used first, for the operator."""
        return await self._listed(None, limit)

    async def named(self, session_id: str, *, owner: Owner | None = None) -> Sequence[ServerSession]:
        """The sessions with this id, of one owner or of all, for the operator. Includes those that cannot be read."""
        return await self._listed(owner, -1, session_id=session_id)

    @abstractmethod
    async def _listed(
        self, owner: Owner | None, limit: int, after: ServerSession | None = None, *, session_id: str | None = None
    ) -> list[ServerSession]:
        """Sessions of one owner, or of all, most recently used first, starting after `after`.

        A negative `limit` is none. With `session_id`, only those with that id.
        """

    @abstractmethod
    async def cleanup_expired(self) -> int:
        """Deletes sessions that are past their time to live. Returns how many."""

    def take(self, owner: Owner, session_id: str) -> None:
        self._in_use[owner, session_id] += 1

    def give_back(self, owner: Owner, session_id: str) -> None:
        self._in_use[owner, session_id] -= 1
        if not self._in_use[owner, session_id]:
            del self._in_use[owner, session_id]

    def write_accepted(self, owner: Owner, session_id: str | None = None) -> None:
        """Starts to write what was accepted for a session, or for all sessions of an owner: they are deleted next."""
        for session in [each for each in self.accepted if each[0] == owner and session_id in (None, each[1])]:
            self.accepted[session]()

    async def clean(self) -> None:
        """Deletes everything past its time to live, but nothing while ages are in doubt: of a session or of its runs."""
        if isinstance(self.now, StoreClock) and self.now.is_doubted:
            return
        await self.cleanup_expired()
        await self.values.remove_expired()
        if self.runs is not None:
            await self.runs.remove_old()

    def _start_cleaning(self) -> None:
        self._cleaner = asyncio.create_task(self._clean_regularly(), name="session clean-up")

    async def _clean_regularly(self) -> None:
        while True:
            await asyncio.sleep(min(self._ttl, CLEAN_SECONDS))
            try:
                await self.clean()
            except HoloDeckError as error:  # a full disk or an unreachable database may recover in a minute
                log.warning("old sessions could not be removed: %s", error.message)
            except Exception:  # a defect must not end the clean-up
                log.exception("old sessions could not be removed")


def stored_session(owner: Owner, session_id: str, row: SessionRow, messages: Sequence[Message]) -> StoredSession:
    return StoredSession(
        session=described(owner, session_id, row),
        messages=tuple(messages),
        pending=records.pending_of(row.pending, row.v),
        state=records.state_of(row.state, row.v),
        summary=records.summary_of(row.summary, row.v),
    )
