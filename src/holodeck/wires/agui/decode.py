"""RunAgentInput → RunRequest (SRV-07).

The decoder is lenient where the 1.0 specification asks for it: it drops unknown members with a log line, and the run
continues. It is strict where a guess would be dangerous: ids, names, sizes. Only the agent file gives instructions, so
the decoder drops a client's system and developer messages, and its reasoning and activities (T27). The owner of the
history decides which of the other messages are new and which tool results were requested.
"""

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import msgspec

from holodeck.core import messages as m
from holodeck.core.request import APPROVAL_SCHEMA, Resume, RunRequest, is_approval
from holodeck.core.text import clean
from holodeck.core.tools import ToolSchema
from holodeck.errors import InvalidRequest, PayloadTooLarge
from holodeck.wires import body as read
from holodeck.wires.agui.profile import ENCODING, FILE_URN, MEDIA_KINDS, Profile
from holodeck.wires.client_values import UNKNOWN_TYPE, client_call, client_state, client_tool, context_text
from holodeck.wires.sse import json_bytes

MAX_MESSAGES = 10_000
MAX_CALLS = 256  # in one assistant message
MAX_PARTS = 256  # in one message
MAX_PIECES = 10_000  # parts and calls of all messages together
MAX_TOOLS = 128
MAX_CONTEXT = 1_000
MAX_RESUMES = 128
PARTS = 2  # all parts of a message together may have this many times the text of one

_VERSION = re.compile(r"(\d{1,4})(\.\d{1,4})*")
_PART = re.compile(r"messages\[(\d+)\]\.content\[")

Warn = Callable[[str], None]
_NOTHING: tuple[object, ...] = (None, [])
_NO_STATE: tuple[object, ...] = (None, {})  # absent means `{}` to AG-UI, and clients without a state send it


