"""What a circuit breaker should do, implemented a second time in another way: by looking at the whole history each time.

It keeps no counters. Every question is answered from the list of what happened, so a mistake in the machine's
book-keeping cannot be repeated here.
"""

from dataclasses import dataclass, field


@dataclass
class Call:
    period: int  # which of the periods it was admitted in
    outcome: str | None = None  # "ok", "fail", "gone"


@dataclass
class Period:
    """A time between two changes of state, with the outcomes of its own calls in the order in which they came."""

    state: str
    since: float
    outcomes: list[str] = field(default_factory=list)
    admitted: int = 0


class ReferenceBreaker:
    def __init__(self, threshold: int, recovery: float, trials: int) -> None:
        self.threshold, self.recovery, self.trials = threshold, recovery, trials
        self.periods = [Period("closed", 0.0)]

    def state(self, now: float) -> str:
        last = self.periods[-1]
        return "half_open" if last.state == "open" and now >= last.since + self.recovery else last.state

    def ask(self, now: float) -> Call | None:
        state = self.state(now)
        if state != self.periods[-1].state:
            self.periods.append(Period(state, now))
        last = self.periods[-1]
        given_back = last.outcomes.count("gone")
        if state == "open" or (state == "half_open" and last.admitted - given_back >= self.trials):
            return None
        last.admitted += 1
        return Call(len(self.periods) - 1)

    def report(self, call: Call, outcome: str, now: float) -> None:
        if call.outcome is not None:
            return
        call.outcome = outcome
        if call.period != len(self.periods) - 1:
            return
        last = self.periods[-1]
        last.outcomes.append(outcome)
        decided = [each for each in last.outcomes if each != "gone"]
        tripped = last.state == "closed" and decided[-self.threshold :] == ["fail"] * self.threshold
        relapsed = last.state == "half_open" and "fail" in decided
        if tripped or relapsed:
            self.periods.append(Period("open", now))
        elif last.state == "half_open" and len(decided) == self.trials:
            self.periods.append(Period("closed", now))
