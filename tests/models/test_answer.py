"""Whole streams into replies, without a socket: dialects, odd forms, and every way to be wrong."""

import json
import math

import pytest

from holodeck.core.messages import AssistantMessage, MediaPart
from holodeck.errors import ContentFiltered, ModelProtocolError, ModelTruncated
from holodeck.models.answer import Answer
from holodeck.models.chat_format import to_chat
from holodeck.models.chunks import InBandError, Malformed, merged, usage_of
from holodeck.models.port import Prompt
from holodeck.models.response_body import AnswerStream
from tests.models.endpoint import DONE, chunk, frame, text_frames
from tests.models.recording_listener import RecordingListener
from tests.models.streams import DIALECTS


def answer(body: bytes, *, slices: int | None = None, content_type: str = "text/event-stream", debug: bool = False):
    listener = RecordingListener()
    stream = AnswerStream(Answer(listener, debug=debug), content_type=content_type)
    size = slices or len(body) or 1
    for start in range(0, len(body), size):
        stream.feed(body[start : start + size])
    return stream.end(), listener


def chunks(*values) -> bytes:
    return b"".join(value if isinstance(value, bytes) else frame(value) for value in values)


@pytest.mark.req("A06", "A21", "A22", "A23", "A25", "A29")
@pytest.mark.parametrize("slices", [None, 1, 7])
@pytest.mark.parametrize("crlf", [False, True])
@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_is_understood(name, slices, crlf):
    dialect = DIALECTS[name]
    reply, listener = answer(dialect.body.replace(b"\n", b"\r\n") if crlf else dialect.body, slices=slices)
    assert reply.text == listener.words == dialect.text
    assert reply.reasoning == listener.thoughts == dialect.reasoning
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [call[1:] for call in dialect.calls]
    assert all(want in (None, got.id) for got, (want, *_) in zip(reply.tool_calls, dialect.calls, strict=True))
    assert reply.finish_reason == dialect.finish
    assert reply.usage == dialect.usage
    assert reply.extra == dialect.extra
    if dialect.call_extra:
        assert [call.extra for call in reply.tool_calls] == dialect.call_extra
    assert listener.warnings == dialect.warnings
    assert listener.ended == list(reply.tool_calls)


HI = chunk({"content": "Hi"})
END = chunk(finish="stop")

ODD_FORMS = {
    "no choices": {"id": "x"},
    "choices empty": {"choices": []},
    "choices null": {"choices": None},
    "choices of null": {"choices": [None]},
    "choice empty": {"choices": [{}]},
    "choices an object": {"choices": {"index": 0, "delta": {}}},
    "choices text": {"choices": "x"},
    "delta null": {"choices": [{"index": 0, "delta": None}]},
    "delta missing": {"choices": [{"index": 0}]},
    "delta a list": {"choices": [{"index": 0, "delta": []}]},
    "delta text": {"choices": [{"index": 0, "delta": "x"}]},
    "content null": {"choices": [{"index": 0, "delta": {"content": None}}]},
    "content empty list": {"choices": [{"index": 0, "delta": {"content": []}}]},
    "content of unknown parts": {"choices": [{"index": 0, "delta": {"content": [{"type": "x"}, None]}}]},
    "content true": {"choices": [{"index": 0, "delta": {"content": True}}]},
    "role repeated": {"choices": [{"index": 0, "delta": {"role": "assistant"}}]},
    "role null": {"choices": [{"index": 0, "delta": {"role": None}}]},
    "index missing": {"choices": [{"delta": {"content": ""}}]},
    "index null": {"choices": [{"index": None, "delta": {"content": ""}}]},
    "tool calls null": {"choices": [{"index": 0, "delta": {"tool_calls": None}}]},
    "tool calls empty": {"choices": [{"index": 0, "delta": {"tool_calls": []}}]},
    "tool calls of null": {"choices": [{"index": 0, "delta": {"tool_calls": [None]}}]},
    "tool calls text": {"choices": [{"index": 0, "delta": {"tool_calls": "x"}}]},
    "unknown members": {"choices": [{"index": 0, "delta": {}, "foo": [1], "bar": {}}], "foo": {}, "timings": {}},
    "error null": {"choices": [], "error": None},
    "error empty": {"choices": [], "error": {}},
    "finish reason null": {"choices": [{"index": 0, "delta": {}, "finish_reason": None}]},
    "finish reason empty": {"choices": [{"index": 0, "delta": {}, "finish_reason": ""}]},
    "usage a list": {"choices": [], "usage": []},
    "a huge number": {"choices": [], "created": 10**30},
}


