"""Notices what other processes have written to a SQLite file.

SQLite sends no notifications, but `PRAGMA data_version` says in a few microseconds whether another connection has committed
something. It is looked at often only while something is awaited. Everything here belongs to the event loop's thread.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable

from holodeck.errors import StoreUnavailable
from holodeck.stores.sqlite_file import Job, SqliteFile

AWAITED_SECONDS = 0.02  # between two looks while something is awaited
BUSY_SECONDS = 0.1  # while this process has something that others may have wishes for
IDLE_SECONDS = 0.5


class SqliteChanges:
    def __init__(self, file: SqliteFile, on_change: Callable[[], None], is_busy: Callable[[], bool]) -> None:
        """`on_change` may read the file by `SqliteFile.glance`; an error of it is repeated with the next look."""
        self._file, self._on_change, self._is_busy = file, on_change, is_busy
        self._awaited: dict[asyncio.Future[None], Job[bool]] = {}
        self._seen: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Idempotent."""
        if self._timer is None:
            self._arm()

    def close(self) -> None:
        """Idempotent. What is awaited is awaited to the end of its time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def wait(self, condition: Job[bool], seconds: float) -> None:
        """Waits until a condition holds, which is checked after each change, and no longer than so."""
        if await self._file.look(condition):
            return
        met: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited[met] = condition
        self._seen = None  # something may have changed since the look
        if self._timer is not None and len(self._awaited) == 1:
            self._timer.cancel()
            self._arm()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await met
        finally:
            del self._awaited[met]

    def check_soon(self) -> None:
        """This process has changed something itself: what waits for it is checked before the next look."""
        if self._awaited:
            asyncio.get_running_loop().call_soon(self._check)

    def _arm(self) -> None:
        seconds = AWAITED_SECONDS if self._awaited else BUSY_SECONDS if self._is_busy() else IDLE_SECONDS
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._arm()
        try:
            version = self._file.glance(_version)
            if version != self._seen:
                self._check()
                self._on_change()
                self._seen = version
        except (sqlite3.Error, StoreUnavailable):  # locked for a moment
            self._seen = None

    def _check(self) -> None:
        try:
            for met, condition in list(self._awaited.items()):
                if not met.done() and self._file.glance(condition):
                    met.set_result(None)
        except (sqlite3.Error, StoreUnavailable):
            self._seen = None


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)
