"""How much the sessions of a tenant take together, and whether that is more than it may (`limits.tenant.stored_mb`).

A user's own sum makes room by itself: the conversations that were unused for longest go. One user must not take the
conversations of another, so a tenant that stores too much starts no more runs until something is deleted or expires.
"""

import time
from collections.abc import Awaitable, Callable

from holodeck.config.limit_schema import ServerLimits
from holodeck.core.sizes import MB
from holodeck.errors import RateLimited, StoreUnavailable
from holodeck.limits.window import Level, Window

FRESH_SECONDS = 2.0  # the sum is looked up again after so long: in PostgreSQL it reads an entry for each session
MAX_TENANTS = 10_000
NAME = "tenant-stored"


class TenantStorage:
    def __init__(self, limits: ServerLimits, stored: Callable[[str], Awaitable[int]]) -> None:
        self._limits, self._stored = limits, stored
        self._known: dict[str, tuple[int, float]] = {}  # bytes, and when they were looked up

    async def check(self, tenant: str) -> None:
        """RateLimited if the tenant stores as much as it may."""
        level = await self.level(tenant)
        if level is not None and level.left == 0:
            error = RateLimited(
                f"The users of this tenant store {level.window.limit / MB:,g} MB, which is its limit;"
                " delete sessions to go on."
            )
            error.reason = NAME
            raise error

    async def level(self, tenant: str) -> Level | None:
        """How much is left of the limit, in bytes; None if there is none, or the store cannot be asked."""
        limit = self._limits.stored_bytes(tenant)
        if limit is None:
            return None
        try:
            stored = await self._bytes_of(tenant)
        except StoreUnavailable:  # the run itself fails with it
            return None
        return Level(Window(NAME, tenant, limit, 0.0), max(0, limit - stored), 0.0)

    async def _bytes_of(self, tenant: str) -> int:
        found, now = self._known.get(tenant), time.monotonic()
        if found is not None and now - found[1] < FRESH_SECONDS:
            return found[0]
        stored = await self._stored(tenant)
        if len(self._known) >= MAX_TENANTS:
            self._known.clear()
        self._known[tenant] = stored, now
        return stored
