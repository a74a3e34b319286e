"""Notices what other processes have written to a SQLite file.

SQLite sends no notifications, but `PRAGMA data_version` shows in a few microseconds whether another connection has
committed something. This module reads it often only while a caller waits for something. After a change, one statement
finds all runs whose logs are followed here, and one finds runs that have begun or ended, in all sessions. The cost
depends on the runs in progress and the new ones, not on how many sessions are watched or how many runs they had.
Everything here belongs to the event loop's thread.
"""

import asyncio
import contextlib
import json
import sqlite3
import sys
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass

from holodeck.core.owner import OwnedId, Owner
from holodeck.errors import StoreUnavailable
from holodeck.stores.session_watches import SessionWatches
from holodeck.stores.sqlite_file import SqliteFile

AWAITED_SECONDS = 0.02  # between two reads while a caller waits for something
BUSY_SECONDS = 0.1  # while this process has something that others may have commands for
IDLE_SECONDS = 0.5
_ENDS_OF_COPIES = "SELECT value, (SELECT max(first) FROM pieces WHERE run = value) FROM json_each(?)"
# The newest run of all, those in progress, and those that have begun and ended since the last read. The plus signs keep
# SQLite from an index that would read all runs of the agent.
_RUNS = (
    "SELECT max(key), NULL, NULL, NULL, NULL FROM runs"
    " UNION ALL SELECT key, tenant, user, session, 1 FROM runs WHERE agent = ?1 AND ended IS NULL"
    " UNION ALL SELECT key, tenant, user, session, 0 FROM runs WHERE key > ?2 AND +agent = ?1 AND +ended IS NOT NULL"
)


@dataclass(frozen=True, slots=True)
class _RunsAtOneMoment:
    """The runs of all sessions at one moment."""

    newest: int
    in_progress: frozenset[tuple[int, OwnedId]]
    ended_since: frozenset[OwnedId] = frozenset()  # sessions of runs that began after the previous read

    def changed_since(self, before: "_RunsAtOneMoment") -> set[OwnedId]:
        """The sessions in which a run has begun or ended."""
        return {session for _, session in self.in_progress ^ before.in_progress} | self.ended_since


class SqliteChanges:
    def __init__(
        self, file: SqliteFile, agent: str, on_change: Callable[[], None], is_busy: Callable[[], bool]
    ) -> None:
        """`on_change` may read the file with `SqliteFile.glance`.

        If it raises, it is called again after the next read.
        """
        self._file, self._agent, self._on_change, self._is_busy = file, agent, on_change, is_busy
        self.sessions = SessionWatches()
        self.sessions.on_first, self.sessions.on_last = self._watched, self._not_watched
        self._runs: _RunsAtOneMoment | None = None  # at the last read, while a session is watched
        self._copies: dict[asyncio.Future[None], tuple[int, int]] = {}  # run and event that each follower waits for
        self._seen: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_slow = True

    def start(self) -> None:
        """Idempotent."""
        if self._timer is None:
            self._arm()

    def close(self) -> None:
        """Idempotent. Current waits end with their timeout."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def wait_for_copy(self, run: int, first: int, seconds: float) -> None:
        """Waits at most `seconds` until the copy of a run's log may have event `first`. `run` is the key of its row."""
        met: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._copies[met] = run, first
        self._hurry()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await met
        finally:
            del self._copies[met]

    def _watched(self, _session: OwnedId) -> None:
        if self._runs is None:
            with contextlib.suppress(sqlite3.Error, StoreUnavailable):  # then the next read counts as a change
                self._runs = self._read_runs(None)
        self._hurry()

    def _not_watched(self, _session: OwnedId) -> None:
        if not self.sessions:
            self._runs = None

    def _hurry(self) -> None:
        """Reads soon: a caller waits for something that may have changed since the last read."""
        self._seen = None
        if self._timer is not None and self._is_slow:
            self._timer.cancel()
            self._arm()

    def _arm(self) -> None:
        self._is_slow = not (self._copies or self.sessions)
        seconds = AWAITED_SECONDS if not self._is_slow else BUSY_SECONDS if self._is_busy() else IDLE_SECONDS
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look, context=Context())

    def _look(self) -> None:
        self._arm()
        try:
            version = self._file.glance(_version)
            if version != self._seen:
                self._check_copies()
                self._check_sessions()
                self._on_change()
                self._seen = version
        except (sqlite3.Error, StoreUnavailable):  # locked for a moment
            self._seen = None

    def _check_copies(self) -> None:
        if not self._copies:
            return
        runs = json.dumps(sorted({run for run, _ in self._copies.values()}))
        ends = dict(self._file.glance(lambda connection: connection.execute(_ENDS_OF_COPIES, (runs,)).fetchall()))
        for met, (run, first) in self._copies.items():
            end = ends[run]
            if end is not None and end >= first and not met.done():
                met.set_result(None)

    def _check_sessions(self) -> None:
        if not self.sessions:
            return
        before = self._runs
        self._runs = now = self._read_runs(before)
        for session in self.sessions.watched() if before is None else now.changed_since(before):
            self.sessions.changed(session)

    def _read_runs(self, before: _RunsAtOneMoment | None) -> _RunsAtOneMoment:
        values = self._agent, before.newest if before is not None else sys.maxsize
        newest, *found = self._file.glance(lambda connection: connection.execute(_RUNS, values).fetchall())
        rows = [(key, (Owner(tenant, user), session), is_open) for key, tenant, user, session, is_open in found]
        return _RunsAtOneMoment(
            newest=newest[0] or 0,
            in_progress=frozenset((key, session) for key, session, is_open in rows if is_open),
            ended_since=frozenset(session for _, session, is_open in rows if not is_open),
        )


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)
