"""The breaker as a machine: against a reference over random histories, and in the few cases people ask about."""

import asyncio
import random
from datetime import UTC, datetime

import pytest

from holodeck.resilience.breaker import CircuitBreaker, CircuitBreakerConfig, Phase
from tests.resilience.reference_breaker import ReferenceBreaker


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def breaker_of(clock, threshold=3, recovery=60.0, trials=3, changes=None):
    config = CircuitBreakerConfig(failure_threshold=threshold, recovery_timeout=recovery, half_open_max_calls=trials)
    on_change = (lambda change: None) if changes is None else changes.append
    return CircuitBreaker("service", config, clock=clock, on_change=on_change)


def opened(clock, **settings):
    breaker = breaker_of(clock, **settings)
    for _ in range(breaker.config.failure_threshold):
        breaker.admit().failed("no connection")
    return breaker


@pytest.mark.req("A30", "A31", "ORC-10")
def test_a_thousand_random_histories_are_those_of_the_reference():
    seen, steps = set(), 0
    for seed in range(1500):
        chance = random.Random(seed)
        clock, changes = Clock(), []
        threshold, recovery, trials = chance.randint(1, 5), chance.choice([1.0, 7.5]), chance.randint(1, 4)
        breaker = breaker_of(clock, threshold, recovery, trials, changes)
        reference = ReferenceBreaker(threshold, recovery, trials)
        running = []
        for _ in range(chance.randint(20, 120)):
            steps += 1
            clock.now += chance.choice([0, 0, 0.1, 0.5, recovery])
            if running and chance.random() < 0.6:
                ours, theirs = running.pop(chance.randrange(len(running)))
                outcome = chance.choices(["ok", "fail", "gone"], [4, chance.choice([1, 6]), 1])[0]
                report = {"ok": ours.succeeded, "fail": lambda o=ours: o.failed("x"), "gone": ours.withdrawn}[outcome]
                report()
                reference.report(theirs, outcome, clock.now)
                if chance.random() < 0.1:
                    report()  # reported twice: ignored
            else:
                ours, theirs = breaker.admit(), reference.ask(clock.now)
                assert (ours is None) == (theirs is None), f"seed {seed}"
                running += [(ours, theirs)] if ours else []
            assert breaker.phase == reference.state(clock.now), f"seed {seed}"
        assert [change.new_state for change in changes] == [period.state for period in reference.periods[1:]]
        seen |= {(change.old_state, change.new_state) for change in changes}
    assert steps > 50_000
    assert seen == {
        (Phase.CLOSED, Phase.OPEN), (Phase.OPEN, Phase.HALF_OPEN),
        (Phase.HALF_OPEN, Phase.CLOSED), (Phase.HALF_OPEN, Phase.OPEN),
    }  # fmt: skip


@pytest.mark.req("A30")
@pytest.mark.parametrize("trials", [1, 3, 5])
async def test_under_concurrency_exactly_so_many_trials_are_let_through(trials):
    clock = Clock()
    breaker = opened(clock, trials=trials)
    clock.now = 60
    answered, reached = asyncio.Event(), 0

    async def call():
        nonlocal reached
        admission = breaker.admit()
        if admission is None:
            return False
        reached += 1
        await answered.wait()
        admission.succeeded()
        return True

    calls = [asyncio.create_task(call()) for _ in range(100)]
    await asyncio.sleep(0)
    assert (reached, breaker.phase) == (trials, Phase.HALF_OPEN)
    assert breaker.retry_after > 0
    answered.set()
    assert sum(await asyncio.gather(*calls)) == trials
    assert breaker.phase is Phase.CLOSED


@pytest.mark.req("A31")
def test_every_trial_has_to_succeed_and_one_failure_starts_the_time_again():
    clock = Clock()
    breaker = opened(clock)
    clock.now = 60
    first, second = breaker.admit(), breaker.admit()
    first.succeeded()
    assert breaker.phase is Phase.HALF_OPEN
    clock.now = 65
    second.failed("still ill")
    assert (breaker.phase, breaker.admit(), breaker.retry_after) == (Phase.OPEN, None, 60)
    clock.now = 125
    for _ in range(3):
        assert breaker.phase is Phase.HALF_OPEN
        breaker.admit().succeeded()
    assert breaker.phase is Phase.CLOSED


@pytest.mark.req("A30")
def test_a_call_that_was_given_up_counts_as_neither_and_frees_its_trial():
    clock = Clock()
    breaker = breaker_of(clock, threshold=2)
    breaker.admit().failed("x")
    breaker.admit().withdrawn()
    assert breaker.state().failure_count == 1
    breaker.admit().failed("x")
    assert breaker.phase is Phase.OPEN
    clock.now = 60
    trials = [breaker.admit() for _ in range(3)]
    assert breaker.admit() is None
    trials[0].withdrawn()
    assert breaker.admit() is not None
    assert breaker.admit() is None


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "withdrawn"])
def test_a_late_outcome_of_an_earlier_state_is_ignored(outcome):
    clock = Clock()
    breaker = breaker_of(clock, trials=1)
    late = breaker.admit()
    for _ in range(3):
        breaker.admit().failed("x")
    clock.now = 60
    trial = breaker.admit()
    getattr(late, outcome)(*(["x"] if outcome == "failed" else []))
    assert (breaker.phase, breaker.admit()) == (Phase.HALF_OPEN, None)
    trial.succeeded()
    assert breaker.phase is Phase.CLOSED


def test_reading_changes_nothing_and_shows_all():
    clock, changes = Clock(), []
    breaker = breaker_of(clock, changes=changes)
    assert breaker.state().state is Phase.CLOSED
    for _ in range(3):
        breaker.admit().failed("no connection")
    clock.now = 20.5
    state = breaker.state()
    assert (state.state, state.failure_count, state.last_error) == (Phase.OPEN, 3, "no connection")
    assert state.retry_after == 39.5
    assert state.last_failure_time <= state.last_state_change <= datetime.now(UTC)
    clock.now = 60
    assert breaker.state().state is breaker.phase is Phase.HALF_OPEN
    assert breaker.retry_after == 0
    assert [change.new_state for change in changes] == [Phase.OPEN], "nobody has tried yet"
    change = changes[0]
    assert (change.service, change.old_state, change.failure_count, change.last_error) == (
        "service", Phase.CLOSED, 3, "no connection",
    )  # fmt: skip


def test_the_defaults_are_those_of_the_seed():
    config = CircuitBreakerConfig()
    assert (config.failure_threshold, config.recovery_timeout, config.half_open_max_calls) == (5, 30, 3)
