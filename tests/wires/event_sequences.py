"""Event sequences of runs for the tests of every wire: named ones to read, and a strategy for all that the grammar allows."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from holodeck.core import events as e
from holodeck.core.messages import AssistantMessage, MediaPart, TextPart, ToolCall, ToolMessage, UserMessage
from holodeck.core.usage import TokenUsage

RUN, SESSION = "run-1", "thread-1"
USAGE = TokenUsage(prompt_tokens=12, completion_tokens=34, reasoning_tokens=5, cached_tokens=8)
PIXEL = MediaPart(mime_type="image/png", data="iVBORw0KGgo=", filename="pixel.png")
STARTED = e.RunStarted(RUN, SESSION)


def finished(outcome: e.Outcome = e.Outcome.COMPLETED, **fields: Any) -> e.RunFinished:
    return e.RunFinished(RUN, SESSION, outcome, **{"iterations": 1, **fields})


def step(*inside: e.Event, number: int = 1) -> list[e.Event]:
    return [e.StepStarted(number), *inside, e.StepFinished(number)]


def text(message_id: str, *deltas: str) -> list[e.Event]:
    return [e.TextStarted(message_id), *(e.TextAdded(message_id, d) for d in deltas), e.TextEnded(message_id)]


def reasoning(message_id: str, *deltas: str) -> list[e.Event]:
    added = [e.ReasoningAdded(message_id, d) for d in deltas]
    return [e.ReasoningStarted(message_id), *added, e.ReasoningEnded(message_id)]


def call(call_id: str, name: str, *deltas: str, message_id: str = "m1") -> list[e.Event]:
    added = [e.ToolArgumentsAdded(call_id, d) for d in deltas]
    return [e.ToolCallStarted(call_id, name, message_id), *added, e.ToolCallEnded(call_id, name, "".join(deltas))]


HISTORY = (
    UserMessage(id="u1", content="Remind me to buy eggs"),
    UserMessage(id="u2", content=(TextPart("like these"), PIXEL)),
    AssistantMessage(id="m1", tool_calls=(ToolCall(id="c1", name="create_todo", arguments='{"title": "eggs"}'),)),
    ToolMessage(id="t1", call_id="c1", name="create_todo", content="no such list", failed=True),
    AssistantMessage(id="m2", content="I could not."),
)
APPROVAL = e.Interrupt(
    id="i1",
    call_id="c1",
    tool="delete_todo",
    arguments='{"id": 7}',
    message="May I delete todo 7?",
    expires_at=datetime(2026, 11, 15, 12, 0, tzinfo=UTC),
)

NAMED: dict[str, list[e.Event]] = {
    "plain_text": [STARTED, *step(*text("m1", "Hel", "lo", " 😀")), finished(usage=USAGE)],
    "reasoning_then_text": [STARTED, *step(*reasoning("m1", "Hm", "…"), *text("m1", "Yes.")), finished()],
    "tool_call": [
        STARTED,
        *step(*call("c1", "create_todo", '{"title":', ' "eggs"}'), e.ToolFinished("c1", "create_todo", "t1", "created")),
        *step(*text("m2", "Done."), number=2),
        finished(iterations=2, usage=TokenUsage(prompt_tokens=1, completion_tokens=2)),
    ],
    "parallel_calls_one_fails": [
        STARTED,
        *step(
            *text("m1", "Looking."),
            e.ToolCallStarted("c1", "add", "m1"),
            e.ToolCallStarted("c2", "sub", "m1"),
            e.ToolArgumentsAdded("c2", "{}"),
            e.ToolArgumentsAdded("c1", "{}"),
            e.ToolCallEnded("c1", "add", "{}"),
            e.ToolCallEnded("c2", "sub", "{}"),
            e.ToolFinished("c2", "sub", "t2", "no such number", failed=True),
            e.ToolFinished("c1", "add", "t1", (TextPart("see"), PIXEL)),
        ),
        finished(e.Outcome.MAX_ITERATIONS, warning="the limit of 1 step was reached", finish_reason="tool_calls"),
    ],
    "frontend_tool": [
        STARTED,
        *step(*call("c1", "change_background", '{"background": "red"}')),
        finished(e.Outcome.CLIENT_TOOLS, pending_calls=("c1",), finish_reason="tool_calls"),
    ],
    "approval": [STARTED, *step(*call("c1", "delete_todo", '{"id": 7}')), finished(e.Outcome.INTERRUPTED, interrupts=(APPROVAL,))],
    "resumed": [
        e.RunStarted(RUN, SESSION, parent_run_id="run-0", model="demo"),
        e.ToolFinished("c1", "delete_todo", "t1", "deleted"),
        *step(*text("m2", "Gone.")),
        finished(),
    ],
    "stopped": [STARTED, *step(*text("m1", "Once upon")), finished(e.Outcome.CANCELLED)],
    "failed": [
        STARTED,
        *step(*text("m1", "Well")),
        e.RunFailed(
            RUN,
            SESSION,
            "model-unavailable",
            "The model is not available at the moment",
            reason="upstream_overloaded",
            retryable=True,
            retry_after=2.5,
            usage=USAGE,
        ),
    ],
    "failed_at_once": [STARTED, e.RunFailed(RUN, SESSION, "internal-error", "Something went wrong on our side")],
    "shared_state": [
        STARTED,
        e.CustomSent("PredictState", [{"state_key": "document", "tool": "write", "tool_argument": "text"}]),
        e.StateReplaced({"document": None, "x/y": 1}),
        *step(e.StatePatched([{"op": "replace", "path": "/document", "value": "Once"}, {"op": "remove", "path": "/x~1y"}])),
        e.StateReplaced(None),
        finished(),
    ],
    "notes": [
        STARTED,
        e.MessagesReplaced(HISTORY),
        e.ActivityShown("a1", "file", {"name": "plan.pdf", "pages": None}),
        e.ActivityPatched("a1", "file", [{"op": "add", "path": "/pages", "value": 3}]),
        e.WarningRaised("tool-unavailable", "The tool server is restarting"),
        e.HistoryCompacted(12, usage=USAGE),
        e.RawReceived({"object": "chunk"}, "openai"),
        e.RawReceived(None),
        finished(),
    ],
}  # fmt: skip


# --- any run -----------------------------------------------------------------------------------------------------

TEXTS = st.text(max_size=12)
MAX_SAFE = 2**53 - 1
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_SAFE, MAX_SAFE)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
_POINTERS = st.lists(TEXTS, max_size=3).map(
    lambda names: "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)
)
OPERATIONS = st.one_of(
    st.builds(lambda op, path, value: {"op": op, "path": path, "value": value}, st.sampled_from(["add", "replace", "test"]), _POINTERS, JSON),
    st.builds(lambda path: {"op": "remove", "path": path}, _POINTERS),
    st.builds(lambda op, path, source: {"op": op, "path": path, "from": source}, st.sampled_from(["move", "copy"]), _POINTERS, _POINTERS),
)  # fmt: skip
PATCHES = st.lists(OPERATIONS, max_size=3)
_MIME = st.sampled_from(["image/png", "audio/wav", "video/mp4", "application/pdf", "image/*"])
_FILENAMES = st.none() | TEXTS
MEDIA = st.one_of(
    st.builds(lambda m, d, f: MediaPart(mime_type=m, data=d, filename=f), _MIME, TEXTS, _FILENAMES),
    st.builds(lambda m, u, f: MediaPart(mime_type=m, url=u, filename=f), _MIME, st.sampled_from(["http://127.0.0.1/a", "urn:ag-ui:file:a%2Fb"]), _FILENAMES),
)  # fmt: skip
CONTENTS = TEXTS | st.lists(st.builds(TextPart, TEXTS) | MEDIA, max_size=3).map(tuple)
_COUNTS = st.none() | st.integers(0, MAX_SAFE)
USAGES = st.none() | st.builds(
    TokenUsage,
    prompt_tokens=st.integers(0, 10**9),
    completion_tokens=st.integers(0, 10**9),
    reasoning_tokens=_COUNTS,
    cached_tokens=_COUNTS,
)
_CALLS = st.lists(st.builds(ToolCall, id=TEXTS, name=TEXTS, arguments=TEXTS), max_size=2).map(tuple)
MESSAGES = st.one_of(
    st.builds(UserMessage, id=TEXTS, content=CONTENTS),
    st.builds(AssistantMessage, id=TEXTS, content=TEXTS, tool_calls=_CALLS, reasoning=TEXTS),
    st.builds(ToolMessage, id=TEXTS, call_id=TEXTS, name=TEXTS, content=CONTENTS, failed=st.booleans()),
)
NOTES = st.one_of(
    st.builds(e.StateReplaced, JSON),
    st.builds(e.StatePatched, PATCHES),
    st.builds(e.ActivityShown, TEXTS, TEXTS, OBJECTS),
    st.builds(e.ActivityPatched, TEXTS, TEXTS, PATCHES),
    st.builds(e.CustomSent, TEXTS, JSON),
    st.builds(e.RawReceived, JSON, st.none() | TEXTS),
    st.builds(e.WarningRaised, TEXTS, TEXTS),
    st.builds(e.HistoryCompacted, st.integers(0, MAX_SAFE), st.booleans()),
    st.builds(e.MessagesReplaced, st.lists(MESSAGES, max_size=4).map(tuple)),
)
_INTERRUPTS = st.lists(
    st.builds(
        e.Interrupt,
        id=TEXTS,
        call_id=TEXTS,
        tool=TEXTS,
        arguments=TEXTS,
        message=TEXTS,
        expires_at=st.none() | st.datetimes(timezones=st.just(UTC)),
    ),
    max_size=2,
).map(tuple)
ENDINGS = st.one_of(
    st.builds(
        e.RunFinished,
        st.just(RUN),
        st.just(SESSION),
        st.sampled_from(e.Outcome),
        TEXTS,
        st.integers(0, 50),
        USAGES,
        _INTERRUPTS,
        st.lists(TEXTS, max_size=2).map(tuple),
        st.none() | TEXTS,
    ),
    st.builds(
        e.RunFailed,
        st.just(RUN),
        st.just(SESSION),
        TEXTS,
        TEXTS,
        st.none() | TEXTS,
        st.booleans(),
        st.none() | st.floats(0, 1000),
        USAGES,
    ),
)


class _Drawn:
    """Draws one event after the other, each from those that the grammar allows at that moment."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.events: list[e.Event] = [e.RunStarted(RUN, SESSION, draw(st.none() | TEXTS), draw(st.none() | TEXTS))]
        self.steps = 0
        self.messages = 0
        self.in_step = False
        self.text: str | None = None
        self.reasoning: str | None = None
        self.open_calls: list[tuple[str, str]] = []
        self.ended_calls: list[tuple[str, str]] = []

    def moves(self) -> list[str]:
        moves = ["note"]
        if self.ended_calls:
            moves.append("result")
        if not self.in_step:
            return [*moves, "open_step"]
        moves += ["open_call"]
        moves += ["add_text", "add_text", "end_text"] if self.text is not None else ["open_text"]
        moves += ["add_reasoning", "end_reasoning"] if self.reasoning is not None else ["open_reasoning"]
        if self.open_calls:
            moves += ["add_arguments", "end_call"]
        if not (self.open_calls or self.text is not None or self.reasoning is not None):
            moves.append("end_step")
        return moves

    def make(self, move: str) -> None:
        event: e.Event = getattr(self, move)()
        self.events.append(event)

    def note(self) -> e.Event:
        note: e.Event = self.draw(NOTES)
        return note

    def open_step(self) -> e.Event:
        self.steps += 1
        self.in_step = True
        return e.StepStarted(self.steps)

    def end_step(self) -> e.Event:
        self.in_step = False
        return e.StepFinished(self.steps, self.draw(USAGES))

    def _new_message(self) -> str:
        self.messages += 1
        return f"m{self.messages}"

    def open_text(self) -> e.Event:
        known_ids = [each.message_id for each in self.events if isinstance(each, e.TextStarted)]
        self.text = self.draw(st.sampled_from([self._new_message(), *known_ids[-1:]]))  # a text may be opened again
        return e.TextStarted(self.text)

    def add_text(self) -> e.Event:
        return e.TextAdded(self.text or "", self.draw(TEXTS))

    def end_text(self) -> e.Event:
        ended, self.text = self.text, None
        return e.TextEnded(ended or "")

    def open_reasoning(self) -> e.Event:
        fresh = self._new_message()
        known_ids = {each.message_id for each in self.events if isinstance(each, e.ReasoningStarted)}
        shared = self.text if self.text is not None and self.text not in known_ids else fresh
        self.reasoning = self.draw(st.sampled_from([fresh, shared]))  # a text and a reasoning may share their id
        return e.ReasoningStarted(self.reasoning)

    def add_reasoning(self) -> e.Event:
        return e.ReasoningAdded(self.reasoning or "", self.draw(TEXTS))

    def end_reasoning(self) -> e.Event:
        ended, self.reasoning = self.reasoning, None
        return e.ReasoningEnded(ended or "")

    def open_call(self) -> e.Event:
        opened = (f"c{len(self.events)}", self.draw(st.sampled_from(["search", "delete_todo"])))
        self.open_calls.append(opened)
        return e.ToolCallStarted(*opened, self.text or self._new_message())

    def add_arguments(self) -> e.Event:
        call_id, _ = self.draw(st.sampled_from(self.open_calls))
        return e.ToolArgumentsAdded(call_id, self.draw(TEXTS))

    def end_call(self) -> e.Event:
        ended = self.draw(st.sampled_from(self.open_calls))
        self.open_calls.remove(ended)
        self.ended_calls.append(ended)
        return e.ToolCallEnded(*ended, self.draw(TEXTS))

    def result(self) -> e.Event:
        call_id, name = self.ended_calls.pop()
        return e.ToolFinished(call_id, name, self._new_message(), self.draw(CONTENTS), self.draw(st.booleans()))

    def close(self) -> list[e.Event]:
        if self.text is not None:
            self.make("end_text")
        if self.reasoning is not None:
            self.make("end_reasoning")
        while self.open_calls:
            self.make("end_call")
        if self.in_step:
            self.make("end_step")
        return [*self.events, self.draw(ENDINGS)]


@st.composite
def event_sequences(draw: st.DrawFn, max_moves: int = 25) -> list[e.Event]:
    """A complete run, as wild as the grammar lets it be."""
    drawn = _Drawn(draw)
    for _ in range(draw(st.integers(0, max_moves))):
        drawn.make(draw(st.sampled_from(drawn.moves())))
    return drawn.close()
