"""What the stores of sessions in SQL have in common: their settings, which sessions are in use here, regular clean-up."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypedDict, TypeVar

from holodeck.core.messages import Message
from holodeck.core.owner import OwnedId, Owner
from holodeck.core.sizes import MB
from holodeck.sessions.port import ServerSession, StoredSession
from holodeck.sessions.recent_histories import RecentHistories
from holodeck.stores import records
from holodeck.stores.stored_conversation import CLEAN_SECONDS, TTL_SECONDS, SessionRow, described

log = logging.getLogger(__name__)


class _Runs(Protocol):
    async def remove_old(self) -> int: ...


class _Values(Protocol):
    async def remove_expired(self) -> int: ...


R = TypeVar("R", bound=_Runs)
V = TypeVar("V", bound=_Values)


class StoreSettings(TypedDict, total=False):
    max_per_user: int | None
    spares_anonymous: bool  # clients without a credential have one owner together
    max_bytes: int
    max_owner_bytes: int | None
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
        self._ttl, self._max_per_user, self._max_owner_bytes = ttl_seconds, max_per_user, max_owner_bytes
        self._spares_anonymous = spares_anonymous
        self._clock = clock
        self._in_use: Counter[OwnedId] = Counter()  # by the runs of this process
        self.histories = RecentHistories()
        self.accepted: dict[OwnedId, Callable[[], None]] = {}  # begins to write what a conversation has accepted
        self._cleaner: asyncio.Task[None] | None = None

    def now(self) -> float:
        if self._clock is None:
            raise RuntimeError("the store is not started")
        return self._clock()

    async def sessions_of(
        self, *, owner: Owner, limit: int = 100, after: ServerSession | None = None
    ) -> Sequence[ServerSession]:
        return await self._listed(owner, limit, after)

    async def all_sessions(self, limit: int = 1000) -> Sequence[ServerSession]:
        """Of every owner, the one used last first: for the operator."""
        return await self._listed(None, limit)

    @abstractmethod
    async def _listed(self, owner: Owner | None, limit: int, after: ServerSession | None = None) -> list[ServerSession]:
        """Sessions of one owner, or of all, the one used last first, from the one after `after` on."""

    @abstractmethod
    async def cleanup_expired(self) -> int:
        """Deletes the sessions that were not used for their time; returns how many."""

    def take(self, owner: Owner, session_id: str) -> None:
        self._in_use[owner, session_id] += 1

    def give_back(self, owner: Owner, session_id: str) -> None:
        self._in_use[owner, session_id] -= 1
        if not self._in_use[owner, session_id]:
            del self._in_use[owner, session_id]

    def write_accepted(self, owner: Owner, session_id: str | None = None) -> None:
        """Begins to write what was accepted for a session, or for all of an owner: it is deleted next."""
        for session in [each for each in self.accepted if each[0] == owner and session_id in (None, each[1])]:
            self.accepted[session]()

    async def clean(self) -> None:
        """Deletes what is too old to be kept."""
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
            except Exception:  # a disk that is full now, or a database that is away, may not be so in a minute
                log.exception("old sessions could not be removed")


def stored_session(owner: Owner, session_id: str, row: SessionRow, messages: Sequence[Message]) -> StoredSession:
    return StoredSession(
        session=described(owner, session_id, row),
        messages=tuple(messages),
        pending=records.pending_of(row.pending, row.v),
        state=records.state_of(row.state, row.v),
        summary=records.summary_of(row.summary, row.v),
    )
