"""One run for each idempotency key (C08): a duplicate of a request joins the run that the first one started.

A request claims its key as soon as it is parsed, before files are read and a run is started. So two duplicates that
arrive together start one run. A key is free again when its run can no longer be read, or when its request was refused.
The wires decide what a key is made of, and what makes two requests the same.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary

from holodeck.core.owner import Owner
from holodeck.errors import InvalidRequest
from holodeck.runs.port import RunKey, RunRecord
from holodeck.runs.resumed_parts import part_of
from holodeck.runs.run import Run
from holodeck.runs.runs import Runs

_LOST_SECONDS = 15.0  # how long after a run's end a client may still ask for it again: the SDKs wait at most 8 seconds


class RetriedRequests:
    """Finds the run of a request that has no key but an attempt number, as OpenAI's SDKs send it.

    These SDKs repeat a request by themselves when the connection breaks or a proxy gives up. Without this, the tools
    would act twice. People also write the same thing twice, so a first attempt always starts a run. A later attempt
    joins only a run that is in progress or has just ended, since a first attempt in between may have been refused
    before it came here. This process knows only its own runs. If the store is shared, `StoredRuns.elsewhere` finds
    those in progress in another process.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._started: WeakValueDictionary[tuple[str, Owner, bytes], Run] = WeakValueDictionary()

    def run_of(self, attempt: int, request: tuple[str, Owner, bytes]) -> Run | None:
        """The run that an earlier attempt of this request started. `request` is its wire, owner and fingerprint."""
        if attempt == 0:
            self._started.pop(request, None)  # if this attempt is refused, the next one must not find an older run
        run = self._started.get(request) if attempt else None
        if run is None or not self._runs.knows(run):
            return None
        return run if run.ended is None or time.monotonic() - run.ended < _LOST_SECONDS else None

    def note(self, request: tuple[str, Owner, bytes], run: Run) -> None:
        self._started[request] = run


class Idempotency:
    def __init__(self, runs: Runs, restored: Callable[[RunRecord], Awaitable[Run]]) -> None:
        """`restored` makes a run of a record that another process, or an earlier one, has stored."""
        self.retried = RetriedRequests(runs)
        self.runs, self._restored = runs, restored
        self.claims: dict[RunKey, Claim] = {}
        self.started: WeakValueDictionary[RunKey, Run] = WeakValueDictionary()  # `Runs` decides how long a run is kept

    async def stored(self, key: RunKey, fingerprint: bytes) -> Run | None:
        """The run that another process, or an earlier one, has started for this key."""
        records = self.runs.records
        if records is None:
            return None
        if key.part:  # a resume under a run's own id is not the request that began the run
            record = await records.find(key.name, owner=key.owner)
            if record is None or fingerprint not in (record.fingerprint, *record.request.answered):
                return None
            return await part_of(await self._restored(record), record, fingerprint)
        record = await records.by_key(key.wire, key.name, owner=key.owner)
        if record is None:
            return None
        _check(key, fingerprint, record.fingerprint)
        return await self._restored(record)


class Claim:
    """A key claimed by one request, from `async with` on. `run` is the run of an earlier duplicate, if there is one.

    Otherwise the block starts a run and puts it into the claim. If the block fails, the next waiting duplicate gets the
    claim. Without a key nothing is claimed. Only equal requests have equal `fingerprint`s.
    """

    __slots__ = ("_key", "_looks", "_of", "_released", "fingerprint", "run")

    def __init__(self, of: Idempotency, key: RunKey | None, fingerprint: bytes, *, looks: bool) -> None:
        """Without `looks` the holder starts its run first, and calls `Idempotency.stored` if that is refused."""
        self._of, self._key, self.fingerprint, self._looks = of, key, fingerprint, looks
        self.run: Run | None = None
        self._released: asyncio.Event | None = None  # few claims have a waiting duplicate

    async def __aenter__(self) -> Self:
        """Waits for duplicates that are starting a run."""
        key, claims = self._key, self._of.claims
        if key is None:
            return self
        while (other := claims.get(key)) is not None:
            _check(key, self.fingerprint, other.fingerprint)
            await other.wait()
        run = self._of.started.get(key)
        if run is not None and self._of.runs.knows(run):
            if not key.part:  # other answers have another key
                _check(key, self.fingerprint, run.fingerprint)
            self.run = run
            return self
        claims[key] = self
        if self._looks:
            try:
                self.run = await self._of.stored(key, self.fingerprint)
            except BaseException as error:
                await self.__aexit__(type(error), error, error.__traceback__)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        key = self._key
        if key is None or self._of.claims.get(key) is not self:
            return
        del self._of.claims[key]
        if kind is None and self.run is not None:
            self._of.started[key] = self.run
        if self._released is not None:
            self._released.set()

    async def wait(self) -> None:
        self._released = self._released or asyncio.Event()
        await self._released.wait()


def _check(key: RunKey, fingerprint: bytes, first: bytes) -> None:
    if fingerprint != first:
        raise InvalidRequest(
            f"{key.header_name} {key.name!r} was already used for a different request.", field=key.header_name
        )
