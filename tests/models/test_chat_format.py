"""Messages in OpenAI's form and back."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.core.messages import AssistantMessage, MediaPart, TextPart, ToolCall, ToolMessage, UserMessage
from holodeck.errors import InvalidRequest
from holodeck.models.chat_format import from_chat, message_to_chat, system_of, to_chat
from holodeck.models.port import Prompt

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
NAMES = st.text(string.ascii_lowercase + "_", min_size=1, max_size=10)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
EXTRA = st.dictionaries(NAMES.map("x_".__add__), JSON.filter(lambda value: value not in (None, "", {}, [])), max_size=2)
CALL_EXTRA = st.tuples(EXTRA, EXTRA).map(lambda pair: pair[0] | ({"function": pair[1]} if pair[1] else {}))
BASE64 = st.text(string.ascii_letters, min_size=4, max_size=8)
PARTS = st.one_of(
    WORDS.map(TextPart),
    BASE64.map(lambda data: MediaPart(mime_type="image/png", data=data)),
    BASE64.map(lambda data: MediaPart(mime_type="audio/wav", data=data)),
    st.builds(MediaPart, mime_type=st.just("application/pdf"), data=BASE64, filename=NAMES),
)
CONTENT = WORDS | st.lists(PARTS, min_size=1, max_size=3).map(tuple)
CALLS = st.lists(
    st.builds(ToolCall, id=NAMES, name=NAMES, arguments=WORDS.filter(bool), extra=CALL_EXTRA), max_size=3
).map(tuple)
MESSAGES = st.one_of(
    st.builds(UserMessage, content=CONTENT),
    st.builds(AssistantMessage, content=WORDS, tool_calls=CALLS, extra=EXTRA),
    st.builds(ToolMessage, call_id=NAMES, name=NAMES, content=WORDS),
)


@pytest.mark.req("AGT-01")
@given(st.lists(MESSAGES, max_size=5))
def test_there_and_back_is_the_same(messages):
    chats = [message_to_chat(message) for message in messages]
    assert [message_to_chat(message) for message in from_chat(chats)] == chats
    for before, after in zip(messages, from_chat(chats), strict=True):
        assert type(after) is type(before)
        assert after.content == before.content
        if isinstance(before, AssistantMessage):
            assert (after.tool_calls, after.extra) == (before.tool_calls, before.extra)


def test_a_prompt_begins_with_the_system_message():
    prompt = Prompt(
        system="Be brief.", messages=(UserMessage(content="Hi"), AssistantMessage(), UserMessage(content="?"))
    )
    assert to_chat(prompt) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "user", "content": "?"},
    ]
    assert to_chat(Prompt()) == []


@pytest.mark.req("SRV-07", "SRV-14")
@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (TextPart("x"), {"type": "text", "text": "x"}),
        (
            MediaPart(mime_type="image/png", data="QUJD"),
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        ),
        (
            MediaPart(mime_type="image/png", url="https://example.org/a.png"),
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        ),
        (
            MediaPart(mime_type="application/pdf", data="QUJD", filename="a.pdf"),
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QUJD"}},
        ),
        (
            MediaPart(mime_type="application/pdf", url="https://example.org/a.pdf"),
            {"type": "text", "text": "[application/pdf] https://example.org/a.pdf"},
        ),
    ],
)
def test_parts(part, expected):
    assert message_to_chat(UserMessage(content=(part,)))["content"] == [expected]


def test_a_call_without_arguments_is_sent_as_an_empty_object():
    message = AssistantMessage(tool_calls=(ToolCall(id="a", name="f", arguments=""),))
    assert message_to_chat(message)["tool_calls"][0]["function"]["arguments"] == "{}"


def test_a_tool_message_finds_its_name():
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    messages = from_chat(
        [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "a", "content": "1"}]
    )
    assert messages[1].name == "f"
    assert messages[0].tool_calls[0].arguments == '{"x": 1}'


def test_system_messages_are_read_apart():
    chats = [
        {"role": "system", "content": "A"},
        {"role": "user", "content": "Hi"},
        {"role": "developer", "content": [{"type": "text", "text": "B"}]},
    ]
    assert system_of(chats) == "A\n\nB"
    assert [message.content for message in from_chat(chats)] == ["Hi"]
    assert system_of([]) == ""


@pytest.mark.req("AGT-01")
@pytest.mark.parametrize(
    "chat",
    [
        {},
        {"role": "robot"},
        {"role": "user", "content": 5},
        {"role": "user", "content": [{"type": "hologram"}]},
        {"role": "user", "content": ["x"]},
        {"role": "tool", "content": "x"},
        {"role": "assistant", "tool_calls": "x"},
        {"role": "assistant", "tool_calls": [{"id": "a"}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]},
    ],
)
def test_an_invalid_message_is_refused_with_its_position(chat):
    with pytest.raises(InvalidRequest, match=r"messages\[1\]"):
        from_chat([{"role": "user", "content": "Hi"}, chat])


@pytest.mark.parametrize("text", ["\ud83d\ude00", "a\ud800", "\x00"])
def test_text_from_outside_is_cleaned(text):
    (message,) = from_chat([{"role": "user", "content": text}])
    message.content.encode()
    assert "\x00" not in message.content


@pytest.mark.parametrize("vision", [True, False])
def test_images_of_tools_follow_their_results_where_the_model_takes_images(vision):
    image = MediaPart(mime_type="image/png", data="aGk=")
    sound = MediaPart(mime_type="audio/wav", data="aGk=")
    messages = (
        UserMessage(content="look"),
        AssistantMessage(tool_calls=tuple(ToolCall(id=each, name="look", arguments="{}") for each in "ab")),
        ToolMessage(call_id="a", name="look", content=(TextPart(text="a duck"), image)),
        ToolMessage(call_id="b", name="look", content=(sound,)),
    )
    expected = ["user", "assistant", "tool", "tool"] + ["user"] * vision
    chats = to_chat(Prompt(messages=messages), vision=vision)
    assert [chat["role"] for chat in chats] == expected
    assert chats[2]["content"] == "a duck\n[image/png]"
    later = to_chat(Prompt(messages=(*messages, AssistantMessage(content="A duck."))), vision=vision)
    assert [chat["role"] for chat in later] == [*expected, "assistant"]
    if vision:
        assert chats[4]["content"] == [
            {"type": "text", "text": "Images that look returned:"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        ]