class AguiInput(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a client asks for, whose files are not read yet, and what its answer has to know of the client."""

    run: RunRequest
    profile: Profile
    thread_id: str
    run_id: str
    warnings: tuple[str, ...] = ()  # for the log: what was dropped

    @property
    def has_files(self) -> bool:
        messages = self.run.messages
        parts = [part for message in messages if not isinstance(message.content, str) for part in message.content]
        return m.MediaPart in map(type, parts)

    @property
    def fingerprint(self) -> bytes:
        """Returns a hash that is equal for two deliveries of one request, and differs if the last text does.

        Omits files, which may be large, and message times, which decoding sets.
        """
        messages = self.run.messages
        text = messages[-1].content if messages else ""
        if not isinstance(text, str):
            text = m.text_of(text)
        return sha256(
            json_bytes((self.thread_id, [message.id for message in messages], self.run.resume, text))
        ).digest()

    @property
    def resumes(self) -> bytes:
        """Distinguishes a resume from the request that started its run under the same runId. Empty for a first one."""
        return sha256(json_bytes(self.run.resume)).digest() if self.run.resume else b""


def decode(body: bytes, max_text: int = read.MAX_TEXT) -> AguiInput:
    """Reads the body of a POST. Raises InvalidRequest (400: not JSON, 422: not a RunAgentInput) or PayloadTooLarge."""
    raw = camel_case(read.parse(body))
    warnings: list[str] = []
    warn = warnings.append
    thread_id, run_id = read.valid_id(raw.get("threadId"), "threadId"), read.valid_id(raw.get("runId"), "runId")
    profile = profile_of(raw.get("protocolVersion"))
    messages = _messages(raw.get("messages"), max_text, warn)
    context, tools, resumes = raw.get("context"), raw.get("tools"), raw.get("resume")  # all three are rare
    notes = () if context in _NOTHING else _context(context, warn)
    state = raw.get("state")
    if resumes not in _NOTHING:
        read.refuse_repeated_names(body)
    run = RunRequest(
        session_id=thread_id,
        run_id=run_id,
        parent_run_id=read.optional(read.valid_id, raw.get("parentRunId"), "parentRunId"),
        messages=messages,
        client_tools=() if tools in _NOTHING else _tools(tools, warn),
        context=notes,
        state=None if state in _NO_STATE else client_state(state),
        properties=_properties(raw.get("forwardedProps"), notes, warn),
        resume=()
        if resumes in _NOTHING
        else tuple(
            _resume(camel_case(raw), path, profile) for path, raw in read.tables(resumes, "resume", MAX_RESUMES)
        ),
        keeps_history=True,
        encoding=ENCODING[profile],
        warnings=_unused(warnings, raw["messages"]) if warnings else (),
    )
    return AguiInput(run=run, profile=profile, thread_id=thread_id, run_id=run_id, warnings=tuple(warnings))


def profile_of(protocol_version: Any) -> Profile:
    match = _VERSION.fullmatch(protocol_version) if isinstance(protocol_version, str) else None
    return Profile.FULL if match and int(match[1]) >= 1 else Profile.LEGACY


_CAMEL_CASE = {
    "thread_id": "threadId",
    "run_id": "runId",
    "parent_run_id": "parentRunId",
    "protocol_version": "protocolVersion",
    "forwarded_props": "forwardedProps",
    "tool_calls": "toolCalls",
    "tool_call_id": "toolCallId",
    "interrupt_id": "interruptId",
    "mime_type": "mimeType",
}


def camel_case(raw: dict[str, Any]) -> dict[str, Any]:
    """Returns the same members in AG-UI's spelling, which wins if both exist.

    The official Python SDK accepts `thread_id` as well, so Python clients send either. Microsoft's client sends
    `thread_id`.
    """
    if raw.keys().isdisjoint(_CAMEL_CASE):
        return raw
    return {_CAMEL_CASE.get(key, key): value for key, value in raw.items()} | {
        key: raw[key] for key in _CAMEL_CASE.values() if key in raw
    }


def _unused(warnings: list[str], messages: list[Any]) -> tuple[str, ...]:
    """Returns the warnings about messages after the last answer: the client is shown them (SRV-14)."""
    answers = [i for i, each in enumerate(messages) if isinstance(each, dict) and each.get("role") == "assistant"]
    newest = max(answers, default=-1)
    return tuple([each for each in warnings if (part := _PART.match(each)) and int(part[1]) > newest])


def _messages(value: Any, max_text: int, warn: Warn) -> tuple[m.Message, ...]:
    if value is None:
        raise InvalidRequest("messages is missing", field="messages")
    found: dict[str, m.Message] = {}
    tool_names: dict[str, str] = {}
    given = read.rows(value, "messages", MAX_MESSAGES)
    if sum(map(_pieces, given)) > MAX_PIECES:
        raise PayloadTooLarge(f"messages holds more than {MAX_PIECES:,} parts and tool calls")
    for i, item in enumerate(given):
        _check_text(item, f"messages[{i}]", max_text)
    for i, item in enumerate(given):
        path = f"messages[{i}]"
        message = _message(camel_case(read.table(item, path)), path, tool_names, warn)
        if message is None:
            continue
        if message.id in found:
            warn(f"{path} dropped: its id was used before")
            continue
        found[message.id] = message
        if isinstance(message, m.AssistantMessage):
            tool_names.update((call.id, call.name) for call in message.tool_calls)
    return tuple(found.values())


def _check_text(message: Any, path: str, max_text: int) -> None:
    """Refuses a message with too much text before cleaning any of it. The data of files is checked where it is read."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        lengths, allowed = [len(content)], max_text
    else:
        parts = content if isinstance(content, list) else ()
        texts = [part.get("text") for part in parts if isinstance(part, dict)]
        lengths, allowed = [len(each) for each in texts if isinstance(each, str)], PARTS * max_text
    if sum(lengths) > allowed or max(lengths, default=0) > max_text:
        raise PayloadTooLarge(
            f"{path} is too long: {sum(lengths):,} characters. The limit is {max_text:,} per text and "
            f"{PARTS * max_text:,} per message (server.limits.message_characters)"
        )


def _pieces(message: Any) -> int:
    members = message.values() if isinstance(message, dict) else ()
    return sum([len(member) for member in members if isinstance(member, list)])


def _message(raw: dict[str, Any], path: str, tool_names: dict[str, str], warn: Warn) -> m.Message | None:
    role = read.text(raw.get("role"), f"{path}.role")
    if role == "user":
        return m.UserMessage(
            id=read.name(raw.get("id"), f"{path}.id"), content=_content(raw.get("content"), path, warn)
        )
    if role == "assistant":
        return _assistant(raw, path, warn)
    if role == "tool":
        return _tool_message(raw, path, tool_names, warn)
    if role not in {"reasoning", "activity"}:  # we sent these two, and the client sent them back: not worth a log line
        refused = role in {"system", "developer"}
        warn(f"{path} dropped: {role} messages are not taken from clients" if refused else f"{path} dropped: its role")
    return None


def _assistant(raw: dict[str, Any], path: str, warn: Warn) -> m.AssistantMessage:
    content, calls = raw.get("content"), read.tables(raw.get("toolCalls"), f"{path}.toolCalls", MAX_CALLS)
    return m.AssistantMessage(
        id=read.name(raw.get("id"), f"{path}.id"),
        content="" if content is None else m.text_of(_content(content, path, warn)),
        tool_calls=tuple(client_call(call, where) for where, call in calls),
    )


def _tool_message(raw: dict[str, Any], path: str, tool_names: dict[str, str], warn: Warn) -> m.ToolMessage:
    call_id = read.name(raw.get("toolCallId"), f"{path}.toolCallId")
    content = _content(raw.get("content"), path, warn)
    failure = read.optional(read.text, raw.get("error"), f"{path}.error")
    return m.ToolMessage(
        id=read.name(raw.get("id"), f"{path}.id"),
        call_id=call_id,
        name=tool_names.get(call_id, ""),
        content=content or failure or "",
        failed=bool(failure),
    )


def _content(value: Any, path: str, warn: Warn) -> m.Content:
    path = f"{path}.content"
    if not isinstance(value, list):
        return read.text(value, path)
    parts: list[m.Part] = []
    for where, item in read.places(path, read.rows(value, path, MAX_PARTS)):
        part = read_part(item)
        if part is None:
            warn(f"{where} was not used: it is not a part that can be read")
        else:
            parts.append(part)
    return tuple(parts)


def read_part(part: Any) -> m.Part | None:
    """Reads a part of a message, or returns None: an unusable part must not fail the run (1.0 specification)."""
    if not isinstance(part, dict):
        return None
    kind = part.get("type")
    if kind == "text":
        return m.TextPart(clean(part["text"])) if isinstance(part.get("text"), str) else None
    if kind == "binary":
        return _read_binary(camel_case(part))
    if kind in MEDIA_KINDS:
        return _read_media(kind, part)
    return None


def _read_media(kind: str, part: dict[str, Any]) -> m.MediaPart | None:
    source = part.get("source")
    value = source.get("value") if isinstance(source, dict) else None
    if not isinstance(source, dict) or not isinstance(value, str):
        return None
    if not value and source.get("type") != "data":  # an empty file is kept, so that the client gets an error for it
        return None
    source, metadata = camel_case(source), part.get("metadata")
    return _media(
        place=source.get("type"),
        value=value,
        mime_type=_optional_text(source.get("mimeType")) or (UNKNOWN_TYPE if kind == "document" else f"{kind}/*"),
        filename=_optional_text(metadata.get("filename")) if isinstance(metadata, dict) else None,
    )


def _read_binary(part: dict[str, Any]) -> m.MediaPart | None:
    """Reads a part of clients up to 0.0.47: one flat object with data, url or id."""
    for place, key in (("data", "data"), ("url", "url"), ("file", "id")):
        value = _optional_text(part.get(key))
        if value:
            mime_type = _optional_text(part.get("mimeType")) or UNKNOWN_TYPE
            return _media(place=place, value=value, mime_type=mime_type, filename=_optional_text(part.get("filename")))
    return None


def _media(*, place: Any, value: str, mime_type: str, filename: str | None) -> m.MediaPart | None:
    if place == "data":
        return m.MediaPart(mime_type=mime_type, data=clean(value), filename=filename)
    if place == "url":
        return m.MediaPart(mime_type=mime_type, url=clean(value), filename=filename)
    if place == "file":
        return m.MediaPart(mime_type=mime_type, url=FILE_URN + quote(clean(value), safe=""), filename=filename)
    return None


def _optional_text(value: Any) -> str | None:
    return clean(value) if isinstance(value, str) else None


def _tools(value: Any, warn: Warn) -> tuple[ToolSchema, ...]:
    found: dict[str, ToolSchema] = {}
    for path, raw in read.tables(value, "tools", MAX_TOOLS):
        is_schema = isinstance(raw.get("parameters"), dict | None)
        tool = client_tool(raw if is_schema else {**raw, "parameters": None}, path)
        if not is_schema:
            warn(f"{path}.parameters dropped: not the JSON Schema of an object")
        if tool.name in found:
            warn(f"{path} dropped: there is another tool of this name")
        found.setdefault(tool.name, tool)
    return tuple(found.values())


def _context(value: Any, warn: Warn) -> tuple[tuple[str, str], ...]:
    found = []
    for path, item in read.places("context", read.rows(value, "context", MAX_CONTEXT)):
        if isinstance(item, dict):
            found.append((context_text(item.get("description"), path), context_text(item.get("value"), path)))
        else:
            warn(f"{path} dropped: no object")
    return tuple(found)


def _properties(value: Any, context: tuple[tuple[str, str], ...], warn: Warn) -> dict[str, Any]:
    """Returns the client's `forwardedProps`, plus the time zone if the client sent it as context instead."""
    properties = read.opaque(value, "forwardedProps")
    if not isinstance(properties, dict):
        if properties is not None:
            warn("forwardedProps dropped: not an object")
        properties = {}
    zone = next((text for described, text in context if described == "timezone"), None) if context else None
    return {"timezone": zone, **properties} if zone else properties


def _resume(raw: dict[str, Any], path: str, profile: Profile) -> Resume:
    status = read.text(raw.get("status"), f"{path}.status")
    if status not in {"resolved", "cancelled"}:
        raise InvalidRequest(f"{path}.status must be resolved or cancelled", field=f"{path}.status")
    payload = read.opaque(raw.get("payload"), f"{path}.payload")
    why = payload.get("reason") if isinstance(payload, dict) else None
    return Resume(
        interrupt_id=read.name(raw.get("interruptId"), f"{path}.interruptId"),
        approved=status == "resolved" and _is_approved(raw, payload, f"{path}.payload", profile),
        payload=payload,
        reason=read.refusal_reason(why, f"{path}.payload.reason"),
    )


def _is_approved(raw: dict[str, Any], payload: Any, path: str, profile: Profile) -> bool:
    """Clients before 1.0 may be unable to send a payload: from them `resolved` without one means yes."""
    if "payload" not in raw and profile is Profile.LEGACY:
        return True
    approved = is_approval(payload)
    if approved is None:
        message = f'{path} must be {{"approved": true}} or {{"approved": false}}; no approval was recorded'
        raise InvalidRequest(message, field=path, schema=APPROVAL_SCHEMA)
    return approved
