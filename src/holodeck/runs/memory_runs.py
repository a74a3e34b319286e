"""Records of runs in memory: lost with the process, deleted with their session. Their logs are not copied.

The messages of the session are enough to rebuild what a run showed, so a record is small: ids, times, the ending.
"""

from collections.abc import Sequence
from datetime import timedelta
from itertools import islice
from typing import TypeVar

import msgspec

from holodeck.core.events import Ending, Event
from holodeck.core.messages import now
from holodeck.core.owner import OwnedId, Owner
from holodeck.core.request import RunRequest
from holodeck.runs.log import RunLog
from holodeck.runs.port import Begun, RunExists, RunRecord
from holodeck.runs.run import state_after

MAX_RUNS = 100_000
KEY_TIME = timedelta(days=1)

K = TypeVar("K")


class MemoryRunStore:
    outlives_process = False

    def __init__(self) -> None:
        self._noted: dict[OwnedId, RunRecord] = {}  # nothing of them is stored yet
        self._records: dict[OwnedId, RunRecord] = {}  # the records of all owners, oldest first
        self._of_owner: dict[Owner, dict[str, None]] = {}
        self._of_session: dict[OwnedId, dict[str, None]] = {}
        self._by_key: dict[tuple[str, Owner, str], str] = {}  # wire, owner and idempotency key
        self._logs: dict[OwnedId, RunLog] = {}

    # the port

    def register(self, record: RunRecord) -> None:
        name = record.owner, record.run_id
        earlier = self._records.get(name)
        if earlier is None:
            self._noted[name] = record
        elif earlier.ending is None or record.request.answered:
            self._records[name] = self._of_first_request(record)
        else:  # another wire has the id, which the key of this run does not find
            raise RunExists(f"Run id {record.run_id!r} is already used by another request.")

    async def begin(self, record: RunRecord) -> Begun:
        self._store(record)
        return Begun()

    async def stored(self, record: RunRecord) -> None:
        self._store(self._noted.get((record.owner, record.run_id), record))

    async def store_request(self, record: RunRecord) -> bool:
        self.register(record)
        return True

    def release(self, record: RunRecord) -> None:
        """Stores the ending from the run's log. Without one, drops the record: nothing of the run was stored."""
        name = record.owner, record.run_id
        log = self._logs.pop(name, None)
        noted = self._noted.pop(name, None) or self._records.get(name)
        ending = None if log is None else log.ending
        if noted is not None and noted.ending is None:
            if ending is None:
                self._drop(name)
            else:
                self._store(_ended(noted, ending))

    async def take_up(self, record: RunRecord) -> None:
        """Does nothing: memory holds no runs of another process."""

    async def end(self, record: RunRecord, ending: Ending) -> bool:
        noted = self._noted.pop((record.owner, record.run_id), record)
        self._store(_ended(noted, ending))
        return True

    async def find(self, run_id: str, *, owner: Owner) -> RunRecord | None:
        return self._records.get((owner, run_id))

    async def by_key(self, wire: str, key: str, *, owner: Owner) -> RunRecord | None:
        run_id = self._by_key.get((wire, owner, key))
        record = None if run_id is None else self._records.get((owner, run_id))
        if record is None or record.finished_at is None or key == run_id:  # an id is not free while its run is kept
            return record
        return None if now() - record.finished_at > KEY_TIME else record

    async def runs_of(
        self, *, owner: Owner, session_id: str | None = None, root: str | None = None, limit: int = 100
    ) -> Sequence[RunRecord]:
        ids = self._of_owner.get(owner, {}) if session_id is None else self._of_session.get((owner, session_id), {})
        newest_first = map(self._records.__getitem__, ((owner, run_id) for run_id in reversed(ids)))
        wanted = (each for each in newest_first if root is None or root in (each.run_id, each.root))
        return list(islice(wanted, limit))

    async def equal_runs(self, fingerprint: bytes, *, owner: Owner, seconds: float) -> Sequence[RunRecord]:  # noqa: ARG002  see the port
        return ()

    async def remove(self, run_id: str, *, owner: Owner) -> bool:
        return self._drop((owner, run_id))

    async def unfinished(self) -> Sequence[RunRecord]:
        return ()

    async def events(self, record: RunRecord, first: int = 0) -> list[tuple[int, list[Event]]]:  # noqa: ARG002  there is no copy
        return []

    def follow(self, record: RunRecord, log: RunLog, first_number: int = 0) -> None:  # noqa: ARG002  there is no copy
        self._logs[record.owner, record.run_id] = log

    # for the session store

    def forget_session(self, owner: Owner, session_id: str) -> None:
        """Drops the records of a session that was deleted or has expired."""
        for run_id in list(self._of_session.get((owner, session_id), ())):
            self._drop((owner, run_id))

    def _store(self, record: RunRecord) -> None:
        name = record.owner, record.run_id
        self._noted.pop(name, None)
        self._records[name] = self._of_first_request(record)
        self._of_owner.setdefault(record.owner, {})[record.run_id] = None
        self._of_session.setdefault((record.owner, record.session_id), {})[record.run_id] = None
        if record.key is not None:
            self._by_key[record.wire, record.owner, record.key] = record.run_id
        while len(self._records) > MAX_RUNS:
            self._drop(next(iter(self._records)))

    def _of_first_request(self, record: RunRecord) -> RunRecord:
        """The record with the fingerprint of the request that began the run, even if a resume continues it."""
        earlier = self._records.get((record.owner, record.run_id))
        return record if earlier is None else msgspec.structs.replace(record, fingerprint=earlier.fingerprint)

    def _drop(self, name: OwnedId) -> bool:
        record = self._records.pop(name, None)
        if record is None:
            return False
        _remove(self._of_owner, record.owner, record.run_id)
        _remove(self._of_session, (record.owner, record.session_id), record.run_id)
        key = record.wire, record.owner, record.key or ""
        if self._by_key.get(key) == record.run_id:  # a later run may have the key
            del self._by_key[key]
        return True


def _ended(record: RunRecord, ending: Ending) -> RunRecord:
    """The record without its request: a run that has ended is not continued."""
    given = record.request
    request = RunRequest(
        run_id=record.run_id,
        parent_run_id=given.parent_run_id,
        owner=record.owner,
        wire=given.wire,
        keeps_history=given.keeps_history,
        throw_away=given.throw_away,
        encoding=given.encoding if given.throw_away else {},
        acted=given.acted,
        new_session=given.new_session,
        answered=given.answered,
    )
    return msgspec.structs.replace(record, request=request, ending=ending, state=state_after(ending), finished_at=now())


def _remove(ids: "dict[K, dict[str, None]]", key: K, run_id: str) -> None:
    ids[key].pop(run_id, None)
    if not ids[key]:
        del ids[key]
