"""Files inside messages, as AG-UI clients send them: with the whole conversation, every turn."""

import base64

import pytest

from holodeck.core.messages import AssistantMessage, MediaPart, TextPart, ToolMessage, UserMessage
from holodeck.errors import InvalidRequest, PayloadTooLarge, UnsupportedMediaType
from holodeck.files.fetch import Fetcher
from holodeck.files.limits import FileLimits
from holodeck.files.reader import FileReader
from tests.files import documents as d


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


NOTE = MediaPart(mime_type="text/plain", data=encoded(b"buy eggs"), filename="note.txt")
SHOWN = TextPart("File note.txt (plain text):\nbuy eggs\n[End of note.txt]")


def user(*parts):
    return UserMessage(content=parts)


@pytest.mark.req("SRV-14")
async def test_files_of_a_message_are_replaced_by_what_was_read():
    message = user(TextPart("What is this?"), NOTE)
    [resolved], notes = await FileReader().resolve([message])
    assert resolved.content == (TextPart("What is this?"), SHOWN)
    assert (resolved.id, resolved.timestamp) == (message.id, message.timestamp)
    assert [(note.name, note.read_as, note.characters) for note in notes] == [("note.txt", "text", 8)]


async def test_a_conversation_without_files_is_left_alone():
    messages = (UserMessage(content="hi"), AssistantMessage(content="hello"), user(TextPart("x")))
    resolved, notes = await FileReader().resolve(messages)
    assert all(after is before for after, before in zip(resolved, messages, strict=True))
    assert notes == ()


async def test_results_of_tools_may_hold_files_too():
    [_, resolved], notes = await FileReader().resolve(
        [UserMessage(content="read it"), ToolMessage(call_id="c", name="t", content=(NOTE,))]
    )
    assert resolved.content == (SHOWN,)
    assert len(notes) == 1


async def test_a_picture_is_passed_on_with_its_own_base64():
    data = encoded(d.picture("x"))
    part = MediaPart(mime_type="image/*", data=data, filename="../x.png")
    [resolved], [note] = await FileReader(vision=True).resolve([user(part)])
    assert resolved.content == (MediaPart(mime_type="image/png", data=data, filename="x.png"),)
    assert resolved.content[0].data is data
    assert (note.name, note.mime_type) == ("x.png", "image/png")


@pytest.mark.parametrize(
    "url",
    [
        "data:text/plain;base64,YnV5IGVnZ3M=",
        "DATA:text/plain;charset=utf-8;base64,YnV5IGVnZ3M=",
        "data:text/plain,buy%20eggs",
        "data:,buy%20eggs",
    ],
)
async def test_a_data_url_is_not_an_address(url):
    part = MediaPart(mime_type="text/plain", url=url, filename="note.txt")
    [resolved], _ = await FileReader().resolve([user(part)])
    assert resolved.content == (SHOWN,)


REFUSED = {
    "an address": (MediaPart(mime_type="image/png", url="https://files.test/a%20b.png"), 400, "a b.png is given by URL"),
    "a handle": (MediaPart(mime_type="image/png", url="urn:ag-ui:file:f1"), 400, "a file in a file store"),
    "no place at all": (MediaPart(mime_type="image/png"), 400, "allow_hosts"),
    "a broken address": (MediaPart(mime_type="image/png", url="http://[::1"), 400, "allow_hosts"),
    "wrong base64": (MediaPart(mime_type="image/png", data="!", filename="a.png"), 422, "a.png is not valid base64"),
    "a wrong data URL": (MediaPart(mime_type="image/png", url="data:image/png"), 422, "not a valid data URL"),
    "another type": (MediaPart(mime_type="application/pdf", data=encoded(d.picture("x"))), 415, "its bytes are image/png"),
    "sound": (MediaPart(mime_type="audio/*", data=encoded(b"ID3\x00"), filename="a.mp3"), 415, "does not accept"),
}  # fmt: skip


@pytest.mark.req("T14", "SRV-13")
@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_read_is_refused(case):
    part, status, words = REFUSED[case]
    with pytest.raises((InvalidRequest, UnsupportedMediaType), match=words) as caught:
        await FileReader().resolve([user(TextPart("hi"), part)])
    assert caught.value.status == status
    if isinstance(caught.value, InvalidRequest):
        assert caught.value.field == "messages[0].content[1]"


@pytest.mark.req("T14")
async def test_only_hosts_that_are_named_are_asked():
    part = MediaPart(mime_type="image/png", url="https://elsewhere.test/a.png")
    with pytest.raises(InvalidRequest, match="allow_hosts") as caught:
        await FileReader(fetcher=Fetcher(["files.test"], max_bytes=1000)).resolve([user(part)])
    assert caught.value.status == 400


@pytest.mark.req("SRV-14")
async def test_a_bad_file_of_an_earlier_turn_does_not_end_the_conversation():
    bad = MediaPart(mime_type="application/pdf", data=encoded(b"no pdf"), filename="bad.pdf")
    (first, last), notes = await FileReader().resolve([user(bad), UserMessage(content="never mind")])
    assert first.content[0].text.startswith("[The file bad.pdf of this message could not be read: bad.pdf is declared")
    assert last.content == "never mind"
    assert notes == ()


async def test_notes_are_about_the_newest_turn():
    again = MediaPart(mime_type="text/csv", data=encoded(b"a,b"), filename="new.csv")
    messages = [user(NOTE), AssistantMessage(content="ok"), user(again)]
    resolved, notes = await FileReader().resolve(messages)
    assert resolved[0].content == (SHOWN,)
    assert [note.name for note in notes] == ["new.csv"]


async def test_files_that_no_one_will_look_at_are_named_and_not_read():
    bad = MediaPart(mime_type="application/pdf", data=encoded(b"no pdf"), filename="old.pdf")
    messages = [user(TextPart("see"), bad), AssistantMessage(content="ok"), user(NOTE)]
    resolved, notes = await FileReader().resolve(messages, first=2)
    assert [message.content for message in resolved] == [(TextPart("see"), TextPart("[File old.pdf]")), "ok", (SHOWN,)]
    assert [note.name for note in notes] == ["note.txt"]


async def test_limits_are_those_of_one_message():
    reader = FileReader(FileLimits(max_files=2, max_base64_bytes=10))
    resolved, _ = await reader.resolve([user(NOTE, NOTE), AssistantMessage(content="ok"), user(NOTE, NOTE)])
    assert len(resolved) == 3
    with pytest.raises(InvalidRequest, match="3 files are too many"):
        await reader.resolve([user(NOTE, NOTE, NOTE)])
    with pytest.raises(PayloadTooLarge, match="limit for files in JSON"):
        await reader.resolve([user(MediaPart(mime_type="text/plain", data=encoded(b"x" * 11)))])
