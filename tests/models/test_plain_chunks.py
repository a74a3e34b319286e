"""Chunks that are nothing but text take a short way through. It must lead to the same place as the long one."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holodeck.errors import ModelError
from holodeck.models.answer import Answer
from holodeck.models.chunks import InBandError, Malformed, decode_plain
from tests.examples import examples
from tests.models.recording_listener import RecordingListener

texts = st.sampled_from(["", "a", " b", "ü", "😀", "\ud83d", "\ude00", "\x00", "nul\x00"])
odd = st.sampled_from([None, 0, 1, "", "x", [], {}, ["x"], {"a": 1}, True])
deltas = st.fixed_dictionaries(
    {},
    optional={
        "content": texts | odd,
        "role": st.sampled_from(["assistant", None, 3]),
        "refusal": st.sampled_from([None, "", "no"]),
        "tool_calls": st.sampled_from(
            [None, [], [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]]
        ),
        "function_call": st.none(),
        "reasoning_content": texts | st.none(),
        "reasoning": texts | st.none(),
        "provider_data": odd,
    },
)
choices = st.fixed_dictionaries(
    {"delta": deltas},
    optional={
        "index": st.sampled_from([None, 0, 1, "0", 0.0]),
        "finish_reason": st.sampled_from([None, "", "stop", "length"]),
        "usage": st.sampled_from([None, {"prompt_tokens": 1, "completion_tokens": 1}]),
        "error": st.sampled_from([None, "", {"message": "no"}]),
        "logprobs": st.none(),
    },
)
chunks = st.fixed_dictionaries(
    {"choices": st.lists(choices, max_size=2) | st.lists(choices, min_size=1, max_size=1)},
    optional={
        "usage": st.sampled_from([None, {"prompt_tokens": 2, "completion_tokens": 3}]),
        "error": st.sampled_from([None, {"message": "no"}]),
        "x_groq": st.sampled_from([None, {"usage": {"prompt_tokens": 4, "completion_tokens": 5}}]),
        "id": st.just("x"),
    },
)
events = st.tuples(st.sampled_from([b"", b"message", b"error"]), chunks.map(lambda value: json.dumps(value).encode()))


class LongWay(Answer):
    """Never expects what comes to be plain."""

    _expects_plain = property(lambda _: False, lambda _, __: None)


def outcome_of(kind: type[Answer], stream: list[tuple[bytes, bytes]]):
    listener = RecordingListener()
    answer = kind(listener)
    progress = []
    try:
        for name, data in stream:
            answer.take(name, data)
            progress.append(answer.progress)
        end = answer.reply()
    except (InBandError, Malformed, ModelError) as error:
        end = type(error).__name__, str(error), getattr(error, "value", None)
    return listener.recorded, progress, answer.started, answer.finish_reason, end


@examples(150)
@given(st.lists(events, max_size=6))
@example([(b"", b'{"choices":[{"delta":{"content":"a"}}]}')] * 3)
@example(
    [
        (b"", b'{"choices":[{"index":0,"delta":{"content":"a"}}]}'),
        (b"error", b'{"choices":[{"index":0,"delta":{"content":"b"}}]}'),
    ]
)
def test_the_short_way_leads_to_the_same_place(stream):
    assert outcome_of(Answer, stream) == outcome_of(LongWay, stream)


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "x"},
        {"role": "assistant", "content": "x"},  # Ollama, with every chunk
        {"content": "x", "reasoning_content": None},  # DeepSeek
        {"role": "assistant", "content": "x", "refusal": None, "tool_calls": None, "function_call": None},
    ],
)
def test_what_endpoints_really_send_is_plain(delta):
    data = json.dumps({"id": "1", "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]})
    assert decode_plain(data.encode()).choices[0].delta.content == "x"
