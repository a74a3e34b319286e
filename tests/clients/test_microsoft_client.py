"""Microsoft's AGUIChatClient (agent-framework-ag-ui): an AG-UI client without Node, and with a spelling of its own."""

from typing import Any

import pytest

from tests.clients.driving import Json, python
from tests.clients.scenarios import APPROVE, REFUSE

pytestmark = pytest.mark.req("SRV-05", "SRV-07")
ASKS: dict[str, list[Json]] = {
    "text": [{"say": "hello"}],
    "unicode": [{"say": "unicode"}],
    "tool": [{"say": "weather"}],
    "parallel tools": [{"say": "weather twice"}],
    "error": [{"say": "fail"}],
    "two turns": [{"say": "hello"}, {"say": "what did I say"}],
    "own tool": [{"say": "paint it blue", "tools": {"change_background": "painted"}}],
    "approve": [{"say": "delete it"}, {"resume": [APPROVE]}],
    "refuse": [{"say": "delete it"}, {"resume": [REFUSE]}],
}

AS_USERS_WRITE_IT: dict[str, list[Json]] = {
    "agent: two turns": [{"say": "hello"}, {"say": "what did I say"}],
    "agent: own tool": [{"say": "paint it blue", "tools": {"change_background": "painted"}}, {"say": "what did I say"}],
}

Played = dict[str, list[Json]]


@pytest.fixture(scope="module")
def played(addresses: dict[str, str]) -> Played:
    scenarios = [
        {"name": name, "url": f"{addresses['plain']}/awp", "thread": f"microsoft-{number}", "asks": asks}
        for number, (name, asks) in enumerate(ASKS.items())
    ]
    scenarios += [
        {"name": name, "url": f"{addresses['plain']}/awp", "asks": asks} for name, asks in AS_USERS_WRITE_IT.items()
    ]
    return {result["name"]: result["asks"] for result in python("microsoft_driver.py", scenarios)}


def contents(received: Json, kind: str) -> list[Any]:
    return [each for message in received["messages"] for each in message["contents"] if each["type"] == kind]


def test_text_comes_in_pieces(played: Played) -> None:
    (received,) = played["text"]
    assert received["text"] == "Hello there, how are you?"
    assert received["updates"] >= 5
    assert received["properties"]["thread_id"] == "microsoft-0"


def test_tools_are_shown_with_their_results(played: Played) -> None:
    (received,) = played["tool"]
    (call,), (result,) = contents(received, "function_call"), contents(received, "function_result")
    assert (call["name"], call["arguments"]) == ("get_weather", '{"city": "Oslo"}')
    assert (result["call_id"], result["result"]) == (call["call_id"], '{"city":"Oslo","celsius":4}')
    assert received["text"] == "It is 4 degrees in Oslo."
    (both,) = played["parallel tools"]
    assert [each["arguments"] for each in contents(both, "function_call")] == ['{"city": "Oslo"}', '{"city": "Rome"}']


def test_error_follows_the_text(played: Played) -> None:
    (received,) = played["error"]
    (failure,) = contents(received, "error")
    assert (received["text"], failure["message"]) == ("I was about to", "The model cannot be reached.")


def test_thread_is_remembered_by_the_server(played: Played) -> None:
    """This client sends only what is new."""
    assert played["two turns"][1]["text"] == "You said: hello | what did I say"


def test_client_carries_out_its_own_tool(played: Played) -> None:
    (received,) = played["own tool"]
    assert contents(received, "function_result")[0]["result"] == "painted blue"
    assert received["text"] == "It is blue now."


@pytest.mark.parametrize(("name", "result"), [("approve", "a.txt is deleted"), ("refuse", "The user refused")])
def test_interrupt_and_resume(played: Played, name: str, result: str) -> None:
    asked, resumed = played[name]
    assert asked["properties"]["outcome"]["type"] == "interrupt"
    assert asked["properties"]["interrupts"][0]["metadata"]["tool"] == "delete_file"
    assert contents(resumed, "function_result")[0]["result"].startswith(result)
    assert resumed["text"] == "As you wish."


def test_an_agent_without_a_thread_id_remembers_the_turn_before(played: Played) -> None:
    """This client makes a new thread for every request, and sends its history."""
    assert played["agent: two turns"][1]["text"] == "You said: hello | what did I say"


def test_an_agent_without_a_thread_id_carries_out_its_own_tool(played: Played) -> None:
    painted, text = played["agent: own tool"]
    assert [each["result"] for each in painted["contents"] if each["type"] == "function_result"] == ["painted blue"]
    assert painted["text"] == "It is blue now."
    assert text["text"] == "You said: paint it blue | what did I say"
