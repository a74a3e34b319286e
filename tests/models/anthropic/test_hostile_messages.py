"""Messages streams that lie: wrong types, missing members, shuffled events. Only errors that the exchange knows may come."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.errors import ModelError
from holodeck.models.anthropic.content_blocks import KEPT
from holodeck.models.anthropic.message_answer import MessageAnswer
from holodeck.models.anthropic.message_request import body_of
from holodeck.models.chunks import InBandError, Malformed
from holodeck.models.endpoint_settings import EndpointSettings
from holodeck.models.port import Prompt
from holodeck.models.response_body import AnswerStream
from holodeck.models.streamed import encoded
from tests.models.anthropic.message_streams import SHAPES
from tests.models.recording_listener import RecordingListener

KNOWN = (ModelError, InBandError, Malformed)
EVENTS = [event for shape in SHAPES.values() for event in shape.events if isinstance(event, dict)]
WORDS = ["text", "thinking", "tool_use", "server_tool_use", "web_search_tool_result", "citations_delta", "x", ""]
odd = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | st.sampled_from(WORDS) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([*WORDS, "type", "id"]), inner, max_size=3)
    ),
    max_leaves=4,
)


@st.composite
def broken(draw: st.DrawFn) -> dict:
    """A real event with one member, at any depth, replaced or left out."""
    event = json.loads(json.dumps(draw(st.sampled_from(EVENTS))))
    place, depth = event, draw(st.integers(0, 3))
    for _ in range(depth):
        inner = [value for value in place.values() if isinstance(value, dict) and value]
        if not inner:
            break
        place = draw(st.sampled_from(inner))
    name = draw(st.sampled_from(sorted(place)))
    if draw(st.booleans()):
        place[name] = draw(odd)
    else:
        del place[name]
    return event


def read(events: list, listener: RecordingListener):
    answer = AnswerStream(MessageAnswer(listener))
    for event in events:
        answer.feed(f"data: {json.dumps(event)}\n\n".encode())
    return answer.end()


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(EVENTS) | broken(), max_size=12))
def test_whatever_comes_the_listener_and_the_next_request_are_sound(events):
    listener = RecordingListener()
    try:
        reply = read(events, listener)
    except KNOWN:
        reply = None
    started = [piece[1] for piece in listener.recorded if piece[0] == "started"]
    ended = [piece[1] for piece in listener.recorded if piece[0] == "ended"]
    answered = [piece[1] for piece in listener.recorded if piece[0] == "answered"]
    assert len(set(started)) == len(started)
    assert len(set(ended)) == len(ended)
    assert set(answered) <= set(ended) <= set(started)
    assert len(set(answered)) == len(answered)
    if reply is not None:
        assert sorted(reply.text) == sorted(listener.words)  # blocks that grow in turns are joined in their order
        assert sorted(reply.reasoning) == sorted(listener.thoughts)
        message = AssistantMessage(content=reply.text, tool_calls=reply.tool_calls, extra=reply.extra)
        prompt = Prompt(messages=(UserMessage(content="Hi"), message, UserMessage(content="And?")))
        sent = json.loads(encoded(body_of(EndpointSettings(name="m", provider="anthropic", cache="auto"), prompt)))
        assert [each["role"] for each in sent["messages"]] in (["user"], ["user", "assistant", "user"])
        assert all(isinstance(block, dict) for each in sent["messages"] for block in each["content"])


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(["content", "container"]), st.lists(odd, max_size=3) | odd, max_size=2))
def test_a_stored_message_that_was_edited_does_no_harm(kept):
    message = AssistantMessage(content="Yes", extra={KEPT: kept})
    prompt = Prompt(messages=(UserMessage(content="Hi"), message, UserMessage(content="And?")))
    sent = json.loads(encoded(body_of(EndpointSettings(name="m", provider="anthropic", cache="off"), prompt)))
    assert sent["messages"][-1]["content"][-1] == {"type": "text", "text": "And?"}
