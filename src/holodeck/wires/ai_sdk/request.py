"""The body of `POST /ai-sdk/chat` → RunRequest, as `DefaultChatTransport` of the AI SDK 6 and 7 sends it.

`messages` is the client's whole list. An assistant message in it is a whole turn, with the tool calls, results and
approvals of all its steps as parts, so its id is not one of our message ids. If the session has messages, only new
content counts: the user's newest message, outputs of the client's own tools, and answers to approvals. `trigger` and
`messageId` say which message is answered again. System messages are dropped: only the agent file gives instructions
(T27).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holodeck.core import messages as m
from holodeck.core.request import Resume, RunRequest
from holodeck.core.tools import ToolSchema
from holodeck.errors import InvalidRequest, PayloadTooLarge
from holodeck.wires import body as read
from holodeck.wires.client_values import UNKNOWN_TYPE, client_state, client_tool, context_text, media
from holodeck.wires.sse import json_bytes

MAX_MESSAGES = 10_000
MAX_PARTS = 10_000  # parts of all messages together
MAX_TOOLS = 128
MAX_CONTEXT = 1_000

SUBMIT, REGENERATE = "submit-message", "regenerate-message"
DYNAMIC = "dynamic-tool"  # type of a tool part with a separate name; other types are `tool-<name>`
_TOOL = "tool-"
_ANSWERED = "output-available", "output-error", "output-denied"  # a tuple: a client's value may be unhashable


class KnownCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of an earlier run that the client shows, so that its result can be attached to it."""

    name: str
    input: Any = None


class UiAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the encoder of an answer has to know of its request: `RunRequest.encoding` of its run."""

    continued: str | None = None  # the assistant message that the answer is a part of
    client_tools: tuple[str, ...] = ()  # their names
    open_calls: dict[str, KnownCall] = {}  # calls without a result, by id
    denied: tuple[str, ...] = ()  # those of them that the person refused
    settled: tuple[str, ...] = ()  # calls whose output the client itself sent


class UiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a client asks for, whose files are not read yet, and what its answer has to know of the request."""

    run: RunRequest
    answer: UiAnswer

    @property
    def new_message(self) -> str | None:
        """Returns the id of a message that is sent for the first time; None for all other requests."""
        last = self.run.messages[-1] if self.run.messages else None
        return last.id if self.run.rewind_to is None and isinstance(last, m.UserMessage) else None


def decode(body: bytes, max_text: int = read.MAX_TEXT) -> UiRequest:
    """Reads a body. Raises InvalidRequest with the member's path, or PayloadTooLarge."""
    raw = read.parse(body)
    trigger = SUBMIT if raw.get("trigger") is None else read.text(raw["trigger"], "trigger")
    if trigger not in {SUBMIT, REGENERATE}:
        raise InvalidRequest(f"trigger must be {SUBMIT} or {REGENERATE}", field="trigger")
    named = read.optional(read.name, raw.get("messageId"), "messageId")
    given = _checked(raw.get("messages"), max_text)
    if not given:
        raise InvalidRequest("messages is missing or empty", field="messages")
    continued = _continued(given, named if trigger == SUBMIT else None)
    calls = {} if continued is None else {each.id: each for each in _calls(*continued)}
    if any(each.resume is not None for each in calls.values()):
        read.refuse_repeated_names(body)
    run = RunRequest(
        session_id=read.valid_id(raw.get("id"), "id"),
        messages=tuple(message for path, item in given for message in _messages(item, path, max_text)),
        resume=tuple(each.resume for each in calls.values() if each.resume is not None),
        rewind_to=None if continued is not None else _rewind_to(given, trigger, named),
        client_tools=_tools(raw.get("tools")),
        context=_context(raw.get("context")),
        state=client_state(raw.get("state")),
        properties={} if raw.get("timezone") is None else {"timezone": read.text(raw["timezone"], "timezone")},
        only_adds=True,
    )
    denied = (id_ for id_, each in calls.items() if each.resume is not None and not each.resume.approved)
    answer = UiAnswer(
        continued=None if continued is None else continued[1]["id"],
        open_calls={id_: KnownCall(name=each.name, input=each.input) for id_, each in _open_calls(given)},
        denied=tuple(sorted(denied)),
        settled=tuple(sorted(id_ for id_, each in calls.items() if each.result is not None)),
    )
    return UiRequest(run=run, answer=answer)


