"""Chains between the log and the encoder (SRV-21): whatever they do, the events stay a run that the grammar allows."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.core import events as e
from holodeck.core.encoder import WithMetadata
from holodeck.core.grammar import TABLE, check
from holodeck.core.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from holodeck.runs.middleware import (
    FAMILIES,
    NO_STAGES,
    EventMiddleware,
    Stage,
    annotate,
    hide,
    hide_tools,
    log,
    own,
    throttle,
)
from holodeck.wires.agui.encode import SseEncoder
from tests.examples import examples
from tests.wires.event_sequences import HISTORY, NAMED, STARTED, call, event_sequences, finished, reasoning, step, text

RELAXED = examples(20)


def through(stage: Stage, events: list[e.Event], first: int = 0) -> list[tuple[int | None, e.Event]]:
    return list(stage(enumerate(events, first)))


def bare(event: e.Event) -> e.Event:
    return bare(event.event) if isinstance(event, WithMetadata) else event


def shown(stage: Stage, events: list[e.Event]) -> list[e.Event]:
    return [bare(event) for _, event in through(stage, events)]


EVENTS = [
    STARTED,
    *step(
        *reasoning("m0", "hm"),
        *text("m1", "a", "b", "c"),
        *call("c1", "delete_todo", "{", "}"),
        *call("c2", "search", "{", "}"),
        e.ToolFinished("c1", "delete_todo", "t1", "gone"),
        e.ToolFinished("c2", "search", "t2", "found"),
    ),
    finished(),
]


@pytest.mark.req("SRV-21")
def test_a_hidden_tool_leaves_no_trace() -> None:
    stream = SseEncoder("run").encode_many(hide_tools(["delete_todo"])(enumerate(EVENTS)))
    assert b"c1" not in stream
    assert b"delete_todo" not in stream
    assert b"gone" not in stream
    assert stream.count(b"c2") == 5
    check(shown(hide_tools(["delete_todo"]), EVENTS))


@pytest.mark.req("SRV-21")
def test_a_hidden_tool_is_not_in_snapshots_either() -> None:
    (events,) = shown(hide_tools(["create_todo"]), [e.MessagesReplaced(HISTORY)])
    assert isinstance(events, e.MessagesReplaced)
    assert [message.id for message in events.messages] == ["u1", "u2", "m2"]


def test_the_result_of_an_earlier_runs_call_is_hidden_by_its_name() -> None:
    resumed = NAMED["resumed"]
    assert not any(isinstance(event, e.ToolFinished) for event in shown(hide_tools(["delete_todo"]), resumed))


@pytest.mark.req("SRV-21")
@pytest.mark.parametrize("family", FAMILIES)
@given(events=event_sequences())
@RELAXED
def test_a_hidden_family_is_gone_and_nothing_else(family: str, events: list[e.Event]) -> None:
    left = shown(hide([family]), events)
    kept = [event for event in events if type(event) not in FAMILIES[family]]
    assert list(map(type, left)) == list(map(type, kept))
    assert _without_snapshots(left) == _without_snapshots(kept)
    check(left)


def _without_snapshots(events: list[e.Event]) -> list[e.Event]:
    return [event for event in events if not isinstance(event, e.MessagesReplaced)]


@pytest.mark.parametrize(
    ("family", "shown_of_it"),
    [
        ("tools", ("look", "hm", 0)),
        ("text", ("", "hm", 1)),
        ("reasoning", ("look", "", 1)),
        ("state", ("look", "hm", 1)),
    ],
)
def test_a_hidden_family_is_not_in_snapshots_either(family: str, shown_of_it: tuple[str, str, int]) -> None:
    message = AssistantMessage(content="look", reasoning="hm", tool_calls=(ToolCall(id="c", name="t", arguments="{}"),))
    history = (UserMessage(content="go"), message, ToolMessage(call_id="c", name="t", content="42"))
    (event,) = shown(hide([family]), [e.MessagesReplaced(history)])
    assert event.messages[0] == history[0]
    assert (event.messages[1].content, event.messages[1].reasoning, len(event.messages[1].tool_calls)) == shown_of_it
    assert len(event.messages) == (2 if family == "tools" else 3)


def test_a_family_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match="cannot hide steps, thoughts; known families: reasoning, text, tools"):
        hide(["thoughts", "steps", "text"])


def test_families_are_all_events_but_start_and_end() -> None:
    frame = {e.RunStarted, e.StepStarted, e.StepFinished, e.RunFinished, e.RunFailed}
    assert frozenset().union(*FAMILIES.values()) == set(TABLE) - frame


@pytest.mark.req("SRV-21")
def test_throttle_joins_neighbours_and_keeps_the_last_number() -> None:
    events = [
        e.TextAdded("m", "a"),
        e.TextAdded("m", "b"),
        e.TextAdded("m", "cdef"),
        e.TextAdded("n", "g"),
        e.ReasoningAdded("n", "h"),
        e.ReasoningAdded("n", "i"),
        e.ToolArgumentsAdded("n", "j"),
        e.ToolArgumentsAdded("n", "k" * 9),
        e.TextEnded("n"),
        e.TextEnded("n"),
    ]
    assert through(throttle(5), events, first=10) == [
        (11, e.TextAdded("m", "ab")),
        (12, e.TextAdded("m", "cdef")),
        (13, e.TextAdded("n", "g")),
        (15, e.ReasoningAdded("n", "hi")),
        (16, e.ToolArgumentsAdded("n", "j")),
        (17, e.ToolArgumentsAdded("n", "k" * 9)),
        (18, e.TextEnded("n")),
        (19, e.TextEnded("n")),
    ]
    assert through(throttle(), []) == []


def texts_of(events: Iterable[e.Event]) -> dict[Any, str]:
    words: dict[Any, str] = {}
    for event in events:
        if isinstance(event, e.DELTAS):
            key = (type(event), getattr(event, "message_id", None) or getattr(event, "call_id", None))
            words[key] = words.get(key, "") + event.delta
    return {key: value for key, value in words.items() if value}


@given(events=event_sequences(), limit=st.integers(0, 30))
@RELAXED
def test_throttle_changes_no_text(events: list[e.Event], limit: int) -> None:
    output = shown(throttle(limit), events)
    check(output)
    assert texts_of(output) == texts_of(events)
    assert len(output) <= len(events)


@pytest.mark.req("SRV-21")
def test_annotate_puts_metadata_on_starts_not_on_deltas() -> None:
    events = through(annotate({"tenant": "a"}, ["text"]), EVENTS)
    marked = [type(event.event) for _, event in events if isinstance(event, WithMetadata)]
    assert marked == [e.TextStarted, e.TextEnded]
    stream = SseEncoder("run").encode_many(events)
    assert b'"messageId":"m1","role":"assistant","metadata":{"tenant":"a"}}' in stream
    assert stream.count(b"tenant") == 2


@pytest.mark.req("SRV-21")
def test_the_log_gets_everything_but_deltas() -> None:
    received: list[tuple[int | None, str]] = []
    stage = log(lambda n, event: received.append((n, type(event).__name__)))
    assert shown(stage, EVENTS) == EVENTS
    assert received[:3] == [(0, "RunStarted"), (1, "StepStarted"), (2, "ReasoningStarted")]
    assert len(received) == sum(not isinstance(event, e.DELTAS) for event in EVENTS)
    everything: list[e.Event] = []
    shown(log(lambda n, event: everything.append(event), deltas=True), EVENTS)
    assert everything == EVENTS


def shout(event: e.Event) -> e.Event:
    return e.TextAdded(event.message_id, event.delta.upper()) if isinstance(event, e.TextAdded) else event


def double(event: e.Event) -> list[e.Event]:
    return [event, event]


def drop(event: e.Event) -> None:
    return None


def explain(event: e.Event) -> list[e.Event]:
    note = e.CustomSent("seen", type(event).__name__)
    return [note, event] if isinstance(event, e.RunFinished | e.RunFailed) else [event, note]


def rename(event: e.Event) -> e.Event:
    return e.TextAdded("elsewhere", "x") if isinstance(event, e.TextAdded) else event


def late(event: e.Event) -> list[e.Event]:
    return [event, e.CustomSent("late", None)]


def early(event: e.Event) -> list[e.Event]:
    return [e.CustomSent("early", None), event]


def foreign(event: e.Event) -> e.Event:
    return e.Event()


def censor(event: e.Event) -> e.Event:
    if isinstance(event, e.ToolFinished):
        return e.ToolFinished(event.call_id, event.name, event.message_id, "[hidden]")
    return event


def raises(event: e.Event) -> e.Event:
    raise OSError("no such file")


async def waits(event: e.Event) -> e.Event:
    return event


def nonsense(event: e.Event) -> Any:
    return ["no event", 7]


@pytest.mark.req("SRV-21")
@pytest.mark.parametrize(
    ("function", "reported"),
    [
        (shout, False),
        (explain, False),
        (censor, False),
        (drop, False),
        (double, True),
        (rename, True),
        (late, True),
        (early, True),
        (foreign, True),
        (raises, True),
        (waits, True),
        (nonsense, True),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_own_function_cannot_break_the_sequence(function: Any, *, reported: bool) -> None:
    words: list[str] = []
    events = [STARTED, *NAMED["notes"][1:-1], *EVENTS[1:]]
    check(shown(own(function, words.append), events))
    assert bool(words) is reported


def only_weather(event: e.Event) -> e.Event | None:
    """The document's own filter: calls of tools outside an allow list are dropped."""
    return None if isinstance(event, e.ToolCallStarted) and event.name != "get_weather" else event


