"""Models whose price is known."""

import pytest

from holodeck.core.usage import TokenUsage
from holodeck.errors import ModelUnreachable
from holodeck.models.port import Prompt
from holodeck.models.price import Price
from holodeck.models.scripted import ScriptedModel, Turn, says
from holodeck.models.wrappers import FallbackModel, PricedModel
from tests.models.recording_listener import RecordingListener

PRICE = Price(input=1, output=10)
USAGE = TokenUsage(prompt_tokens=1_000, completion_tokens=100)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (USAGE, 0.002),
        (TokenUsage(prompt_tokens=1_000, completion_tokens=100, cost=0.0007), 0.0007),  # the gateway knows better
        (TokenUsage(prompt_tokens=1_000, completion_tokens=100, cost=0.0), 0.0),
    ],
)
async def test_a_reply_knows_what_it_cost(usage, cost):
    model = PricedModel(ScriptedModel([says("Yes.", usage=usage)]), PRICE)
    reply = await model.reply(Prompt(), RecordingListener())
    assert reply.usage is not None
    assert reply.usage.cost == pytest.approx(cost)
    assert (reply.text, reply.usage.total_tokens) == ("Yes.", 1_100)


@pytest.mark.parametrize(
    ("price", "cost"),
    [
        (Price(input=1, output=10, cached=0.1, cache_write=1.25), 500 * 1 + 300 * 0.1 + 200 * 1.25 + 100 * 10),
        (Price(input=1, output=10, cached=0.1), 700 * 1 + 300 * 0.1 + 100 * 10),
        (Price(input=1, output=10), 1_000 * 1 + 100 * 10),
    ],
)
def test_cached_input_has_its_own_price(price, cost):
    usage = TokenUsage(prompt_tokens=1_000, completion_tokens=100, cached_tokens=300, cache_write_tokens=200)
    assert price.of(usage) == pytest.approx(cost / 1_000_000)
    twice = usage + usage
    assert (twice.cached_tokens, twice.cache_write_tokens) == (600, 400)


async def test_without_counts_there_is_no_cost():
    reply = await PricedModel(ScriptedModel([says("Yes.")]), PRICE).reply(Prompt(), RecordingListener())
    assert reply.usage is None


async def test_the_model_that_answered_has_the_price():
    failing = PricedModel(ScriptedModel([Turn(error=ModelUnreachable())]), Price(input=500, output=500))
    reply = await FallbackModel([failing, PricedModel(ScriptedModel([says("Yes.", usage=USAGE)]), PRICE)]).reply(
        Prompt(), RecordingListener()
    )
    assert reply.usage is not None
    assert reply.usage.cost == pytest.approx(0.002)


async def test_it_is_the_same_model_in_all_else():
    class Closing(ScriptedModel):
        closed = False
        checked = False

        async def check(self) -> None:
            self.checked = True

        async def close(self) -> None:
            self.closed = True

    inner = Closing([says("a")])
    model = PricedModel(inner, PRICE)
    await model.check()
    await model.close()
    assert (model.name, inner.checked, inner.closed) == (inner.name, True, True)
    assert repr(inner) in repr(model)
