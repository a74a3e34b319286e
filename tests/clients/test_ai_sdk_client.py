"""The AI SDK's own chat (`useChat` without React), versions 7 and 6, against a real server."""

from typing import Any
from uuid import uuid4

import pytest

from tests.clients.driving import Json, node
from tests.clients.scenes import PIXEL

PAINT = {
    "name": "change_background",
    "description": "Paints the page",
    "parameters": {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]},
}


@pytest.fixture(params=["ai", "ai6"])
def library(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def play(library: str, url: str, *steps: Json, **fields: Any) -> list[Json]:
    scenario = {"name": "one", "url": url, "id": f"chat-{uuid4()}", "steps": steps, **fields}
    (result,) = node("aisdk_driver.mjs", library, scenarios=[scenario], package=library)
    played: list[Json] = result["steps"]
    return played


def parts(step: Json, kind: str) -> list[Json]:
    return [part for part in step["messages"][-1]["parts"] if part["type"] == kind]


def texts(step: Json) -> list[tuple[str, str]]:
    """(role, text) of each message."""
    return [
        (message["role"], "".join(part["text"] for part in message["parts"] if part["type"] == "text"))
        for message in step["messages"]
    ]


@pytest.mark.req("SRV-25")
def test_a_conversation(library: str, addresses: dict[str, str]) -> None:
    hello, said, loaded = play(
        library, addresses["plain"], {"send": "hello"}, {"send": "what did I say"}, {"load": True}
    )
    assert texts(hello) == [("user", "hello"), ("assistant", "Hello there, how are you?")]
    assert (hello["status"], hello["finishes"][0]["finishReason"]) == ("ready", "stop")
    metadata = hello["messages"][-1]["metadata"]
    assert metadata["usage"] == {"inputTokens": 12, "outputTokens": 5, "totalTokens": 17}
    assert (metadata["run"], metadata["outcome"]) == (hello["messages"][-1]["id"], "completed")
    assert hello["http"] == [{"method": "POST", "status": 200, "stream": "v1"}]
    assert texts(said)[-1] == ("assistant", "You said: hello | what did I say")
    assert texts(loaded) == texts(said)
    assert [each["id"] for each in loaded["messages"]] == [each["id"] for each in said["messages"]]


def test_a_server_tool_is_shown_and_not_carried_out_again(library: str, addresses: dict[str, str]) -> None:
    weather, broken, loaded = play(
        library, addresses["plain"], {"send": "weather"}, {"send": "break a tool"}, {"load": True}
    )
    (tool,) = parts(weather, "dynamic-tool")
    assert (tool["toolName"], tool["state"], tool["input"]) == ("get_weather", "output-available", {"city": "Oslo"})
    assert tool["providerExecuted"] is True
    assert '"celsius"' in tool["output"]
    assert len(weather["http"]) == len(broken["http"]) == 1
    (failed,) = parts(broken, "dynamic-tool")
    assert failed["state"] == "output-error"
    assert [part["state"] for message in loaded["messages"] for part in message["parts"] if part["type"] == "dynamic-tool"] == ["output-available", "output-error"]  # fmt: skip


def test_reasoning_activities_and_data(library: str, addresses: dict[str, str]) -> None:
    reason, work = play(library, addresses["plain"], {"send": "reason"}, {"send": "work"})
    assert [part["text"] for part in parts(reason, "reasoning")] == ["Two plus two…"]
    (activity,) = parts(work, "data-activity")
    assert activity["data"] == {"kind": "work", "content": {"done": 100, "note": "beginning"}}
    (progress,) = parts(work, "data-example.progress")
    assert progress["data"] == {"percent": 100, "left": None}


def test_state(library: str, addresses: dict[str, str]) -> None:
    (plan,) = play(library, addresses["state"], {"send": "plan"})
    (state,) = parts(plan, "data-state")
    assert (state["data"]["steps"], state["data"]["done"]) == (["buy milk"], True)
    patches = [part["data"] for part in plan["data"] if part["type"] == "data-state-delta"]
    assert [operation["path"] for patch in patches for operation in patch] == ["/steps/-", "/done"]


def test_a_tool_of_the_client(library: str, addresses: dict[str, str]) -> None:
    body, tools = {"tools": [PAINT]}, {"change_background": {"painted": True}}
    painted, again = play(
        library,
        addresses["plain"],
        {"send": "paint it blue", "answers": 2},
        {"send": "what did I say"},
        body=body,
        tools=tools,
    )
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


@pytest.mark.parametrize("approved", [True, False])
def test_approvals(library: str, addresses: dict[str, str], *, approved: bool) -> None:
    asked, loaded, answered, after = play(
        library,
        addresses["plain"],
        {"send": "delete both"},
        {"load": True},
        {"approve": approved},
        {"send": "what did I say"},
    )
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


def test_going_on_without_approving(library: str, addresses: dict[str, str]) -> None:
    _, after = play(library, addresses["plain"], {"send": "delete it"}, {"send": "hello"})
    assert (after["status"], after["error"]) == ("ready", None)
    (tool,) = parts(after, "dynamic-tool")
    assert (tool["state"], tool["input"]) == ("output-error", {"name": "a.txt"})
    assert texts(after)[-1] == ("assistant", "Hello there, how are you?")


def test_regenerate_and_edit(library: str, addresses: dict[str, str]) -> None:
    first, again, edited, said = play(
        library,
        addresses["plain"],
        {"send": "answer me"},
        {"regenerate": None},
        {"send": "hello"},
        {"regenerate": None},
    )
    assert first["messages"][0]["id"] == again["messages"][0]["id"]
    assert texts(first)[1] != texts(again)[1]
    assert len(again["messages"]) == 2
    assert len(said["messages"]) == len(edited["messages"]) == 4


def test_an_edited_message_replaces_what_followed(library: str, addresses: dict[str, str]) -> None:
    chat = f"chat-{uuid4()}"
    steps = ({"send": "hello"}, {"send": "weather"})
    *_, second = play(library, addresses["plain"], *steps, id=chat)
    edited, said, loaded = play(
        library,
        addresses["plain"],
        {"load": True},
        {"send": "what did I say", "edit": second["messages"][0]["id"]},
        {"load": True},
        id=chat,
    )
    assert len(edited["messages"]) == 4
    assert texts(said) == [("user", "what did I say"), ("assistant", "You said: what did I say")]
    assert texts(loaded) == texts(said)


def test_a_cut_stream_is_read_again_and_stopped(library: str, addresses: dict[str, str]) -> None:
    cut, resumed = play(
        library, addresses["plain"], {"send": "wait", "cut": "moment"}, {"resume": True, "stop": "One moment"}
    )
    assert cut["status"] == "error"
    assert resumed["status"] == "ready"
    assert texts(resumed) == [("user", "wait"), ("assistant", "One moment")]
    assert resumed["messages"][-1]["metadata"]["outcome"] == "cancelled"


def test_an_approved_run_that_was_cut_shows_the_whole_message_again(library: str, addresses: dict[str, str]) -> None:
    _, cut, resumed = play(
        library,
        addresses["plain"],
        {"send": "delete and wait"},
        {"approve": True, "cut": "deleted"},
        {"resume": True, "stop": "One moment"},
    )
    assert cut["status"] == "error"
    (tool,) = parts(resumed, "dynamic-tool")
    assert (tool["state"], tool["output"], tool["input"]) == ("output-available", "a.txt is deleted", {"name": "a.txt"})
    assert texts(resumed) == [("user", "delete and wait"), ("assistant", "First this.One moment")]


def test_nothing_to_resume(library: str, addresses: dict[str, str]) -> None:
    _, resumed = play(library, addresses["plain"], {"send": "hello"}, {"resume": True})
    assert (resumed["status"], resumed["http"][0]["status"]) == ("ready", 204)
    assert len(resumed["messages"]) == 2


def test_a_failure_is_the_error_of_the_chat(library: str, addresses: dict[str, str]) -> None:
    failed, after = play(library, addresses["plain"], {"send": "fail"}, {"send": "hello"})
    assert (failed["status"], failed["error"]) == ("error", "The model cannot be reached.")
    (note,) = [part["data"] for part in failed["data"] if part["type"] == "data-error"]
    assert note["code"] == "model-error"
    assert (after["status"], texts(after)[-1]) == ("ready", ("assistant", "Hello there, how are you?"))


def test_a_refused_request_says_why(library: str, addresses: dict[str, str]) -> None:
    (refused,) = play(library, addresses["plain"], {"send": "hello"}, body={"tools": [{"name": "no spaces, please"}]})
    assert refused["status"] == "error"
    assert "tools[0].name has to be" in refused["error"]


def test_files(library: str, addresses: dict[str, str]) -> None:
    image = {
        "type": "file",
        "mediaType": "image/png",
        "filename": "pixel.png",
        "url": f"data:image/png;base64,{PIXEL}",
    }
    seen, loaded = play(library, addresses["plain"], {"send": "look at this", "files": [image]}, {"load": True})
    assert "image/png" in texts(seen)[-1][1]
    assert loaded["messages"][0]["parts"][0]["type"] == "file"


def test_unicode_and_a_long_answer(library: str, addresses: dict[str, str]) -> None:
    unicode, long = play(library, addresses["plain"], {"send": "unicode"}, {"send": "talk on"})
    assert "👩‍👩‍👧‍👦" in texts(unicode)[-1][1]
    assert texts(long)[-1][1].split()[-1] == "4999"
