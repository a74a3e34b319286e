"""Tool calls from deltas: the dialects of real servers, and any way of cutting them up."""

import gc
import json
import weakref
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.errors import ModelProtocolError
from holodeck.models.assembly import CallAssembly, is_object
from tests.models.recording_listener import RecordingListener


def d(index=..., id=..., name=..., args=..., **extra):  # noqa: A002  the wire's own word
    """One entry of delta.tool_calls; `...` leaves a member out."""
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not ...}
    members = {key: value for key, value in (("index", index), ("id", id)) if value is not ...}
    return {**members, **({"function": function} if function else {}), **extra}


NEW = object()  # an id that we mint

# name: (deltas, each a list of entries; expected calls as (id, name, arguments))
CASES = {
    "openai": (
        [[d(0, "a", "f", "")], [d(0, args='{"x"')], [d(0, args=":1}")]],
        [("a", "f", '{"x":1}')],
    ),
    "openai parallel": (
        [[d(0, "a", "f", "")], [d(0, args="{}")], [d(1, "b", "g", "")], [d(1, args="{}")]],
        [("a", "f", "{}"), ("b", "g", "{}")],
    ),
    "gemini: no index, whole call": ([[d(id="a", name="f", args='{"x":1}')]], [("a", "f", '{"x":1}')]),
    "gemini: no index, two whole calls in one delta": (
        [[d(id="a", name="f", args="{}"), d(id="b", name="f", args="{}")]],
        [("a", "f", "{}"), ("b", "f", "{}")],
    ),
    "gemini: no index, two whole calls in two deltas": (
        [[d(id="a", name="f", args="{}")], [d(id="b", name="f", args="{}")]],
        [("a", "f", "{}"), ("b", "f", "{}")],
    ),
    "moonshot: several calls in one list, with ids only at first": (
        [
            [d(id="a", name="f", args=""), d(id="b", name="g", args="")],
            [d(args='{"x"'), d(args="{}")],
            [d(args=":1}"), d(args="")],
        ],
        [("a", "f", '{"x":1}'), ("b", "g", "{}")],
    ),
    "gateway: index 0 for every call, whole": (
        [[d(0, "a", "f", "{}")], [d(0, "b", "f", '{"x":2}')]],
        [("a", "f", "{}"), ("b", "f", '{"x":2}')],
    ),
    "gateway: index 0 for every call, in pieces": (
        [[d(0, "a", "f", "")], [d(0, args="{}")], [d(0, "b", "g", "")], [d(0, args='{"x":')], [d(0, args="2}")]],
        [("a", "f", "{}"), ("b", "g", '{"x":2}')],
    ),
    "gateway: index 0 for every call, in one delta": (
        [[d(0, "a", "f", "{}"), d(0, "b", "f", "{}")]],
        [("a", "f", "{}"), ("b", "f", "{}")],
    ),
    "gateway: index 0, id and name on every delta": (
        [[d(0, "a", "f", '{"x"')], [d(0, "a", "f", ":1}")], [d(0, "b", "f", "{}")]],
        [("a", "f", '{"x":1}'), ("b", "f", "{}")],
    ),
    "no id, the name on every delta, blanks behind the arguments": (
        [[d(0, name="f", args='{"x":')], [d(0, name="f", args="{}}")], [d(0, args="\n")], [d(0, name="f", args="{}")]],
        [(NEW, "f", '{"x":{}}\n'), (NEW, "f", "{}")],
    ),
    "ollama: no id": ([[d(0, name="f", args="{}")]], [(NEW, "f", "{}")]),
    "ollama: no id, two calls": (
        [[d(0, name="f", args="{}")], [d(1, name="g", args="{}")]],
        [(NEW, "f", "{}"), (NEW, "g", "{}")],
    ),
    "no id, index 0 twice, whole": (
        [[d(0, name="f", args="{}")], [d(0, name="f", args='{"x":2}')]],
        [(NEW, "f", "{}"), (NEW, "f", '{"x":2}')],
    ),
    "empty id": ([[d(0, "", "f", "{}")]], [(NEW, "f", "{}")]),
    "null id": ([[d(0, None, "f", "{}")]], [(NEW, "f", "{}")]),
    "id as a number": ([[d(0, 7, "f", "{}")]], [("7", "f", "{}")]),
    "no index and no id, one delta with two": (
        [[d(name="f", args="{}"), d(name="f", args="{}")]],
        [(NEW, "f", "{}"), (NEW, "f", "{}")],
    ),
    "no index and no id, in pieces": (
        [[d(name="f", args="")], [d(args='{"x"')], [d(args=":1}")]],
        [(NEW, "f", '{"x":1}')],
    ),
    "no index and no id, one after the other": (
        [[d(name="f", args="{}")], [d(name="g", args="")], [d(args="{}")]],
        [(NEW, "f", "{}"), (NEW, "g", "{}")],
    ),
    "id late": ([[d(0, name="f")], [d(0, "a", args="{}")]], [("a", "f", "{}")]),
    "name late": ([[d(0, "a", args="{")], [d(0, name="f", args="}")]], [("a", "f", "{}")]),
    "vllm: null arguments": ([[d(0, "a", "f", None)], [d(0, args="{}")]], [("a", "f", "{}")]),
    "vllm: null name in later deltas": ([[d(0, "a", "f", "")], [d(0, None, None, "{}")]], [("a", "f", "{}")]),
    "arguments as an object": ([[d(0, "a", "f", {"x": "é"})]], [("a", "f", '{"x": "é"}')]),
    "no arguments at all": ([[d(0, "a", "f")]], [("a", "f", "")]),
    "name in pieces": (
        [[d(0, "a", "get_")], [d(0, name="weather", args="")], [d(0, args="{}")]],
        [("a", "get_weather", "{}")],
    ),
    "name repeated": (
        [[d(0, "a", "f", "")], [d(0, name="f", args="{")], [d(0, name="f", args="}")]],
        [("a", "f", "{}")],
    ),
    "index as text": (
        [[d("0", "a", "f", "{")], [d("0", args="}")], [d("1", "b", "g", "{}")]],
        [("a", "f", "{}"), ("b", "g", "{}")],
    ),
    "index as float": ([[d(0.0, "a", "f", "{")], [d(0, args="}")]], [("a", "f", "{}")]),
    "index gap": (
        [[d(3, "a", "f", "{")], [d(3, args="}")], [d(9, "b", "g", "{}")]],
        [("a", "f", "{}"), ("b", "g", "{}")],
    ),
    "interleaved over three": (
        [
            [d(0, "a", "f", "{"), d(1, "b", "g", "["), d(2, "c", "h", "1")],
            [d(2, args="2"), d(0, args="}"), d(1, args="]")],
        ],
        [("a", "f", "{}"), ("b", "g", "[]"), ("c", "h", "12")],
    ),
    "same id under two indices is two calls": (
        [[d(0, "a", "f", "{}")], [d(1, "a", "g", "{}")]],
        [("a", "f", "{}"), (NEW, "g", "{}")],
    ),
    "index missing after the first delta": ([[d(0, "a", "f", "{")], [d(args="}")]], [("a", "f", "{}")]),
    "name and arguments beside the id": ([[{"id": "a", "name": "f", "arguments": "{}"}]], [("a", "f", "{}")]),
    "an emoji in two halves": ([[d(0, "a", "f", '"\ud83d')], [d(0, args='\ude00"')]], [("a", "f", '"😀"')]),
    "a half that stays alone": ([[d(0, "a", "f", '"\ud83d')], [d(0, args='"')]], [("a", "f", '"\ufffd"')]),
    "an empty entry at the end": ([[d(0, "a", "f", "{}")], [d(1, "", "", "")]], [("a", "f", "{}")]),
    "NUL": ([[d(0, "a", "f", "{\x00}")]], [("a", "f", "{}")]),
}


