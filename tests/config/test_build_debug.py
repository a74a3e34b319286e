"""`serve --debug`: what the model endpoint sends is passed on as it is (SRV-22)."""

import json

import pytest

from holodeck.agent.definition import AgentContext
from holodeck.agent.loop import run
from holodeck.config.build import build_agent
from holodeck.config.load import load_config
from holodeck.core.events import Event, RawReceived
from holodeck.core.messages import UserMessage
from tests.models.endpoint import ModelEndpoint, stream, text_frames


@pytest.mark.req("SRV-22")
@pytest.mark.parametrize("debug", [True, False])
async def test_raw_events_come_with_debug_only(tmp_path, debug):
    received: list[Event] = []
    async with ModelEndpoint(stream(*text_frames("Hello", " there"))) as endpoint:
        model = {"provider": "openai_compatible", "name": "m", "endpoint": endpoint.url, "api_key": "k"}
        (tmp_path / "agent.yaml").write_text(json.dumps({"name": "a", "model": model}))
        async with build_agent(load_config(tmp_path / "agent.yaml"), debug=debug) as agent:
            await run(agent, AgentContext(input=[UserMessage(content="hi")]), received.append)
    raw = [event.event for event in received if isinstance(event, RawReceived)]
    assert bool(raw) is debug
    assert "Hello" in str(raw) or not debug
