"""A circuit breaker as a pure state machine: it gets outcomes and decides whether the next call may be made.

    CLOSED ──failure_threshold failures in a row──▶ OPEN ──recovery_timeout──▶ HALF_OPEN
       ▲                                              ▲                            │
       └──────half_open_max_calls trials succeed──────┼────────────────────────────┤
                                                      └──────one trial fails───────┘

It does not wait, log or know what is called: the clock is passed in, and `on_change` is called for every change of
state. An outcome may come late. It counts only in the state in which its call was admitted: a call from the closed
state that fails while trials run proves nothing about the trials.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec
from pydantic import Field

from holodeck.blocks import Block

ALL_TRIALS_RUN = 1.0  # seconds to wait for an outcome of the trials that are under way


class Phase(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreakerConfig(Block):
    """The limits after which a service that does not answer is no longer called."""

    failure_threshold: int = Field(5, ge=1, le=1000, description="Failures in a row that open the breaker")
    recovery_timeout: float = Field(30, gt=0, le=3600, description="Seconds before an open breaker allows trial calls")
    half_open_max_calls: int = Field(3, ge=1, le=100, description="Trial calls that must succeed to close the breaker")


class CircuitBreakerState(msgspec.Struct, frozen=True, kw_only=True):
    """State of one circuit breaker. `retry_after` is in seconds, while it is open."""

    service: str
    state: Phase
    failure_count: int  # in a row
    consecutive_successes: int  # successful trial calls in a row, while half open
    last_error: str | None
    last_failure_time: Annotated[datetime, msgspec.Meta(tz=True)] | None
    last_state_change: Annotated[datetime, msgspec.Meta(tz=True)]
    retry_after: float | None


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    service: str
    old_state: Phase
    new_state: Phase
    failure_count: int
    last_error: str | None


OnChange: TypeAlias = Callable[[StateChange], None]


def _ignore(_change: StateChange) -> None:
    return None


class CircuitBreaker:
    """The breaker of one service. A caller asks `admit` first and reports the outcome to the Admission."""

    def __init__(
        self,
        service: str,
        config: CircuitBreakerConfig | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_change: OnChange = _ignore,
    ) -> None:
        self.service = service
        self.config = config or CircuitBreakerConfig()
        self._clock, self._on_change = clock, on_change
        self._phase = Phase.CLOSED
        self.closed = True  # a plain attribute: read for every tool before every model call
        self._era = 0  # grows with every change of state
        self._failures = self._successes = self._trials = 0
        self._opened_at = 0.0
        self._last_error: str | None = None
        self._last_failure: datetime | None = None
        self._last_change = datetime.now(UTC)

    @property
    def phase(self) -> Phase:
        """The current phase.

        Reading changes nothing: after its timeout an open breaker reads half open before the first trial.
        """
        over = self._phase is Phase.OPEN and self._clock() >= self._opened_at + self.config.recovery_timeout
        return Phase.HALF_OPEN if over else self._phase

    @property
    def retry_after(self) -> float:
        """Seconds until a new call may help. 0 if a call would be admitted now."""
        if self.phase is Phase.OPEN:
            return self._opened_at + self.config.recovery_timeout - self._clock()
        return ALL_TRIALS_RUN if self._all_trials_run() else 0.0

    def state(self) -> CircuitBreakerState:
        phase = self.phase
        return CircuitBreakerState(
            service=self.service,
            state=phase,
            failure_count=self._failures,
            consecutive_successes=self._successes,
            last_error=self._last_error,
            last_failure_time=self._last_failure,
            last_state_change=self._last_change,
            retry_after=round(self.retry_after, 3) if phase is Phase.OPEN else None,
        )

    def admit(self) -> "Admission | None":
        """Admits one call. None if the call must not be made."""
        if self.closed:
            return Admission(self, self._era)
        phase = self.phase
        if phase is Phase.OPEN or self._all_trials_run():
            return None
        if phase is not self._phase:
            self._change(phase)
        if phase is Phase.HALF_OPEN:
            self._trials += 1
        return Admission(self, self._era)

    # outcomes, reported by Admission

    def _trial_succeeded(self) -> None:
        self._successes += 1
        if self._successes == self.config.half_open_max_calls:
            self._change(Phase.CLOSED)
            self._failures = 0

    def _failed(self, error: str) -> None:
        self._failures += 1
        self._last_error, self._last_failure = error, datetime.now(UTC)
        if self._phase is Phase.HALF_OPEN or self._failures >= self.config.failure_threshold:
            self._opened_at = self._clock()
            self._change(Phase.OPEN)

    def _withdrawn(self) -> None:
        if self._phase is Phase.HALF_OPEN:
            self._trials -= 1

    def _all_trials_run(self) -> bool:
        return self._phase is Phase.HALF_OPEN and self._trials >= self.config.half_open_max_calls

    def _change(self, phase: Phase) -> None:
        change = StateChange(
            service=self.service,
            old_state=self._phase,
            new_state=phase,
            failure_count=self._failures,
            last_error=self._last_error,
        )
        self._phase, self.closed = phase, phase is Phase.CLOSED
        self._era += 1
        self._successes = self._trials = 0
        self._last_change = datetime.now(UTC)
        self._on_change(change)


@dataclass(slots=True, eq=False)
class Admission:
    """One admitted call. Exactly one of its methods is called, once; later calls are ignored."""

    _breaker: CircuitBreaker | None
    _era: int

    def succeeded(self) -> None:
        """Reports that the service answered, with success or with an error of its own."""
        breaker, self._breaker = self._breaker, None
        if breaker is not None and breaker._era == self._era:  # noqa: SLF001  the other half of the same machine
            if breaker.closed:
                breaker._failures = 0  # noqa: SLF001  as above
            else:
                breaker._trial_succeeded()  # noqa: SLF001  as above

    def failed(self, error: str) -> None:
        if breaker := self._taken():
            breaker._failed(error)  # noqa: SLF001  as above

    def withdrawn(self) -> None:
        """Reports that the call was given up before its outcome was known.

        It proves nothing, and its trial is free again.
        """
        if breaker := self._taken():
            breaker._withdrawn()  # noqa: SLF001  as above

    def _taken(self) -> CircuitBreaker | None:
        breaker, self._breaker = self._breaker, None
        return breaker if breaker is not None and breaker._era == self._era else None  # noqa: SLF001  as above
