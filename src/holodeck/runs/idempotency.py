"""One run for each idempotency key (C08): a duplicate of a request joins the run that the first one started.

A request claims its key as soon as it is parsed, before files are read and a run is started. So two duplicates that
arrive together start one run. A key is free again a day after its run has ended, or at once if its request was refused
or its message could not be stored. A key that is the id of its run (AG-UI) is taken for as long as the run is stored.
The wires decide what a key is made of, and what makes two requests the same.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import NamedTuple, Self
from weakref import WeakValueDictionary

from holodeck.core.events import NOT_STORED, says_not_stored
from holodeck.core.messages import now
from holodeck.core.owner import Owner
from holodeck.errors import HoloDeckError, InvalidRequest, StoreUnavailable
from holodeck.runs.port import RunExists, RunKey, RunRecord, SharedRunStore
from holodeck.runs.resumed_parts import part_of
from holodeck.runs.run import Run
from holodeck.runs.runs import Runs

_MAX_REFUSED = 1000
_LOST_SECONDS = 15.0  # how long after a run's end a client may still ask for it again: the SDKs wait at most 8 seconds


class NotStored(StoreUnavailable):
    """The run of an earlier duplicate failed before its message was stored. It is deleted: a retry has to run."""


class SentRequest(NamedTuple):
    """What identifies a request: equal values mean a duplicate. Only equal requests have equal fingerprints."""

    wire: str
    owner: Owner
    fingerprint: bytes
    key: RunKey | None = None
    attempt: int | None = None  # counted from 0, by clients that retry by themselves and say so


class Idempotency:
    def __init__(
        self,
        runs: Runs,
        restored: Callable[[RunRecord], Awaitable[Run]],
        elsewhere: Callable[[str, Owner, bytes, float], Awaitable[Run | None]],
    ) -> None:
        """`restored` makes a run of a record that another process, or an earlier one, has stored.

        `elsewhere` returns the stored run of the same request that is in progress, or ended in the last seconds.
        """
        self.runs, self._restored, self._elsewhere = runs, restored, elsewhere
        self.claims: dict[RunKey, Claim] = {}
        # `Runs` decides how long a run is kept.
        self.started: WeakValueDictionary[RunKey, Run] = WeakValueDictionary()
        self._attempted: WeakValueDictionary[tuple[str, Owner, bytes], Run] = WeakValueDictionary()
        self._refused: dict[tuple[str, Owner, bytes], datetime] = {}  # when a request's first attempt was refused here

    def note_attempt(self, sent: SentRequest, run: Run | None) -> None:
        """Notes the run of an attempt. None if the attempt was refused."""
        request = sent.wire, sent.owner, sent.fingerprint
        if run is not None:
            self._attempted[request] = run
            self._refused.pop(request, None)
        elif sent.attempt == 0:
            self._refused[request] = now()
            if len(self._refused) > _MAX_REFUSED:
                del self._refused[next(iter(self._refused))]

    async def earlier_attempt(self, sent: SentRequest, attempt: int) -> Run | None:
        """The run of a request that has no key but an attempt number, as OpenAI's SDKs send it.

        These SDKs repeat a request by themselves when the connection breaks or a proxy gives up. Without this, the tools
        would act twice. People also write the same thing twice, so a first attempt always starts a run. A later attempt
        joins only a run that is in progress or has just ended, since a first attempt in between may have been refused
        before it came here. Runs of other processes, and of this one before a crash, are found in the store. One that
        began before a first attempt was refused is of another request.
        """
        request = sent.wire, sent.owner, sent.fingerprint
        if attempt == 0:
            self._attempted.pop(request, None)  # if this attempt is refused, the next one must not find an older run
            return None
        run, refused = self._attempted.get(request), self._refused.get(request)
        is_over = run is not None and run.ended is not None and time.monotonic() - run.ended >= _LOST_SECONDS
        if run is None or is_over or not self.runs.knows(run) or says_not_stored(run.log.ending):
            run = await self._elsewhere(*request, _LOST_SECONDS)
        return None if run is not None and refused is not None and run.created_at < refused else run

    async def stored(self, key: RunKey, fingerprint: bytes) -> Run | None:
        """The run that another process, or an earlier one, has started for this key. Raises NotStored."""
        records = self.runs.records
        if records is None:
            return None
        unstored = self.runs.unstored
        if key.part:  # a resume under a run's own id is not the request that began the run
            record = unstored.kept.get((key.owner, key.name)) or await records.find(key.name, owner=key.owner)
            begun_by = () if record is None else (record.fingerprint, *record.request.answered)
            if record is None or fingerprint not in begun_by:
                return None
            if fingerprint == begun_by[-1] and says_not_stored(unstored.seen(record).ending):
                return None  # it has answered nothing
            return await part_of(await self._restored(record), record, fingerprint)
        record = unstored.by_key(key) if unstored.kept else None
        record = record or await records.by_key(key.wire, key.name, owner=key.owner)
        if record is None:
            return None
        _check(key, fingerprint, record.fingerprint)
        if says_not_stored(unstored.seen(record).ending) and not await self._has_messages(record):
            await self.runs.remove(record)
            raise NotStored(NOT_STORED)
        return await self._restored(record)

    async def was_deleted(self, run: Run) -> bool:
        """Whether another process has deleted a run that ended here. It does not say so, as for one in progress."""
        records = self.runs.records
        is_kept = (run.owner, run.run_id) in self.runs.unstored.kept
        if not isinstance(records, SharedRunStore) or run.record is None or is_kept:
            return False
        try:
            found = await records.find(run.run_id, owner=run.owner)
        except HoloDeckError:  # it cannot be read at the moment
            return False
        if found is None:
            self.runs.forget(run)
        return found is None

    async def _has_messages(self, record: RunRecord) -> bool:
        """Whether another process has stored messages of the run, after it took it over."""
        stored = await self.runs.store.read(record.session_id, owner=record.owner)
        return stored is not None and any(message.run_id == record.run_id for message in stored.messages)


class Claim:
    """The key of one request, claimed from `async with` on. `run` is the run of an earlier duplicate, if there is one.

    Otherwise the block starts a run and puts it into the claim. If the block is refused because another process has
    started the run, the claim has that run, and nothing is raised. If the block fails otherwise, the next waiting
    duplicate gets the claim. Without a key nothing is claimed; then an earlier attempt may have started the run.
    """

    __slots__ = ("_looks", "_of", "_released", "_sent", "fingerprint", "run")

    def __init__(self, of: Idempotency, sent: SentRequest, *, starts_first: bool = False) -> None:
        """`starts_first`: start the run before the lookup in the store. The store refuses a duplicate.

        A resume under a run's own id always starts first: `Runs.start` knows whether its question is still open.
        """
        self._of, self._sent, self.fingerprint = of, sent, sent.fingerprint
        resumes = sent.key is not None and bool(sent.key.part)
        self._looks = not (resumes or (starts_first and of.runs.finds_duplicates))
        self.run: Run | None = None
        self._released: asyncio.Event | None = None  # few claims have a waiting duplicate

    @property
    def joined(self) -> Run:
        """The run of the request, after the block."""
        if self.run is None:
            raise RuntimeError("the block of the claim started no run")
        return self.run

    async def __aenter__(self) -> Self:
        """Waits for duplicates that are starting a run. Looks for the run of an earlier one."""
        key, fingerprint, of = self._sent.key, self.fingerprint, self._of
        if key is not None:
            while (other := of.claims.get(key)) is not None:
                _check(key, fingerprint, other.fingerprint)
                await other.wait()
            run = of.started.get(key)
            if run is not None and of.runs.knows(run):
                self._take(run, key)
                if self.run is not None and not run.log.ended:
                    return self
            of.claims[key] = self
        try:
            if self.run is not None and await of.was_deleted(self.run):
                self.run, self._looks = None, True
            if self.run is None and key is not None and self._looks:
                with suppress(NotStored):
                    self.run = await of.stored(key, fingerprint)
            if self.run is None and self._sent.attempt is not None:
                self.run = await of.earlier_attempt(self._sent, self._sent.attempt)
        except BaseException:
            self._release(keep=False)
            raise
        return self

    def _take(self, run: Run, key: RunKey) -> None:
        """Joins the run of an earlier duplicate in this process, unless its message was not stored."""
        if not key.part:  # other answers have another key
            _check(key, self.fingerprint, run.fingerprint)
        if not says_not_stored(run.log.ending):
            self.run = run
        elif not key.part:
            self._of.runs.forget(run)
            self._looks = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            if isinstance(error, HoloDeckError):
                self.run = await self._of_another(error)
        finally:
            self._release(keep=kind is None or self.run is not None)
        return self.run is not None and isinstance(error, HoloDeckError)

    async def _of_another(self, refusal: HoloDeckError) -> Run | None:
        """The run that another process has started, if that may be why this one was refused."""
        key = self._sent.key
        if key is None or isinstance(refusal, StoreUnavailable):  # a lookup would wait once more for the same store
            return None
        may_be_there = not self._looks or isinstance(refusal, RunExists)  # it may have appeared after the lookup
        return await self._of.stored(key, self.fingerprint) if may_be_there else None

    def _release(self, *, keep: bool) -> None:
        key, run = self._sent.key, self.run
        if self._sent.attempt is not None:
            self._of.note_attempt(self._sent, run if keep else None)
        if key is None or self._of.claims.get(key) is not self:
            return
        del self._of.claims[key]
        if keep and run is not None:
            self._of.started[key] = run
        if self._released is not None:
            self._released.set()

    async def wait(self) -> None:
        self._released = self._released or asyncio.Event()
        await self._released.wait()


def _check(key: RunKey, fingerprint: bytes, first: bytes) -> None:
    if fingerprint != first:
        raise InvalidRequest(
            f"{key.header_name} {key.name!r} was already used for a different request; send a new one with each "
            "message, such as a UUID.",
            field=key.header_name,
        )
