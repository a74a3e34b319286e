"""A model behind a breaker, in front of an endpoint that fails: what counts, what is asked, who takes over."""

import asyncio

import pytest

from holodeck import errors
from holodeck.models.scripted import ScriptedModel, Turn, says
from holodeck.models.wrappers import FALLBACK_WARNING, FallbackModel, GuardedModel
from holodeck.resilience.breaker import CircuitBreaker, CircuitBreakerConfig, Phase
from holodeck.resilience.retry import Backoff
from tests.models.asking import OK, PROMPT, SHORT, asking, unused_port
from tests.models.endpoint import ModelEndpoint, Wire, status
from tests.models.recording_listener import RecordingListener


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def guarded(model, clock=None, threshold=3, trials=3):
    config = CircuitBreakerConfig(failure_threshold=threshold, recovery_timeout=60, half_open_max_calls=trials)
    breaker = CircuitBreaker("m", config, clock=clock or Clock())
    return GuardedModel(model, breaker), breaker


async def fails_with(model, kind):
    with pytest.raises(kind) as caught:
        await model.reply(PROMPT, RecordingListener())
    return caught.value


@pytest.mark.req("A30", "ORC-10")
@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (errors.ModelUnreachable, True),
        (errors.ModelInterrupted, True),
        (errors.ModelTruncated, True),
        (errors.ModelTimeout, True),
        (errors.ModelUnavailable, True),
        (errors.ModelRejected, False),
        (errors.ModelAuthFailed, False),
        (errors.ContextOverflow, False),
        (errors.ContentFiltered, False),
        (errors.ModelProtocolError, False),
    ],
)
async def test_only_what_is_the_endpoints_own_failure_counts(error, counts):
    model, breaker = guarded(ScriptedModel([Turn(error=error("no"))]))
    for _ in range(3):
        assert type(await fails_with(model, errors.ModelError)) is error
    assert breaker.phase is (Phase.OPEN if counts else Phase.CLOSED)


@pytest.mark.req("A30")
async def test_a_refusal_between_two_failures_shows_that_someone_is_there():
    down, refused = Turn(error=errors.ModelUnreachable("down")), Turn(error=errors.ModelRejected("no"))
    model, breaker = guarded(ScriptedModel([down, down, refused, down, down]))
    for _ in range(5):
        await fails_with(model, errors.ModelError)
    assert breaker.phase is Phase.CLOSED


@pytest.mark.req("A30", "A31", "ORC-10")
async def test_an_endpoint_that_breaks_down_and_comes_back():
    clock = Clock()
    async with ModelEndpoint(status(500, b"")) as endpoint, asking(endpoint.url) as client:
        model, breaker = guarded(client, clock)
        for _ in range(3):
            await fails_with(model, errors.ModelUnreachable)
        assert len(endpoint.requests) == 9, "three attempts a call, one count a call"

        clock.now = 18
        for _ in range(20):
            error = await fails_with(model, errors.ModelUnavailable)
        assert len(endpoint.requests) == 9, "an open breaker makes no request"
        assert error.retry_after == 42
        assert "Try again in 42 s" in error.message
        assert not error.started

        clock.now = 60
        endpoint.responses = [OK]
        for number in range(3):
            assert breaker.phase is Phase.HALF_OPEN
            assert (await model.reply(PROMPT, RecordingListener())).text == "Hello world"
            assert len(endpoint.requests) == 10 + number
        assert breaker.phase is Phase.CLOSED


@pytest.mark.req("A30", "A31")
async def test_half_open_lets_exactly_three_through_at_a_time():
    clock, gate = Clock(), asyncio.Event()

    async def slow(wire: Wire) -> None:
        await gate.wait()
        await OK(wire)

    async with ModelEndpoint(slow) as endpoint, asking(endpoint.url) as client:
        model, breaker = guarded(client, clock)
        for _ in range(3):
            breaker.admit().failed("down")
        clock.now = 60
        asked = [asyncio.create_task(model.reply(PROMPT, RecordingListener())) for _ in range(20)]
        await endpoint.asked(3)
        refused = [task for task in asked if task.done()]
        assert len(refused) == 17
        assert all(isinstance(task.exception(), errors.ModelUnavailable) for task in refused)
        gate.set()
        answers = await asyncio.gather(*(task for task in asked if task not in refused))
        assert [answer.text for answer in answers] == ["Hello world"] * 3
        assert (len(endpoint.requests), breaker.phase) == (3, Phase.CLOSED)


@pytest.mark.req("A30")
async def test_a_call_that_someone_stops_counts_as_neither_and_gives_its_trial_back():
    clock = Clock()
    async with ModelEndpoint(Wire.hang) as endpoint, asking(endpoint.url) as client:
        model, breaker = guarded(client, clock, threshold=1, trials=1)
        breaker.admit().failed("down")
        clock.now = 60
        for number in range(1, 4):
            task = asyncio.create_task(model.reply(PROMPT, RecordingListener()))
            await endpoint.asked(number)
            await fails_with(model, errors.ModelUnavailable)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert breaker.phase is Phase.HALF_OPEN


@pytest.mark.req("A07", "A30")
async def test_a_step_that_ends_in_silence_counts_as_a_time_out():
    async with ModelEndpoint(Wire.hang) as endpoint, asking(endpoint.url) as client:
        model, breaker = guarded(client, threshold=1)
        for was_silent in (False, True):
            assert breaker.phase is Phase.CLOSED, "it was speaking when its time was over"
            listener = RecordingListener(was_silent=was_silent)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await model.reply(PROMPT, listener)
        assert breaker.phase is Phase.OPEN


@pytest.mark.req("A07", "A30")
async def test_the_clients_own_time_out_counts_once():
    async with ModelEndpoint(Wire.hang) as endpoint, asking(endpoint.url, deadlines=SHORT) as client:
        model, breaker = guarded(client, threshold=2)
        await fails_with(model, errors.ModelTimeout)
        assert len(endpoint.requests) == 2
        assert breaker.state().failure_count == 1


async def test_a_defect_of_ours_is_nobodys_failure():
    class Defective(ScriptedModel):
        async def reply(self, prompt, listener):
            raise KeyError("oops")

    model, breaker = guarded(Defective([says("x")]), threshold=1)
    with pytest.raises(KeyError):
        await model.reply(PROMPT, RecordingListener())
    assert breaker.phase is Phase.CLOSED


@pytest.mark.req("A30", "ORC-10")
async def test_a_fallback_takes_over_from_an_open_breaker_before_the_first_token():
    clock = Clock()
    dead = f"http://127.0.0.1:{unused_port()}/v1"
    async with asking(dead, backoff=Backoff(retries=0)) as client:
        first, breaker = guarded(client, clock, threshold=1)
        spare = ScriptedModel([says("from the spare")])
        model = FallbackModel([first, spare])
        for _ in range(2):
            listener = RecordingListener()
            assert (await model.reply(PROMPT, listener)).text == "from the spare"
            assert listener.warnings == [FALLBACK_WARNING]
        assert breaker.phase is Phase.OPEN
        assert "upstream_overloaded" in listener.recorded[0][2], "the second time the breaker said no"


async def test_the_guard_is_a_model_like_the_one_it_guards():
    class Closing(ScriptedModel):
        asked = closed = False

        async def check(self):
            self.asked = True

        async def close(self):
            self.closed = True

    inner = Closing([says("hi there")])
    model, breaker = guarded(inner, threshold=1)
    breaker.admit().failed("down")
    await model.check()
    await model.close()
    assert (model.name, inner.asked, inner.closed) == ("scripted", True, True)
    assert repr(inner) in repr(model)
