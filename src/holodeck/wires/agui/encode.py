"""Encodes core events as AG-UI: as server-sent events, or as length-prefixed protobuf for clients that name it (SRV-06).

An event first becomes one JSON object in the shape of the wire, or two that belong together: camelCase keys, and no member
at all for what is not known, since a null in an optional field ends a client's run. The grammar of the core allows a
reasoning and a text of one message to share its id. AG-UI does not: the client keeps reasoning as a message of its own. So
reasoning gets ids derived from the message's.

A frame of server-sent events is one JSON object on one `data:` line. Its `id` line is `<run>:<n>`, where n is the event's
position in the run's log. When one event becomes two frames, only the second has an id, so that a client which reconnects
never misses the second half. Deltas, nearly all of a stream, are appended to a prefix that is built once per message or call.

A protobuf frame is 4 bytes big-endian and one `Event`, made from the JSON of the other encoder: so both formats say the
same. It has no event numbers and no keep-alive: the client takes an empty frame for a broken one.

curl and every HTTP library send `*/*`, and binary is useless on a terminal, so wildcards mean server-sent events here,
unlike in the TypeScript encoder. Clients before 1.0 cannot read ten of the protobuf events and never get them.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeAlias
from urllib.parse import unquote

import msgspec

from holodeck.core import events as e
from holodeck.core import messages as m
from holodeck.core.encoder import Encoder, WithMetadata
from holodeck.core.events import DELTAS, Event
from holodeck.core.json_values import JsonObject
from holodeck.core.messages import History
from holodeck.core.request import APPROVAL_SCHEMA
from holodeck.core.usage import TokenUsage
from holodeck.errors import PayloadTooLarge
from holodeck.wires import sse
from holodeck.wires.agui.profile import FILE_URN, MEDIA_KINDS, PROTOCOL_VERSION, Profile
from holodeck.wires.agui.protobuf import SHAPES, before_messages, varint, write_body, write_event, write_message
from holodeck.wires.reply import token_counts

WARNING = "holodeck.warning"
MAX_FRAME_BYTES = 9_000_000  # the client ends a run at a frame of 10 MB

_NO_MESSAGES: JsonObject = {"type": "MESSAGES_SNAPSHOT", "messages": ()}
_SNAPSHOT_BEGINS = b'data: {"type":"MESSAGES_SNAPSHOT","messages":['
_PATCH_MEMBERS = ("op", "path", "from", "value")

_encode = msgspec.json.Encoder().encode
_fields = msgspec.structs.astuple
_EMPTY_DELTA_END = len(b'""}')

PROTOBUF = "application/vnd.ag-ui.event+proto"  # exact: the client compares the whole header

_decode = msgspec.json.Decoder().decode
_MAX_KEPT = 64  # bytes of a delta whose framing is cached: tokens are short, so few sizes occur


def reasoning_id(message_id: str) -> str:
    return f"{message_id}-reasoning"


def translate(event: e.Event, profile: Profile) -> tuple[JsonObject, ...]:
    return TRANSLATIONS[type(event)](event, profile)


def left_out(wire: JsonObject) -> JsonObject:
    """Returns the event that replaces one that is too large for clients."""
    message = f"{wire['type']} was left out: it is too large to send"
    return _warning(PayloadTooLarge.code, message)


def _warning(code: str, message: str) -> JsonObject:
    return {"type": "CUSTOM", "name": WARNING, "value": {"code": code, "message": message}}


def _annotated(event: WithMetadata, profile: Profile) -> tuple[JsonObject, ...]:
    written = translate(event.event, profile)
    return tuple({**wire, "metadata": {**wire.get("metadata", {}), **event.metadata}} for wire in written)


def _run_started(event: e.RunStarted, profile: Profile) -> tuple[JsonObject, ...]:
    """Older clients get the version too: the server has to send it, and they ignore unknown members."""
    wire = {"type": "RUN_STARTED", "threadId": event.session_id, "runId": event.run_id}
    parent = {"parentRunId": event.parent_run_id} if event.parent_run_id else {}
    about: dict[str, object] = {"model": event.model} if event.model and profile is Profile.FULL else {}
    if event.is_new_session:
        about["sessionIsNew"] = True
    metadata = {"metadata": about} if about else {}
    return (wire | parent | {"protocolVersion": PROTOCOL_VERSION} | metadata,)


def _step_finished(event: e.StepFinished, profile: Profile) -> tuple[JsonObject, ...]:
    model = {"metadata": {"model": event.model}} if profile is Profile.FULL and event.model else {}
    return ({"type": "STEP_FINISHED", "stepName": f"step-{event.number}"} | model,)


def _reasoning_started(event: e.ReasoningStarted, _: Profile) -> tuple[JsonObject, ...]:
    message_id = reasoning_id(event.message_id)
    return (
        {"type": "REASONING_START", "messageId": _span(message_id)},
        {"type": "REASONING_MESSAGE_START", "messageId": message_id, "role": "reasoning"},
    )


def _reasoning_ended(event: e.ReasoningEnded, _: Profile) -> tuple[JsonObject, ...]:
    message_id = reasoning_id(event.message_id)
    return (
        {"type": "REASONING_MESSAGE_END", "messageId": message_id},
        {"type": "REASONING_END", "messageId": _span(message_id)},
    )


def _span(message_id: str) -> str:
    return f"{message_id}-span"


def _call_started(event: e.ToolCallStarted, _: Profile) -> tuple[JsonObject, ...]:
    wire = {"type": "TOOL_CALL_START", "toolCallId": event.call_id, "toolCallName": event.name}
    return (wire | {"parentMessageId": event.message_id},)


def _tool_finished(event: e.ToolFinished, profile: Profile) -> tuple[JsonObject, ...]:
    wire: JsonObject = {
        "type": "TOOL_CALL_RESULT",
        "messageId": event.message_id,
        "toolCallId": event.call_id,
        "content": write_result(event.content, profile),
        "role": "tool",
    }
    return (wire | {"metadata": {"failed": True}} if event.failed else wire,)


def _activity_shown(event: e.ActivityShown, _: Profile) -> tuple[JsonObject, ...]:
    wire = {"type": "ACTIVITY_SNAPSHOT", "messageId": event.message_id, "activityType": event.kind}
    return (wire | {"content": event.content, "replace": True},)


def _activity_patched(event: e.ActivityPatched, _: Profile) -> tuple[JsonObject, ...]:
    wire = {"type": "ACTIVITY_DELTA", "messageId": event.message_id, "activityType": event.kind}
    return (wire | {"patch": _operations(event.patch)},)


def _operations(patch: list[dict[str, Any]]) -> list[JsonObject]:
    """Returns only the members of RFC 6902: protobuf has no field for others, and both formats have to agree."""
    return [{key: operation[key] for key in _PATCH_MEMBERS if key in operation} for operation in patch]


def _raw_received(event: e.RawReceived, _: Profile) -> tuple[JsonObject, ...]:
    source = {} if event.source is None else {"source": event.source}
    return ({"type": "RAW", "event": event.event} | source,)


def _messages_replaced(event: e.MessagesReplaced, profile: Profile) -> tuple[JsonObject, ...]:
    """Returns two snapshots if the client may lack messages before the user's newest one, else one.

    A client appends missing messages behind those that it has, here behind the user's newest message. The first
    snapshot ends before that message, so that the client drops it. The second has everything, in order.
    """
    written = [_message(message, profile) for message in event.messages]
    return tuple([{**_NO_MESSAGES, "messages": written[:length]} for length in _lengths(event)])


def _lengths(event: e.MessagesReplaced) -> tuple[int, ...]:
    messages = event.messages
    whole = before = len(messages)
    while before and isinstance(messages[before - 1], m.UserMessage):
        before -= 1
    return (whole,) if event.corrects or before in (0, whole) else (before, whole)


def _history_compacted(event: e.HistoryCompacted, _: Profile) -> tuple[JsonObject, ...]:
    value = {"messages": event.messages, "summarized": event.summarized}
    return ({"type": "CUSTOM", "name": e.HISTORY, "value": value},)


def _message(message: m.Message, profile: Profile) -> JsonObject:
    if isinstance(message, m.AssistantMessage):
        return _assistant(message)
    if isinstance(message, m.ToolMessage):
        wire = {"id": message.id, "role": "tool", "toolCallId": message.call_id}
        failure = {"error": m.text_of(message.content)} if message.failed else {}
        return wire | {"content": write_result(message.content, profile)} | failure
    return {"id": message.id, "role": "user", "content": write_content(message.content, profile)}


def write_content(content: m.Content, profile: Profile) -> str | list[dict[str, Any]]:
    """Content of a user message: text, or parts where there are media."""
    if isinstance(content, str):
        return content
    if not any(isinstance(part, m.MediaPart) for part in content):
        return m.text_of(content)
    return [_part(part, profile) for part in content]


def write_result(content: m.Content, profile: Profile) -> str | list[dict[str, Any]]:
    """Content of a tool message: only 1.0 allows parts there."""
    return write_content(content, profile) if profile is Profile.FULL else m.text_of(content)


def _part(part: m.Part, profile: Profile) -> dict[str, Any]:
    if isinstance(part, m.TextPart):
        return {"type": "text", "text": part.text}
    source = _source(part)
    if source["type"] == "file" and profile is Profile.LEGACY:
        return {"type": "text", "text": m.text_of((part,))}  # the source `file` came with 1.0
    kind = part.mime_type.partition("/")[0]
    written = {"type": kind if kind in MEDIA_KINDS else "document", "source": source}
    if part.filename:
        written["metadata"] = {"filename": part.filename}
    return written


def _source(part: m.MediaPart) -> dict[str, str]:
    if part.data is not None:
        return {"type": "data", "value": part.data, "mimeType": part.mime_type}
    url = part.url or ""
    if url.startswith(FILE_URN):
        source = {"type": "file", "value": unquote(url.removeprefix(FILE_URN))}
    else:
        source = {"type": "url", "value": url}
    if not part.mime_type.endswith("/*"):
        source["mimeType"] = part.mime_type
    return source


def _assistant(message: m.AssistantMessage) -> JsonObject:
    """Leaves out reasoning: a client keeps its own copy as long as a snapshot shows none."""
    wire: JsonObject = {"id": message.id, "role": "assistant"}
    if message.content or not message.tool_calls:
        wire["content"] = message.content
    if message.tool_calls:
        wire["toolCalls"] = [_call(call) for call in message.tool_calls]
    return wire


def _call(call: m.ToolCall) -> JsonObject:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _run_finished(event: e.RunFinished, profile: Profile) -> tuple[JsonObject, ...]:
    result: JsonObject = {
        "status": str(event.outcome),
        "finishReason": event.finish_reason,
        "iterations": event.iterations,
    } | ({"warning": event.warning} if event.warning else {})
    if event.output is not None:
        result["output"] = event.output
    wire = {"type": "RUN_FINISHED", "threadId": event.session_id, "runId": event.run_id, "result": result}
    outcome = _outcome(event, profile)
    return (wire | ({"outcome": outcome} if outcome else {}) | _usage(event.usage),)


def _outcome(event: e.RunFinished, profile: Profile) -> JsonObject | None:
    """Clients before 1.0 get a plain end for a stopped run: they would treat `cancelled` as an error."""
    if event.outcome is e.Outcome.INTERRUPTED and event.interrupts:
        return {"type": "interrupt", "interrupts": [_interrupt(each) for each in event.interrupts]}
    if profile is Profile.LEGACY:
        return None
    if event.outcome is e.Outcome.CANCELLED:
        return {"type": "cancelled"}
    pending = {"pendingToolCallIds": list(event.pending_calls)} if event.pending_calls else {}
    return {"type": "success"} | pending


def _interrupt(interrupt: e.Interrupt) -> JsonObject:
    expiry = {} if interrupt.expires_at is None else {"expiresAt": interrupt.expires_at.isoformat()}
    return {
        "id": interrupt.id,
        "reason": "tool_call",
        "message": interrupt.message,
        "toolCallId": interrupt.call_id,
        "responseSchema": APPROVAL_SCHEMA,
        "metadata": {"tool": interrupt.tool, "arguments": interrupt.arguments},
    } | expiry


def _run_failed(event: e.RunFailed, _: Profile) -> tuple[JsonObject, ...]:
    metadata: JsonObject = {"retryable": event.retryable}
    if event.reason is not None:
        metadata["reason"] = event.reason
    if event.retry_after is not None:
        metadata["retryAfter"] = event.retry_after
    wire = {"type": "RUN_ERROR", "message": event.message, "code": event.code, "metadata": metadata}
    return (wire | _usage(event.usage),)


def _usage(usage: TokenUsage | None) -> JsonObject:
    return {} if usage is None else {"usage": [token_counts(usage)]}


_Mapper: TypeAlias = Callable[[Any, Profile], tuple[JsonObject, ...]]
TRANSLATIONS: dict[type[e.Event], _Mapper] = {
    WithMetadata: _annotated,
    e.RunStarted: _run_started,
    e.StepStarted: lambda event, _: ({"type": "STEP_STARTED", "stepName": f"step-{event.number}"},),
    e.StepFinished: _step_finished,
    e.ReasoningStarted: _reasoning_started,
    e.ReasoningAdded: lambda event, _: (
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": reasoning_id(event.message_id), "delta": event.delta},
    ),
    e.ReasoningEnded: _reasoning_ended,
    e.TextStarted: lambda event, _: (
        {"type": "TEXT_MESSAGE_START", "messageId": event.message_id, "role": "assistant"},
    ),
    e.TextAdded: lambda event, _: (
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": event.message_id, "delta": event.delta},
    ),
    e.TextEnded: lambda event, _: ({"type": "TEXT_MESSAGE_END", "messageId": event.message_id},),
    e.ToolCallStarted: _call_started,
    e.ToolArgumentsAdded: lambda event, _: (
        {"type": "TOOL_CALL_ARGS", "toolCallId": event.call_id, "delta": event.delta},
    ),
    e.ToolCallEnded: lambda event, _: ({"type": "TOOL_CALL_END", "toolCallId": event.call_id},),
    e.ToolFinished: _tool_finished,
    e.StateReplaced: lambda event, _: ({"type": "STATE_SNAPSHOT", "snapshot": event.state},),
    e.StatePatched: lambda event, _: ({"type": "STATE_DELTA", "delta": _operations(event.patch)},),
    e.ActivityShown: _activity_shown,
    e.ActivityPatched: _activity_patched,
    e.CustomSent: lambda event, _: ({"type": "CUSTOM", "name": event.name, "value": event.value},),
    e.WarningRaised: lambda event, _: (_warning(event.code, event.message),),
    e.RawReceived: _raw_received,
    e.MessagesReplaced: _messages_replaced,
    e.HistoryCompacted: _history_compacted,
    e.RunFinished: _run_finished,
    e.RunFailed: _run_failed,
}


class SseEncoder(sse.FrameEncoder):
    needs_all_events: ClassVar[bool] = False
    shows_metadata: ClassVar[bool] = True

    def __init__(self, run_id: str, profile: Profile = Profile.FULL) -> None:
        self._profile = profile
        self._id = sse.id_prefix(run_id)
        self._heads: dict[type[Event], dict[str, bytes]] = {kind: {} for kind in DELTAS}

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes:
        """Encodes all waiting events into one buffer.

        `enumerate(events, first)` is a batch; an event without a number gets no id line.
        """
        out: list[bytes] = []
        for n, event in batch:
            heads = self._heads.get(type(event))
            if heads is None or n is None:
                if isinstance(event, e.MessagesReplaced) and type(event.messages) is History:
                    out += self._snapshots(event, event.messages, n)
                else:
                    out.append(self._whole(event, n))
                continue
            key, delta = _fields(event)
            head = heads.get(key) or self._head(heads, event, key)
            try:
                out.append(b"%b%d%b%b}\n\n" % (self._id, n, head, _encode(delta)))
            except UnicodeEncodeError:  # half a surrogate pair: the slow way repairs it
                out.append(self._whole(event, n))
        return b"".join(out)

    def _head(self, heads: dict[str, bytes], event: Any, key: str) -> bytes:
        """Builds the bytes between event id and delta."""
        (wire,) = TRANSLATIONS[type(event)](type(event)(key, ""), self._profile)
        heads[key] = head = b"\ndata: " + sse.json_bytes(wire)[:-_EMPTY_DELTA_END]
        return head

    def _snapshots(self, event: e.MessagesReplaced, history: History, n: int | None) -> list[bytes]:
        """Returns the frames in pieces, which are joined once: copying a long history costs as much as sending it."""
        pieces, lengths = history.written((sse.CONTENT_TYPE, self._profile), self._item), _lengths(event)
        frames: list[bytes] = []
        for length in lengths:
            frame = [_SNAPSHOT_BEGINS, *pieces[:length], b"]}\n\n"]
            frame[1] = frame[1].removeprefix(b",")
            if sum(map(len, frame)) > MAX_FRAME_BYTES:
                frame = [sse.frame(left_out(_NO_MESSAGES))]
            if n is not None and length == lengths[-1]:
                frames.append(b"%b%d\n" % (self._id, n))
            frames += frame
        return frames

    def _item(self, message: m.Message) -> bytes:
        """Encodes a message of a snapshot, with the comma after the previous one."""
        return b"," + sse.json_bytes(_message(message, self._profile))

    def _whole(self, event: Event, n: int | None) -> bytes:
        frames: list[bytes] = []
        for wire in TRANSLATIONS[type(event)](event, self._profile):
            try:
                frame = b"data: %b\n\n" % _encode(wire)
            except Exception:  # noqa: BLE001  a value that cannot be written as it is: `json_bytes` replaces it
                frame = sse.frame(wire)
            frames.append(frame if len(frame) <= MAX_FRAME_BYTES else sse.frame(left_out(wire)))
        if n is not None:
            frames[-1] = b"%b%d\n%b" % (self._id, n, frames[-1])
        return b"".join(frames)


class ProtoEncoder(sse.FrameEncoder):
    content_type: ClassVar[str] = PROTOBUF
    keepalive = b""
    needs_all_events: ClassVar[bool] = False
    shows_metadata: ClassVar[bool] = True

    def __init__(self, run_id: str, profile: Profile = Profile.FULL) -> None:
        self.run_id = run_id
        self._profile = profile
        self._heads: dict[type[Event], dict[str, _Heads]] = {kind: {} for kind in DELTAS}

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes:
        """Encodes all waiting events into one buffer. The numbers are there only to match the SSE encoder."""
        out: list[bytes] = []
        for _, event in batch:
            heads = self._heads.get(type(event))
            if heads is None:
                if isinstance(event, e.MessagesReplaced) and type(event.messages) is History:
                    out += self._snapshots(event, event.messages)
                else:
                    out.append(self._whole(event))
                continue
            key, delta = _fields(event)
            by_size = heads.get(key)
            if by_size is None:
                by_size = heads[key] = self._heads_of(event, key)
            try:
                text = delta.encode()
            except UnicodeEncodeError:  # half a surrogate pair: the slow way repairs it
                text = b""
            out += (by_size[len(text)], text) if text else (self._whole(event),)
        return b"".join(out)

    def _heads_of(self, event: Any, key: str) -> "_Heads":
        wire = self._wires(type(event)(key, ""))[0]
        shape = SHAPES[wire["type"]]
        return _Heads(shape.arm, write_body(wire) + (shape.delta or b""))

    def _whole(self, event: Event) -> bytes:
        return b"".join(map(_frame, self._wires(event)))

    def _snapshots(self, event: e.MessagesReplaced, history: History) -> list[bytes]:
        """Same as in the SSE encoder."""
        pieces, frames = history.written((PROTOBUF, self._profile), self._message), list[bytes]()
        for length in _lengths(event):
            messages = pieces[:length]
            size = sum(map(len, messages))
            head = before_messages(size)
            if (whole := len(head) + size) > MAX_FRAME_BYTES:
                frames.append(_frame(left_out(_NO_MESSAGES)))
            else:
                frames += (whole.to_bytes(4, "big"), head, *messages)
        return frames

    def _message(self, message: m.Message) -> bytes:
        return write_message(_decode(sse.json_bytes(_message(message, self._profile))))

    def _wires(self, event: Event) -> list[dict[str, Any]]:
        return [_decode(sse.json_bytes(wire)) for wire in translate(event, self._profile)]


class _Heads(dict[int, bytes]):
    """Protobuf length prefixes by delta size, for the frames of one message or call."""

    def __init__(self, arm: bytes, body: bytes) -> None:
        """`body` is everything in the event up to the length of the delta."""
        super().__init__()
        self._arm, self._body = arm, body

    def __missing__(self, size: int) -> bytes:
        body = self._body + varint(size)
        event = self._arm + varint(len(body) + size) + body
        head = (len(event) + size).to_bytes(4, "big") + event
        if size <= _MAX_KEPT:
            self[size] = head
        return head


def _frame(wire: dict[str, Any]) -> bytes:
    event = write_event(wire)
    if len(event) > MAX_FRAME_BYTES:
        event = write_event(left_out(wire))
    return len(event).to_bytes(4, "big") + event


def encoder_for(accept: str | None, profile: Profile, run_id: str) -> Encoder:
    if profile is Profile.FULL and accept and _prefers_protobuf(accept):
        return ProtoEncoder(run_id, profile)
    return SseEncoder(run_id, profile)


def _prefers_protobuf(accept: str) -> bool:
    if PROTOBUF not in accept.lower():
        return False
    qualities = dict(map(_quality, accept.split(",")))
    return qualities.get(PROTOBUF, 0.0) > 0 and qualities[PROTOBUF] >= qualities.get(sse.CONTENT_TYPE, 0.0)


def _quality(media_range: str) -> tuple[str, float]:
    name, *parameters = media_range.split(";")
    weight = 1.0
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "q":
            weight = _weight(value.strip())
    return name.strip().lower(), weight


def _weight(text: str) -> float:
    """Returns a quality from 0 to 1. Anything else counts as a refusal."""
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0
