"""AG-UI events → core events, for the terminal as a client of a server. The other direction is `encode`.

Pure. It returns the events that a display needs. It ignores those for pages with state of their own (snapshots,
patches). It trusts nothing from the wire: a member of the wrong type counts as absent.
"""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from holodeck.core import events as e
from holodeck.core.messages import Content
from holodeck.core.text import clean
from holodeck.core.usage import TokenUsage
from holodeck.wires.agui.decode import read_part
from holodeck.wires.agui.encode import WARNING

CLIENT_HEADER, TERMINAL = "X-HoloDeck-Client", "terminal"
"""Marks requests of the terminal, which keeps no history.

Otherwise a page that lacks the terminal's messages would seem to have rewound the conversation.
"""

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_OUTCOMES = {"cancelled": e.Outcome.CANCELLED, "interrupt": e.Outcome.INTERRUPTED}


class ClientEvents:
    def __init__(
        self,
        run_id: str,
        session_id: str,
        names: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`names` maps the calls of earlier runs to their tools, since results name only the call."""
        self._run_id, self._session_id, self._clock = run_id, session_id, clock
        self._calls: dict[str, tuple[str, list[str]]] = {id_: (name, []) for id_, name in (names or {}).items()}
        self._begun: dict[str, float] = {}  # when each call was complete, to compute how long its tool took
        self._readers: Mapping[str, Callable[[_Members], e.Event | None]] = {
            "RUN_STARTED": self._started,
            "TEXT_MESSAGE_START": lambda wire: e.TextStarted(wire.text("messageId")),
            "TEXT_MESSAGE_CONTENT": lambda wire: e.TextAdded(wire.text("messageId"), wire.text("delta")),
            "TEXT_MESSAGE_END": lambda wire: e.TextEnded(wire.text("messageId")),
            "REASONING_MESSAGE_START": lambda wire: e.ReasoningStarted(wire.text("messageId")),
            "REASONING_MESSAGE_CONTENT": lambda wire: e.ReasoningAdded(wire.text("messageId"), wire.text("delta")),
            "REASONING_MESSAGE_END": lambda wire: e.ReasoningEnded(wire.text("messageId")),
            "TOOL_CALL_START": self._call_started,
            "TOOL_CALL_ARGS": self._arguments,
            "TOOL_CALL_END": self._call_ended,
            "TOOL_CALL_RESULT": self._result,
            "ACTIVITY_SNAPSHOT": lambda wire: e.ActivityShown(
                wire.text("messageId"), wire.text("activityType"), wire.table("content")
            ),
            "CUSTOM": self._custom,
            "RUN_FINISHED": self._finished,
            "RUN_ERROR": self._failed,
        }

    def read(self, data: bytes) -> list[e.Event]:
        """Returns the events of one frame: none if the frame is not a JSON object or a display does not need it."""
        try:
            wire = _decode(data)
        except (msgspec.DecodeError, RecursionError):
            return []
        kind = wire.get("type")
        reader = self._readers.get(kind) if isinstance(kind, str) else None
        found = None if reader is None else reader(_Members(wire))
        return [] if found is None else [found]

    def _started(self, wire: "_Members") -> e.Event:
        self._run_id, self._session_id = wire.text("runId") or self._run_id, wire.text("threadId") or self._session_id
        self._begun = dict.fromkeys(self._calls, self._clock())  # calls of an earlier run start now
        is_new = wire.table("metadata").get("sessionIsNew") is True
        return e.RunStarted(self._run_id, self._session_id, is_new_session=is_new)

    def _call_started(self, wire: "_Members") -> e.Event:
        call_id, name = wire.text("toolCallId"), wire.text("toolCallName")
        self._calls[call_id] = name, []
        return e.ToolCallStarted(call_id, name, wire.text("parentMessageId"))

    def _arguments(self, wire: "_Members") -> e.Event:
        call_id, delta = wire.text("toolCallId"), wire.text("delta")
        self._calls.setdefault(call_id, ("", []))[1].append(delta)
        return e.ToolArgumentsAdded(call_id, delta)

    def _call_ended(self, wire: "_Members") -> e.Event:
        call_id = wire.text("toolCallId")
        name, pieces = self._calls.get(call_id, ("", []))
        self._begun[call_id] = self._clock()
        return e.ToolCallEnded(call_id, name, "".join(pieces))

    def _result(self, wire: "_Members") -> e.Event:
        call_id = wire.text("toolCallId")
        now = self._clock()
        seconds = now - self._begun.get(call_id, now)
        name, _ = self._calls.get(call_id, ("", []))
        failed = wire.table("metadata").get("failed") is True
        return e.ToolFinished(call_id, name, wire.text("messageId"), _content(wire.value("content")), failed, seconds)

    def _custom(self, wire: "_Members") -> e.Event | None:
        if wire.text("name") != WARNING:
            return None
        value = _Members(wire.table("value"))
        return e.WarningRaised(value.text("code"), value.text("message"))

    def _finished(self, wire: "_Members") -> e.Event:
        outcome, result = wire.table("outcome"), _Members(wire.table("result"))
        return e.RunFinished(
            self._run_id,
            self._session_id,
            outcome=_OUTCOMES.get(str(outcome.get("type")), e.Outcome.COMPLETED),
            finish_reason=result.text("finishReason") or "stop",
            usage=_usage(wire.value("usage")),
            interrupts=tuple(_interrupt(_Members(each)) for each in _tables(outcome.get("interrupts"))),
            warning=result.text("warning") or None,
            output=result.value("output"),
        )

    def _failed(self, wire: "_Members") -> e.Event:
        metadata = wire.table("metadata")
        return e.RunFailed(
            self._run_id,
            self._session_id,
            code=wire.text("code") or "internal-error",
            message=wire.text("message"),
            retryable=metadata.get("retryable") is True,
            usage=_usage(wire.value("usage")),
        )


class _Members:
    """A JSON object whose members may be missing or of any type."""

    def __init__(self, wire: Mapping[str, Any]) -> None:
        self._wire = wire

    def value(self, name: str) -> Any:
        return self._wire.get(name)

    def text(self, name: str) -> str:
        found = self._wire.get(name)
        return clean(found) if isinstance(found, str) else ""

    def table(self, name: str) -> dict[str, Any]:
        found = self._wire.get(name)
        return found if isinstance(found, dict) else {}


def _tables(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _content(given: Any) -> Content:
    if isinstance(given, str):
        return clean(given)
    parts = [read_part(part) for part in _tables(given)]
    return tuple(part for part in parts if part is not None)


def _interrupt(wire: _Members) -> e.Interrupt:
    about = _Members(wire.table("metadata"))
    return e.Interrupt(
        id=wire.text("id"),
        call_id=wire.text("toolCallId"),
        tool=about.text("tool"),
        arguments=about.text("arguments"),
        message=wire.text("message"),
        expires_at=_moment(wire.text("expiresAt")),
    )


def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _usage(value: Any) -> TokenUsage | None:
    counts: list[tuple[Any, Any]] = [(each.get("inputTokens"), each.get("outputTokens")) for each in _tables(value)]
    if not counts or not all(_is_count(count) for row in counts for count in row):
        return None
    return TokenUsage(prompt_tokens=sum(row[0] for row in counts), completion_tokens=sum(row[1] for row in counts))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
