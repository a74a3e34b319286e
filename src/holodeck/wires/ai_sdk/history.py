"""Stored messages → UI messages for a page that loads, or chunks for a turn that still continues."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from holodeck.core import events as e
from holodeck.core import messages as m
from holodeck.core.json_values import JsonObject
from holodeck.core.request import REFUSED
from holodeck.core.tools import arguments_shown
from holodeck.wires.ai_sdk.request import DYNAMIC
from holodeck.wires.ai_sdk.stream import UiChunk, approval_chunk, file_part, input_chunk, output_chunk, output_of

UiMessage = dict[str, Any]


def ui_messages(
    messages: Sequence[m.Message], pending: m.PendingStep | None, *, server_tools: Collection[str]
) -> list[UiMessage]:
    """Converts all messages of a session.

    Everything between two messages of the user is one message of the assistant.
    """
    found: list[UiMessage] = []
    turn: list[m.Message] = []
    for message in with_pending(messages, pending):
        if isinstance(message, m.UserMessage):
            found += [*_assistant(turn, pending, server_tools), _user(message)]
            turn = []
        else:
            turn.append(message)
    return [*found, *_assistant(turn, pending, server_tools)]


def with_pending(messages: Sequence[m.Message], pending: m.PendingStep | None) -> list[m.Message]:
    return [*messages] if pending is None else [*messages, pending.assistant, *pending.results]


def _assistant(
    turn: Sequence[m.Message], pending: m.PendingStep | None, server_tools: Collection[str]
) -> list[UiMessage]:
    if not turn:
        return []
    parts = list(turn_parts(turn, pending, server_tools=server_tools))
    return [{"id": turn_id(turn), "role": "assistant", "parts": parts}]


def last_turn(messages: Sequence[m.Message], pending: m.PendingStep | None) -> list[m.Message]:
    every = with_pending(messages, pending)
    start = next((i + 1 for i in reversed(range(len(every))) if isinstance(every[i], m.UserMessage)), 0)
    return every[start:]


def turn_id(turn: Sequence[m.Message]) -> str:
    """Returns the id of the UI message: the id of the run that began the turn, as in its stream."""
    return turn[0].run_id or turn[0].id


def not_in(log: Iterable[e.Event], turn: Sequence[m.Message]) -> list[m.Message]:
    """Returns the messages of a turn that are not in this run's log: an earlier run of the turn wrote them."""
    shown, answered = set(), set()
    for event in log:
        if isinstance(event, e.TextStarted | e.ReasoningStarted | e.ToolCallStarted):
            shown.add(event.message_id)
        elif isinstance(event, e.ToolFinished):
            answered.add(event.call_id)
    return [
        message
        for message in turn
        if (message.call_id not in answered if isinstance(message, m.ToolMessage) else message.id not in shown)
    ]


def turn_parts(
    turn: Sequence[m.Message], pending: m.PendingStep | None, *, server_tools: Collection[str]
) -> Iterator[JsonObject]:
    results = {message.call_id: message for message in turn if isinstance(message, m.ToolMessage)}
    questions = {each.call_id: each for each in e.questions_of(pending)}
    for message in turn:
        if not isinstance(message, m.AssistantMessage):
            continue
        yield {"type": "step-start"}
        if message.reasoning:
            yield {"type": "reasoning", "text": message.reasoning, "state": "done"}
        if message.content:
            yield {"type": "text", "text": message.content, "state": "done"}
        for call in message.tool_calls:
            on_client = call.name not in server_tools
            outcome = _outcome(results.get(call.id), questions.get(call.id), on_client=on_client)
            yield _tool(call, on_client=on_client) | outcome


def chunks_of(parts: Iterable[JsonObject]) -> Iterator[UiChunk]:
    for number, part in enumerate(parts):
        kind, id_ = part["type"], f"before-{number}"
        if kind == "step-start":
            yield {"type": "start-step"}
        elif kind in {"text", "reasoning"}:
            yield {"type": f"{kind}-start", "id": id_}
            yield {"type": f"{kind}-delta", "id": id_, "delta": part["text"]}
            yield {"type": f"{kind}-end", "id": id_}
        else:
            yield from _tool_chunks(part)


def _tool_chunks(part: JsonObject) -> Iterator[UiChunk]:
    call_id, state = part["toolCallId"], part["state"]
    dynamic = {"dynamic": True, "providerExecuted": True} if part["type"] == DYNAMIC else {}
    name = part["toolName"] if dynamic else part["type"].removeprefix("tool-")
    yield input_chunk(call_id, name, part["input"]) | dynamic
    if state == "output-available":
        yield {"type": "tool-output-available", "toolCallId": call_id, "output": part["output"]} | dynamic
    elif state == "output-error":
        yield output_chunk(call_id, part["errorText"], failed=True, on_client=False) | dynamic
    elif state == "approval-requested":
        yield approval_chunk(part["approval"]["id"], call_id, part["approval"]["requestReason"])
    elif state == "output-denied":
        yield {"type": "tool-output-denied", "toolCallId": call_id}


def _user(message: m.UserMessage) -> UiMessage:
    parts = [
        {"type": "text", "text": part.text} if isinstance(part, m.TextPart) else file_part(part)
        for part in m.parts_of(message.content)
    ]
    return {"id": message.id, "role": "user", "parts": parts}


def _tool(call: m.ToolCall, *, on_client: bool) -> JsonObject:
    ours = {"type": DYNAMIC, "toolName": call.name, "providerExecuted": True}
    kind = {"type": f"tool-{call.name}"} if on_client else ours
    return kind | {"toolCallId": call.id, "state": "input-available", "input": arguments_shown(call.arguments)}


def _outcome(result: m.ToolMessage | None, question: e.Interrupt | None, *, on_client: bool) -> JsonObject:
    if result is not None and result.failed:
        text = m.text_of(result.content)
        if text.startswith(REFUSED):  # the id of its question is not stored, and the client's schema needs one
            return {"state": "output-denied", "approval": {"id": result.call_id, "approved": False}}
        return {"state": "output-error", "errorText": text}
    if result is not None:
        return {"state": "output-available", "output": output_of(result.content, on_client=on_client)}
    if question is None:
        return {}
    return {"state": "approval-requested", "approval": {"id": question.id, "requestReason": question.message}}