@pytest.mark.req("A21")
@pytest.mark.parametrize("form", ODD_FORMS)
def test_odd_forms_are_tolerated(form):
    reply, listener = answer(chunks(ODD_FORMS[form], HI, ODD_FORMS[form], END, ODD_FORMS[form], DONE))
    assert reply.text == "Hi"
    assert listener.recorded == [("text", "Hi")]


@pytest.mark.req("A21")
def test_nan_and_control_characters_do_not_hurt():
    body = b'data: {"choices":[{"index":0,"delta":{"content":"a\tb"},"logprob":NaN}],"x":1e999}\n\n'
    assert answer(body + frame(END))[0].text == "a\tb"


USAGES = {
    "null": (None, None),
    "plain": ({"prompt_tokens": 1, "completion_tokens": 2}, (1, 2)),
    "negative": ({"prompt_tokens": -1, "completion_tokens": 2}, None),
    "null figures": ({"prompt_tokens": None, "completion_tokens": None, "total_tokens": 3}, None),
    "floats": ({"prompt_tokens": 1.0, "completion_tokens": 2.0}, (1, 2)),
    "half a token": ({"prompt_tokens": 1.5, "completion_tokens": 2}, None),
    "text": ({"prompt_tokens": "1", "completion_tokens": "2"}, None),
    "booleans": ({"prompt_tokens": True, "completion_tokens": True}, None),
    "other names": ({"input_tokens": 1, "output_tokens": 2}, (1, 2)),
    "only the total": ({"total_tokens": 3}, None),
    "total less than prompt": ({"prompt_tokens": 5, "total_tokens": 3}, None),
    "empty": ({}, None),
    "thoughts beside the completion (Gemini)": (
        {"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623},
        (20, 603),
    ),
    "thoughts beside the completion (Grok)": (
        {
            "prompt_tokens": 900,
            "completion_tokens": 9,
            "total_tokens": 1142,
            "prompt_tokens_details": {"cached_tokens": 800},
            "completion_tokens_details": {"reasoning_tokens": 233},
        },
        (900, 242),
    ),
    "total less than the sum": ({"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 7}, (5, 4)),
    "cached tokens beside the prompt": (
        {
            "prompt_tokens": 5,
            "completion_tokens": 2,
            "total_tokens": 107,
            "prompt_tokens_details": {"cached_tokens": 100},
        },
        (5, 2),
    ),
    "cached and written tokens beside the prompt": (
        {
            "prompt_tokens": 5,
            "completion_tokens": 2,
            "total_tokens": 137,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 30,
        },
        (5, 2),
    ),
}


@pytest.mark.req("A22", "CHT-06")
@pytest.mark.parametrize("form", USAGES)
def test_usage_is_never_invented(form):
    value, expected = USAGES[form]
    usage = usage_of(value)
    assert (usage and (usage.prompt_tokens, usage.completion_tokens)) == expected


@pytest.mark.parametrize(
    ("reported", "cost"),
    [
        (0.0012, 0.0012),
        (0, 0.0),
        (None, None),
        ("0.1", None),
        (-1, None),
        (True, None),
        (math.inf, None),
        ({}, None),
    ],
)
def test_a_gateway_may_say_what_it_charged(reported, cost):
    usage = usage_of({"prompt_tokens": 1, "completion_tokens": 2, "cost": reported})
    assert usage is not None
    assert usage.cost == cost


def test_xai_says_in_ticks_what_it_charged():
    usage = usage_of({"prompt_tokens": 1, "completion_tokens": 2, "cost_in_usd_ticks": 5_421_500})
    assert usage is not None
    assert usage.cost == pytest.approx(0.00054215)


@pytest.mark.parametrize(
    "reported",
    [
        {"prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 3}},
        {"input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 3}},
        {"cached_tokens": 8},
        {"prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 2},
        {"num_cached_tokens": 8},
    ],
)
def test_cached_tokens_have_many_names(reported):
    usage = usage_of({"prompt_tokens": 10, "completion_tokens": 2, **reported})
    assert usage is not None
    assert usage.cached_tokens == 8
    assert usage.cache_write_tokens == (3 if "cache_write_tokens" in str(reported) else None)


def test_an_image_in_a_delta_is_shown_and_goes_back():
    image = {"type": "image_url", "image_url": {"url": "data:image/webp;base64,aGk="}, "index": 0}
    reply, listener = answer(chunks(chunk({"content": "", "images": [image]}), chunk({}, finish="stop"), DONE))
    ((_, _, content, _),) = [piece for piece in listener.recorded if piece[0] == "answered"]
    assert content == (MediaPart(mime_type="image/webp", data="aGk="),)
    assert [call.name for call in listener.ended] == ["image_generation"]
    assert (reply.tool_calls, listener.warnings) == ((), [])
    kept = AssistantMessage(content=reply.text, extra=reply.extra)
    assert to_chat(Prompt(messages=[kept])) == [{"role": "assistant", "content": "", "images": [image]}]


@pytest.mark.req("A22")
def test_the_last_usage_that_makes_sense_wins():
    growing = [chunk({"content": "x"}, usage={"prompt_tokens": 1, "completion_tokens": n}) for n in (1, 2, 3)]
    nonsense = {"choices": [], "usage": {"prompt_tokens": -1, "completion_tokens": -1}}
    usage = answer(chunks(*growing, END, nonsense, DONE))[0].usage
    assert usage is not None
    assert usage.completion_tokens == 3


MALFORMED = [
    b"{", b"}", b"[", b"null", b"1", b'"x"', b"true", b"[1]", b"[]", b"x", b"{x}", b"{'a':1}", b'{"a":}', b'{"a":1,}',
    b'{"a" 1}', b'{"a":1}}', b'{"a":1} x', b'{"choices":[{]}', b'{"choices":[', b'{"a":"', b'{"a":"\\x"}', b'{"a":01}',
    b'{"a":+1}', b"undefined", b"<html>", b"\x00", b"\xff\xfe", b"[" * 5000, b'{"a":tru}', b'{"choices": [}',
]  # fmt: skip


@pytest.mark.req("A10")
@pytest.mark.parametrize("data", MALFORMED, ids=lambda data: repr(data[:16]))
def test_a_malformed_event_is_not_tolerated(data):
    with pytest.raises(Malformed):
        answer(b"data: " + data + b"\n\n" + chunks(HI, END, DONE))


@pytest.mark.req("A11")
@pytest.mark.parametrize("text", ["😀", "é", "日本", "a\u2028b\u0085c\x0bd"])
@pytest.mark.parametrize("cut", range(1, 5))
def test_characters_cut_between_reads_stay_whole(text, cut):
    body = f'data: {{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}\n\n'.replace("\x0b", "\\u000b").encode()
    at = body.index(text[0].encode()) + cut
    listener = RecordingListener()
    stream = AnswerStream(Answer(listener))
    for piece in (body[:at], body[at:], frame(END)):
        stream.feed(piece)
    assert stream.end().text == text


INVALID_UTF8 = [
    b"\xff", b"\xfe", b"\x80", b"\xbf", b"\xc0\x80", b"\xc3", b"\xc3x", b"\xe2\x82", b"\xe2\x82x", b"\xed\xa0\x80",
    b"\xed\xbf\xbf", b"\xf0\x9f\x98", b"\xf0\x9f\x98x", b"\xf4\x90\x80\x80", b"\xf5", b"\xf8", b"\xfc", b"\xe0\x80\x80",
    b"\xc1\xbf", b"\xf0\x80\x80\x80",
]  # fmt: skip


@pytest.mark.req("A12")
@pytest.mark.parametrize("data", INVALID_UTF8, ids=repr)
def test_invalid_utf8_is_replaced_with_one_warning(data):
    event = b'data: {"choices":[{"index":0,"delta":{"content":"a' + data + b'b"}}]}\n\n'
    reply, listener = answer(event + event + frame(END))
    assert reply.text.startswith("a\ufffd")
    assert reply.text.endswith("b")
    assert listener.warnings == ["invalid-utf8"]
    reply.text.encode()


@pytest.mark.req("A13")
@pytest.mark.parametrize("member", ["content", "reasoning_content"])
def test_halves_of_a_character_are_joined_before_they_are_emitted(member):
    halves = [
        chunk({member: "a\ud83d"}),
        chunk({member: "\ude00b"}),
        chunk({member: "\ud83d"}),
        chunk({member: "c\x00"}),
    ]
    reply, listener = answer(chunks(*halves, chunk({member: "\ud83d"}), END))
    pieces = [piece[1] for piece in listener.recorded if piece[0] != "warning"]
    assert pieces == ["a", "😀b", "\ufffdc", "\ufffd"]
    assert "".join(pieces) == (reply.text or reply.reasoning)


@pytest.mark.req("A05")
@pytest.mark.parametrize(
    "frames",
    [[], [b": ping\n\n"], [frame(chunk({"role": "assistant"}))], [frame(HI)], [frame(HI), b'data: {"choices":[{"ind']],
)
def test_a_stream_that_just_ends_is_truncated(frames):
    with pytest.raises(ModelTruncated):
        answer(b"".join(frames))


@pytest.mark.req("A06")
def test_a_last_event_without_its_blank_line_counts():
    assert answer(frame(HI) + frame(END).rstrip())[0].text == "Hi"
    assert answer(frame(HI) + b"data: [DONE]")[0].text == "Hi"


@pytest.mark.req("A06")
def test_events_without_blank_lines_between_them_are_read():
    body = frame(HI).replace(b"\n\n", b"\n") + frame(END).replace(b"\n\n", b"\n") + b"data: [DONE]\n"
    assert answer(body)[0].text == "Hi"


COMPLETION = {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1},
}


@pytest.mark.req("A16")
@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream", "text/plain", ""])
@pytest.mark.parametrize("slices", [None, 5])
def test_a_plain_completion_is_taken_as_one_chunk(content_type, slices):
    body = json.dumps(COMPLETION, indent=2).encode()
    reply, listener = answer(b"\n" + body, content_type=content_type, slices=slices)
    assert (reply.text, listener.words, reply.finish_reason) == ("Hi", "Hi", "stop")
    assert reply.usage is not None


@pytest.mark.req("A16")
@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html", b"<!doctype html><html></html>"),
        ("text/event-stream", b"\n <html>"),
        ("application/json", b'{"status":"ok"}'),
        ("application/json", b""),
        ("text/plain", b"It works!"),
        ("application/octet-stream", b"\x89PNG"),
    ],
)
def test_a_response_that_is_not_a_stream_is_reported(content_type, body):
    with pytest.raises(ModelProtocolError, match="/v1"):
        answer(body, content_type=content_type)


@pytest.mark.req("A16")
@pytest.mark.parametrize("content_type", ["text/html", "application/json", "text/plain"])
def test_a_stream_with_the_wrong_content_type_is_read(content_type):
    assert answer(b"".join(text_frames("Hi")), content_type=content_type)[0].text == "Hi"


@pytest.mark.req("A14")
def test_a_huge_body_is_refused():
    with pytest.raises(ModelProtocolError, match="huge"):
        answer(b'{"a":"' + b"x" * 2_000_000, slices=65_536, content_type="application/json")


IN_BAND_ERRORS = {
    "object": frame({"error": {"message": "boom", "code": 502}}),
    "text": frame({"error": "boom"}),
    "beside choices": frame({"choices": [], "error": {"message": "boom"}}),
    "in the choice": frame(
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": {"message": "boom"}}]}
    ),
    "event": b'event: error\ndata: {"message":"boom"}\n\n',
    "event with an error": b'event: error\ndata: {"error":{"message":"boom"}}\n\n',
    "event of text": b"event: error\ndata: boom\n\n",
    "vllm": frame({"object": "error", "message": "boom", "code": 500}),
    "anthropic": frame({"type": "error", "error": {"type": "overloaded_error", "message": "boom"}}),
    "fastapi": frame({"detail": "boom"}),
    "gemini": frame([{"error": {"code": 503, "message": "boom", "status": "UNAVAILABLE"}}]),
}


@pytest.mark.req("A17")
@pytest.mark.parametrize("form", IN_BAND_ERRORS)
def test_an_error_inside_the_stream_is_noticed(form):
    with pytest.raises(InBandError) as caught:
        answer(frame(HI) + IN_BAND_ERRORS[form] + DONE)
    assert "boom" in json.dumps(caught.value.value)


@pytest.mark.req("A17")
@pytest.mark.parametrize(
    "reason",
    [
        "error",
        "abort",
        "insufficient_system_resource",
        "network_error",
        "function_call_filter: MALFORMED_FUNCTION_CALL",
    ],
)
def test_a_finish_reason_may_say_that_it_failed(reason):
    with pytest.raises(InBandError):
        answer(chunks(HI, chunk(finish=reason), DONE))


@pytest.mark.req("A24")
@pytest.mark.parametrize(
    "frames",
    [
        [chunk({"content": "I"}), chunk(finish="content_filter")],
        [chunk({"content": "I"}), chunk(finish="SAFETY")],  # this and the next: Gemini's own words
        *(
            [chunk({"content": "I"}), chunk(finish=reason)]
            for reason in ("PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "content_filter: RECITATION", "recitation")
        ),
        [chunk({"refusal": "I"}), chunk(finish="stop")],
    ],
)
def test_a_refusal_is_shown_and_then_an_error(frames):
    listener = RecordingListener()
    stream = AnswerStream(Answer(listener))
    stream.feed(chunks(*frames, DONE))
    with pytest.raises(ContentFiltered):
        stream.end()
    assert listener.words == "I"


def test_raw_events_are_for_debugging_only():
    body = b"".join(text_frames("Hi"))
    assert answer(body)[1].raws == []
    raws = answer(body, debug=True)[1].raws
    assert [raw["choices"][0]["delta"] for raw in raws] == [{"role": "assistant", "content": ""}, {"content": "Hi"}, {}]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, {"a": 1}, {"a": 1}),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": "x"}, {"a": "y"}, {"a": "y"}),
        ({"a": "x"}, {"a": None}, {"a": "x"}),
        ([{"i": 1}], [{"i": 2}], [{"i": 1}, {"i": 2}]),
        ([{"index": 0, "text": "a"}], [{"index": 0, "text": "b"}], [{"index": 0, "text": "ab"}]),
        (
            [{"index": 0, "text": "a"}],
            [{"index": 1, "text": "b"}],
            [{"index": 0, "text": "a"}, {"index": 1, "text": "b"}],
        ),
    ],
)
def test_unknown_members_are_merged(old, new, expected):
    assert merged(old, new) == expected


@pytest.mark.parametrize("slices", [None, 1, 50])
def test_data_after_the_end_is_ignored(slices):
    late = chunk({"content": "LATE"})
    reply, listener = answer(chunks(HI, END, DONE, late, late, END), slices=slices)
    assert (reply.text, listener.words) == ("Hi", "Hi")
