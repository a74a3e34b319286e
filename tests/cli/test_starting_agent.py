"""An agent that starts behind the prompt, and its model that can be changed."""

import asyncio

import pytest

from holodeck.cli.conversation.chat_context import StartingAgent
from holodeck.config.load import load_config
from holodeck.errors import ConfigError, ModelError, StartError
from tests.models.endpoint import ModelEndpoint, status


@pytest.fixture
def start(tmp_path):
    def make(text: str = "model: {provider: demo}\n", **environment: str) -> StartingAgent:
        (tmp_path / "agent.yaml").write_text(f"name: a\n{text}")
        config = load_config(tmp_path / "agent.yaml", environment=environment)
        return StartingAgent(config, max_messages=20, after=gate.wait)

    gate = asyncio.Event()
    make.gate = gate
    return make


async def test_it_waits_for_the_prompt_and_then_is_there(start):
    starting = start()
    waiting = asyncio.ensure_future(starting.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    start.gate.set()
    agent = await waiting
    assert (agent.model.name, agent.max_messages) == ("demo", 20)
    assert starting.task.exception() is None
    await starting.close()


async def test_who_stops_waiting_does_not_stop_the_start(start):
    starting = start()
    waiting = asyncio.ensure_future(starting.get())
    await asyncio.sleep(0)
    waiting.cancel()
    start.gate.set()
    assert (await starting.get()).name == "a"
    await starting.close()


async def test_leaving_before_it_started(start):
    starting = start()
    await starting.close()
    assert starting.task.cancelled()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("model: {provider: gemini, name: x}\n", ConfigError),
        ("model: {provider: openai_compatible, name: x, endpoint: 'http://127.0.0.1:9/v1'}\n", ModelError),
        ("model: {provider: demo}\ntools: [{name: t, type: mcp, command: no-such-server}]\n", StartError),
    ],
)
async def test_failures_are_reported_to_all_readers(start, text, error):
    starting = start(text)
    start.gate.set()
    for _ in range(2):
        with pytest.raises(error):
            await starting.get()
    assert isinstance(starting.task.exception(), error)
    await starting.close()


async def test_another_model_from_now_on(start):
    async with ModelEndpoint(status(200, {"data": []})) as endpoint:
        starting = start(f"model: {{provider: openai_compatible, name: x, endpoint: '{endpoint.url}'}}\n")
        start.gate.set()
        assert (await starting.get()).model.name == "openai_compatible/x"
        assert (await starting.use_model("some/y")).model.name == "openai_compatible/some/y"
        assert (await starting.use_model("demo")).model.name == "demo"
        assert (await starting.get()).model.name == "demo"
        await starting.close()


async def test_a_price_is_that_of_its_own_model(start):
    async with ModelEndpoint(status(200, {"data": []})) as endpoint:
        price = "price: {input: 1, output: 2}"
        starting = start(f"model: {{provider: openai_compatible, name: x, endpoint: '{endpoint.url}', {price}}}\n")
        start.gate.set()
        prices = {}
        for name in ("y", "x", "openai_compatible/x", "demo"):
            await starting.use_model(name)
            prices[name] = starting.choice.price and starting.choice.price.output
        assert prices == {"y": None, "x": 2, "openai_compatible/x": 2, "demo": None}
        await starting.close()


@pytest.mark.parametrize("name", ["gemini/flash", "openai_compatible/x", "x" * 3000])
async def test_a_model_that_cannot_be_had_changes_nothing(start, name):
    starting = start()
    start.gate.set()
    with pytest.raises(ConfigError):
        await starting.use_model(name)
    assert (await starting.get()).model.name == "demo"
    await starting.close()
