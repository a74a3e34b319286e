"""ChatRequest in JSON: what is taken, and what is refused with which field."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.core.messages import TextPart, UserMessage
from holodeck.core.request import FileNote
from holodeck.errors import InvalidRequest
from holodeck.wires.rest.request import MAX_FILES, MAX_MESSAGE, decode, run_request
from tests.wires.event_sequences import JSON

SESSION = "01K9ZQ4W3V8N2R5T7Y9A1C3E5G"
FILE = {"content": "aGk=", "mime_type": "text/plain", "filename": "a.txt"}


def body(**fields: Any) -> bytes:
    return json.dumps({"message": "hi", **fields}).encode()


REFUSED = {  # name → (body, status, field)
    "no JSON": (b"{", 400, None),
    "not UTF-8": (b'{"message": "\xff"}', 400, None),
    "no object": (b"[]", 422, None),
    "no message": (b"{}", 422, "message"),
    "null": (body(message=None), 422, "message"),
    "a number": (body(message=7), 422, "message"),
    "empty": (body(message=""), 422, "message"),
    "blank": (body(message=" \n\t\u2003"), 422, "message"),
    "only NUL": (body(message="\x00"), 422, "message"),
    "too long": (body(message="x" * (MAX_MESSAGE + 1)), 422, "message"),
    "session: empty": (body(session_id=""), 422, "session_id"),
    "session: too long": (body(session_id="x" * 129), 422, "session_id"),
    "session: a line break": (body(session_id="a\nb"), 422, "session_id"),
    "session: a number": (body(session_id=7), 422, "session_id"),
    "files: no list": (body(files={}), 422, "files"),
    "eleven files": (body(files=[FILE] * (MAX_FILES + 1)), 422, "files"),
    "file: no object": (body(files=["a"]), 422, "files[0]"),
    "file: no content": (body(files=[FILE, {"mime_type": "text/plain"}]), 422, "files[1].content"),
    "file: no base64": (body(files=[{**FILE, "content": "é"}]), 422, "files[0].content"),
    "file: no type": (body(files=[{"content": ""}]), 422, "files[0].mime_type"),
    "file: type too long": (body(files=[{**FILE, "mime_type": "x" * 256}]), 422, "files[0].mime_type"),
    "file: name": (body(files=[{**FILE, "filename": 7}]), 422, "files[0].filename"),
    "neither words nor a decision": (b'{"resume": []}', 422, "message"),
    "resume: no object": (body(resume=[7]), 422, "resume[0]"),
    "resume: no id": (body(resume=[{"approved": True}]), 422, "resume[0].interrupt_id"),
    "resume: undecided": (body(resume=[{"interrupt_id": "i"}]), 422, "resume[0].approved"),
    "resume: too many": (body(resume=[{"interrupt_id": "i", "approved": True}] * 129), 422, "resume"),
}


@pytest.mark.req("SRV-12", "SRV-17")
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    sent, status, field = REFUSED[name]
    with pytest.raises(InvalidRequest) as caught:
        decode(sent)
    assert (caught.value.status, caught.value.field) == (status, field)


@pytest.mark.req("SRV-12")
def test_all_members_are_read() -> None:
    chat = decode(body(session_id=SESSION, files=[FILE], resume=[{"interrupt_id": "i", "approved": False}], other=1))
    assert (chat.message, chat.session_id, chat.files[0].filename) == ("hi", SESSION, "a.txt")
    note = FileNote(name="a.txt", mime_type="text/plain", read_as="text", characters=2)
    request = run_request(chat, [(TextPart("hi"), note)])
    assert (request.session_id, request.files) == (SESSION, (note,))
    assert [(each.interrupt_id, each.approved) for each in request.resume] == [("i", False)]
    (message,) = request.messages
    assert isinstance(message, UserMessage)
    assert message.content == (TextPart("hi"), TextPart("hi"))


@pytest.mark.req("SRV-12")
@pytest.mark.parametrize("fields", [{"session_id": None, "files": None, "resume": None}, {"files": []}, {}])
def test_what_is_optional_may_be_null_empty_or_absent(fields: dict[str, Any]) -> None:
    request = run_request(decode(body(**fields)))
    assert (request.session_id, request.files, request.resume) == (None, (), ())
    assert [message.content for message in request.messages] == ["hi"]


@pytest.mark.req("SRV-12")
def test_a_decision_adds_no_message_but_may_add_a_file() -> None:
    chat = decode(b'{"resume": [{"interrupt_id": "i", "approved": true}]}')
    assert run_request(chat).messages == ()
    note = FileNote(name="a.txt", mime_type="text/plain", read_as="text", characters=2)
    (message,) = run_request(chat, [(TextPart("hi"), note)]).messages
    assert message.content == (TextPart("hi"),)


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b'{"mesage": "hi"}', "message is missing; 'mesage' is unknown, did you mean message?"),
        (b'{"other": "hi"}', "message is missing"),
        (b'{"message": null}', "message is missing"),
    ],
)
def test_a_misspelt_message_is_named(sent: bytes, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode(sent)
    assert caught.value.message == text


def test_the_longest_message_is_measured_in_characters() -> None:
    assert len(decode(body(message="😀" * MAX_MESSAGE)).message or "") == MAX_MESSAGE


def test_half_a_surrogate_pair_is_mended() -> None:
    assert decode(b'{"message": "a\\ud83d"}').message == "a�"


@given(JSON, st.sampled_from(["message", "session_id", "files", "resume"]))
def test_any_json_in_any_member_is_read_or_refused(value: Any, member: str) -> None:
    with suppress(InvalidRequest):
        assert (decode(body(**{member: value})).message or "").strip()
