"""What clients send, and what becomes of it: taken, mended, dropped with a line for the log, or refused (SRV-07)."""

import json
from typing import Any

import msgspec
import pytest
from ag_ui.core import RunAgentInput
from pydantic import ValidationError

from holodeck.core.messages import AssistantMessage, MediaPart, TextPart, ToolCall, ToolMessage, UserMessage
from holodeck.core.request import APPROVAL_SCHEMA, Resume
from holodeck.errors import InvalidRequest
from holodeck.wires.agui.decode import AguiInput, decode
from holodeck.wires.agui.profile import Profile
from tests.wires.agui.bodies import USER, body, with_message


def with_part(part: Any) -> AguiInput:
    return decode(body(messages=[{"id": "u1", "role": "user", "content": [{"type": "text", "text": "see"}, part]}]))


def untimed(message: Any) -> Any:
    fields = msgspec.structs.asdict(message)
    return type(message), {key: value for key, value in fields.items() if key != "timestamp"}


@pytest.mark.req("SRV-07")
def test_a_whole_conversation() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    read = decode(
        body(
            parentRunId="r0",
            messages=[
                USER,
                {"id": "a1", "role": "assistant", "toolCalls": [call]},
                {"id": "t1", "role": "tool", "toolCallId": "c1", "content": "2"},
                {"id": "a2", "role": "assistant", "content": "Two."},
                {"id": "t2", "role": "tool", "toolCallId": "c9", "content": "", "error": "it broke"},
            ],
            tools=[
                {"name": "paint", "description": "Paints", "parameters": {"type": "object", "properties": {"c": {}}}}
            ],
            context=[{"description": "page", "value": "cart"}],
            state={"n": [1, None]},
            forwardedProps={"theme": "dark"},
        )
    )
    expected = [
        UserMessage(id="u1", content="Hello"),
        AssistantMessage(id="a1", tool_calls=(ToolCall(id="c1", name="add", arguments='{"a": 1}'),)),
        ToolMessage(id="t1", call_id="c1", name="add", content="2"),
        AssistantMessage(id="a2", content="Two."),
        ToolMessage(id="t2", call_id="c9", name="", content="it broke", failed=True),
    ]
    assert [untimed(message) for message in read.run.messages] == [untimed(message) for message in expected]
    assert (read.thread_id, read.run_id, read.profile, read.warnings) == ("t1", "r1", Profile.FULL, ())
    request = read.run
    assert (request.session_id, request.run_id, request.parent_run_id) == ("t1", "r1", "r0")
    assert request.keeps_history
    assert request.context == (("page", "cart"),)
    assert request.state == {"n": [1, None]}
    assert request.properties == {"theme": "dark"}
    (tool,) = request.client_tools
    assert (tool.name, tool.description, tool.on_client) == ("paint", "Paints", True)
    assert tool.parameters == {"type": "object", "properties": {"c": {}}}


