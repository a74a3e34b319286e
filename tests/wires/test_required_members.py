"""The refusal of a request that lacks a required member, on every wire."""

from functools import partial

import pytest

from holodeck.errors import InvalidRequest
from holodeck.wires import body as read
from holodeck.wires.ai_sdk.request import decode as decode_ui
from holodeck.wires.openai_chat.request import decode as decode_chat
from holodeck.wires.openai_responses.request import decode as decode_responses

READERS = {
    "a string": [read.text, read.name, read.valid_id, partial(read.short_text, limit=9)],
    "an object": [read.table],
}
LISTS = {decode_ui: "messages", decode_chat: "messages", decode_responses: "input"}


@pytest.mark.parametrize(("wanted", "reader"), [(wanted, each) for wanted in READERS for each in READERS[wanted]])
def test_a_required_member_that_is_absent_is_missing_and_not_of_another_type(wanted, reader):
    with pytest.raises(InvalidRequest) as refused:
        reader(None, "threadId")
    assert refused.value.message == f"threadId is missing or null; it must be {wanted}"
    with pytest.raises(InvalidRequest, match=f"threadId must be {wanted}, not a number"):
        reader(3, "threadId")


@pytest.mark.parametrize(("decode", "member"), LISTS.items(), ids=["ai-sdk", "openai", "responses"])
def test_a_list_of_messages_that_is_absent_or_empty_is_named_as_such(decode, member):
    for sent in (b"{}", b'{"%b": null}' % member.encode(), b'{"%b": []}' % member.encode()):
        with pytest.raises(InvalidRequest) as refused:
            decode(sent)
        assert (refused.value.message, refused.value.field) == (f"{member} is missing or empty", member)


@pytest.mark.parametrize("sent", [b"", b" \r\n"])
def test_an_empty_body_is_called_empty(sent):
    with pytest.raises(InvalidRequest) as refused:
        read.parse(sent)
    assert (refused.value.message, refused.value.status) == ("The body is empty; it must be a JSON object", 400)
