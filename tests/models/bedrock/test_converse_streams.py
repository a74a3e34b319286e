"""Every shape of a Converse stream: what it means, wherever it is cut, and that botocore's own parser agrees."""

from base64 import b64decode, b64encode

import pytest
from botocore.eventstream import EventStreamBuffer
from botocore.parsers import EventStreamJSONParser

from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.errors import (
    ContentFiltered,
    ContextOverflow,
    ModelProtocolError,
    ModelTruncated,
)
from holodeck.models.anthropic.content_blocks import KEPT
from holodeck.models.bedrock.converse_answer import ConverseAnswer
from holodeck.models.bedrock.converse_model import MAX_FRAME, FramedStream
from holodeck.models.bedrock.converse_request import body_of
from holodeck.models.chunks import InBandError, Malformed
from holodeck.models.endpoint_settings import EndpointSettings
from holodeck.models.port import ModelReply, Prompt
from tests.models.bedrock.converse_api import converse_operation
from tests.models.bedrock.converse_streams import (
    SHAPES,
    START,
    Shape,
    delta,
    end,
    failure,
    frame,
    raw_frame,
    start,
    stop,
    text_block,
    thought,
)  # fmt: skip
from tests.models.expected_reply import read_cut
from tests.models.recording_listener import RecordingListener

every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
HINT = "it is the part before /model/"


def reader(listener: RecordingListener | None = None, **options) -> FramedStream:
    return FramedStream(ConverseAnswer(listener or RecordingListener(), **options), hint=HINT)


def read(body: bytes, *cuts: int) -> tuple[ModelReply, RecordingListener]:
    listener = RecordingListener()
    return read_cut(reader(listener), body, *cuts), listener


@every_shape
def test_what_a_stream_means(shape: Shape):
    reply, listener = read(shape.body)
    shape.check(reply, listener)
    assert reply.extra.get(KEPT, {}).get("content") == shape.kept
    assert len(listener.ended) == len(shape.calls) + len(shape.shown)


@every_shape
def test_a_stream_may_be_cut_at_every_byte(shape: Shape):
    """Fed byte by byte it means the same; until it is whole, its end is an error that changes nothing."""
    body = shape.body
    whole, _ = read(body)
    listener = RecordingListener()
    answer = reader(listener)
    for at in range(len(body)):
        if answer.answer.finish_reason is None and not answer.answer.done and body[:1] != b"{":
            with pytest.raises((ModelTruncated, ModelProtocolError)):
                answer.end()
            assert whole.text.startswith(listener.words), at
        elif body[:1] != b"{":
            reply, _ = read(body[:at])
            assert (reply.text, reply.tool_calls, reply.finish_reason) == (
                whole.text, whole.tool_calls, whole.finish_reason,
            ), at  # fmt: skip
        answer.feed(body[at : at + 1])
    assert answer.end() == whole


@pytest.mark.parametrize("name", ["text", "one call", "a whole answer"])
def test_a_stream_cut_in_two_anywhere_means_the_same(name):
    body = SHAPES[name].body
    whole, _ = read(body)
    for cut in range(len(body)):
        assert read(body, cut)[0] == whole, cut


@every_shape
def test_what_is_kept_goes_back_in_its_order(shape: Shape):
    reply, _ = read(shape.body)
    message = AssistantMessage(content=reply.text, tool_calls=reply.tool_calls, extra=reply.extra)
    sent = body_of(
        EndpointSettings(name="m", provider="bedrock"), Prompt(messages=[UserMessage(content="Hi"), message])
    )["messages"]
    kinds = [next(iter(block)) for each in sent[1:] for block in each["content"]]
    named = {
        "thinking": "reasoningContent", "redacted_thinking": "reasoningContent", "text": "text", "tool_use": "toolUse",
        "server_tool_use": "toolUse", "server_tool_result": "toolResult", "image": "image",
    }  # fmt: skip
    expected = [named[block["type"]] for block in shape.kept or []]
    if shape.kept is None:
        expected = ["text"] * bool(shape.text) + ["toolUse"] * len(shape.calls)
    assert kinds == ([] if expected == ["reasoningContent"] else expected)


@pytest.mark.parametrize("kind", ["hidden thoughts", "an image"])
def test_the_pieces_of_a_blob_are_each_decoded_once(kind, monkeypatch):
    """A blob that comes in many small pieces takes time in proportion to its length, not to its square."""
    decoded = []
    monkeypatch.setattr(
        "holodeck.models.bedrock.converse_answer.b64decode", lambda text: decoded.append(text) or b64decode(text)
    )
    pieces = [b64encode(bytes([number])).decode() for number in range(200)]
    if kind == "an image":
        grown = [delta(0, {"image": {"source": {"bytes": piece}}}) for piece in pieces]
        body = [START, start(0, image={"format": "png"}), *grown, stop(0), *text_block(1, "Here."), *end()]
    else:
        grown = [delta(0, {"reasoningContent": {"redactedContent": piece}}) for piece in pieces]
        body = [START, *grown, stop(0), *text_block(1, "Fine."), *end()]
    reply, _ = read(b"".join(frame(*event) for event in body))
    block = reply.extra[KEPT]["content"][0]
    assert b64decode(block["source"]["data"] if kind == "an image" else block["data"]) == bytes(range(200))
    assert decoded == pieces


# botocore's own parser


