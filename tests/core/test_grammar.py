"""The table of `holodeck.core.grammar`, rule by rule: legal sequences of events, and the first event that does not fit."""

import re
from typing import get_args

import msgspec
import pytest

from holodeck.core import events as e
from holodeck.core import grammar
from holodeck.core.grammar import TABLE, GrammarChecker, GrammarError, check

BEGIN = e.RunStarted("r", "s")
END = e.RunFinished("r", "s")
FAILED = e.RunFailed("r", "s", "internal-error", "no")
STEP, STEP_END = e.StepStarted(1), e.StepFinished(1)
TEXT, WORD, TEXT_END = e.TextStarted("m"), e.TextAdded("m", "hi"), e.TextEnded("m")
THOUGHT, IDEA, THOUGHT_END = e.ReasoningStarted("t"), e.ReasoningAdded("t", "hm"), e.ReasoningEnded("t")


def call(call_id="c"):
    return [
        e.ToolCallStarted(call_id, "tool", "m"),
        e.ToolArgumentsAdded(call_id, "{}"),
        e.ToolCallEnded(call_id, "tool", "{}"),
    ]


def result(call_id="c"):
    return e.ToolFinished(call_id, "tool", f"m-{call_id}", "done")


def in_step(*events):
    return [BEGIN, STEP, *events, STEP_END, END]


NOTES = [
    e.StateReplaced({}),
    e.StatePatched([]),
    e.ActivityShown("a", "reading", {}),
    e.ActivityPatched("a", "reading", []),
    e.CustomSent("n", 1),
    e.RawReceived({}),
    e.WarningRaised("w", "careful"),
    e.MessagesReplaced(()),
    e.HistoryCompacted(2),
]

FITTING = {
    "nothing happens": [BEGIN, END],
    "it fails at once": [BEGIN, FAILED],
    "notes before a step": [BEGIN, *NOTES, END],
    "notes inside a text": in_step(TEXT, *NOTES, TEXT_END),
    "a text": in_step(TEXT, WORD, WORD, TEXT_END),
    "a text that says nothing": in_step(TEXT, TEXT_END),
    "a text that goes on after a call": in_step(TEXT, TEXT_END, *call(), TEXT, WORD, TEXT_END, result()),
    "reasoning and text open together": in_step(THOUGHT, TEXT, IDEA, WORD, THOUGHT_END, TEXT_END),
    "calls that overlap": in_step(call("a")[0], *call("b"), *call("a")[1:], result("b"), result("a")),
    "a call inside a text": in_step(TEXT, *call(), TEXT_END, result()),
    "a call for the client has no result": in_step(*call()),
    "the result in a later step": [*in_step(*call())[:-1], e.StepStarted(2), result(), e.StepFinished(2), END],
    "two steps": [*in_step()[:-1], e.StepStarted(2), e.StepFinished(2), END],
}

MISPLACED = {
    "nothing before the start": ([], STEP),
    "no ending before the start": ([], END),
    "one start": ([BEGIN], BEGIN),
    "nothing after the end": ([BEGIN, END], e.CustomSent("n", 1)),
    "nothing after a failure": ([BEGIN, FAILED], STEP),
    "one ending": ([BEGIN, END], FAILED),
    "an open step at the end": ([BEGIN, STEP], END),
    "an open text at the end": ([BEGIN, STEP, TEXT], FAILED),
    "an open text at the end of a step": ([BEGIN, STEP, TEXT], STEP_END),
    "an open call at the end of a step": ([BEGIN, STEP, *call()[:2]], STEP_END),
    "a step in a step": ([BEGIN, STEP], e.StepStarted(2)),
    "the same step twice": ([BEGIN, STEP, STEP_END], STEP),
    "another step's end": ([BEGIN, STEP], e.StepFinished(2)),
    "a text outside a step": ([BEGIN], TEXT),
    "reasoning outside a step": ([BEGIN], THOUGHT),
    "a call outside a step": ([BEGIN], call()[0]),
    "a second text while one is open": ([BEGIN, STEP, TEXT], e.TextStarted("m2")),
    "the same text while it is open": ([BEGIN, STEP, TEXT], TEXT),
    "a second reasoning while one is open": ([BEGIN, STEP, THOUGHT], e.ReasoningStarted("t2")),
    "reasoning again": ([BEGIN, STEP, THOUGHT, THOUGHT_END], THOUGHT),
    "words without a text": ([BEGIN, STEP], WORD),
    "words after the text": ([BEGIN, STEP, TEXT, TEXT_END], WORD),
    "another text's words": ([BEGIN, STEP, TEXT], e.TextAdded("m2", "x")),
    "arguments without a call": ([BEGIN, STEP], call()[1]),
    "the same call twice": ([BEGIN, STEP, *call()], call()[0]),
    "a result of no call": ([BEGIN, STEP], result()),
    "a result while the call is open": ([BEGIN, STEP, *call()[:2]], result()),
    "a second result": ([BEGIN, STEP, *call(), result()], result()),
}


@pytest.mark.parametrize("events", FITTING.values(), ids=FITTING.keys())
def test_a_legal_sequence(events):
    check(events)


@pytest.mark.parametrize(("before", "event"), MISPLACED.values(), ids=MISPLACED.keys())
def test_an_event_that_does_not_fit(before, event):
    checker = GrammarChecker()
    for each in before:
        checker.check(each)
    with pytest.raises(GrammarError, match=re.escape(type(event).__name__)):
        checker.check(event)


def test_every_sequence_has_an_ending():
    with pytest.raises(GrammarError, match="no ending"):
        check([BEGIN, STEP, STEP_END])


def test_a_call_of_an_earlier_run_may_be_answered():
    check(in_step(result("earlier")), awaiting=frozenset({"earlier"}))


def test_the_table_knows_every_event():
    of_core = {kind for kind in e.Event.__subclasses__() if kind.__module__ == e.__name__}  # tests make their own, too
    assert of_core == set(TABLE)


def test_only_the_endings_end():
    ends = {kind for kind, (action, _, _) in TABLE.items() if action is grammar.Action.END}
    assert ends == set(get_args(e.Ending))
    assert [type(each) in e.ENDINGS for each in (END, FAILED, STEP_END)] == [True, True, False]


@pytest.mark.parametrize("events", FITTING.values(), ids=FITTING.keys())
def test_sequences_can_be_stored(events):
    coder = msgspec.json.Decoder(list[_union()])
    decoded = coder.decode(stored := msgspec.json.encode(events))
    assert list(map(type, decoded)) == list(map(type, events))
    assert msgspec.json.encode(decoded) == stored


def _union():
    kinds = list(TABLE)
    union = kinds[0]
    for kind in kinds[1:]:
        union |= kind
    return union
