"""Announces runs that other processes start on a session. One query serves all readers of the session here."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import Context
from typing import TypeAlias

from holodeck.core.owner import OwnedId
from holodeck.errors import HoloDeckError, InternalError
from holodeck.runs.port import RunRecord, SharedRunStore
from holodeck.runs.run import Run

log = logging.getLogger(__name__)

FEED_RUNS = 20  # a session's newest runs that are compared with those that its readers know
FEED_SECONDS = 10.0  # seconds between two queries for runs of other processes that were not announced

Announce: TypeAlias = Callable[[Run | HoloDeckError | None], None]
"""Called with a run that has started, with None when the session is deleted, or with the error that ends the feed."""


class SessionNews:
    def __init__(self, records: SharedRunStore, restored: Callable[[RunRecord], Awaitable[Run]]) -> None:
        """`restored` makes a readable run from a record."""
        self._records, self._restored = records, restored
        self._feeds: dict[OwnedId, _Feed] = {}

    @asynccontextmanager
    async def announced(self, session: OwnedId, call: Announce) -> AsyncIterator[None]:
        """Calls `call` with each run of the session that another process starts, until the block ends."""
        feed = self._feeds.get(session)
        if feed is None or feed.has_failed:  # its readers have not all left yet
            feed = self._feeds[session] = _Feed(self._records, self._restored, session)
        reader = object()
        feed.calls[reader] = call
        try:
            await asyncio.shield(feed.started)
            yield
        finally:
            del feed.calls[reader]
            if not feed.calls:
                if self._feeds.get(session) is feed:
                    del self._feeds[session]
                await feed.close()


class _Feed:
    def __init__(
        self, records: SharedRunStore, restored: Callable[[RunRecord], Awaitable[Run]], session: OwnedId
    ) -> None:
        self._records, self._restored, (self._owner, self._session_id) = records, restored, session
        self.calls: dict[object, Announce] = {}
        self._watch = records.watch_session(self._session_id, owner=self._owner)  # before the first query
        self._known: dict[str, bool] = {}  # the session's runs, and whether each has ended
        self._announcing: asyncio.Task[None] | None = None
        self.started = asyncio.create_task(self._start(), name="runs of a session: first look", context=Context())

    @property
    def has_failed(self) -> bool:
        """Whether it has stopped announcing runs."""
        return self._announcing is not None and self._announcing.done()

    async def _start(self) -> None:
        self._known = _ends_of(await self._newest())
        self._announcing = asyncio.create_task(self._announce(), name="runs of a session")

    async def close(self) -> None:
        tasks = {task for task in (self.started, self._announcing) if task is not None}
        for task in tasks:
            task.cancel()
        self._announcing = None  # the traceback of a cancelled task leads to this feed
        self._watch.close()
        await asyncio.wait(tasks)

    async def _announce(self) -> None:
        while True:
            try:
                await self._watch.wait(FEED_SECONDS)
                await self._look()
            except HoloDeckError as error:
                log.warning("the runs of a session cannot be read: %s", error.message)
                await asyncio.sleep(FEED_SECONDS)
            except Exception:  # a bug: readers must not wait for runs that are never announced
                log.exception("the runs of a session are no longer announced")
                self._call(InternalError("The server cannot show further runs of this session; connect again."))
                return

    async def _look(self) -> None:
        found = await self._newest()
        for record in found:
            if self._is_new(record) and record.replica != self._records.replica:
                self._call(await self._restored(record))
        if self._known and not found:
            self._call(None)
        self._known = _ends_of(found)

    def _is_new(self, record: RunRecord) -> bool:
        """Whether to announce the run. One that had ended and continues under its own id is new again."""
        has_ended = self._known.get(record.run_id)
        return has_ended is None or (has_ended and record.ending is None)

    def _call(self, news: Run | HoloDeckError | None) -> None:
        for call in list(self.calls.values()):
            call(news)

    async def _newest(self) -> list[RunRecord]:
        found = await self._records.runs_of(owner=self._owner, session_id=self._session_id, limit=FEED_RUNS)
        return list(reversed(found))


def _ends_of(records: list[RunRecord]) -> dict[str, bool]:
    return {each.run_id: each.ending is not None for each in records}