def assemble(deltas, **options):
    listener = RecordingListener()
    assembly = CallAssembly(listener, **options)
    for entries in deltas:
        for position, entry in enumerate(entries):
            assembly.add(entry, position, len(entries))
    return assembly.finish(cut=False), listener


@pytest.mark.req("A25", "A13")
@pytest.mark.parametrize("case", CASES)
def test_calls_are_put_together(case):
    deltas, expected = CASES[case]
    calls, _ = assemble(deltas)
    assert [(call.name, call.arguments) for call in calls] == [(name, args) for _, name, args in expected]
    for call, (call_id, _, _) in zip(calls, expected, strict=True):
        assert call.id.startswith("call_") if call_id is NEW else call.id == call_id
    assert len({call.id for call in calls}) == len(calls)


@pytest.mark.req("A25")
@pytest.mark.parametrize("case", CASES)
def test_deltas_add_up_to_the_reply(case):
    calls, listener = assemble(CASES[case][0])
    for call in calls:
        mine = [piece for piece in listener.recorded if piece[1] == call.id]
        assert mine[0] == ("started", call.id, call.name)
        assert "".join(piece[2] for piece in mine[1:-1]) == call.arguments
        assert mine[-1] == ("ended", call.id)


@pytest.mark.req("A25")
@pytest.mark.parametrize(
    "deltas",
    [
        [[d(0, "a", args="{}")]],  # never a name
        [[d(0, "a", "f", '{"x"')], [d(0, "b", args=":1}")]],  # the id changed: two ids are never merged
        [[d(args="{}")]],
    ],
)
def test_a_call_without_a_name_is_a_protocol_error(deltas):
    with pytest.raises(ModelProtocolError, match="without the tool's name"):
        assemble(deltas)