CALLS = [
    STARTED,
    *step(
        *text("m1", "Let me see."),
        *call("c1", "delete_all", '{"secret": 1}'),
        *call("c2", "get_weather", "{}"),
        e.ToolFinished("c1", "delete_all", "t1", "secret result"),
        e.ToolFinished("c2", "get_weather", "t2", "4 degrees"),
    ),
    e.MessagesReplaced(
        (
            AssistantMessage(
                id="m0",
                content="",
                tool_calls=(
                    ToolCall(id="old", name="delete_all", arguments='{"secret": 0}'),
                    ToolCall(id="c1", name="delete_all", arguments='{"secret": 1}'),
                    ToolCall(id="c2", name="get_weather", arguments="{}"),
                ),
            ),
            ToolMessage(call_id="old", name="delete_all", content="secret result"),
            ToolMessage(call_id="c1", name="delete_all", content="secret result"),
            ToolMessage(call_id="c2", name="get_weather", content="4 degrees"),
        )
    ),
    finished(),
]


@pytest.mark.req("SRV-21")
@pytest.mark.parametrize("stage", ["own", "own after annotate", "only"])
def test_an_allow_list_shows_nothing_of_other_tools(stage: str) -> None:
    stages = {
        "own": [own(only_weather, pytest.fail)],
        "own after annotate": [annotate({"a": 1}), own(only_weather, pytest.fail)],
        "only": [hide_tools(only=["get_weather"])],
    }[stage]
    events = [event for _, event in EventMiddleware(stages)((n, event) for n, event in enumerate(CALLS))]
    assert "delete_all" not in str(events)
    assert "secret" not in str(events)
    assert str(events).count("4 degrees") == 2
    check([bare(event) for event in events])


