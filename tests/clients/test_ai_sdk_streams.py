"""Any run the grammar allows, read by the AI SDK's own parser: it accepts every stream, and shows what the run had."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.core import events as e
from holodeck.wires.ai_sdk.stream import UiMessageEncoder
from tests.clients.driving import Json, node, node_22
from tests.examples import examples
from tests.wires.event_sequences import NAMED, STARTED, event_sequences, finished, step, text

Events = list[e.Event]


def read(library: str, runs: list[Events]) -> list[Json]:
    bodies = [UiMessageEncoder("m").encode_many(enumerate(events)).decode() for events in runs]
    scenarios = [{"name": str(i), "body": body} for i, body in enumerate(bodies)]
    run = node_22 if library == "ai" else node
    return run("aisdk_reader.mjs", library, scenarios=scenarios, package=library)


def check(events: Events, result: Json) -> None:
    ending = events[-1]
    if isinstance(ending, e.RunFailed):
        assert result["errors"] == [ending.message]
    assert len(result["errors"]) <= 1  # a run that has nothing to show is an error too
    parts = result["message"]["parts"]
    for kind, added in (("text", e.TextAdded), ("reasoning", e.ReasoningAdded)):
        shown = "".join(part["text"] for part in parts if part["type"] == kind)
        assert shown == "".join(event.delta for event in events if isinstance(event, added))
    asked = {event.call_id for event in events if isinstance(event, e.ToolCallStarted)}
    tools = {part["toolCallId"]: part for part in parts if part["type"] == "dynamic-tool"}
    assert asked <= set(tools)
    for event in events:
        if isinstance(event, e.ToolFinished):
            assert ("errorText" in tools[event.call_id]) == event.failed


_PARSER_REFUSES = e.ActivityShown("a1", "note", {"__proto__": 1, "constructor": {"prototype": 2}})
REFUSED_NAMES = [STARTED, _PARSER_REFUSES, *step(*text("m1", "Still here.")), finished()]


@pytest.mark.parametrize("library", ["ai", "ai6"])
def test_the_named_runs(library: str) -> None:
    runs = [*NAMED.values(), REFUSED_NAMES]
    for events, result in zip(runs, read(library, runs), strict=True):
        check(events, result)


@given(runs=st.lists(event_sequences(12), min_size=1, max_size=12))
@examples(4)
def test_any_run(runs: list[Events]) -> None:
    for events, result in zip(runs, read("ai", runs), strict=True):
        check(events, result)
