"""The AI SDK's own chat (`useChat` without React), version 7 on Node.js 22 and version 6 on the system's, against a real server."""

from typing import Any
from uuid import uuid4

import pytest

from tests.clients.driving import Json, node, node_22
from tests.clients.scenes import PIXEL

PAINT = {
    "name": "change_background",
    "description": "Paints the page",
    "parameters": {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]},
}
IMAGE = {
    "type": "file",
    "mediaType": "image/png",
    "filename": "pixel.png",
    "url": f"data:image/png;base64,{PIXEL}",
}
pytestmark = pytest.mark.timeout(300)

WHY = "It is the only copy."
LOAD: Json = {"load": True}
AGAIN: Json = {"regenerate": True}


def say(text: str, **more: Any) -> Json:
    return {"send": text, **more}


STEPS: dict[str, list[Json]] = {
    "conversation": [say("hello"), say("what did I say"), LOAD],
    "server tools": [say("weather"), say("break a tool"), LOAD],
    "reasoning and data": [say("reason"), say("work")],
    "state": [say("plan")],
    "own tool": [say("paint it blue", answers=2), say("what did I say")],
    "approved": [say("delete both"), LOAD, {"approve": True}, say("what did I say")],
    "refused": [say("delete both"), LOAD, {"approve": False}, say("what did I say")],
    "refused with a reason": [say("delete and repeat"), {"approve": False, "reason": WHY}, LOAD],
    "not decided": [say("delete it"), say("hello")],
    "regenerated": [say("answer me"), AGAIN, say("hello"), AGAIN],
    "edited": [say("hello"), say("weather"), LOAD, say("what did I say", edit=0), LOAD],
    "cut and stopped": [say("wait", cut="moment"), {"resume": True, "stop": "One moment"}],
    "approved and cut": [
        say("delete and wait"),
        {"approve": True, "cut": "deleted"},
        {"resume": True, "stop": "One moment"},
    ],
    "nothing to resume": [say("hello"), {"resume": True}],
    "failure": [say("fail"), say("hello")],
    "refused request": [say("hello")],
    "file": [say("look at this", files=[IMAGE]), LOAD],
    "unicode and a long answer": [say("unicode"), say("talk on")],
}
MORE: dict[str, Json] = {
    "own tool": {"body": {"tools": [PAINT]}, "tools": {"change_background": {"painted": True}}},
    "refused request": {"body": {"tools": [{"name": "no spaces, please"}]}},
}

Played = dict[str, list[Json]]


@pytest.fixture(scope="module", params=["ai", "ai6"])
def played(request: pytest.FixtureRequest, addresses: dict[str, str]) -> Played:
    """All chats of one version, in one process: the steps of each by its name."""
    library: str = request.param
    scenarios = [
        {
            "name": name,
            "url": addresses["state" if name == "state" else "plain"],
            "id": f"chat-{uuid4()}",
            "steps": steps,
            **MORE.get(name, {}),
        }
        for name, steps in STEPS.items()
    ]
    run = node_22 if library == "ai" else node
    return {result["name"]: result["steps"] for result in run("aisdk_driver.mjs", library, scenarios=scenarios, package=library)}  # fmt: skip


def parts(step: Json, kind: str) -> list[Json]:
    return [part for part in step["messages"][-1]["parts"] if part["type"] == kind]


def texts(step: Json) -> list[tuple[str, str]]:
    """(role, text) of each message."""
    return [
        (message["role"], "".join(part["text"] for part in message["parts"] if part["type"] == "text"))
        for message in step["messages"]
    ]


@pytest.mark.req("SRV-25", "FAC-03")
def test_a_conversation(played: Played) -> None:
    hello, after, loaded = played["conversation"]
    assert texts(hello) == [("user", "hello"), ("assistant", "Hello there, how are you?")]
    assert (hello["status"], hello["finishes"][0]["finishReason"]) == ("ready", "stop")
    metadata = hello["messages"][-1]["metadata"]
    assert metadata["usage"] == {"inputTokens": 12, "outputTokens": 5, "totalTokens": 17}
    assert (metadata["run"], metadata["outcome"]) == (hello["messages"][-1]["id"], "completed")
    assert hello["http"] == [{"method": "POST", "status": 200, "stream": "v1"}]
    assert texts(after)[-1] == ("assistant", "You said: hello | what did I say")
    assert texts(loaded) == texts(after)
    assert [each["id"] for each in loaded["messages"]] == [each["id"] for each in after["messages"]]


def test_a_server_tool_is_shown_and_not_carried_out_again(played: Played) -> None:
    weather, broken, loaded = played["server tools"]
    (tool,) = parts(weather, "dynamic-tool")
    assert (tool["toolName"], tool["state"], tool["input"]) == ("get_weather", "output-available", {"city": "Oslo"})
    assert tool["providerExecuted"] is True
    assert '"celsius"' in tool["output"]
    assert len(weather["http"]) == len(broken["http"]) == 1
    (failed,) = parts(broken, "dynamic-tool")
    assert failed["state"] == "output-error"
    assert [part["state"] for message in loaded["messages"] for part in message["parts"] if part["type"] == "dynamic-tool"] == ["output-available", "output-error"]  # fmt: skip


def test_reasoning_activities_and_data(played: Played) -> None:
    reason, work = played["reasoning and data"]
    assert [part["text"] for part in parts(reason, "reasoning")] == ["Two plus two…"]
    (activity,) = parts(work, "data-activity")
    assert activity["data"] == {"kind": "work", "content": {"done": 100, "note": "beginning"}}
    (progress,) = parts(work, "data-example.progress")
    assert progress["data"] == {"percent": 100, "left": None}