@pytest.mark.req("A23")
def test_a_cut_reply_keeps_whole_calls_only():
    listener = RecordingListener()
    assembly = CallAssembly(listener)
    assembly.add(d(0, "a", "f", '{"x":1}'))
    assembly.add(d(1, "b", "g", '{"x":'))
    assert [call.id for call in assembly.finish(cut=True)] == ["a"]
    assert listener.warnings == ["tool-call-cut"]
    assert ("ended", "b") not in listener.recorded


@pytest.mark.req("AGT-02")
def test_unknown_members_stay_on_their_call():
    signature = {"google": {"thought_signature": "c2lnbmF0dXJl"}}
    calls, _ = assemble(
        [
            [d(0, "a", "f", "{}", extra_content=signature, type="function")],
            [d(1, "b", "g", "{}", cache=None)],
            [{"index": 1, "vendor": {"x": [1]}, "function": {"arguments": "", "strict": True}}],
        ]
    )
    assert calls[0].extra == {"extra_content": signature}
    assert calls[1].extra == {"vendor": {"x": [1]}, "function": {"strict": True}}


def test_an_id_of_an_earlier_turn_is_replaced():
    calls, _ = assemble([[d(0, "call_0", "f", "{}")]], taken_ids=lambda: {"call_0"})
    assert calls[0].id != "call_0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", True),
        ('{"a":{}}', True),
        ("", False),
        ("{", False),
        ("[]", False),
        ("1", False),
        ('{"a":"\ud800"}', False),
    ],
)
def test_whole_arguments_are_recognised(text, expected):
    assert is_object(text) is expected


@pytest.mark.req("A25")
def test_a_name_on_every_delta_does_not_have_all_arguments_read_each_time(monkeypatch):
    read = []
    monkeypatch.setattr("holodeck.models.assembly.is_object", lambda text: read.append(text) or is_object(text))
    arguments = json.dumps({"text": "word " * 1000})
    calls, _ = assemble([[d(0, name="f", args=arguments[i : i + 4])] for i in range(0, len(arguments), 4)])
    assert [call.arguments for call in calls] == [arguments]
    assert len(read) <= 1


NAMES = st.text("abcdefgh_", min_size=1, max_size=8)
ARGUMENTS = st.dictionaries(st.text(max_size=3), st.text(max_size=5) | st.integers(), max_size=3).map(json.dumps)
CALLS = st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=4)


@st.composite
def cut_up(draw):
    """Calls as OpenAI sends them, their arguments cut anywhere and their deltas interleaved in any order."""
    asked = draw(CALLS)
    queues = []
    for index, (name, arguments) in enumerate(asked):
        cuts = sorted(draw(st.lists(st.integers(0, len(arguments)), max_size=5)))
        edges = [0, *cuts, len(arguments)]
        pieces = [arguments[a:b] for a, b in pairwise(edges)]
        queues.append([d(index, f"id{index}", name, ""), *(d(index, args=piece) for piece in pieces)])
    opened = [queue.pop(0) for queue in queues]
    rest = [index for index, queue in enumerate(queues) for _ in queue]
    order = draw(st.permutations(rest))
    entries = opened + [queues[index].pop(0) for index in order]
    grouped = [[entry] for entry in entries] if draw(st.booleans()) else [entries]
    return asked, grouped


@pytest.mark.req("A25")
@given(cut_up())
def test_any_partition_of_the_deltas_gives_the_same_calls(example):
    asked, deltas = example
    calls, _ = assemble(deltas)
    assert [(call.id, call.name, call.arguments) for call in calls] == [
        (f"id{index}", name, arguments) for index, (name, arguments) in enumerate(asked)
    ]


@pytest.mark.req("D11")
def test_calls_that_were_cut_off_are_gone_without_the_collector():
    """They know the listener, which knows the log of the run."""
    assembly = CallAssembly(RecordingListener())
    assembly.add(d(0, "a", "f", '{"x"'))
    gone = weakref.ref(assembly)
    gc.disable()
    try:
        del assembly
        assert gone() is None
    finally:
        gc.enable()
