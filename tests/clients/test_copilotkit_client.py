"""CopilotKit's headless core client, straight at the server: its runtime in Node is not needed."""

import pytest

from tests.clients.driving import Json, conversation, events, kinds, node
from tests.clients.plain_http import get, until

pytestmark = pytest.mark.req("SRV-05")
TRANSPORTS = ("rest", "single", "auto")
CHAT = [{"do": "run", "say": "weather"}, {"do": "run", "say": "what did I say"}]
TRANSCRIPT = [
    ("user", "weather"),
    ("assistant", 'get_weather({"city": "Oslo"})'),
    ("tool", '{"city":"Oslo","celsius":4}'),
    ("assistant", "It is 4 degrees in Oslo."),
    ("user", "what did I say"),
    ("assistant", "You said: weather | what did I say"),
]
STEPS: dict[str, tuple[str, list[Json]]] = {
    "chat": ("plain", [*CHAT, {"do": "connect"}, {"do": "run", "say": "hello"}]),
    "chat that is not kept": ("forgetful", [*CHAT, {"do": "connect"}, {"do": "run", "say": "hello"}]),
    "mounted again": ("plain", [{"do": "mount twice", "say": "wait"}]),
    "nothing yet": ("plain", [{"do": "connect"}]),
    "stop": ("plain", [{"do": "run and stop", "say": "stop me"}]),
    "join": ("plain", [{"do": "join", "say": "wait"}]),
    "error": ("plain", [{"do": "run", "say": "fail"}]),
    "own tool": ("plain", [{"do": "run", "say": "paint it blue", "tools": {"change_background": "painted"}}]),
    "interrupt": ("plain", [{"do": "run", "say": "delete it"}]),
    "state": ("state", [{"do": "run", "say": "plan"}, {"do": "connect"}]),
    "default agent": ("plain", [{"do": "run", "say": "hello"}]),
}

Played = dict[str, list[Json]]


@pytest.fixture(scope="module", params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def played(transport: str, addresses: dict[str, str]) -> Played:
    scenarios = [
        {
            "name": name,
            "url": f"{addresses[server]}/copilotkit",
            "transport": transport,
            "agent": "default" if name == "default agent" else "scenes",
            "thread": f"copilotkit-{transport}-{name.replace(' ', '-')}",
            "steps": steps,
        }
        for name, (server, steps) in STEPS.items()
    ]
    received = node("copilotkit_driver.mjs", scenarios=scenarios)
    assert [(result["name"], result["warnings"]) for result in received if result["warnings"]] == []
    return {result["name"]: result["steps"] for result in received}


@pytest.mark.parametrize("name", sorted(set(STEPS) - {"error"}))
def test_page_finds_the_agent_and_gets_no_error(played: Played, name: str) -> None:
    for step in played[name]:
        assert (step["status"], step["errors"]) == ("connected", [])
        assert {"scenes", "default"} <= set(step["agents"])
        assert step["capabilities"]["identity"]["name"] == "scenes"


def test_page_talks(played: Played) -> None:
    assert conversation(played["chat"][1]["messages"]) == TRANSCRIPT
    assert conversation(played["default agent"][0]["messages"])[-1] == ("assistant", "Hello there, how are you?")


def test_a_view_that_is_mounted_again_shows_each_message_once(played: Played) -> None:
    """The client clears its messages for the first mount only, and appends to them what is replayed."""
    (twice,) = played["mounted again"]
    assert conversation(twice["messages"]) == [("user", "wait"), ("assistant", "One moment")]


def test_page_that_comes_back_has_the_same_messages_and_continues(played: Played) -> None:
    _, talked, returned, continued = played["chat"]
    assert returned["messages"] == talked["messages"]
    assert conversation(continued["messages"]) == [
        *TRANSCRIPT,
        ("user", "hello"),
        ("assistant", "Hello there, how are you?"),
    ]


def test_a_page_that_reconnects_late_gets_the_history(played: Played) -> None:
    """The runs cannot be read any more, the conversation can."""
    _, talked, returned, continued = played["chat that is not kept"]
    assert kinds(returned) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert returned["messages"] == talked["messages"]
    assert len(continued["messages"]) == 8


def test_page_that_comes_to_nothing_has_nothing(played: Played) -> None:
    (step,) = played["nothing yet"]
    assert (step["events"], step["messages"]) == ([], [])


def test_stop_button_stops_the_run(played: Played, transport: str, addresses: dict[str, str]) -> None:
    (step,) = played["stop"]
    assert step["events"][-1]["result"]["status"] == "cancelled"
    assert step["messages"][-1]["content"] == "One moment"
    shown = get(f"{addresses['plain']}/runs/{step['events'][0]['runId']}")
    assert shown["state"] == "cancelled"


def test_second_page_joins_a_run_and_stops_it_for_both(played: Played, addresses: dict[str, str]) -> None:
    (step,) = played["join"]
    assert kinds(step) == kinds(step["joined"])
    assert kinds(step)[-1] == "RUN_FINISHED"
    assert step["messages"] == step["joined"]["messages"]
    assert conversation(step["messages"]) == [("user", "wait"), ("assistant", "One moment")]
    run = f"{addresses['plain']}/runs/{step['events'][0]['runId']}"
    assert until(lambda: get(run), lambda received: received["readers"] == 0)["state"] == "cancelled"


def test_page_shows_why_a_run_failed(played: Played) -> None:
    (step,) = played["error"]
    (failure,) = events(step, "RUN_ERROR")
    assert (failure["code"], failure["message"]) == ("model-error", "The model cannot be reached.")
    assert step["messages"][-1]["content"] == "I was about to"


def test_page_carries_out_its_own_tool_and_the_agent_continues(played: Played) -> None:
    (step,) = played["own tool"]
    assert conversation(step["messages"])[1:] == [
        ("assistant", 'change_background({"colour": "blue"})'),
        ("tool", "painted blue"),
        ("assistant", "It is blue now."),
    ]


def test_page_gets_the_question(played: Played) -> None:
    (step,) = played["interrupt"]
    (interrupt,) = step["events"][-1]["outcome"]["interrupts"]
    assert interrupt["metadata"]["tool"] == "delete_file"


def test_page_that_comes_back_has_the_state(played: Played) -> None:
    for step in played["state"]:
        assert step["state"] == {"steps": ["buy milk"], "done": True, "document": ""}
