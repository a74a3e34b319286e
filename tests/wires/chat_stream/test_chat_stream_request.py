"""The chat-stream wire's ChatStreamRequest: what is taken, what is stripped, what is refused with which field."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.errors import InvalidRequest
from holodeck.wires.chat_stream.request import MAX_INPUT, decode, run_request
from tests.wires.event_sequences import JSON


def body(**fields: Any) -> bytes:
    return json.dumps({"input": "hi", **fields}).encode()


REFUSED = {
    "no JSON": (b"nope", 400, None),
    "no object": (b'"hi"', 422, None),
    "no input": (b"{}", 422, "input"),
    "null": (body(input=None), 422, "input"),
    "a list": (body(input=["hi"]), 422, "input"),
    "empty": (body(input=""), 422, "input"),
    "blank": (body(input=" \t\r\n"), 422, "input"),
    "only control characters": (body(input="\x00\x1b\x7f\x9f"), 422, "input"),
    "too long": (body(input="x" * (MAX_INPUT + 1)), 422, "input"),
    "conversation: empty": (body(conversation_id=""), 422, "conversation_id"),
    "conversation: a line break": (body(conversation_id="a\nb"), 422, "conversation_id"),
    "conversation: too long": (body(conversation_id="x" * 129), 422, "conversation_id"),
    "conversation: a NUL": (body(conversation_id="a\0b"), 422, "conversation_id"),
    "user: a NUL": (body(user_id="alice\0"), 422, "user_id"),
    "user: a number": (body(user_id=7), 422, "user_id"),
    "user: too long": (body(user_id="x" * 129), 422, "user_id"),
}


@pytest.mark.req("ORC-01", "SRV-17")
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    sent, status, field = REFUSED[name]
    with pytest.raises(InvalidRequest) as caught:
        decode(sent)
    assert (caught.value.status, caught.value.field) == (status, field)


@pytest.mark.req("ORC-01")
def test_control_characters_are_stripped_before_the_length_is_measured() -> None:
    assert decode(body(input="\x1b[31mred\x00\x07 \n\t\r")).input == "[31mred \n\t\r"
    assert len(decode(body(input="x" * MAX_INPUT + "\x00" * 100)).input) == MAX_INPUT


@pytest.mark.req("ORC-01")
def test_all_members_are_read() -> None:
    chat = decode(body(conversation_id="conv_123abc", user_id="user_456def", other=1))
    assert (chat.conversation_id, chat.user_id) == ("conv_123abc", "user_456def")
    request = run_request(chat, "s", encoding={})
    assert (request.session_id, request.messages[0].content) == ("s", "hi")
    assert decode(body(conversation_id=None, user_id=None)).user_id is None


@given(JSON, st.sampled_from(["input", "conversation_id", "user_id"]))
def test_any_json_in_any_member_is_read_or_refused(value: Any, member: str) -> None:
    with suppress(InvalidRequest):
        assert decode(body(**{member: value})).input.strip()
