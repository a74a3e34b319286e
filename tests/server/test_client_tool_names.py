"""A client's tool under the name of a withdrawn tool of the agent: no wire offers it, and no wire shows its call."""

from typing import Any

import pytest

from holodeck.core.tools import ToolResult
from holodeck.models.scripted import calls, says
from holodeck.resilience.breaker import CircuitBreakerConfig
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from holodeck.tools.catalogue import Catalogue, Source
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.serving import served

ALL = ServerSettings(protocols=tuple(WIRES), remember_conversations=True)
FUNCTION = {"name": "lookup", "parameters": {"type": "object", "properties": {}}}
CHAT = {"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": FUNCTION}]}
RESPONSES = {"input": "hi", "tools": [{"type": "function", **FUNCTION}]}
UI = {
    "id": "t1",
    "messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}],
    "tools": [FUNCTION],
}


def withdrawn() -> Catalogue:
    breaker = CircuitBreakerConfig(failure_threshold=1, recovery_timeout=3600)
    tools = Catalogue([Source(toolset=PlainTools(lookup=echo), name="server", breaker=breaker)])
    breakers = tools.rows()["lookup"].breakers
    assert breakers is not None
    admission = breakers.admit()
    assert admission is not None
    admission.settle(ToolResult.failure("down", retryable=True))
    assert list(tools.withdrawn()) == ["lookup"]
    return tools


async def answer_of(path: str, body: dict[str, Any], *then: str) -> list[Any]:
    """The answer, and what is read at other addresses then. The model calls the tool although it is not offered."""
    async with served(calls(("lookup", "{}")), says("done"), tools=withdrawn(), settings=ALL) as s:
        async with s.post(body, path) as answer:
            assert answer.status == 200, await answer.text()
            found = [await answer.json() if "json" in answer.content_type else await answer.text()]
        assert [list(prompt.tools) for prompt in s.model.prompts] == [[], []]
        for other in then:
            async with s.get(other) as answer:
                found.append(await answer.json())
        return found


async def test_chat_completions_show_no_call_to_the_client() -> None:
    (answer,) = await answer_of("/v1/chat/completions", CHAT)
    (choice,) = answer["choices"]
    assert (choice["finish_reason"], choice["message"].get("tool_calls")) == ("stop", None)


async def test_responses_show_the_call_as_the_agents() -> None:
    (answer,) = await answer_of("/v1/responses", RESPONSES)
    assert [item["type"] for item in answer["output"]] == ["mcp_call", "message"]


async def test_the_ai_sdk_shows_the_call_as_the_agents_also_in_the_history() -> None:
    stream, messages = await answer_of("/ai-sdk/chat", UI, "/ai-sdk/chat/t1/messages")
    assert '"toolName":"lookup","dynamic":true,"providerExecuted":true' in stream.replace(" ", "")
    (call,) = [part for part in messages[1]["parts"] if "toolCallId" in part]
    assert (call["type"], call["providerExecuted"]) == ("dynamic-tool", True)


@pytest.mark.parametrize(
    ("path", "body", "choice"),
    [
        ("/v1/chat/completions", CHAT, {"type": "function", "function": {"name": "lookup"}}),
        ("/v1/responses", RESPONSES, {"type": "function", "name": "lookup"}),
    ],
)
async def test_a_tool_that_is_not_offered_cannot_be_forced(path: str, body: dict[str, Any], choice: Any) -> None:
    async with served(tools=withdrawn(), settings=ALL) as s, s.post({**body, "tool_choice": choice}, path) as answer:
        assert answer.status == 400
        assert "neither the agent nor the request offers" in await answer.text()
        assert s.model.prompts == []


async def test_a_refused_tool_choice_makes_no_branch() -> None:
    refused = {"type": "function", "name": "other"}
    async with served(says("one"), says("two"), settings=ALL) as s:
        first, last = "", None
        for _ in range(2):
            async with s.post({"input": "hi", "previous_response_id": last}, "/v1/responses") as answer:
                last = (await answer.json())["id"]
                first = first or last
        branch = {**RESPONSES, "tool_choice": refused, "previous_response_id": first}
        async with s.post(branch, "/v1/responses") as answer:
            assert (answer.status, (await answer.json())["error"]["param"]) == (400, "tool_choice")
        async with s.get("/sessions") as answer:
            assert len((await answer.json())["sessions"]) == 1
