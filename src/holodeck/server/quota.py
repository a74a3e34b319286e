"""Limits of an address, a key, a user and a tenant: requests a minute, tokens and money a day, runs at a time (T30).

All windows of a request are checked in one step: a refused request costs nothing in any of them. Tokens and money are
reserved before a model call and settled afterwards, so parallel requests cannot pass a budget together. If an endpoint
reports no token counts, they are estimated, not free.

When a user stores too much, the least recently used conversations are deleted. That rule must not let one user
delete another's conversations, so a tenant that stores too much (`limits.tenant.stored_mb`) starts no more runs until
something is deleted or expires.

This module reads no request: `server/identity.py` makes the `Spender` of one. The `Meter` that `admit` returns is passed
to the run, which calls it before each model call and with each event.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from holodeck.access.key_file import KeyLimits
from holodeck.agent.budget import estimate_prompt, tokens_in, tokens_of_text
from holodeck.config.limit_schema import OF_TENANT, ServerLimits, SubjectLimits
from holodeck.core.events import (
    Ending,
    HistoryCompacted,
    ReasoningAdded,
    StepFinished,
    StepStarted,
    TextAdded,
    ToolArgumentsAdded,
)
from holodeck.core.owner import Owner
from holodeck.core.sizes import MB
from holodeck.core.usage import TokenUsage
from holodeck.errors import BudgetExceeded, LimitsUnavailable, RateLimited, StoreUnavailable
from holodeck.limits.leases import Lease, LeaseStore, MemoryLeases, Share
from holodeck.limits.valkey import ValkeyWindows
from holodeck.limits.window import DAY, MINUTE, Full, Level, MemoryWindows, StoreDown, Taken, Use, Window, WindowStore
from holodeck.models.port import Prompt
from holodeck.runs.log import ReplayGone
from holodeck.runs.run import Run, RunMeter
from holodeck.server.options import SpendingSettings

FRESH_SECONDS = 2.0  # seconds until the sum is looked up again: in PostgreSQL it reads an entry for each session
MAX_TENANTS = 10_000
NAME = "tenant-stored"

RateLimitHeaders: TypeAlias = tuple[str, str]
"""The values of the headers RateLimit-Policy and RateLimit."""

log = logging.getLogger(__name__)

MILLIONTHS = 1_000_000  # money is counted in whole millionths
MAX_NOTED = 10_000
UNAVAILABLE = "The limits cannot be checked at the moment."
_AT_A_TIME = {"runs": ("runs in progress", 2.0), "streams": ("responses in progress", 5.0)}  # in words, and Retry-After


class TenantStorage:
    """The bytes that each tenant's users store, looked up at most every FRESH_SECONDS."""

    def __init__(self, limits: ServerLimits, stored: Callable[[str], Awaitable[int]]) -> None:
        self._limits, self._stored = limits, stored
        self._known: dict[str, tuple[int, float]] = {}  # bytes, and when they were looked up

    async def check(self, tenant: str) -> None:
        """Raises RateLimited if the tenant has used up its storage."""
        level = await self.level(tenant)
        if level is not None and level.left == 0:
            raise RateLimited(
                f"The users of this tenant store {level.window.limit / MB:,g} MB, which is its limit;"
                " delete sessions to continue.",
                reason=NAME,
            )

    async def level(self, tenant: str) -> Level | None:
        """Returns how many bytes of the limit are left, or None without a limit or if the store does not answer."""
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


