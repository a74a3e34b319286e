"""All circuit breakers of one agent: creates them, lists them, and logs their changes.

It does not know what they protect; `holodeck.models.wrappers` and `holodeck.tools.catalogue` do.
"""

import logging
import time
from collections.abc import Callable
from enum import StrEnum
from weakref import WeakValueDictionary

import msgspec

from holodeck.core.text import one_line
from holodeck.resilience.breaker import CircuitBreaker, CircuitBreakerConfig, CircuitBreakerState, Phase, StateChange

log = logging.getLogger(__name__)

_LONGEST_ERROR = 300


class Dependency(StrEnum):
    MODEL = "model"
    MCP = "mcp"
    TOOL = "tool"


def log_change(change: StateChange) -> None:
    """Logs one line for each change (ORC-08), as a warning if the breaker opens."""
    details = msgspec.to_builtins(change)
    details["last_error"] = one_line(change.last_error, _LONGEST_ERROR) if change.last_error else None
    level = logging.WARNING if change.new_state is Phase.OPEN else logging.INFO
    log.log(level, "circuit_breaker_state_change", extra={"details": details})


class Breakers:
    """A weak registry: a breaker that is no longer used (its server dropped the tool) is no longer listed."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[StateChange], None] = log_change,
    ) -> None:
        self._clock, self._on_change = clock, on_change
        self._made: WeakValueDictionary[tuple[Dependency, str], CircuitBreaker] = WeakValueDictionary()

    def of(self, kind: Dependency, service: str, config: CircuitBreakerConfig) -> CircuitBreaker:
        """The breaker of a service, the same one for all callers."""
        breaker = self._made.get((kind, service))
        if breaker is None:
            breaker = CircuitBreaker(f"{kind}:{service}", config, clock=self._clock, on_change=self._on_change)
            self._made[kind, service] = breaker
        return breaker

    def states(self) -> list[CircuitBreakerState]:
        return [breaker.state() for breaker in list(self._made.values())]

    def cut_off(self, kind: Dependency) -> bool:
        """Whether no service of this kind may be called now: there are some, and all their breakers are open."""
        phases = [breaker.phase for (made_for, _), breaker in list(self._made.items()) if made_for is kind]
        return bool(phases) and all(phase is Phase.OPEN for phase in phases)

    def retry_after(self, kind: Dependency) -> float:
        """Seconds until the first service of this kind that is cut off may be called again. 0 if none is."""
        open_ones = [
            breaker.retry_after
            for (made_for, _), breaker in list(self._made.items())
            if made_for is kind and breaker.phase is Phase.OPEN
        ]
        return min(open_ones, default=0.0)
