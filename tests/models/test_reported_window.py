"""The context window that an endpoint reports, and what a long conversation is cut to."""

import asyncio

import pytest

from holodeck.config.build import build_agent
from holodeck.config.load import load_config
from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.errors import ModelUnreachable
from holodeck.models.context_windows import ReportedWindow
from holodeck.models.offered import OfferedModel
from holodeck.models.scripted import says
from holodeck.sessions.transcript import Transcript
from tests.agent.agent_fixture import AgentFixture
from tests.models.endpoint import ModelEndpoint, status, text_stream


def window_of(*offered, error=None, **more):
    asked = []

    async def ask():
        asked.append(1)
        if error is not None:
            raise error
        return offered

    return ReportedWindow("m", ask, **more), asked


@pytest.mark.req("MOD-01")
@pytest.mark.parametrize(
    ("offered", "tokens"),
    [
        ((OfferedModel("other", 100), OfferedModel("m", 8192)), 4608),
        ((OfferedModel("/weights/m.gguf", 8192),), 4608),  # llama.cpp serves one model, under the name of its file
        ((OfferedModel("other", 8192), OfferedModel("another", 8192)), None),
        ((OfferedModel("m"),), None),
        ((), None),
    ],
)
async def test_what_an_endpoint_reports_of_its_model(offered, tokens):
    window, asked = window_of(*offered)
    await asyncio.gather(*(window.learn() for _ in range(5)))
    assert (window.tokens, len(asked)) == (tokens, 1), "asked once, for all callers"


async def test_an_endpoint_without_a_list_is_no_error():
    window, asked = window_of(error=ModelUnreachable("no list"))
    await window.learn()
    await window.learn()
    assert (window.tokens, len(asked)) == (None, 1)


def conversation(turns):
    return [
        message
        for n in range(turns)
        for message in (UserMessage(content=f"question {n} " + "x" * 2000), AssistantMessage(content=f"answer {n}"))
    ]


@pytest.mark.req("MOD-01")
async def test_a_long_conversation_is_cut_to_the_reported_window_and_a_short_one_asks_nothing():
    window, asked = window_of(OfferedModel("m", 4096))
    fixture = AgentFixture(says("short"), window=window)
    await fixture.play("hi")
    assert asked == []
    fixture = AgentFixture(says("long"), window=window)
    fixture.conversation = Transcript(conversation(20))
    await fixture.play("and now?")
    assert len(asked) == 1
    assert len(fixture.model.prompts[-1].messages) < 12
    assert fixture.model.prompts[-1].messages[-1].content == "and now?"


async def test_the_list_of_models_of_a_real_endpoint_is_asked(tmp_path):
    listed = status(200, {"object": "list", "data": [{"id": "m", "meta": {"n_ctx": 2048}}]})
    async with ModelEndpoint(listed, text_stream("ok")) as endpoint:
        (tmp_path / "agent.yaml").write_text(
            f"name: a\nmodel: {{provider: openai_compatible, name: m, endpoint: '{endpoint.url}'}}\n"
        )
        agent = build_agent(load_config(tmp_path / "agent.yaml"))
        assert agent.history_tokens is None
        await agent.window.learn()
        assert agent.history_tokens == 1152
        assert [request.path for request in endpoint.requests] == ["/v1/models"]
        await agent.close()