@pytest.mark.req("SRV-21")
def test_a_result_of_an_earlier_runs_call_is_hidden_too() -> None:
    resumed = [STARTED, e.ToolFinished("old", "delete_all", "t", "secret"), *step(*text("m", "ok")), finished()]
    assert "secret" not in str(shown(own(only_weather, pytest.fail), resumed))


@pytest.mark.req("SRV-21")
def test_a_filter_that_fails_shows_nothing_of_what_it_failed_at() -> None:
    def fails_at_calls(event: e.Event) -> e.Event:
        if isinstance(event, e.ToolCallStarted | e.ToolFinished):
            raise KeyError(event.name)
        return event

    text = str(shown(own(fails_at_calls, [].append), CALLS))
    assert "secret" not in text
    assert "Let me see." in text


def test_an_own_function_can_change_the_text() -> None:
    events = shown(
        EventMiddleware([own(shout, pytest.fail), own(censor, pytest.fail), hide(["reasoning"]), throttle()]), EVENTS
    )
    assert e.TextAdded("m1", "ABC") in events
    assert [event.content for event in events if isinstance(event, e.ToolFinished)] == ["[hidden]", "[hidden]"]


def test_only_the_last_of_several_answers_has_the_number() -> None:
    assert [n for n, _ in through(own(explain, pytest.fail), EVENTS[:2])] == [None, 0, None, 1]
    stream = SseEncoder("run").encode_many(own(double, print)(enumerate([e.TextAdded("m", "x")], 7)))
    assert [block.split(b"\n")[0][:3] for block in stream.split(b"\n\n")[:-1]] == [b"dat", b"id:"]


STAGES = st.sampled_from(
    [
        lambda: hide(["reasoning"]),
        lambda: hide(["text", "raw"]),
        lambda: hide_tools(["delete_todo"]),
        lambda: throttle(8),
        lambda: annotate({"a": 1}),
        lambda: log(lambda n, event: None),
        *(
            lambda f=f: own(f, lambda line: None)
            for f in (shout, double, drop, explain, rename, late, early, foreign, censor)
        ),
    ]
)


@pytest.mark.req("SRV-21")
@given(events=event_sequences(), makers=st.lists(STAGES, max_size=5), cuts=st.lists(st.integers(0, 30), max_size=3))
@RELAXED
def test_the_grammar_holds_after_any_chain_in_any_batches(events: list[e.Event], makers: Any, cuts: list[int]) -> None:
    middleware = EventMiddleware([make() for make in makers])
    bounds = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    output: list[e.Event] = []
    for start, end in pairwise(bounds):
        output += [bare(event) for _, event in middleware(enumerate(events[start:end], start))]
    check(output)


def test_without_stages_all_events_pass_unchanged() -> None:
    batch = [(0, e.RunStarted("r", "s")), (1, e.RunFinished("r", "s"))]
    assert NO_STAGES.is_empty
    assert NO_STAGES(batch) is batch
    assert not EventMiddleware([hide(["text"])]).is_empty