def official(body: bytes) -> list[dict]:
    """The events as an application of botocore gets them."""
    frames = EventStreamBuffer()
    frames.add_data(body)
    return [
        EventStreamJSONParser().parse(each.to_response_dict(), converse_operation().get_event_stream_output())
        for each in frames
    ]


@pytest.mark.parametrize("shape", [pytest.param(s, id=name) for name, s in SHAPES.items() if s.oracle])
def test_the_official_parser_agrees(shape: Shape):
    reply, _ = read(shape.body)
    events = official(shape.body)
    deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
    reasoning = [each["reasoningContent"] for each in deltas if "reasoningContent" in each]
    assert "".join(each.get("text", "") for each in deltas) == reply.text
    assert "".join(each.get("text", "") for each in reasoning) == reply.reasoning
    blocks = reply.extra.get(KEPT, {}).get("content", ())
    assert "".join(each.get("signature", "") for each in reasoning) == "".join(
        block.get("signature", "") for block in blocks
    )
    redacted = b"".join(each.get("redactedContent", b"") for each in reasoning)
    assert b64encode(redacted).decode() == "".join(block.get("data", "") for block in blocks)
    starts = [event["contentBlockStart"]["start"] for event in events if "contentBlockStart" in event]
    theirs = [each["toolUse"] for each in starts if "toolUse" in each and "type" not in each["toolUse"]]
    assert [(use["toolUseId"], use["name"]) for use in theirs] == [(call.id, call.name) for call in reply.tool_calls]
    usage = next((event["metadata"]["usage"] for event in events if "metadata" in event), None)
    if usage is not None:
        cached = usage.get("cacheReadInputTokens", 0) + usage.get("cacheWriteInputTokens", 0)
        assert usage["inputTokens"] + cached == reply.usage.prompt_tokens
        assert usage["outputTokens"] == reply.usage.completion_tokens


# what is no answer


@pytest.mark.parametrize("reason", ["guardrail_intervened", "content_filtered"])
def test_a_filter_is_an_error(reason):
    with pytest.raises(ContentFiltered, match="content filter"):
        read(Shape([START, *text_block(0, "Sorry."), *end(reason)]).body)


def test_a_full_window_without_a_word_is_an_overflow():
    with pytest.raises(ContextOverflow):
        read(Shape([START, *thought(0, "Hm."), *end("model_context_window_exceeded")]).body)


@pytest.mark.parametrize("reason", ["malformed_model_output", "malformed_tool_use"])
def test_what_the_model_garbled_is_an_error(reason):
    with pytest.raises(ModelProtocolError, match="cannot read"):
        read(Shape([START, *end(reason)]).body)


@pytest.mark.parametrize(
    ("name", "payload", "status"),
    [
        ("throttlingException", {"message": "Too many requests"}, 429),
        ("serviceUnavailableException", {"message": "Down"}, 503),
        ("internalServerException", {"message": "Oops"}, 500),
        ("modelStreamErrorException", {"message": "m", "originalStatusCode": 400, "originalMessage": "o"}, 500),
        ("modelStreamErrorException", {"message": "m", "originalStatusCode": 529}, 529),
        ("modelTimeoutException", {"message": "Slow"}, 408),
        ("validationException", {"message": "Bad"}, 400),
        ("someNewException", {}, 500),
    ],
)
def test_an_exception_in_the_stream_has_its_status(name, payload, status):
    with pytest.raises(InBandError) as caught:
        read(Shape([START, failure(name, **payload)]).body)
    assert caught.value.value["status"] == status
    assert caught.value.value["message"] == payload.get("message", name)


def test_an_error_frame_has_its_code():
    body = raw_frame({":message-type": "error", ":error-code": "InternalError", ":error-message": "Oops"}, b"")
    with pytest.raises(InBandError) as caught:
        read(body)
    assert caught.value.value == {"type": "InternalError", "message": "Oops"}


@pytest.mark.parametrize("at", [2, 9, 30, -2])
def test_a_damaged_frame_is_an_error(at):
    broken = bytearray(frame(*delta(0, {"text": "Hello"})))
    broken[at] ^= 0xFF
    with pytest.raises((ModelProtocolError, ModelTruncated)):
        read(bytes(broken))


def test_a_frame_without_an_end_is_bounded():
    answer = reader()
    answer.feed(raw_frame({":message-type": "event"}, bytes(MAX_FRAME + 1))[:100])
    answer.feed(bytes(MAX_FRAME - 100))
    with pytest.raises(ModelProtocolError, match="more than 8,000,000 bytes"):
        answer.feed(b"\x00")


def test_a_payload_that_is_not_json_is_malformed():
    with pytest.raises(Malformed):
        read(raw_frame({":message-type": "event", ":event-type": "contentBlockDelta"}, b"no json"))


def test_a_stream_without_a_frame_is_cut():
    with pytest.raises(ModelTruncated):  # worth another try
        read(b"")


@pytest.mark.parametrize("body", [b"<html>", b'{"hello": 1}', b"data: {}\n\n"])
def test_a_body_of_something_else_says_so(body):
    with pytest.raises((ModelProtocolError, ModelTruncated)):
        read(body)


def test_the_providers_events_are_shown_for_debugging():
    listener = RecordingListener()
    answer = reader(listener, debug=True)
    answer.feed(SHAPES["text"].body)
    assert answer.end().text == "Hello world"
    assert [event["type"] for event in listener.raws] == [event[0] for event in SHAPES["text"].events]
