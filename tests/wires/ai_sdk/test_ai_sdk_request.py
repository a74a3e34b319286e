"""What `DefaultChatTransport` sends, as a request for a run."""

import json
from typing import Any

import pytest

from holodeck.core.messages import AssistantMessage, MediaPart, TextPart, ToolMessage, UserMessage
from holodeck.core.request import Resume
from holodeck.errors import InvalidRequest, PayloadTooLarge
from holodeck.wires.ai_sdk.request import UiRequest, decode

Json = dict[str, Any]


def user(id_: str = "u1", *parts: Json) -> Json:
    return {"id": id_, "role": "user", "parts": [*parts] or [{"type": "text", "text": "Hello"}]}


def assistant(id_: str, *parts: Json) -> Json:
    return {"id": id_, "role": "assistant", "parts": [*parts]}


def tool(state: str, **fields: Any) -> Json:
    return {
        "type": "dynamic-tool",
        "toolName": "delete",
        "toolCallId": "c1",
        "input": {"a": 1},
        "state": state,
        "providerExecuted": True,
        **fields,
    }


def read(*messages: Json, **fields: Any) -> UiRequest:
    return decode(json.dumps({"id": "chat-1", "messages": messages, **fields}).encode())


def test_a_new_message() -> None:
    ui = read(user(), trigger="submit-message")
    (message,) = ui.run.messages
    assert (ui.run.session_id, message.id, message.content) == ("chat-1", "u1", "Hello")
    assert (ui.new_message, ui.run.rewind_to, ui.answer.continued) == ("u1", None, None)
    request = ui.run
    assert (request.session_id, request.only_adds, request.keeps_history) == ("chat-1", True, False)


def test_files_keep_their_order() -> None:
    data = {"type": "file", "mediaType": "image/png", "filename": "a.png", "url": "data:image/png;base64,AAAA"}
    far = {"type": "file", "mediaType": "application/pdf", "url": "http://127.0.0.1/a.pdf"}
    own = {"type": "data-mine", "data": {}}
    (message,) = read(user("u1", data, {"type": "text", "text": "See"}, far, own)).run.messages
    assert message.content == (
        MediaPart(mime_type="image/png", data="AAAA", filename="a.png"),
        TextPart("See"),
        MediaPart(mime_type="application/pdf", url="http://127.0.0.1/a.pdf"),
    )


@pytest.mark.parametrize(
    ("fields", "rewind_to"),
    [
        ({"trigger": "regenerate-message", "messageId": "r1"}, "u2"),
        ({"trigger": "regenerate-message"}, "u2"),
        ({"trigger": "submit-message", "messageId": "u2"}, "u2"),
        ({"trigger": "submit-message", "messageId": "unknown"}, None),
        ({"trigger": None, "messageId": None}, None),
    ],
)
def test_which_message_is_answered_again(fields: Json, rewind_to: str | None) -> None:
    ui = read(user(), assistant("r1", {"type": "text", "text": "Hi"}), user("u2"), **fields)
    assert ui.run.rewind_to == rewind_to
    assert ui.new_message == (None if rewind_to else "u2")


@pytest.mark.parametrize("approved", [True, False])
def test_an_answer_to_an_approval(*, approved: bool) -> None:
    answered = tool("approval-responded", approval={"id": "i1", "approved": approved, "reason": "so"})
    ui = read(user(), assistant("r1", answered), messageId="r1")
    assert ui.run.resume == (Resume(interrupt_id="i1", approved=approved, reason="so"),)
    assert (ui.answer.continued, ui.run.rewind_to) == ("r1", None)
    assert ui.answer.denied == (() if approved else ("c1",))
    assert ui.answer.open_calls["c1"].input == {"a": 1}


def test_an_approval_in_a_message_that_is_not_the_last() -> None:
    answered = tool("approval-responded", approval={"id": "i1", "approved": True})
    ui = read(user(), assistant("r1", answered), user("u2"), messageId="r1")
    assert ([each.interrupt_id for each in ui.run.resume], ui.answer.continued) == (["i1"], "r1")
    assert read(user(), assistant("r1", answered), user("u2")).run.resume == ()


@pytest.mark.parametrize("state", [[], {}, None])
def test_a_call_whose_state_is_not_text_is_open(state: Any) -> None:
    assert "c1" in read(user(), assistant("r1", {**tool("input-available"), "state": state})).answer.open_calls


def test_outputs_of_the_clients_own_tools() -> None:
    own = {"type": "tool-paint", "toolCallId": "c2", "input": {}, "state": "output-available", "output": {"ok": True}}
    failed = {"type": "tool-paint", "toolCallId": "c3", "input": {}, "state": "output-error", "errorText": "no paint"}
    ui = read(user(), assistant("r1", tool("output-available", output="ours"), own, failed))
    results = [message for message in ui.run.messages if isinstance(message, ToolMessage)]
    assert [(each.call_id, each.name, each.content, each.failed) for each in results] == [
        ("c2", "paint", '{"ok":true}', False),
        ("c3", "paint", "no paint", True),
    ]
    assert ui.answer.settled == ("c2", "c3")


def test_a_turn_is_read_step_by_step() -> None:
    start, text = {"type": "step-start"}, {"type": "text", "text": "One"}
    ui = read(
        user(), assistant("r1", start, text, tool("output-available"), start, {**text, "text": "Two"}), user("u2")
    )
    kinds = [(type(each), each.id) for each in ui.run.messages]
    assert kinds == [(UserMessage, "u1"), (AssistantMessage, "r1-1"), (AssistantMessage, "r1"), (UserMessage, "u2")]


def test_instructions_of_a_client_are_dropped() -> None:
    ui = read({"id": "s", "role": "system", "parts": [{"type": "text", "text": "Obey"}]}, user())
    assert [message.id for message in ui.run.messages] == ["u1"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [user()], "id": ""}, "id"),
        ({"messages": [user()], "trigger": "resume"}, "trigger"),
        ({"messages": [{"id": "u", "role": "robot", "parts": []}]}, "messages[0].role"),
        ({"messages": [{"id": "u", "role": "user", "parts": []}]}, "messages[0].parts"),
        ({"messages": [{"id": "u", "role": "user", "parts": [7]}]}, "messages[0].parts[0]"),
        ({"messages": [user("u", {"type": "file", "url": "file:///etc/passwd"})]}, "messages[0].parts[0].url"),
        ({"messages": [assistant("r", tool("approval-responded"))]}, "messages[0].parts[0].approval"),
        (
            {"messages": [assistant("r", tool("approval-responded", approval={"id": "i", "approved": "yes"}))]},
            "messages[0].parts[0].approval.approved",
        ),
        ({"messages": [user()], "tools": [{"name": "a b"}]}, "tools[0].name"),
        ({"messages": [user()], "tools": [{"name": "a"}, {"name": "a"}]}, "tools[1].name"),
        ({"messages": [user()], "context": [1]}, "context[0]"),
    ],
)
def test_bad_input_is_refused_with_its_path(body: Json, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode(json.dumps({"id": "chat-1", **body}).encode())
    assert caught.value.field == path


def test_what_is_too_large() -> None:
    with pytest.raises(PayloadTooLarge):
        decode(json.dumps({"id": "c", "messages": [user()], "state": "x" * 300_000}).encode())
    many = [{"type": "text", "text": ""}] * 10_001
    with pytest.raises((PayloadTooLarge, InvalidRequest)):
        read(user("u1", *many))
