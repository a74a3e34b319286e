"""@ag-ui/client 0.0.59, which most user interfaces still run: it must not see the three shapes of 1.0 that end its run."""

import pytest

from tests.clients.driving import Json, conversation, events, kinds, node
from tests.clients.scenarios import PLAIN, STATE, scenarios
from tests.clients.scenes import LONG_REPLY, UNICODE

pytestmark = pytest.mark.req("SRV-05")
WITHOUT_AN_ENDING = {"abort", "leave and come back", "foreign resume"}

Played = dict[str, list[Json]]


@pytest.fixture(scope="module")
def played(addresses: dict[str, str]) -> Played:
    received = node(
        "agui_driver.mjs", "agui-0059", scenarios=list(scenarios(addresses, "sse", "legacy", replay=("sse",)))
    )
    return {result["name"]: result["runs"] for result in received}


@pytest.mark.parametrize("name", sorted({*PLAIN, *STATE} - WITHOUT_AN_ENDING))
def test_old_client_takes_the_whole_stream(played: Played, name: str) -> None:
    for run in played[name]:
        assert (run["outcome"], run.get("error"), run["warnings"]) == ("resolved", None, [])
        assert kinds(run)[0] == "RUN_STARTED"
        assert kinds(run)[-1] in ("RUN_FINISHED", "RUN_ERROR")
        for again in run.get("replayed", {}).values():  # it comes back without saying its version
            assert again["events"] == run["events"]


def test_old_client_that_asks_for_protobuf_gets_server_sent_events(addresses: dict[str, str]) -> None:
    asked = [each for each in scenarios(addresses, "proto", "legacy-proto") if each["name"] == "tool"]
    ((run,),) = [result["runs"] for result in node("agui_driver.mjs", "agui-0059", scenarios=asked)]
    assert run["http"]["contentType"] == "text/event-stream"
    assert run["messages"][-1]["content"] == "It is 4 degrees in Oslo."


def test_old_client_reads_a_picture_as_text(played: Played) -> None:
    (run,) = played["tool with a picture"]
    assert run["messages"][2]["content"] == "One pixel:\n[image/png]"


def test_old_client_answers_a_frontend_tool(played: Played) -> None:
    asked, answered = played["frontend tool"]
    assert "outcome" not in asked["events"][-1]
    assert answered["messages"][-1]["content"] == "It is blue now."


@pytest.mark.parametrize("name", ["stop", "stop a tool"])
def test_old_client_sees_a_stopped_run_as_a_plain_end(played: Played, name: str) -> None:
    (run,) = played[name]
    assert "outcome" not in run["events"][-1]
    assert run["events"][-1]["result"]["status"] == "cancelled"


@pytest.mark.parametrize(
    ("name", "result"), [("approve", "a.txt is deleted"), ("refuse", "The user refused this call")]
)
def test_old_client_resumes(played: Played, name: str, result: str) -> None:
    asked, resumed = played[name]
    assert asked["finished"]["outcome"] == "interrupt"
    assert resumed["messages"][-2]["content"].startswith(result)
    assert resumed["messages"][-1]["content"] == "As you wish."


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("text", "Hello there, how are you?"),
        ("parallel tools", "Rome is warmer."),
        ("reasoning", "Four."),
        ("long reply", "".join(LONG_REPLY)),
        ("unicode", "".join(UNICODE)),
        ("two turns", "You said: hello | what did I say"),
        ("activity, custom and raw", "Done."),
    ],
)
def test_old_client_has_the_answer(played: Played, name: str, last: str) -> None:
    assert played[name][-1]["messages"][-1]["content"] == last


def test_old_client_that_forgot_gets_the_history_in_its_order(played: Played) -> None:
    known, received = played["client that forgot"]
    assert received["messages"][:4] == known["messages"]
    assert [role for role, _ in conversation(received["messages"])[4:]] == ["user", "assistant"]


def test_old_client_follows_the_state(played: Played) -> None:
    assert played["state"][0]["state"] == {"steps": ["buy milk"], "done": True, "document": ""}
    (predicted,) = played["predictive state"]
    assert predicted["state"]["document"].startswith("Once upon a time")
    assert len(events(predicted, "STATE_DELTA")) > 5


def test_old_client_gets_the_error(played: Played) -> None:
    (run,) = played["error"]
    assert (run["runError"]["code"], run["messages"][-1]["content"]) == ("model-error", "I was about to")