_Item = tuple[str, dict[str, Any]]
"""A message, and the path to it."""


def _checked(value: Any, max_text: int) -> list[_Item]:
    """Returns the messages after checking that each has an id, a role and a list of parts."""
    found = [(path, _message_of(raw, path)) for path, raw in read.tables(value, "messages", MAX_MESSAGES)]
    if sum(len(message["parts"]) for _, message in found) > MAX_PARTS:
        raise PayloadTooLarge(f"messages holds more than {MAX_PARTS:,} parts")
    for path, message in found:
        size = sum(len(part["text"]) for part in message["parts"] if isinstance(part.get("text"), str))
        if size > 2 * max_text:
            raise PayloadTooLarge(
                f"{path} has {size:,} characters of text; {2 * max_text:,} are allowed in all its parts"
            )
    return found


def _message_of(raw: dict[str, Any], path: str) -> dict[str, Any]:
    role = read.text(raw.get("role"), f"{path}.role")
    if role not in {"user", "assistant", "system"}:
        raise InvalidRequest(f"{path}.role must be user, assistant or system", field=f"{path}.role")
    parts = [part for _, part in read.tables(raw.get("parts"), f"{path}.parts", MAX_PARTS)]
    return {"id": read.name(raw.get("id"), f"{path}.id"), "role": role, "parts": parts}


def _continued(given: Sequence[_Item], named: str | None) -> _Item | None:
    """Returns the assistant message that continues: the one that the client names, else the last message."""
    for path, message in reversed(given):
        if message["role"] == "assistant" and message["id"] == named:
            return path, message
    return given[-1] if given[-1][1]["role"] == "assistant" else None


def _rewind_to(given: Sequence[_Item], trigger: str, named: str | None) -> str | None:
    last = given[-1][1]
    if last["role"] == "user" and (trigger == REGENERATE or named == last["id"]):
        found: str = last["id"]
        return found
    return None