class Spender(msgspec.Struct, frozen=True):
    """The parties whose limits a request uses. The address is the socket's, or a trusted proxy reports it (T31)."""

    owner: Owner
    network: str | None  # None for a run that continues after a crash: only its owner is known
    key: str | None = None
    authenticated: bool = False  # whether a credential names the owner; without one, a client can name any user

    @property
    def subjects(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Yields for each subject its kind, the key of its windows, and its names in `overrides`, the exact one last.

        A client without a credential counts as its address, whatever user it names (F5).
        """
        if self.network is not None:
            yield "address", self.network, (f"address:{self.network}",)
        if self.key is not None:
            yield "key", self.key, (f"key:{self.key}",)
        if not self.authenticated and self.network is not None:
            yield "user", self.network, ()
        if not self.owner.is_anonymous:
            tenant, user = self.owner.tenant, self.owner.user
            yield "user", f"{tenant}\n{user}", (f"user:{user}", f"tenant:{tenant}{OF_TENANT}{user}")
        if self.authenticated:
            yield "tenant", self.owner.tenant, (f"tenant:{self.owner.tenant}",)


class Quotas:
    def __init__(
        self,
        limits: ServerLimits,
        spending: SpendingSettings,
        store: WindowStore | None = None,
        leases: LeaseStore | None = None,
        *,
        stored: Callable[[str], Awaitable[int]] | None = None,
        key_limits: Callable[[str], KeyLimits | None] = lambda _key: None,
        refused: Callable[[str], None] = lambda _limit: None,
    ) -> None:
        self._limits, self._spending = limits, spending
        self._store = store or MemoryWindows()
        self._leases = leases or MemoryLeases()
        self._storage = None if stored is None or not limits.counts_stored else TenantStorage(limits, stored)
        self._key_limits, self._refused = key_limits, refused
        self.counts = spending.has_keys or limits.counts_anything  # otherwise there is nothing to check before a run
        self.counts_spending = spending.has_keys or limits.counts_spending  # otherwise a model call reserves nothing
        self.counts_streams = limits.counts_streams  # otherwise there is nothing to check before an answer
        self._noted: dict[Window, float] = {}  # full windows that were logged, and until when

    async def admit(self, spender: Spender) -> "Meter | None":
        """Counts a request and reserves its first step. Raises RateLimited if a limit is reached."""
        await self._check_stored(spender)
        limits = list(self._limits_of(spender))
        shares = _shares(limits, "runs")
        requests = [Use(window, 1) for window in _windows(limits, "requests")]
        spending = self._reservations(limits, self._spending.max_tokens)
        if not shares and not requests and not spending:
            return None
        lease = await self._leased(shares) if shares else None
        try:
            taken = await self._taken([*requests, *spending])
        except BaseException:
            if lease is not None:
                self._leases.release(lease)
            raise
        held = dict(zip((use.window for use in spending), taken.amounts[len(requests) :], strict=True))
        meter = Meter(self, spender, held, lease)
        meter.rate_limit = _tightest(taken.levels)
        return meter

    async def count(self, spender: Spender) -> RateLimitHeaders | None:
        """Counts a request that stores something and starts no run. Raises RateLimited if a limit is reached."""
        if not self.counts:
            return None
        await self._check_stored(spender)
        requests = [Use(window, 1) for window in _windows(list(self._limits_of(spender)), "requests")]
        return _tightest((await self._taken(requests)).levels) if requests else None

    def follow_up(self, spender: Spender) -> "Meter | None":
        """Returns the meter of a run that continues after a crash. Its admission was counted before the crash."""
        return Meter(self, spender, {}, None) if self.spending_windows(spender, 0) else None

    async def stream(self, spender: Spender) -> Lease | None:
        """Counts an answer in progress until its lease is released. Raises RateLimited if a limit is reached."""
        shares = _shares(list(self._limits_of(spender)), "streams")
        return await self._leased(shares) if shares else None

    async def _check_stored(self, spender: Spender) -> None:
        if self._storage is not None and spender.authenticated:
            try:
                await self._storage.check(spender.owner.tenant)
            except RateLimited as error:
                self._refused(str(error.reason))
                raise

    async def _leased(self, shares: Sequence[Share]) -> Lease:
        try:
            lease = await self._leases.acquire(shares)
        except StoreDown as error:
            raise LimitsUnavailable(UNAVAILABLE) from error
        if isinstance(lease, Share):
            raise self._full_of(lease)
        return lease

    async def _taken(self, uses: Sequence[Use]) -> Taken:
        taken = await self.take(uses)
        if isinstance(taken, Full):
            raise self._full(taken)
        return taken

    async def levels(self, spender: Spender) -> list[Level]:
        """Returns how much is left of each limit; only of `stored_mb` while the store of the counts is down."""
        limits = list(self._limits_of(spender))
        windows = [window for what in ("requests", "tokens", "money") for window in _windows(limits, what)]
        stored = None
        if self._storage is not None and spender.authenticated:
            stored = await self._storage.level(spender.owner.tenant)
        try:
            levels = await self._store.levels(windows) if windows else []
            levels = [*levels, *[await self._level_of(share) for what in _AT_A_TIME for share in _shares(limits, what)]]
        except StoreDown:
            levels = []
        return [*levels, *([] if stored is None else [stored])]

    async def _level_of(self, share: Share) -> Level:
        window = Window(share.name, share.subject, share.limit, 0.0)
        return Level(window, max(0, share.limit - await self._leases.held(share)), 0.0)

    def spending_windows(self, spender: Spender, tokens: int) -> list[Use]:
        return self._reservations(list(self._limits_of(spender)), tokens)

    def most_of(self, prompt: Prompt, spender: Spender) -> list[Use]:
        """Returns the highest possible cost of a model call."""
        if not self.counts_spending:
            return []
        return self.spending_windows(spender, estimate_prompt(prompt) + self._spending.max_tokens)

    async def take(self, uses: Sequence[Use]) -> Taken | Full:
        try:
            return await self._store.take(uses)
        except StoreDown as error:
            raise LimitsUnavailable(UNAVAILABLE) from error

    def settle(self, uses: Sequence[Use]) -> None:
        if uses:
            self._store.settle(uses)

    def release(self, lease: Lease) -> None:
        self._leases.release(lease)

    def money_of(self, usage: TokenUsage) -> int:
        cost = usage.cost
        if cost is None and self._spending.price is not None:
            cost = self._spending.price.of(usage)
        return max(0, round((cost or 0.0) * MILLIONTHS))

    async def close(self) -> None:
        await self._leases.close()
        await self._store.close()

    def _limits_of(self, spender: Spender) -> Iterator[tuple[str, str, SubjectLimits]]:
        for kind, subject, names in spender.subjects:
            found = self._limits.by_kind[kind]
            if kind == "key" and spender.key is not None and (own := self._key_limits(spender.key)) is not None:
                found = found.changed_by(own.model_dump())
            for override in filter(None, map(self._limits.overrides.get, names)):
                found = found.changed_by(override.model_dump())
            yield kind, subject, found

    def _reservations(self, limits: Sequence[tuple[str, str, SubjectLimits]], tokens: int) -> list[Use]:
        money = self.money_of(_estimated(tokens))
        return [
            *(Use(window, tokens, partly=True) for window in _windows(limits, "tokens")),
            *(Use(window, max(1, money), partly=True) for window in _windows(limits, "money")),
        ]

    @property
    def store_up(self) -> bool | None:
        """Returns whether the store that replicas share answers, or None if there is none."""
        return self._store.up if isinstance(self._store, ValkeyWindows) else None

    def _note(self, full: Full) -> None:
        """Logs each full window once, however many requests it refuses."""
        now = time.monotonic()
        if self._noted.get(full.window, 0.0) > now:
            return
        if len(self._noted) >= MAX_NOTED:
            self._noted.clear()
        self._noted[full.window] = now + max(full.wait, 1.0)
        log.warning("limit_reached", extra={"details": {"limit": full.window.name, "retry_after": round(full.wait)}})

    def _full(self, full: Full) -> RateLimited:
        self._note(full)
        self._refused(full.window.name)
        kind, _, what = full.window.name.partition("-")
        shown = {"requests": "requests a minute", "tokens": "tokens a day", "money": "of money a day"}[what]
        limit = full.window.limit / MILLIONTHS if what == "money" else full.window.limit
        message = f"This is more than the server allows to one {kind}: {limit:,g} {shown}."
        return RateLimited(message, reason=full.window.name, retry_after=full.wait)

    def _full_of(self, share: Share) -> RateLimited:
        self._refused(share.name)
        whose, _, what = share.name.partition("-")
        shown, wait = _AT_A_TIME[what]
        message = f"This {whose} has {share.limit:,} {shown}, which is its limit."
        return RateLimited(message, reason=share.name, retry_after=wait)


def _shares(limits: Sequence[tuple[str, str, SubjectLimits]], what: str) -> list[Share]:
    found = ((kind, subject, each.runs if what == "runs" else each.streams) for kind, subject, each in limits)
    return [Share(f"{kind}-{what}", subject, limit) for kind, subject, limit in found if limit]


def _windows(limits: Sequence[tuple[str, str, SubjectLimits]], what: str) -> list[Window]:
    found = []
    for kind, subject, each in limits:
        limit = {
            "requests": each.requests_per_minute,
            "tokens": each.tokens_per_day,
            "money": None if each.money_per_day is None else round(each.money_per_day * MILLIONTHS),
        }[what]
        if limit is not None:
            found.append(Window(f"{kind}-{what}", subject, limit, MINUTE if what == "requests" else DAY))
    return found


def _tightest(levels: Sequence[Level]) -> RateLimitHeaders | None:
    """About the window with the smallest share left (IETF draft)."""
    if not levels:
        return None
    level = min(levels, key=lambda each: each.left / each.window.limit)
    window = level.window
    policy = f'"{window.name}";q={window.limit};w={window.seconds:.0f}'
    return policy, f'"{window.name}";r={level.left};t={level.reset:.0f}'


class Meter(RunMeter):
    """Counts what one run has reserved and used, from its events."""

    rate_limit: RateLimitHeaders | None = None

    def __init__(self, quotas: Quotas, spender: Spender, held: dict[Window, int], lease: Lease | None) -> None:
        self._quotas, self._spender = quotas, spender
        self._held, self._lease = held, lease
        self._run: Run | None = None
        self._step_at = 0

    def follow(self, run: Run) -> None:
        self._run = run

    async def reserve(self, prompt: Prompt) -> None:
        """Raises the reservation to the highest possible cost of a model call.

        Raises QuotaExceeded if a limit is used up and the run holds no reservation.
        """
        wanted = self._quotas.most_of(prompt, self._spender)
        missing = [
            Use(use.window, use.amount - self._held.get(use.window, 0), partly=True)
            for use in wanted
            if use.amount > self._held.get(use.window, 0)
        ]
        if not missing:
            return
        taken = await self._quotas.take(missing)
        if isinstance(taken, Full):
            if any(self._held.get(use.window) for use in missing):
                return  # continues with what it holds: a run exceeds a limit by at most one step
            raise QuotaExceeded(taken.window.name)
        for use, amount in zip(missing, taken.amounts, strict=True):
            self._held[use.window] = self._held.get(use.window, 0) + amount

    def step_started(self, _event: StepStarted) -> None:
        self._step_at = len(self._run.log) if self._run is not None else 0

    def step_finished(self, event: StepFinished) -> None:
        self._settle(event.usage or _estimated(self._estimate_step()))

    def history_compacted(self, event: HistoryCompacted) -> None:
        self._settle(event.usage or _estimated(event.estimate))

    def run_finished(self, _event: Ending) -> None:
        self.end()

    run_failed = run_finished

    def end(self) -> None:
        """Gives back the unused reservation, and the lease of the run."""
        self._quotas.settle([Use(window, -amount) for window, amount in self._held.items() if amount])
        self._held = {}
        if self._lease is not None:
            self._quotas.release(self._lease)
            self._lease = None

    def _settle(self, usage: TokenUsage) -> None:
        tokens, money = max(0, usage.total_tokens), self._quotas.money_of(usage)
        uses = []
        for use in self._quotas.spending_windows(self._spender, 0):
            spent = money if use.window.name.endswith("-money") else tokens
            uses.append(Use(use.window, spent - self._held.pop(use.window, 0)))
        self._quotas.settle([use for use in uses if use.amount])

    def _estimate_step(self) -> int:
        """Estimates the tokens of a step without reported usage; 0 if the model sent nothing: such a step is free."""
        if self._run is None:
            return 0
        try:
            events = self._run.log.since(self._step_at)
        except ReplayGone:
            return len(self._run.log) - self._step_at  # a piece is about a token
        pieces = (each.delta for each in events if isinstance(each, TextAdded | ReasoningAdded | ToolArgumentsAdded))
        written = tokens_of_text("".join(pieces))
        return written and written + tokens_in(self._run.request.messages)


def _estimated(tokens: int) -> TokenUsage:
    return TokenUsage(prompt_tokens=0, completion_tokens=tokens)


class QuotaExceeded(BudgetExceeded):
    """A limit of `server.limits` is used up, so no further step may start."""

    def __init__(self, limit: str = "") -> None:
        Exception.__init__(self, f"Stopped: the limit {limit} is used up (server.limits).")
        self.reason = limit
