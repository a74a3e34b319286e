"""A whole agent in front of a Converse endpoint: what is emitted, what goes back, and what another provider makes of it."""

from holodeck.config.build import build_agent
from holodeck.config.load import load_config
from holodeck.core import events as e
from holodeck.sessions.transcript import Transcript
from tests.models.anthropic.asking_anthropic import OK as CLAUDE_OK
from tests.models.anthropic.test_anthropic_agent import asked
from tests.models.bedrock.converse_streams import SIGNATURE
from tests.models.bedrock.test_converse_model import OK, shaped
from tests.models.endpoint import ModelEndpoint, status

FILE = """
name: helper
model:
  provider: bedrock
  region: eu-central-1
  name: eu.anthropic.claude-x
  endpoint: {url}
  reasoning: {{budget_tokens: 2048}}
  cache: off
  fallback: {fallback}
tools:
  - {{name: look, type: function, file: tools.py}}
"""


def agent_in(folder, endpoint: ModelEndpoint, fallback: str = "[]"):
    (folder / "tools.py").write_text('def look(a: int) -> str:\n    """Looks."""\n    return f"{a} duck"\n')
    (folder / "agent.yaml").write_text(FILE.format(url=endpoint.url.removesuffix("/v1"), fallback=fallback))
    return build_agent(load_config(folder / "agent.yaml", environment={"AWS_BEARER_TOKEN_BEDROCK": "k"}))


async def test_thinking_survives_a_tool_call_and_the_session(tmp_path):
    async with ModelEndpoint(shaped("redacted thinking before a call"), OK) as endpoint:
        transcript = Transcript()
        async with agent_in(tmp_path, endpoint) as agent:
            events = await asked(agent, transcript, "Where are ducks?")
            await asked(agent, transcript, "Thanks")
    second, third = (request.json["messages"] for request in endpoint.requests[1:])
    assert second[1]["content"] == third[1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "Hm. Yes.", "signature": SIGNATURE}}},
        {"reasoningContent": {"redactedContent": "T3BhcXVl"}},
        {"toolUse": {"toolUseId": "tooluse_1", "name": "look", "input": {"a": 1}}},
    ]  # fmt: skip
    assert second[2]["content"] == [{"toolResult": {"toolUseId": "tooluse_1", "content": [{"text": "1 duck"}]}}]
    assert "".join(event.delta for event in events if isinstance(event, e.ReasoningAdded)) == "Hm. Yes."
    assert transcript.messages[-1].content == "Hello world"


async def test_anthropic_continues_what_bedrock_thought(tmp_path):
    """Both sign their thoughts alike, so a fallback keeps them."""
    down = status(401, {"message": "no"})
    async with ModelEndpoint(CLAUDE_OK) as other, ModelEndpoint(shaped("thinking"), down) as endpoint:
        backup = f"[{{provider: anthropic, name: claude-x, endpoint: '{other.url.removesuffix('/v1')}'}}]"
        transcript = Transcript()
        async with agent_in(tmp_path, endpoint, backup) as agent:
            await asked(agent, transcript, "Hi")
            await asked(agent, transcript, "And?")
    thought, text = other.requests[0].json["messages"][1]["content"]
    assert thought == {"type": "thinking", "thinking": "Hm. Yes.", "signature": SIGNATURE}
    assert text["text"] == "Fine."