def test_state(played: Played) -> None:
    (plan,) = played["state"]
    (state,) = parts(plan, "data-state")
    assert (state["data"]["steps"], state["data"]["done"]) == (["buy milk"], True)
    patches = [part["data"] for part in plan["data"] if part["type"] == "data-state-delta"]
    assert [operation["path"] for patch in patches for operation in patch] == ["/steps/-", "/done"]


def test_a_tool_of_the_client(played: Played) -> None:
    painted, again = played["own tool"]
    (tool,) = parts(painted, "tool-change_background")
    assert (tool["state"], tool["output"], tool["input"]) == (
        "output-available",
        {"painted": True},
        {"colour": "blue"},
    )
    assert texts(painted)[1:] == [("assistant", "It is blue now.")]
    assert [each["finishReason"] for each in painted["finishes"]] == ["tool-calls", "stop"]
    assert len(painted["http"]) == 2
    assert texts(again)[-1] == ("assistant", "You said: paint it blue | what did I say")


@pytest.mark.req("FAC-03")
@pytest.mark.parametrize("approved", [True, False])
def test_approvals(played: Played, *, approved: bool) -> None:
    asked, loaded, answered, after = played["approved" if approved else "refused"]
    assert [part["state"] for part in parts(asked, "dynamic-tool")] == ["approval-requested"] * 2
    assert [part["approval"]["id"] for part in parts(loaded, "dynamic-tool")] == [
        part["approval"]["id"] for part in parts(asked, "dynamic-tool")
    ]
    tools = parts(answered, "dynamic-tool")
    state = "output-available" if approved else "output-denied"
    assert [part["state"] for part in tools] == [state] * 2
    assert [part.get("output") for part in tools] == (
        ["a.txt is deleted", "b.txt is deleted"] if approved else [None] * 2
    )
    assert texts(answered) == [("user", "delete both"), ("assistant", "As you wish.")]
    assert (after["status"], texts(after)[-1][1]) == ("ready", "You said: delete both | what did I say")


def test_the_model_reads_why_a_call_was_refused(played: Played) -> None:
    _, answered, _ = played["refused with a reason"]
    assert texts(answered)[-1][1].endswith(f"Their reason: {WHY}")


def test_a_refused_call_is_denied_after_a_reload_too(played: Played) -> None:
    for page in played["refused with a reason"][1:]:
        assert [part["state"] for part in parts(page, "dynamic-tool")] == ["output-denied"]


def test_continuing_without_approving(played: Played) -> None:
    _, after = played["not decided"]
    assert (after["status"], after["error"]) == ("ready", None)
    (tool,) = parts(after, "dynamic-tool")
    assert (tool["state"], tool["input"]) == ("output-error", {"name": "a.txt"})
    assert texts(after)[-1] == ("assistant", "Hello there, how are you?")


def test_regenerate(played: Played) -> None:
    first, again, then, after = played["regenerated"]
    assert first["messages"][0]["id"] == again["messages"][0]["id"]
    assert texts(first)[1] != texts(again)[1]
    assert len(again["messages"]) == 2
    assert len(after["messages"]) == len(then["messages"]) == 4


def test_an_edited_message_replaces_what_followed(played: Played) -> None:
    *_, before, after, loaded = played["edited"]
    assert len(before["messages"]) == 4
    assert texts(after) == [("user", "what did I say"), ("assistant", "You said: what did I say")]
    assert texts(loaded) == texts(after)


def test_a_cut_stream_is_read_again_and_stopped(played: Played) -> None:
    cut, resumed = played["cut and stopped"]
    assert cut["status"] == "error"
    assert resumed["status"] == "ready"
    assert texts(resumed) == [("user", "wait"), ("assistant", "One moment")]
    assert resumed["messages"][-1]["metadata"]["outcome"] == "cancelled"


def test_an_approved_run_that_was_cut_shows_the_whole_message_again(played: Played) -> None:
    _, cut, resumed = played["approved and cut"]
    assert cut["status"] == "error"
    (tool,) = parts(resumed, "dynamic-tool")
    assert (tool["state"], tool["output"], tool["input"]) == ("output-available", "a.txt is deleted", {"name": "a.txt"})
    assert texts(resumed) == [("user", "delete and wait"), ("assistant", "First this.One moment")]


def test_nothing_to_resume(played: Played) -> None:
    _, resumed = played["nothing to resume"]
    assert (resumed["status"], resumed["http"][0]["status"]) == ("ready", 204)
    assert len(resumed["messages"]) == 2


def test_a_failure_is_the_error_of_the_chat(played: Played) -> None:
    failed, after = played["failure"]
    assert (failed["status"], failed["error"]) == ("error", "The model cannot be reached.")
    (note,) = [part["data"] for part in failed["data"] if part["type"] == "data-error"]
    assert note["code"] == "model-error"
    assert (after["status"], texts(after)[-1]) == ("ready", ("assistant", "Hello there, how are you?"))


def test_a_refused_request_says_why(played: Played) -> None:
    (refused,) = played["refused request"]
    assert refused["status"] == "error"
    assert "tools[0].name must be" in refused["error"]


def test_files(played: Played) -> None:
    seen, loaded = played["file"]
    assert "image/png" in texts(seen)[-1][1]
    assert loaded["messages"][0]["parts"][0]["type"] == "file"


def test_unicode_and_a_long_answer(played: Played) -> None:
    unicode, long = played["unicode and a long answer"]
    assert "👩‍👩‍👧‍👦" in texts(unicode)[-1][1]
    assert texts(long)[-1][1].split()[-1] == "4999"