class _ToolPart(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    input: Any
    result: m.ToolMessage | None = None
    resume: Resume | None = None

    @property
    def as_call(self) -> m.ToolCall:
        return m.ToolCall(
            id=self.id, name=self.name, arguments=json_bytes({} if self.input is None else self.input).decode()
        )


def _calls(path: str, message: dict[str, Any]) -> Iterator[_ToolPart]:
    for i, part in enumerate(message["parts"]):
        if part.get("type") == DYNAMIC or str(part.get("type")).startswith(_TOOL):
            yield _call(part, f"{path}.parts[{i}]")


def _call(part: dict[str, Any], path: str) -> _ToolPart:
    kind = read.text(part.get("type"), f"{path}.type")
    called = part.get("toolName") if kind == DYNAMIC else kind.removeprefix(_TOOL)
    call_id, state = read.name(part.get("toolCallId"), f"{path}.toolCallId"), part.get("state")
    call = _ToolPart(
        id=call_id, name=read.name(called, f"{path}.toolName"), input=read.opaque(part.get("input"), f"{path}.input")
    )
    if state == "approval-responded":
        return msgspec.structs.replace(call, resume=_resume(part.get("approval"), f"{path}.approval"))
    if part.get("providerExecuted") is True:  # our own tool: the client only shows what we sent
        return call
    if state == "output-available":
        output = read.opaque(part.get("output"), f"{path}.output")
        content = output if isinstance(output, str) else json_bytes(output).decode()
        return msgspec.structs.replace(call, result=m.ToolMessage(call_id=call_id, name=call.name, content=content))
    if state == "output-error":
        failure = read.text(part.get("errorText"), f"{path}.errorText")
        result = m.ToolMessage(call_id=call_id, name=call.name, content=failure, failed=True)
        return msgspec.structs.replace(call, result=result)
    return call


def _resume(value: Any, path: str) -> Resume:
    raw = read.table(value, path)
    approved = read.decided(raw.get("approved"), f"{path}.approved")
    why = read.refusal_reason(raw.get("reason"), f"{path}.reason")
    return Resume(interrupt_id=read.name(raw.get("id"), f"{path}.id"), approved=approved, reason=why)


def _open_calls(given: Sequence[_Item]) -> Iterator[tuple[str, _ToolPart]]:
    """Returns the calls without an output in the newest assistant message: only it can have one that still waits."""
    newest = next((item for item in reversed(given) if item[1]["role"] == "assistant"), None)
    for part in () if newest is None else newest[1]["parts"]:
        if (part.get("type") == DYNAMIC or str(part.get("type")).startswith(_TOOL)) and part.get(
            "state"
        ) not in _ANSWERED:
            call = _call(part, f"{newest[0]}.parts")  # type: ignore[index]  # there are parts, so there is a message
            yield call.id, call


def _messages(raw: dict[str, Any], path: str, max_text: int) -> Iterator[m.Message]:
    if raw["role"] == "user":
        yield m.UserMessage(id=raw["id"], content=_content(raw["parts"], path, max_text))
    elif raw["role"] == "assistant":
        yield from _turn(raw, path, max_text)


def _content(parts: Sequence[dict[str, Any]], path: str, max_text: int) -> m.Content:
    found = [part for i, each in enumerate(parts) if (part := _part(each, f"{path}.parts[{i}]", max_text)) is not None]
    if not found:
        raise InvalidRequest(f"{path} has neither text nor a file", field=f"{path}.parts")
    if all(isinstance(part, m.TextPart) for part in found):
        return "\n".join(part.text for part in found if isinstance(part, m.TextPart))
    return tuple(found)


def _part(raw: dict[str, Any], path: str, max_text: int) -> m.Part | None:
    """Reads a part of a user message. Data parts belong to the application, and the model is not shown them."""
    kind = raw.get("type")
    if kind == "text":
        return m.TextPart(read.short_text(raw.get("text"), f"{path}.text", max_text))
    if kind != "file":
        return None
    mime_type = read.optional(read.text, raw.get("mediaType"), f"{path}.mediaType") or UNKNOWN_TYPE
    return media(
        raw.get("url"), f"{path}.url", mime_type, read.optional(read.name, raw.get("filename"), f"{path}.filename")
    )


def _turn(raw: dict[str, Any], path: str, max_text: int) -> Iterator[m.Message]:
    """Returns the steps of an assistant message, for sessions without a history of their own."""
    steps: list[list[dict[str, Any]]] = [[]]
    for part in raw["parts"]:
        if part.get("type") == "step-start":
            steps.append([])
        else:
            steps[-1].append(part)
    filled = [step for step in steps if step]
    for number, step in enumerate(filled, 1):
        texts = [
            read.short_text(part.get("text"), f"{path}.text", max_text) for part in step if part.get("type") == "text"
        ]
        calls = list(_calls(path, {"parts": step}))
        last = number == len(filled)
        yield m.AssistantMessage(
            id=raw["id"] if last else f"{raw['id']}-{number}",
            content="\n\n".join(each for each in texts if each),
            tool_calls=tuple(call.as_call for call in calls),
        )
        yield from (call.result for call in calls if call.result is not None)


def _tools(value: Any) -> tuple[ToolSchema, ...]:
    found: dict[str, ToolSchema] = {}
    for path, raw in read.tables(value, "tools", MAX_TOOLS):
        tool = client_tool(raw, path)
        if tool.name in found:
            raise InvalidRequest(f"{path} has the same name as another tool", field=f"{path}.name")
        found[tool.name] = tool
    return tuple(found.values())


def _context(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple(
        (
            read.optional(read.text, raw.get("description"), f"{path}.description") or "",
            context_text(raw.get("value"), path),
        )
        for path, raw in read.tables(value, "context", MAX_CONTEXT)
    )
