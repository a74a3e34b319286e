"""Every shape of a Responses stream: what it means, and that no cut makes it mean something else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holodeck.errors import ContentFiltered, ModelError, ModelTruncated
from holodeck.models.chunks import InBandError, Malformed
from holodeck.models.openai_responses.growing_response import GrowingResponse
from holodeck.models.openai_responses.output_items import KEPT
from holodeck.models.port import ModelReply
from holodeck.models.response_body import AnswerStream
from tests.models.expected_reply import read_cut
from tests.models.openai_responses.response_streams import (
    OPENING,
    SHAPES,
    Shape,
    completed,
    ev,
    message,
    response,
    text_events,
)
from tests.models.recording_listener import RecordingListener


def read(body: bytes, *cuts: int) -> tuple[ModelReply, RecordingListener]:
    listener = RecordingListener()
    return read_cut(AnswerStream(GrowingResponse(listener)), body, *cuts), listener


def assert_means(shape: Shape, reply: ModelReply, listener: RecordingListener) -> None:
    shape.check(reply, listener)
    kept = reply.extra.get(KEPT, {}).get("items")
    assert (None if kept is None else [item["type"] for item in kept]) == shape.items


@pytest.mark.parametrize("name", SHAPES)
def test_a_stream_means_what_it_means(name):
    assert_means(SHAPES[name], *read(SHAPES[name].body))


@pytest.mark.parametrize("name", SHAPES)
def test_reads_of_one_byte_make_no_difference(name):
    body = SHAPES[name].body
    assert_means(SHAPES[name], *read(body, *range(len(body))))


@pytest.mark.parametrize("name", SHAPES)
def test_a_stream_that_is_cut_is_never_taken_for_a_whole_one(name):
    """At every byte: an error, or the whole answer; what the listener got is a beginning of it."""
    shape = SHAPES[name]
    for cut in range(len(shape.body)):
        listener = RecordingListener()
        stream = AnswerStream(GrowingResponse(listener))
        try:
            stream.feed(shape.body[:cut])
            reply = stream.end()
        except (ModelError, Malformed):
            assert shape.text.startswith(listener.words), cut
            assert shape.reasoning.startswith(listener.thoughts), cut
        else:
            assert_means(shape, reply, listener)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(sorted(SHAPES)), cuts=st.lists(st.integers(1, 4000), max_size=8))
def test_any_reads_make_no_difference(name, cuts):
    assert_means(SHAPES[name], *read(SHAPES[name].body, *(cut for cut in cuts if cut < len(SHAPES[name].body))))


ERRORS = {
    "an error event": {"type": "error", "code": "server_error", "message": "no", "param": None},
    "an error in an error event": {"type": "error", "error": {"code": "server_error", "message": "no"}},
    "failed": ev("failed", response=response("failed", error={"code": "server_error", "message": "no"})),
    "failed without a reason": ev("failed", response=response("failed")),
    "completed that failed": ev("completed", response=response("failed", error={"code": "rate_limit_exceeded", "message": "no"})),
    "cancelled": ev("cancelled", response=response("cancelled")),
    "an error without a type": {"error": {"code": 502, "message": "no"}},
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_a_failure_inside_the_stream_is_one(name):
    with pytest.raises(InBandError) as caught:
        read(Shape([*OPENING, *text_events(0, "Hi")[:3], ERRORS[name]]).body)
    assert "no" in str(caught.value.value) or "was" in str(caught.value.value)


REFUSALS = {
    "deltas": [
        ev("refusal.delta", item_id="msg_1", output_index=0, content_index=0, delta="I can"),
        ev("refusal.delta", item_id="msg_1", output_index=0, content_index=0, delta="not."),
        ev("refusal.done", item_id="msg_1", output_index=0, content_index=0, refusal="I cannot."),
        completed(message("", content=[{"type": "refusal", "refusal": "I cannot."}])),
    ],
    "done only": [completed(message("", content=[{"type": "refusal", "refusal": "I cannot."}]))],
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_shown_and_is_an_error(name):
    listener = RecordingListener()
    stream = AnswerStream(GrowingResponse(listener))
    stream.feed(Shape([*OPENING, *REFUSALS[name]]).body)
    with pytest.raises(ContentFiltered):
        stream.end()
    assert listener.words == "I cannot."


def test_the_filter_of_the_provider_is_an_error():
    end = ev("incomplete", response=response("incomplete", incomplete_details={"reason": "content_filter"}))
    with pytest.raises(ContentFiltered):
        read(Shape([*OPENING, *text_events(0, "Hi")[:3], end]).body)


def test_an_end_without_an_end_is_an_error():
    with pytest.raises(ModelTruncated):
        read(Shape([*OPENING, *text_events(0, "Hi")]).body)


def test_a_failed_tool_of_the_provider_is_shown_as_failed():
    _, listener = read(SHAPES["openai: MCP call that failed"].body)
    assert [piece for piece in listener.recorded if piece[0] == "answered"] == [("answered", "mcp_1", "no", "failed")]


def test_kept_items_are_the_received_items():
    reply, _ = read(SHAPES["openai: web search with citations"].body)
    search, text = reply.extra[KEPT]["items"]
    assert search["action"] == {"type": "search", "query": "tides"}
    assert text["content"][0]["annotations"][0]["url"] == "https://example.org/"
    reply, _ = read(SHAPES["openai: reasoning with two summaries, then text"].body)
    assert reply.extra[KEPT]["items"][0]["encrypted_content"] == "gAAAAA-secret"


def test_debug_passes_the_events_on():
    listener = RecordingListener()
    stream = AnswerStream(GrowingResponse(listener, debug=True))
    stream.feed(SHAPES["openai: text"].body)
    assert stream.end().text == "Hello wörld 😀"
    assert [raw["type"] for raw in listener.raws][:3] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
    ]


def test_only_keepalives_show_that_the_model_still_reasons():
    answer = GrowingResponse(RecordingListener())
    for name, data in ((b"", b'{"type":"ping"}'), (b"ping", b"{}")):
        answer.take(name, data)
    assert answer.progress == 0
    answer.take(b"", b'{"type":"keepalive","sequence_number":3}')
    answer.take(b"keepalive", b'{"type":"keepalive","sequence_number":4}')
    assert (answer.progress, answer.started) == (2, False)
