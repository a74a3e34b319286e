"""Leases: limit how many of something, such as runs, one subject has at a time.

A lease in Valkey ends by itself after 30 seconds unless it is renewed, so the leases of a killed replica become free.
"""

import asyncio
import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Sequence
from contextvars import Context
from typing import Any, Protocol

import msgspec

from holodeck.limits.valkey import ValkeyWindows, all_done, in_background, key_of, whole
from holodeck.limits.window import StoreDown

LEASE_SECONDS = 30.0
RENEW_SECONDS = 10.0

# KEYS are sorted sets: member is a lease, score when it ends. ARGV: milliseconds of a lease, the lease, a limit for each.
ACQUIRE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i, key in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  if redis.call('ZCARD', key) >= tonumber(ARGV[i + 2]) then return i end
end
for _, key in ipairs(KEYS) do
  redis.call('ZADD', key, now + ARGV[1], ARGV[2])
  redis.call('PEXPIRE', key, ARGV[1])
end
return 0
"""

HELD = """
local time = redis.call('TIME')
return redis.call('ZCOUNT', KEYS[1], '(' .. (time[1] * 1000 + math.floor(time[2] / 1000)), '+inf')
"""


class Share(msgspec.Struct, frozen=True):
    """At most `limit` at a time for one subject."""

    name: str
    subject: str
    limit: int


class Lease(msgspec.Struct, frozen=True):
    """An acquired lease. Return it with `release`."""

    id: str
    shares: tuple[Share, ...]


class LeaseStore(Protocol):
    async def acquire(self, shares: Sequence[Share]) -> Lease | Share:
        """Acquires a lease on all shares. Returns the share that is used up if that fails."""

    def release(self, lease: Lease) -> None: ...

    async def held(self, share: Share) -> int:
        """How much of a share is in use."""

    async def close(self) -> None: ...


class MemoryLeases:
    def __init__(self) -> None:
        self._held: Counter[tuple[str, str]] = Counter()
        self._numbers = itertools.count()

    async def acquire(self, shares: Sequence[Share]) -> Lease | Share:
        full = next((each for each in shares if self._held[each.name, each.subject] >= each.limit), None)
        if full is not None:
            return full
        self._held.update((each.name, each.subject) for each in shares)
        return Lease(str(next(self._numbers)), tuple(shares))

    def release(self, lease: Lease) -> None:
        for each in lease.shares:
            key = each.name, each.subject
            self._held[key] -= 1
            if self._held[key] <= 0:
                del self._held[key]

    async def held(self, share: Share) -> int:
        return self._held.get((share.name, share.subject), 0)

    async def close(self) -> None:
        pass


class ValkeyLeases:
    """Leases that replicas share. While the store is down, they are counted in this process."""

    def __init__(self, windows: ValkeyWindows) -> None:
        self._store = windows
        self._local = MemoryLeases()
        self._mine: dict[str, Lease] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._renewing: asyncio.Task[None] | None = None

    async def acquire(self, shares: Sequence[Share]) -> Lease | Share:
        return await whole(self._acquire(shares), self._undo, self._tasks)

    def _undo(self, lease: Lease | Share) -> None:
        if isinstance(lease, Lease):
            self.release(lease)

    async def _acquire(self, shares: Sequence[Share]) -> Lease | Share:
        lease = Lease(os.urandom(12).hex(), tuple(shares))
        limits = [each.limit for each in shares]
        keys = [key_of(each.name, each.subject) for each in shares]
        number = await self._store.run_script(ACQUIRE, keys, [round(LEASE_SECONDS * 1000), lease.id, *limits])
        if number is None:
            parts = [msgspec.structs.replace(each, limit=self._store.part_of(each.limit)) for each in shares]
            return await self._local.acquire(parts)
        if number:
            return shares[int(number) - 1]
        self._mine[lease.id] = lease
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew_for_ever(), name="leases", context=Context())
        return lease

    def release(self, lease: Lease) -> None:
        if self._mine.pop(lease.id, None) is None:
            self._local.release(lease)
        else:
            in_background(self._give_back(lease), self._tasks)

    async def held(self, share: Share) -> int:
        number = await self._store.run_script(HELD, [key_of(share.name, share.subject)], [])
        return await self._local.held(share) if number is None else int(number)

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewing
        for lease in list(self._mine.values()):
            self.release(lease)
        await all_done(self._tasks)

    async def _give_back(self, lease: Lease) -> None:
        script = "for _, key in ipairs(KEYS) do redis.call('ZREM', key, ARGV[1]) end return 0"
        with contextlib.suppress(StoreDown):  # otherwise the lease expires
            await self._store.run_script(script, [key_of(each.name, each.subject) for each in lease.shares], [lease.id])

    async def _renew_for_ever(self) -> None:
        script = """
        local time = redis.call('TIME')
        local now = time[1] * 1000 + math.floor(time[2] / 1000)
        redis.call('ZADD', KEYS[1], 'XX', now + ARGV[1], ARGV[2])
        redis.call('PEXPIRE', KEYS[1], ARGV[1])
        return 0
        """
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            for lease, share in [(each, share) for each in self._mine.values() for share in each.shares]:
                with contextlib.suppress(StoreDown):  # the store may recover before the lease ends
                    await self._store.run_script(
                        script, [key_of(share.name, share.subject)], [round(LEASE_SECONDS * 1000), lease.id]
                    )
