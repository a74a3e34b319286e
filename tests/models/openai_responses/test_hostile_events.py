"""Events with anything in any member: an answer or one of our errors, never a defect; the listener's rules always hold."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from holodeck.core.messages import AssistantMessage
from holodeck.errors import ModelError
from holodeck.models.chunks import InBandError, Malformed
from holodeck.models.openai_responses.event_decoding import TERMINAL, ResponseEvent
from holodeck.models.openai_responses.growing_response import GrowingResponse
from holodeck.models.openai_responses.input_items import to_input
from holodeck.models.response_body import AnswerStream
from tests.models.recording_listener import RecordingListener

WORDS = st.sampled_from(
    [
        "",
        "a",
        "{}",
        "msg_1",
        "fc_1",
        "message",
        "reasoning",
        "function_call",
        "web_search_call",
        "mcp_call",
        "\ud800",
        "😀",
        "\x00",
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats(allow_nan=True) | WORDS,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["id", "type", "content", "text", "summary", "arguments", "call_id", "name", "output", "status", "error", "usage", "action", "tools", "annotations", "incomplete_details", "reason", "input_tokens", "output_tokens", "refusal", "encrypted_content"]),
        inner,
        max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip
KINDS = st.sampled_from(
    [
        *TERMINAL, "response.output_item.added", "response.output_item.done", "response.output_text.delta",
        "response.output_text.done", "response.content_part.done", "response.refusal.done", "response.custom_tool_call_input.done",
        "response.function_call_arguments.delta", "response.function_call_arguments.done", "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta", "response.output_text.annotation.added", "response.created", "x", "", None, 7,
    ]
)  # fmt: skip
EVENTS = st.builds(
    lambda kind, members: {"type": kind, **members},
    KINDS,
    st.dictionaries(
        st.sampled_from([name for name in ResponseEvent.__struct_fields__ if name != "type"]), ANYTHING, max_size=6
    ),
)


def assert_rules(listener: RecordingListener) -> None:
    """Every call is started once, before its arguments; ended once; answered after its end."""
    started, ended = set(), set()
    for kind, *rest in listener.recorded:
        if kind == "started":
            assert rest[0] not in started
            started.add(rest[0])
        elif kind == "arguments":
            assert rest[0] in started - ended
        elif kind == "ended":
            assert rest[0] in started - ended
            ended.add(rest[0])
        elif kind == "answered":
            assert rest[0] in ended


@settings(max_examples=100, deadline=None)
@given(events=st.lists(EVENTS, max_size=8), done=st.booleans())
def test_no_event_breaks_the_reader(events, done):
    listener = RecordingListener()
    stream = AnswerStream(GrowingResponse(listener))
    frames = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    try:
        for frame in [*frames, *([b"data: [DONE]\n\n"] if done else [])]:
            stream.feed(frame)
        reply = stream.end()
    except (ModelError, InBandError, Malformed):
        pass
    else:
        assert reply.text == listener.words
        assert reply.reasoning == listener.thoughts
        json.dumps(
            to_input([AssistantMessage(content=reply.text, tool_calls=reply.tool_calls, extra=reply.extra)])
        ).encode()
    assert_rules(listener)
    for kind, *rest in listener.recorded:
        assert kind == "warning" or "".join(rest).encode()
