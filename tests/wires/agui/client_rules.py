"""What @ag-ui/client 1.0.0 enforces on the sequence of events, written from its rules and not from our grammar."""

from typing import Any

OPENERS = {
    "TEXT_MESSAGE_START": ("text", "messageId"),
    "TOOL_CALL_START": ("call", "toolCallId"),
    "REASONING_MESSAGE_START": ("reasoning message", "messageId"),
    "REASONING_START": ("reasoning span", "messageId"),
    "STEP_STARTED": ("step", "stepName"),
}
CONTINUERS = {
    "TEXT_MESSAGE_CONTENT": ("text", "messageId"),
    "TOOL_CALL_ARGS": ("call", "toolCallId"),
    "REASONING_MESSAGE_CONTENT": ("reasoning message", "messageId"),
}
CLOSERS = {
    "TEXT_MESSAGE_END": ("text", "messageId"),
    "TOOL_CALL_END": ("call", "toolCallId"),
    "REASONING_MESSAGE_END": ("reasoning message", "messageId"),
    "REASONING_END": ("reasoning span", "messageId"),
    "STEP_FINISHED": ("step", "stepName"),
}


class Refused(AssertionError):
    """The client would end the run here."""


def verify(stream: list[dict[str, Any]]) -> None:
    """Refuses a stream that the client refuses, and one that its specification does: no terminal event, mixed ids."""
    if not stream or stream[0]["type"] not in {"RUN_STARTED", "RUN_ERROR"}:
        raise Refused("the first event must be RUN_STARTED or RUN_ERROR")
    still_open: set[tuple[str, str]] = set()
    kinds: dict[str, str] = {}  # message id → what the client keeps under it
    ended = False
    for i, event in enumerate(stream):
        kind = event["type"]
        if ended or (kind == "RUN_STARTED" and i):
            raise Refused(f"{kind} after the end, or a second start")
        if kind in OPENERS:
            _open(event, still_open, kinds)
        elif kind in CONTINUERS and _part(event, CONTINUERS) not in still_open:
            raise Refused(f"{kind} without a start")
        elif kind in CLOSERS:
            if _part(event, CLOSERS) not in still_open:
                raise Refused(f"{kind} without a start")
            still_open.remove(_part(event, CLOSERS))
        ended = kind in {"RUN_FINISHED", "RUN_ERROR"}
        if kind == "RUN_FINISHED":
            _finish(event, stream[0], still_open)
    if not ended:
        raise Refused("no terminal event")


def _open(event: dict[str, Any], still_open: set[tuple[str, str]], kinds: dict[str, str]) -> None:
    part = _part(event, OPENERS)
    if part in still_open:
        raise Refused(f"{event['type']} of what is open")
    still_open.add(part)
    if part[0] in {"text", "reasoning message"} and kinds.setdefault(part[1], part[0]) != part[0]:
        raise Refused("a text and a reasoning message share an id: the client would mix them")


def _finish(event: dict[str, Any], started: dict[str, Any], still_open: set[tuple[str, str]]) -> None:
    if still_open:
        raise Refused(f"RUN_FINISHED while {sorted(still_open)} are open")
    if any(event[key] != started[key] for key in ("threadId", "runId")):
        raise Refused("the ids of start and end differ")


def _part(event: dict[str, Any], table: dict[str, tuple[str, str]]) -> tuple[str, str]:
    name, key = table[event["type"]]
    return name, event[key]
