"""Endings that clients were shown although the store had not taken them: kept here until it does.

The store was down, its disk full, or its write lock held elsewhere. Without its ending, a run that is over counts as one
in progress: the next process would continue what a client was shown as failed, and in a store that processes share, the
session waits for it. So an ending is offered to the store again, soon after it works. `RunStore.end` stores it only in a row
that is open and belongs to this process: if another process has taken the run over, that process decides how it ends.
"""

import asyncio
import logging
from contextvars import Context

import msgspec

from holodeck.core.events import Ending
from holodeck.core.messages import now
from holodeck.core.owner import OwnedId, Owner
from holodeck.errors import HoloDeckError, StorageFull, StoreUnavailable
from holodeck.runs.port import RunKey, RunRecord, RunStore
from holodeck.runs.run import ending_kept, state_after

log = logging.getLogger(__name__)

MAX_KEPT = 10_000
PAUSES = (0.25, 3.0)  # seconds between two attempts: the first pause, and the longest; each is twice the one before
CLOSE_SECONDS = 2.0  # for a last attempt when the server stops


class UnstoredEndings:
    def __init__(self, records: RunStore | None) -> None:
        """Keeps nothing without a store that outlives this process: no other process would find the run in progress."""
        self._records = records if records is not None and records.outlives_process else None
        self.kept: dict[OwnedId, RunRecord] = {}  # with the endings that were shown; empty while the store works
        self._storing: asyncio.Task[None] | None = None

    def keep(self, record: RunRecord, ending: Ending) -> None:
        """Keeps an ending until it is stored. The run's record is released then, by this class."""
        if self._records is None:
            return
        if len(self.kept) >= MAX_KEPT:
            log.error("the ending of run %s is not stored: too many wait for the store", record.run_id)
            return
        self.kept[record.owner, record.run_id] = msgspec.structs.replace(
            record, ending=ending, state=state_after(ending), finished_at=now()
        )
        if self._storing is None or self._storing.done():
            self._storing = asyncio.create_task(
                self._store_all(), name="endings that are not stored yet", context=Context()
            )

    def by_key(self, key: RunKey) -> RunRecord | None:
        same = (each for each in self.kept.values() if (each.wire, each.owner, each.key) == key[:3])
        return next(same, None)

    def seen(self, record: RunRecord) -> RunRecord:
        """A record as this process has shown it, if the store lacks its ending."""
        return record if record.ending is not None else self.kept.get((record.owner, record.run_id), record)

    def drop(self, run_id: str, *, owner: Owner) -> None:
        """Drops the ending of a run that continues under its own id, or was deleted."""
        record = self.kept.pop((owner, run_id), None)
        if record is not None and self._records is not None:
            self._records.release(record)

    def drop_session(self, session_id: str, *, owner: Owner) -> None:
        for record, _ in self.of_session(session_id, owner=owner):
            self.drop(record.run_id, owner=owner)

    def of_session(self, session_id: str, *, owner: Owner) -> list[tuple[RunRecord, Ending]]:
        """The runs of a session with the endings that are kept for them."""
        same = (each for each in self.kept.values() if (each.owner, each.session_id) == (owner, session_id))
        return [(each, each.ending) for each in same if each.ending is not None]

    async def close(self) -> None:
        """Tries once more. What is not stored then, the next process finds as after a crash."""
        if self._storing is None:
            return
        self._storing.cancel()
        last = asyncio.create_task(self._store_some(), name="last attempt to store endings")
        await asyncio.wait({self._storing, last}, timeout=CLOSE_SECONDS)  # a cancelled statement waits for the store
        last.cancel()
        if self.kept:
            log.warning("%d endings of runs are not stored", len(self.kept))

    async def _store_all(self) -> None:
        pause, longest = PAUSES
        while self.kept:
            if not await self._store_some():
                await asyncio.sleep(pause)
                pause = min(longest, 2 * pause)

    async def _store_some(self) -> bool:
        """Stores endings, oldest first, up to the first that is refused. Returns whether none was."""
        for run, record in list(self.kept.items()):
            if self.kept.get(run) is not record or record.ending is None or self._records is None:
                continue  # dropped meanwhile
            try:
                await self._records.end(record, ending_kept(record.request, record.ending))
            except (StoreUnavailable, StorageFull):  # the next attempt begins with the other endings
                if self.kept.get(run) is record:
                    self.kept[run] = self.kept.pop(run)
                return False
            except HoloDeckError as error:  # the run was deleted, is another process's, or the store never takes it
                log.warning("the ending of run %s is not stored: %s", record.run_id, error.message)
            except Exception:  # a defect of the store: the other endings must not wait for it
                log.exception("the ending of run %s is not stored", record.run_id)
            if self.kept.get(run) is record:
                del self.kept[run]
                self._records.release(record)
        return True
