"""Whatever JSON an endpoint sends in whatever place: a reply or a typed failure, and always text that can be stored."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.core.secrets import Redactor
from holodeck.errors import ModelError
from holodeck.models.answer import Answer
from holodeck.models.chunks import InBandError, Malformed
from holodeck.models.diagnosis import Diagnosis, EndpointRefusal
from holodeck.models.response_body import AnswerStream
from tests.models.endpoint import DONE
from tests.models.recording_listener import RecordingListener

NAMES = st.sampled_from(
    ["index", "id", "function", "name", "arguments", "content", "type", "text", "thinking", "google", "thought", "x"]
)
TEXTS = st.text(st.characters(), max_size=4) | st.sampled_from(["\ud83d", "\ude00", "\x00", "stop", "{}", "0"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
CALLS = st.lists(st.dictionaries(NAMES, JSON, max_size=4) | JSON, max_size=3) | JSON
DELTAS = JSON | st.fixed_dictionaries(
    {},
    optional={
        "role": JSON,
        "content": JSON,
        "tool_calls": CALLS,
        "reasoning": JSON,
        "reasoning_content": JSON,
        "function_call": JSON,
        "extra_content": JSON,
        "reasoning_details": JSON,
        "refusal": st.none() | JSON,
    },
)
CHOICES = JSON | st.fixed_dictionaries(
    {}, optional={"index": JSON, "delta": DELTAS, "message": DELTAS, "finish_reason": JSON, "usage": JSON}
)
CHUNKS = JSON | st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(CHOICES, max_size=2) | JSON,
        "usage": JSON,
        "error": st.none() | JSON,
        "x_groq": JSON,
    },
)


@pytest.mark.req("A10", "A21", "T22")
@given(st.lists(CHUNKS, max_size=5))
def test_no_chunk_can_break_the_reader(values):
    listener = RecordingListener()
    stream = AnswerStream(Answer(listener))
    try:
        for value in values:
            stream.feed(b"data: " + json.dumps(value).encode() + b"\n\n")
        stream.feed(DONE)
        reply = stream.end()
    except (ModelError, InBandError, Malformed):
        reply = None
    msgspec.json.encode([listener.recorded, reply])  # fails on a lone surrogate
    assert "\\u0000" not in json.dumps(listener.recorded)


@pytest.mark.req("A10")
@given(st.binary(max_size=200), st.sampled_from(["text/event-stream", "application/json", "text/html"]))
def test_no_bytes_can_break_the_reader(body, content_type):
    """They are a typed error or, with nothing but `[DONE]`, an empty reply: the loop makes an error of that."""
    stream = AnswerStream(Answer(RecordingListener()), content_type=content_type)
    try:
        stream.feed(body)
        reply = stream.end()
    except (ModelError, InBandError, Malformed):
        return
    assert (reply.text, reply.tool_calls) == ("", ())


def test_a_stream_with_nothing_but_its_end_is_an_empty_reply():
    stream = AnswerStream(Answer(RecordingListener()), content_type="text/event-stream")
    stream.feed(b"data:[DONE]\n\n")
    assert stream.end().text == ""


@pytest.mark.req("A17", "A20")
@given(JSON, st.integers(300, 599), st.booleans())
def test_every_error_becomes_a_typed_one(value, status, started):
    diagnosis = Diagnosis(where="host", model="m", key_advice="KEY", has_key=True, redact=Redactor(["secret"]))
    errors = [
        diagnosis.of_error(value, started=started),
        diagnosis.of_response(EndpointRefusal(status=status, body=json.dumps(value).encode())),
    ]
    for error in errors:
        assert isinstance(error, ModelError)
        str(error).encode()
        assert len(str(error)) < 500