# body, status, field
REFUSED: dict[str, tuple[bytes, int, str | None]] = {
    "empty": (b"", 400, None),
    "cut": (b'{"threadId": "t1"', 400, None),
    "NaN": (b'{"threadId": NaN}', 400, None),
    "NaN beside half a pair": (b'{"a": "\\ud83d", "b": NaN}', 400, None),
    "half a pair, cut": (b'{"a": "\\ud83d"', 400, None),
    "not UTF-8": (b'{"threadId": "\xff"}', 400, None),
    "raw surrogate bytes": (b'{"threadId": "\xed\xa0\xbd"}', 400, None),
    "too deep for any parser": (b"[" * 40_000 + b"]" * 40_000, 400, None),
    "deep, with half a pair": (b'["\\ud83d",' + b"[" * 40_000 + b"]" * 40_001, 400, None),
    "an integer of 5,000 digits": (b'{"state": ' + b"9" * 5000 + b"}", 400, None),
    "a list": (b"[]", 422, None),
    "null": (b"null", 422, None),
    "a string": (b'"hello"', 422, None),
    "nothing in it": (b"{}", 422, "threadId"),
    "no threadId": (body(threadId=...), 422, "threadId"),
    "threadId is a number": (body(threadId=7), 422, "threadId"),
    "threadId is empty": (body(threadId=""), 422, "threadId"),
    "threadId is too long": (body(threadId="x" * 129), 422, "threadId"),
    "threadId has a line break": (body(threadId="a\nb"), 422, "threadId"),
    "threadId has a right-to-left override": (body(threadId="a\u202eb"), 422, "threadId"),
    "threadId has a NUL": (body(threadId="a\0b"), 422, "threadId"),
    "threadId has half an emoji": (body(threadId="a\ud83d"), 422, "threadId"),
    "no runId": (body(runId=None), 422, "runId"),
    "runId could end an SSE line": (body(runId="r\r\ndata: {}"), 422, "runId"),
    "parentRunId is an object": (body(parentRunId={}), 422, "parentRunId"),
    "no messages": (body(messages=...), 422, "messages"),
    "messages is null": (body(messages=None), 422, "messages"),
    "messages is an object": (body(messages={}), 422, "messages"),
    "10,001 messages": (body(messages=[USER] * 10_001), 422, "messages"),
    "a message is a string": (body(messages=["hi"]), 422, "messages[0]"),
    "no role": (with_message(content="x"), 422, "messages[1].role"),
    "role is a number": (with_message(role=1, content="x"), 422, "messages[1].role"),
    "no message id": (with_message(id=..., role="user", content="x"), 422, "messages[1].id"),
    "message id is a number": (with_message(id=3, role="user", content="x"), 422, "messages[1].id"),
    "message id is empty": (with_message(id="", role="user", content="x"), 422, "messages[1].id"),
    "user content is null": (with_message(role="user", content=None), 422, "messages[1].content"),
    "user content is an object": (with_message(role="user", content={}), 422, "messages[1].content"),
    "257 parts": (with_message(role="user", content=[{"type": "text", "text": ""}] * 257), 422, "messages[1].content"),
    "assistant content is a number": (with_message(role="assistant", content=1), 422, "messages[1].content"),
    "toolCalls is an object": (with_message(role="assistant", toolCalls={}), 422, "messages[1].toolCalls"),
    "a call without function": (with_message(role="assistant", toolCalls=[{"id": "c"}]), 422, "messages[1].toolCalls[0].function"),
    "a call without id": (
        with_message(role="assistant", toolCalls=[{"function": {"name": "f", "arguments": ""}}]), 422, "messages[1].toolCalls[0].id"),
    "arguments are an object": (
        with_message(role="assistant", toolCalls=[{"id": "c", "function": {"name": "f", "arguments": {}}}]),
        422, "messages[1].toolCalls[0].function.arguments"),
    "tool content is an object": (with_message(role="tool", toolCallId="c", content={}), 422, "messages[1].content"),
    "no toolCallId": (with_message(role="tool", content="x"), 422, "messages[1].toolCallId"),
    "error is a list": (with_message(role="tool", toolCallId="c", content="", error=[]), 422, "messages[1].error"),
    "tools is a string": (body(tools="all"), 422, "tools"),
    "129 tools": (body(tools=[{"name": f"t{i}", "description": ""} for i in range(129)]), 422, "tools"),
    "a tool is null": (body(tools=[None]), 422, "tools[0]"),
    "a tool without name": (body(tools=[{"description": "x"}]), 422, "tools[0].name"),
    "a tool name with a space": (body(tools=[{"name": "a b", "description": ""}]), 422, "tools[0].name"),
    "a tool name of 65 characters": (body(tools=[{"name": "a" * 65, "description": ""}]), 422, "tools[0].name"),
    "a tool name with a line break": (body(tools=[{"name": "a\n", "description": ""}]), 422, "tools[0].name"),
    "a tool description is a list": (body(tools=[{"name": "a", "description": []}]), 422, "tools[0].description"),
    "context is an object": (body(context={}), 422, "context"),
    "resume is a string": (body(resume="yes"), 422, "resume"),
    "a resume without interruptId": (body(resume=[{"status": "resolved"}]), 422, "resume[0].interruptId"),
    "a resume without status": (body(resume=[{"interruptId": "i"}]), 422, "resume[0].status"),
    "a resume of another status": (body(resume=[{"interruptId": "i", "status": "maybe"}]), 422, "resume[0].status"),
}  # fmt: skip


