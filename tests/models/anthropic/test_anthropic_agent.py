"""A whole agent in front of a Messages endpoint: what is emitted, what is kept, what goes back in the next turn."""

import logging

import msgspec

from holodeck.agent.definition import AgentContext, AgentDefinition
from holodeck.agent.loop import run
from holodeck.config.build import build_agent
from holodeck.config.load import load_config
from holodeck.core import events as e
from holodeck.core import grammar
from holodeck.core.messages import Message, UserMessage
from holodeck.sessions.transcript import Transcript
from tests.models.anthropic.asking_anthropic import OK, shaped
from tests.models.anthropic.message_streams import (
    FOUND,
    SEARCHED,
    SIGNED,
    Shape,
    called,
    end,
    start,
    text_block,
    thought,
)
from tests.models.endpoint import ModelEndpoint, status, stream, text_stream

FILE = """
name: helper
model:
  provider: anthropic
  name: claude-x
  endpoint: {url}
  reasoning: {{budget_tokens: 2048}}
  provider_tools: [{{type: web_search_20250305, name: web_search}}]
  fallback: {fallback}
tools:
  - {{name: look, type: function, file: tools.py}}
"""
SEARCH_AND_CALL = Shape(
    [
        start(),
        *thought(0, "Hm. Yes."),
        *text_block(1, "I search."),
        *called(2, "srvtoolu_1", "web_search", '{"query": "ducks"}', kind="server_tool_use"),
        {"type": "content_block_start", "index": 3, "content_block": FOUND},
        {"type": "content_block_stop", "index": 3},
        *called(4, "toolu_1", "look", '{"where": "pond"}'),
        *end("tool_use"),
    ]
)
BLOCKS = [
    SIGNED,
    {"type": "text", "text": "I search."},
    SEARCHED,
    FOUND,
    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"where": "pond"}},
]


def agent_in(folder, endpoint: ModelEndpoint, fallback: str = "[]") -> AgentDefinition:
    (folder / "tools.py").write_text(
        'def look(where: str) -> str:\n    """Looks."""\n    return f"ducks in the {where}"\n'
    )
    (folder / "agent.yaml").write_text(FILE.format(url=endpoint.url.removesuffix("/v1"), fallback=fallback))
    return build_agent(load_config(folder / "agent.yaml", environment={"OPENAI_API_KEY": "k"}))


async def asked(agent: AgentDefinition, transcript: Transcript, words: str) -> list[e.Event]:
    """Runs the agent once. The events are one whole run; the messages are as a store gives them back."""
    events: list[e.Event] = []
    await run(agent, AgentContext(input=[UserMessage(content=words)], conversation=transcript), events.append)
    grammar.check(events)
    stored = msgspec.json.encode(list(transcript.messages))
    transcript.messages = msgspec.json.decode(stored, type=list[Message])
    return events


async def test_blocks_go_back_within_a_run_and_in_the_next_one(tmp_path):
    async with ModelEndpoint(stream(*SEARCH_AND_CALL.frames), OK) as endpoint:
        transcript = Transcript()
        async with agent_in(tmp_path, endpoint) as agent:
            events = await asked(agent, transcript, "Where are ducks?")
            await asked(agent, transcript, "Thanks")
    second, third = (request.json["messages"] for request in endpoint.requests[1:])
    assert second[1]["content"] == third[1]["content"] == BLOCKS
    result = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "text", "text": "ducks in the pond"}],
    }
    assert [{**block, "cache_control": 0} for block in second[2]["content"]] == [{**result, "cache_control": 0}]
    shown = [(event.name, event.content) for event in events if isinstance(event, e.ToolFinished)]
    assert shown == [("web_search", "Ducks https://d.example"), ("look", "ducks in the pond")]
    assert "".join(event.delta for event in events if isinstance(event, e.ReasoningAdded)) == "Hm. Yes."


async def test_the_thinking_of_a_fallback_is_dropped_when_the_first_model_is_back(tmp_path, caplog):
    refused = status(400, {"error": {"message": "messages.1.content.0: Invalid `signature` in `thinking` block"}})
    down = status(401, {"error": {"message": "no"}})
    async with ModelEndpoint(shaped("thinking")) as other, ModelEndpoint(down, refused, OK) as endpoint:
        backup = f"[{{provider: anthropic, name: other, endpoint: '{other.url.removesuffix('/v1')}'}}]"
        transcript = Transcript()
        async with agent_in(tmp_path, endpoint, backup) as agent:
            await asked(agent, transcript, "Hi")
            await asked(agent, transcript, "And?")
    assert [block["type"] for block in endpoint.requests[1].json["messages"][1]["content"]] == ["thinking", "text"]
    assert [block["type"] for block in endpoint.requests[2].json["messages"][1]["content"]] == ["text"]
    assert transcript.messages[-1].content == "Hello world"
    assert any(
        "refused the thinking" in record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    )


async def test_a_history_of_this_api_goes_to_an_openai_endpoint_and_back(tmp_path):
    down = status(401, {"error": {"message": "no"}})
    async with (
        ModelEndpoint(text_stream("Two.")) as other,
        ModelEndpoint(stream(*SEARCH_AND_CALL.frames), OK, down, OK) as endpoint,
    ):
        backup = f"[{{provider: openai_compatible, name: other, endpoint: '{other.url}'}}]"
        transcript = Transcript()
        async with agent_in(tmp_path, endpoint, backup) as agent:
            await asked(agent, transcript, "One?")
            await asked(agent, transcript, "Two?")
            await asked(agent, transcript, "Three?")
    chat = other.requests[0].json["messages"]
    assert "anthropic" not in str(chat)
    assert [message["role"] for message in chat] == ["system", "user", "assistant", "tool", "assistant", "user"]
    last = endpoint.requests[-1].json["messages"]
    assert last[1]["content"] == BLOCKS
    assert last[-2]["content"] == [{"type": "text", "text": "Two."}]
