"""Counts failed credentials by address, so that guessing is slow and cheap to refuse."""

import ipaddress
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache

MINUTE = 60.0
MAX_ADDRESSES = 10_000
_IPV6_PREFIX = 64  # bits: one household or machine may use any address of such a network


@lru_cache(maxsize=4096)  # parsing costs more than all other work on an address per request
def network_of(address: str | None) -> str:
    """Returns what counts as one client: an IPv4 address, or an IPv6 network of 64 bits."""
    if address is None:
        return "unix"
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((int(parsed), _IPV6_PREFIX), strict=False))
    return str(parsed)


class Attempts:
    """The last failures of each address, at most `limit` in a minute."""

    def __init__(self, limit: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = limit, clock
        self._failures: dict[str, deque[float]] = {}  # ordered by the latest failure

    @property
    def empty(self) -> bool:
        """Whether no address has failed yet: then none has to be parsed."""
        return not self._failures

    def wait(self, network: str) -> float:
        """Returns the seconds until a further failure is allowed; 0 if it is allowed now."""
        failures = self._failures.get(network)
        if self._limit is None or failures is None or len(failures) < self._limit:
            return 0.0
        return max(0.0, failures[0] + MINUTE - self._clock())

    def failed(self, network: str) -> None:
        if self._limit is None:
            return
        failures = self._failures.pop(network, None)
        if failures is None:
            failures = deque(maxlen=self._limit)
        failures.append(self._clock())
        self._failures[network] = failures
        if len(self._failures) > MAX_ADDRESSES:
            del self._failures[next(iter(self._failures))]
