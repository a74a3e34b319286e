"""The official A2A SDKs as clients of the agent: Python and JavaScript, 1.0 and 0.3 over both bindings, with streams and without."""

import pytest

from tests.clients.driving import Json, node_22, python

pytestmark = [pytest.mark.req("SRV-27"), pytest.mark.timeout(300)]

BINDINGS = ["1.0 JSONRPC", "1.0 HTTP+JSON", "0.3 JSONRPC", "0.3 HTTP+JSON"]
JAVASCRIPT = {"1.0 JSONRPC": "TASK_STATE_", "1.0 HTTP+JSON": "TASK_STATE_", "0.3 JSONRPC": "", "0.3 HTTP+JSON": ""}
"""Version and transport of each client, and how its states begin."""

Played = dict[str, Json]


@pytest.fixture(scope="module")
def in_python(addresses: dict[str, str]) -> Played:
    """All scenarios of the SDK for Python in one process."""
    scenarios = [
        {"name": f"{name} {binding} {streaming}", "binding": binding, "streaming": streaming, "asks": asks}
        for binding in BINDINGS
        for name, streaming, asks in [
            ("tool", True, [[{"text": "weather"}]]),
            ("tool", False, [[{"text": "weather"}]]),
            ("approve", True, [[{"text": "delete it"}], {"approved": True}]),
        ]
    ]
    received = python("a2a_driver.py", [{**each, "url": addresses["plain"]} for each in scenarios])
    return {result["name"]: result for result in received}


@pytest.fixture(scope="module")
def in_javascript(addresses: dict[str, str]) -> Played:
    asked = [(name, *name.split(" ")) for name in JAVASCRIPT]
    scenarios = [
        {"name": name, "url": addresses["plain"], "version": version, "transport": transport}
        for name, version, transport in asked
    ]
    return {result["name"]: result for result in node_22("a2a_driver.mjs", scenarios=scenarios, package="@a2a-js/sdk")}


@pytest.mark.req("FAC-05")
@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("streaming", [True, False])
def test_a_message_becomes_a_task(in_python: Played, binding: str, *, streaming: bool) -> None:
    result = in_python[f"tool {binding} {streaming}"]
    (task,) = result["tasks"]
    assert (result["card"], task["status"]["state"]) == ("scenes", "TASK_STATE_COMPLETED")
    assert text_of(task) == "It is 4 degrees in Oslo."
    assert task["history"][0]["parts"] == [{"text": "weather"}]
    if streaming:
        updates = result["updates"]
        assert "task" in updates[0]
        assert updates[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        pieces = [each["artifactUpdate"] for each in updates if "artifactUpdate" in each]
        appended = [each.get("append", False) for each in pieces]
        assert (appended[0], appended[-1], set(appended[1:-1])) == (False, False, {True})
        assert pieces[-1]["lastChunk"]
        assert pieces[-1]["artifact"]["parts"] == [{"text": "It is 4 degrees in Oslo."}]


@pytest.mark.req("FAC-05")
@pytest.mark.parametrize("binding", BINDINGS)
def test_an_address_for_notifications_is_registered(in_python: Played, binding: str) -> None:
    registered = in_python[f"tool {binding} True"]["registered"]
    assert (registered["id"], registered["url"]) == ("c1", "http://127.0.0.1:9/hook")
    assert registered["authentication"] == {"scheme": "Bearer"}


@pytest.mark.parametrize("binding", BINDINGS)
def test_an_approval_is_a_message_to_the_task(in_python: Played, binding: str) -> None:
    asked, answered = in_python[f"approve {binding} True"]["tasks"]
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    (question,) = [part["data"] for part in asked["status"]["message"]["parts"] if "data" in part]
    assert (question["tool"], question["arguments"]) == ("delete_file", {"name": "a.txt"})
    assert (answered["id"], answered["status"]["state"]) == (asked["id"], "TASK_STATE_COMPLETED")
    assert text_of(answered) == "As you wish."


def text_of(task: Json) -> str:
    (artifact,) = task["artifacts"]
    return "".join(part["text"] for part in artifact["parts"])


def state_of(name: str, task: Json) -> str:
    return str(task["status"]["state"]).removeprefix(JAVASCRIPT[name]).lower()


@pytest.mark.parametrize("name", JAVASCRIPT)
def test_javascript_talks_in_one_context(in_javascript: Played, name: str) -> None:
    result = in_javascript[name]
    assert result["card"] == "scenes"
    assert (text_of(result["first"]), state_of(name, result["first"])) == ("Hello there, how are you?", "completed")
    assert text_of(result["second"]) == "You said: hello | what did I say"
    assert result["second"]["contextId"] == result["first"]["contextId"]
    assert result["second"]["id"] != result["first"]["id"]


@pytest.mark.parametrize("name", JAVASCRIPT)
def test_javascript_reads_a_stream(in_javascript: Played, name: str) -> None:
    updates = in_javascript[name]["updates"]
    if name.startswith("0.3"):
        kinds = [update["kind"] for update in updates]
        shown = [update["artifact"] for update in updates if update["kind"] == "artifact-update"]
        assert updates[-1]["final"]
    else:
        kinds = [key for update in updates for key in update]
        shown = [update["artifactUpdate"]["artifact"] for update in updates if "artifactUpdate" in update]
    assert kinds[0] == "task"
    assert kinds[-1] in ("statusUpdate", "status-update")
    assert shown[-1]["parts"][0]["text"] == "It is 4 degrees in Oslo."


@pytest.mark.parametrize("name", JAVASCRIPT)
def test_javascript_registers_an_address_reads_it_and_removes_it(in_javascript: Played, name: str) -> None:
    (registered,) = in_javascript[name]["registered"]
    assert (registered["id"], registered["url"]) == ("c1", "http://127.0.0.1:9/hook")
    assert "Bearer" in str(registered["authentication"])
    assert in_javascript[name]["left"] == []


@pytest.mark.parametrize("name", JAVASCRIPT)
def test_javascript_comes_back_to_a_task_and_cancels_it(in_javascript: Played, name: str) -> None:
    result = in_javascript[name]
    known = result["followed"][0] if name.startswith("0.3") else result["followed"][0]["task"]
    assert (text_of(known), state_of(name, known)) == ("One moment", "working")
    assert [state_of(name, result[key]) for key in ("cancelled", "read", "ended")] == ["canceled"] * 3
    assert state_of(name, result["begun"]) in ("submitted", "working")


@pytest.mark.parametrize("name", JAVASCRIPT)
def test_javascript_has_its_own_errors(in_javascript: Played, name: str) -> None:
    result = in_javascript[name]
    assert (result["error"]["name"], result["again"]["name"]) == ("TaskNotFoundError", "TaskNotCancelableError")
