"""LangChain, OpenAI's Agents SDK, Pydantic AI and `llm` as clients of the agent, over Chat Completions and over Responses."""

from typing import Any

import pytest

from tests.clients.driving import Json, python

pytestmark = [pytest.mark.req("SRV-24"), pytest.mark.timeout(300)]
CLIENTS = [
    f"{framework} {api}"
    for framework in ("langchain", "openai-agents", "pydantic-ai", "llm")
    for api in ("chat", "responses")
]
SHOWN: dict[str, list[str]] = {
    "langchain chat": ["text"],
    "langchain responses": ["server_tool_call", "server_tool_result", "text"],
    "openai-agents chat": ["reasoning_item", "message_output_item"],
    "openai-agents responses": ["tool_call_item", "message_output_item"],
    "pydantic-ai chat": ["user-prompt", "thinking", "text"],
    "pydantic-ai responses": ["user-prompt", "builtin-tool-call", "builtin-tool-return", "text"],
    "llm chat": [],
    "llm responses": [],
}
"""What each client has of an answer in which the server used a tool: never a call that the client should carry out."""

Played = dict[str, Any]


@pytest.fixture(scope="module")
def played(addresses: dict[str, str]) -> Played:
    scenarios = [{"name": name, "url": addresses["plain"]} for name in CLIENTS]
    return {result["name"]: result for result in python("frameworks_driver.py", scenarios)}


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, played: Played) -> Json:
    result: Json = played[request.param]
    return result


def test_a_turn_a_stream_and_a_second_turn(client: Json) -> None:
    assert client["text"]["text"] == "Hello there, how are you?"
    assert "".join(client["stream"]) == "Hello there, how are you?"
    assert len(client["stream"]) > 1
    assert client["two turns"] == "You said: hello | what did I say"


def test_a_tool_of_the_server_is_not_the_clients_to_carry_out(client: Json) -> None:
    shown = client["server tool"]
    assert (shown["text"], shown["calls"]) == ("It is 4 degrees in Oslo.", [])
    assert shown["blocks"] == SHOWN[client["name"]]


def test_the_client_carries_out_its_own_tool(client: Json) -> None:
    assert client["own tool"] == "It is blue now."


def test_errors_have_the_clients_own_class_and_our_text(client: Json) -> None:
    unknown, failed = client["unknown model"], client["failed run"]
    assert unknown["class"] in ("OpenAIModelNotFoundError", "NotFoundError", "ModelNotFoundError")
    assert "There is no model 'gpt-5' here, only the agent 'scenes'." in unknown["message"]
    assert failed["class"] in ("OpenAIAPIError", "InternalServerError", "ModelServerError", "APIError")
    assert "The model cannot be reached." in failed["message"]


def test_a_stream_that_never_ends_is_left(client: Json) -> None:
    assert client["stopped"] == "One moment"
