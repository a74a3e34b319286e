"""How much one user may ask for: requests a minute, tokens a day (T30). Off unless the agent file says otherwise.

Both are counted over a moving window, so no clock's midnight or full minute lets twice as much through, and on the
monotonic clock, so no clock that is set does. Within one process they are exact: nothing here waits between looking and
counting. (The library `limits` is not used: its memory store reads the wall clock, starts a thread every 10 ms
and keeps an entry for each token.)

A token is known only when it is spent: whoever has some left may start a run, and the run may spend more than that.
"""

import ipaddress
import time
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from holodeck.agent.estimate import tokens_in, tokens_of_text
from holodeck.core.events import (
    Event,
    HistoryCompacted,
    ReasoningAdded,
    StepFinished,
    StepStarted,
    TextAdded,
    ToolArgumentsAdded,
)
from holodeck.core.owner import Owner
from holodeck.errors import RateLimited
from holodeck.runs.log import ReplayGone
from holodeck.runs.runs import Run
from holodeck.server.options import UseLimits

Payer: TypeAlias = Owner | str
"""An owner, or the network that an anonymous request comes from."""

MINUTE, DAY = 60.0, 86_400.0
MAX_USERS = 10_000  # beyond this, windows in which nothing was used are removed
MOST_USERS = 200_000  # with something used; no other user is admitted then
_GRAIN = 60.0  # seconds of a day's use that are kept as one figure
_IPV6_NETWORK = 64  # bits: what one household or machine gets, and may take any address of


class MovingWindow:
    """What was used in the last `seconds`, at most `limit`. What comes within `grain` seconds is kept as one."""

    def __init__(self, limit: int, seconds: float, grain: float = 0.0) -> None:
        self._limit, self._seconds, self._grain = limit, seconds, grain
        self._uses: deque[tuple[float, float, int]] = deque()  # first, last, how much
        self._used = 0

    def is_empty(self, now: float) -> bool:
        while self._uses and self._uses[0][1] <= now - self._seconds:
            self._used -= self._uses.popleft()[2]
        return not self._uses

    def wait(self, now: float) -> float:
        """Seconds until there is room for something; 0 if there is now."""
        if self.is_empty(now) or self._used < self._limit:
            return 0.0
        over = self._used - self._limit
        for _, last, amount in self._uses:
            over -= amount
            if over < 0:
                return last + self._seconds - now
        return self._seconds

    def use(self, now: float, amount: int = 1) -> None:
        first = now
        if self._uses and now - self._uses[-1][0] < self._grain:
            first, _, earlier = self._uses.pop()
            self._used -= earlier
            amount += earlier
        self._uses.append((first, now, amount))
        self._used += amount


class Windows:
    """A moving window for each user."""

    def __init__(self, limit: int, seconds: float, grain: float = 0.0) -> None:
        self._terms = (limit, seconds, grain)
        self._windows: dict[Payer, MovingWindow] = {}
        self._sweep_at = MAX_USERS

    def wait(self, user: Payer, now: float) -> float:
        """Seconds until there is room for something of this user; 0 if there is now."""
        window = self._windows.get(user)
        if window is not None:
            return window.wait(now)
        if len(self._windows) >= self._sweep_at:
            self._sweep(now)
        return 0.0 if len(self._windows) < MOST_USERS else self._terms[1]

    def use(self, user: Payer, now: float, amount: int = 1) -> None:
        self._windows.setdefault(user, MovingWindow(*self._terms)).use(now, amount)

    def _sweep(self, now: float) -> None:
        """Removes only empty windows: with any other a user would get back what is spent."""
        self._windows = {user: window for user, window in self._windows.items() if not window.is_empty(now)}
        self._sweep_at = max(MAX_USERS, 2 * len(self._windows))


class Quotas:
    def __init__(self, limits: UseLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._requests = Windows(limits.requests_per_minute, MINUTE) if limits.requests_per_minute else None
        self._tokens = Windows(limits.tokens_per_day, DAY, _GRAIN) if limits.tokens_per_day else None

    @property
    def counts_tokens(self) -> bool:
        return self._tokens is not None

    def admit(self, *payers: Payer) -> None:
        """Counts a request for each of its payers; RateLimited if one of them has no request or no token left."""
        now = self._clock()
        for payer in payers:
            if self._tokens is not None and (wait := self._tokens.wait(payer, now)):
                raise _refused(f"{self._limits.tokens_per_day:,} tokens a day", wait)
            if self._requests is not None and (wait := self._requests.wait(payer, now)):
                raise _refused(f"{self._limits.requests_per_minute:,} requests a minute", wait)
        if self._requests is not None:
            for payer in payers:
                self._requests.use(payer, now)

    def charge(self, tokens: int, *payers: Payer) -> None:
        if self._tokens is not None and tokens:
            for payer in payers:
                self._tokens.use(payer, self._clock(), tokens)


class Charging:
    """Charges a run's tokens to its payers, after each step. An endpoint that does not count them is estimated, not free."""

    def __init__(self, quotas: Quotas, payers: tuple[Payer, ...], run: Run) -> None:
        self._quotas, self._payers, self._run = quotas, payers, run
        self._step_at = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepStarted):
            self._step_at = len(self._run.log)
        elif isinstance(event, StepFinished):
            usage = event.usage
            self._quotas.charge(self._estimate() if usage is None else usage.total_tokens, *self._payers)
        elif isinstance(event, HistoryCompacted):
            usage = event.usage
            self._quotas.charge(event.estimate if usage is None else usage.total_tokens, *self._payers)

    def _estimate(self) -> int:
        """A step in which the model said nothing is one that failed, and costs nothing."""
        try:
            events = self._run.log.since(self._step_at)
        except ReplayGone:
            return len(self._run.log) - self._step_at  # a piece is about a token
        pieces = (each.delta for each in events if isinstance(each, TextAdded | ReasoningAdded | ToolArgumentsAdded))
        said = tokens_of_text("".join(pieces))
        return said and said + tokens_in(self._run.request.messages)


def payers_of(owner: Owner, client: str | None, *, authenticated: bool) -> tuple[Payer, ...]:
    """Whose quota a request uses: its owner's, and that of its address unless a credential says who the owner is.

    A client can write any name into a body, so a name does not free it from its address's quota (T30). Only the socket's
    own address counts: any client can write what headers say about it (T31).
    """
    if authenticated:
        return (owner,)
    address = network_of(client or "")
    return (address,) if owner.is_anonymous else (owner, address)


def network_of(client: str) -> str:
    """The client as one party: an IPv4 address, or the network that an IPv6 address is taken from."""
    if ":" not in client:
        return client
    address = ipaddress.IPv6Address(client.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> (128 - _IPV6_NETWORK) << (128 - _IPV6_NETWORK), _IPV6_NETWORK)))


def _refused(limit: str, wait: float) -> RateLimited:
    error = RateLimited(f"This is more than the server allows to one user: {limit}.")
    error.retry_after = wait
    return error