@pytest.mark.req("SRV-07", "SRV-17")
@pytest.mark.parametrize(("raw", "status", "field"), REFUSED.values(), ids=REFUSED)
def test_refused(raw: bytes, status: int, field: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode(raw)
    assert (caught.value.status, caught.value.field) == (status, field)
    assert field is None or field in caught.value.message


@pytest.mark.req("SRV-07")
def test_keys_may_be_spelled_as_in_python() -> None:
    """The official SDK takes both; Microsoft's client writes this one."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    picture = {"type": "image", "source": {"type": "data", "value": "aGk=", "mime_type": "image/png"}}
    sent = {
        "thread_id": "t1",
        "run_id": "r1",
        "runId": "r2",
        "parent_run_id": "r0",
        "protocol_version": "1.0",
        "forwarded_props": {"tool_call_id": "kept as it is"},
        "state": {"thread_id": "kept as it is"},
        "messages": [
            {"id": "u", "role": "user", "content": [picture, {"type": "binary", "mime_type": "a/b", "data": "aGk="}]},
            {"id": "a", "role": "assistant", "tool_calls": [call]},
            {"id": "t", "role": "tool", "tool_call_id": "c1", "content": "ok"},
        ],
        "resume": [{"interrupt_id": "i1", "status": "resolved", "payload": True}],
    }
    read = decode(json.dumps(sent).encode())
    request = read.run
    assert (read.thread_id, read.run_id, request.parent_run_id, read.profile) == ("t1", "r2", "r0", Profile.FULL)
    assert (request.properties, request.state) == ({"tool_call_id": "kept as it is"}, {"thread_id": "kept as it is"})
    user, assistant, tool = request.messages
    assert [part.mime_type for part in user.content if isinstance(part, MediaPart)] == ["image/png", "a/b"]
    assert isinstance(assistant, AssistantMessage)
    assert isinstance(tool, ToolMessage)
    assert (assistant.tool_calls[0].id, tool.call_id, request.resume[0].interrupt_id) == ("c1", "c1", "i1")


@pytest.mark.parametrize(("sent", "read"), [({}, None), (None, None), ([], []), ({"a": {}}, {"a": {}}), (0, 0)])
def test_empty_state_is_no_state(sent: Any, read: Any) -> None:
    assert decode(body(state=sent)).run.state == read


CONTEXT_VALUES: list[Any] = [1, None, True, {"a": 1}, []]

# a body that is taken, and how many lines for the log
TAKEN: dict[str, tuple[bytes, int]] = {
    "no optional member": (
        body(tools=..., context=..., forwardedProps=..., state=..., protocolVersion=...), 0),
    "null for every optional member": (
        body(tools=None, context=None, forwardedProps=None, state=None, resume=None, parentRunId=None, protocolVersion=None), 0),
    "unknown members": (body(somethingNew={"deep": [1]}, messages=[{**USER, "mood": "good", "metadata": None}]), 0),
    "no messages": (body(messages=[]), 0),
    "reasoning sent back": (with_message(role="reasoning", content="hm", encryptedValue="x"), 0),
    "an activity sent back": (with_message(role="activity", activityType="a", content={}), 0),
    "an unknown role": (with_message(role="emitter", content="x"), 1),
    "an id used twice": (with_message(id="u1", role="user", content="again"), 1),
    "assistant content null": (with_message(role="assistant", content=None), 0),
    "assistant content as parts": (with_message(role="assistant", content=[{"type": "text", "text": "x"}]), 0),
    "assistant toolCalls null": (with_message(role="assistant", content="x", toolCalls=None), 0),
    "an unknown part": (with_message(role="user", content=[{"type": "hologram"}]), 1),
    "a part that is no object": (with_message(role="user", content=["x"]), 1),
    "an unknown source": (with_message(role="user", content=[{"type": "image", "source": {"type": "moon", "value": "x"}}]), 1),
    "a source without value": (with_message(role="user", content=[{"type": "image", "source": {"type": "data"}}]), 1),
    "a text part without text": (with_message(role="user", content=[{"type": "text"}]), 1),
    "a binary part without anything": (with_message(role="user", content=[{"type": "binary", "mimeType": "a/b"}]), 1),
    "a tool message with parts": (with_message(role="tool", toolCallId="c", content=[{"type": "text", "text": "x"}]), 0),
    "a tool without description": (body(tools=[{"name": "a"}]), 0),
    "a tool with nulls": (body(tools=[{"name": "a", "description": None, "parameters": None}]), 0),
    "a tool whose parameters are no object": (body(tools=[{"name": "a", "parameters": True}]), 1),
    "a tool twice": (body(tools=[{"name": "a"}, {"name": "a"}]), 1),
    "128 tools": (body(tools=[{"name": f"t{i}"} for i in range(128)]), 0),
    "context values of all kinds": (body(context=[{"description": "d", "value": v} for v in CONTEXT_VALUES]), 0),
    "context that is no object": (body(context=["x"]), 1),
    "forwardedProps that is no object": (body(forwardedProps=[1]), 1),
    "half an emoji": (body(messages=[{**USER, "content": "hi \ud83d"}]), 0),
    "long thread id": (body(threadId="é" * 128), 0),
    "a later version": (body(protocolVersion="1.1"), 0),
}  # fmt: skip


@pytest.mark.req("SRV-07")
@pytest.mark.parametrize(("raw", "warnings"), TAKEN.values(), ids=TAKEN)
def test_taken(raw: bytes, warnings: int) -> None:
    read = decode(raw)
    assert len(read.warnings) == warnings
    assert read.run.session_id == read.thread_id
    assert all(message.id in {"u1", "m2"} for message in read.run.messages)


MEDIA_PARTS: list[tuple[dict[str, Any], MediaPart]] = [
    ({"type": "image", "source": {"type": "data", "value": "QQ==", "mimeType": "image/png"}}, MediaPart(mime_type="image/png", data="QQ==")),
    ({"type": "image", "source": {"type": "url", "value": "http://127.0.0.1/a.png"}}, MediaPart(mime_type="image/*", url="http://127.0.0.1/a.png")),
    ({"type": "document", "source": {"type": "url", "value": "http://127.0.0.1/a"}}, MediaPart(mime_type="application/octet-stream", url="http://127.0.0.1/a")),
    ({"type": "audio", "source": {"type": "file", "value": "file/1", "provider": "p"}}, MediaPart(mime_type="audio/*", url="urn:ag-ui:file:file%2F1")),
    ({"type": "video", "source": {"type": "data", "value": "QQ==", "mimeType": None}}, MediaPart(mime_type="video/*", data="QQ==")),
    ({"type": "document", "source": {"type": "data", "value": "QQ==", "mimeType": "application/pdf"}, "metadata": {"filename": "a.pdf"}},
        MediaPart(mime_type="application/pdf", data="QQ==", filename="a.pdf")),
    ({"type": "binary", "mimeType": "image/gif", "data": "QQ==", "filename": "a.gif"}, MediaPart(mime_type="image/gif", data="QQ==", filename="a.gif")),
    ({"type": "binary", "mimeType": "image/gif", "url": "http://127.0.0.1/a.gif"}, MediaPart(mime_type="image/gif", url="http://127.0.0.1/a.gif")),
    ({"type": "binary", "mimeType": "application/pdf", "id": "f-1"}, MediaPart(mime_type="application/pdf", url="urn:ag-ui:file:f-1")),
    ({"type": "binary", "data": "QQ==", "url": None}, MediaPart(mime_type="application/octet-stream", data="QQ==")),
]  # fmt: skip


@pytest.mark.req("SRV-07")
@pytest.mark.parametrize(("part", "expected"), MEDIA_PARTS)
def test_media_parts_old_and_new(part: dict[str, Any], expected: MediaPart) -> None:
    read = with_part(part)
    assert read.run.messages[0].content == (TextPart("see"), expected)
    assert read.warnings == ()


@pytest.mark.parametrize(
    ("changes", "zone"),
    [
        ({"forwardedProps": {"timezone": "Europe/Rome"}}, "Europe/Rome"),
        ({"context": [{"description": "timezone", "value": "Asia/Tokyo"}]}, "Asia/Tokyo"),
        (
            {"forwardedProps": {"timezone": "UTC"}, "context": [{"description": "timezone", "value": "Asia/Tokyo"}]},
            "UTC",
        ),
        ({"context": [{"description": "timezone", "value": ""}]}, None),
        ({}, None),
    ],
)
def test_the_zone_has_one_place(changes: dict[str, Any], zone: str | None) -> None:
    assert decode(body(**changes)).run.properties.get("timezone") == zone


@pytest.mark.parametrize(
    ("answer", "approved"),
    [
        ({"status": "resolved", "payload": True}, True),
        ({"status": "resolved", "payload": {"approved": True}}, True),
        ({"status": "resolved", "payload": {"approved": True, "arguments": {"id": 8}}}, True),
        ({"status": "resolved", "payload": {"approved": False}}, False),
        ({"status": "resolved", "payload": False}, False),
        ({"status": "cancelled"}, False),
        ({"status": "cancelled", "payload": {"approved": True}}, False),
        ({"status": "cancelled", "payload": "whatever"}, False),
    ],
)
def test_only_a_clear_yes_is_a_yes(answer: dict[str, Any], *, approved: bool) -> None:
    read = decode(body(resume=[{"interruptId": "i1", **answer}])).run.resume
    assert read == (Resume(interrupt_id="i1", approved=approved, payload=answer.get("payload")),)


NEITHER_YES_NOR_NO: list[Any] = [
    None, 0, 1, "", "no", "yes", "true", "fine", [], [True], {}, {"approved": None}, {"approved": "no"}, {"approved": "true"},
    {"approved": 0}, {"approved": 1}, {"Approved": True}, {"Approved": False}, {"approve": False}, {"decision": "reject"},
    {"arguments": {"id": 8}}, {"approved": True, "arguments": "id=8"}, {"approved": True, "arguments": None},
]  # fmt: skip


@pytest.mark.req("ACC-07")
@pytest.mark.parametrize("version", ["1.0", None])
@pytest.mark.parametrize("payload", NEITHER_YES_NOR_NO, ids=str)
def test_an_answer_that_is_neither_yes_nor_no_is_refused_with_the_schema(payload: Any, version: str | None) -> None:
    entry = {"interruptId": "i1", "status": "resolved", "payload": payload}
    with pytest.raises(InvalidRequest) as refused:
        decode(body(resume=[entry], protocolVersion=version))
    assert (refused.value.status, refused.value.field) == (422, "resume[0].payload")
    assert refused.value.schema == APPROVAL_SCHEMA


@pytest.mark.req("ACC-07")
def test_only_clients_before_1_0_may_leave_the_payload_out() -> None:
    resume = [{"interruptId": "i1", "status": "resolved"}]
    (read,) = decode(body(resume=resume, protocolVersion=None)).run.resume
    assert read.approved is True
    with pytest.raises(InvalidRequest, match="no approval was recorded"):
        decode(body(resume=resume, protocolVersion="1.0"))


STRICTER_THAN_THE_SDK = {
    "threadId is empty", "threadId is too long", "threadId has a line break", "threadId has a right-to-left override",
    "threadId has a NUL", "runId could end an SSE line", "10,001 messages", "message id is empty", "257 parts", "129 tools",
    "a tool name with a space", "a tool name of 65 characters", "a tool name with a line break",
}  # fmt: skip


@pytest.mark.parametrize("name", [n for n, (_, status, _) in REFUSED.items() if status == 422])
def test_beyond_bounds_and_names_we_refuse_only_what_the_sdk_refuses(name: str) -> None:
    try:
        RunAgentInput.model_validate_json(REFUSED[name][0])
    except ValidationError:
        taken_by_sdk = False
    else:
        taken_by_sdk = True
    assert taken_by_sdk == (name in STRICTER_THAN_THE_SDK)
