"""Notices what other processes have written to a SQLite file.

SQLite sends no notifications, but `PRAGMA data_version` says in a few microseconds whether another connection has committed
something. It is looked at often only while something is awaited. After a change one statement looks for all runs whose logs
are followed here, and one for all sessions that are watched, however many readers wait. Everything here belongs to the
event loop's thread.
"""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from holodeck.core.owner import OwnedId
from holodeck.errors import StoreUnavailable
from holodeck.stores.session_watches import SessionWatches
from holodeck.stores.sqlite_file import SqliteFile

AWAITED_SECONDS = 0.02  # between two looks while something is awaited
BUSY_SECONDS = 0.1  # while this process has something that others may have wishes for
IDLE_SECONDS = 0.5
_ENDS_OF_COPIES = "SELECT value, (SELECT max(first) FROM pieces WHERE run = value) FROM json_each(?)"
_OF_SESSION = (
    "FROM runs WHERE agent = ?1 AND tenant = json_extract(value, '$[0]') AND user = json_extract(value, '$[1]')"
    " AND session = json_extract(value, '$[2]')"
)
_STATES_OF_SESSIONS = (
    f"SELECT (SELECT max(key) {_OF_SESSION}), (SELECT count(*) {_OF_SESSION} AND ended IS NULL)"
    " FROM json_each(?2) ORDER BY json_each.key"
)


class SqliteChanges:
    def __init__(
        self, file: SqliteFile, agent: str, on_change: Callable[[], None], is_busy: Callable[[], bool]
    ) -> None:
        """`on_change` may read the file by `SqliteFile.glance`; an error of it is repeated with the next look."""
        self._file, self._agent, self._on_change, self._is_busy = file, agent, on_change, is_busy
        self.sessions = SessionWatches()
        self.sessions.on_first, self.sessions.on_last = self._watched, self._not_watched
        self._states: dict[OwnedId, Sequence[Any] | None] = {}  # of the runs of each session that is watched
        self._copies: dict[asyncio.Future[None], tuple[int, int]] = {}  # run and event that each follower waits for
        self._seen: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_slow = True

    def start(self) -> None:
        """Idempotent."""
        if self._timer is None:
            self._arm()

    def close(self) -> None:
        """Idempotent. What is awaited is awaited to the end of its time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def wait_for_copy(self, run: int, first: int, seconds: float) -> None:
        """Waits until the copy of a run's log may have event `first`, and no longer than so. `run` is the key of its row."""
        met: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._copies[met] = run, first
        self._hurry()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await met
        finally:
            del self._copies[met]

    def _watched(self, session: OwnedId) -> None:
        try:
            (self._states[session],) = self._states_of([session])
        except (sqlite3.Error, StoreUnavailable):
            self._states[session] = None  # the next look counts as a change
        self._hurry()

    def _not_watched(self, session: OwnedId) -> None:
        del self._states[session]

    def _hurry(self) -> None:
        """Something is awaited from now on, and may have changed since the last look."""
        self._seen = None
        if self._timer is not None and self._is_slow:
            self._timer.cancel()
            self._arm()

    def _arm(self) -> None:
        self._is_slow = not (self._copies or self.sessions)
        seconds = AWAITED_SECONDS if not self._is_slow else BUSY_SECONDS if self._is_busy() else IDLE_SECONDS
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

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
        watched = list(self._states)
        for session, state in zip(watched, self._states_of(watched), strict=True):
            if state != self._states[session]:
                self._states[session] = state
                self.sessions.changed(session)

    def _states_of(self, sessions: Sequence[OwnedId]) -> Sequence[Sequence[Any]]:
        """The newest run of each session, and how many have not ended."""
        if not sessions:
            return ()
        names = json.dumps([(owner.tenant, owner.user, session_id) for owner, session_id in sessions])
        values = self._agent, names
        return self._file.glance(lambda connection: connection.execute(_STATES_OF_SESSIONS, values).fetchall())


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)
