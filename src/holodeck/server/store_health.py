"""Whether the session store can be used, for the health routes."""

import asyncio
import time

from holodeck.core.events import Observer, RunFailed
from holodeck.core.ids import new_ulid
from holodeck.core.messages import UserMessage
from holodeck.core.owner import Owner
from holodeck.errors import HoloDeckError, StorageFull, StoreRefused, StoreUnavailable
from holodeck.sessions.port import SessionStore
from holodeck.sessions.values import KeptValue

SERVER = Owner("system", "system:server")  # no credential can have this name
CHECK_SECONDS = 1.0  # for which an answer of the store stays valid
_FAILURES = (StorageFull.code, StoreRefused.code, StoreUnavailable.code)
_PROBE = KeptValue(kind="probe", name="probe", body=bytes(64 * 1024))  # as long as a long answer


class StoreHealth(Observer):
    """Counts the sessions, and observes all runs: after one that could not be stored, it tries to store something.

    A store that refuses one session, for example because a page of its file is damaged, may take all others. A load
    balancer sends no run to a server that is not ready, so no run would show that the store works again. Anyone may ask
    for /health, so the store is asked at most once a second.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._session_id = new_ulid()  # other processes may try at the same time
        self._is_failing = False  # a run could not be stored, and nothing was stored since
        self._checked: asyncio.Task[int | HoloDeckError] | None = None
        self._checked_at = 0.0

    def run_failed(self, event: RunFailed) -> None:
        self.note(event.code)

    def note(self, code: str) -> None:
        """Notes why a run could not be served."""
        if code in _FAILURES:
            self._is_failing, self._checked = True, None

    async def sessions(self) -> int | HoloDeckError:
        """The number of sessions, or why the store cannot be used."""
        now = time.monotonic()
        if self._checked is None or (self._checked.done() and now - self._checked_at >= CHECK_SECONDS):
            self._checked, self._checked_at = asyncio.create_task(self._check(), name="check the session store"), now
        return await asyncio.shield(self._checked)

    async def _check(self) -> int | HoloDeckError:
        was_failing, self._is_failing = self._is_failing, False  # a run may fail during the check
        try:
            if was_failing:
                await self._store_something()
                was_failing = False
            return await self._store.count()
        except HoloDeckError as error:
            self._is_failing |= was_failing
            return error

    async def _store_something(self) -> None:
        await self._store.values.put(_PROBE, owner=SERVER, seconds=CHECK_SECONDS)
        conversation = await self._store.open(self._session_id, owner=SERVER, create=True)
        try:
            await conversation.commit([UserMessage(content="probe")])
        finally:
            conversation.close()
        await self._store.delete(self._session_id, owner=SERVER)
