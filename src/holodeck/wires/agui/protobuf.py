"""AG-UI's JSON → AG-UI 1.0's protobuf, from a table of fields.

The numbers are those of package `ag_ui` as 1.0 froze them, only for what HoloDeck sends. Each message is a line of
`<number><kind> <key>`. The kinds are:

- s: text, omitted when empty; S: text that may be absent;
- V: any JSON value; T: a JSON object;
- b: boolean; i: integer; e: operation of a JSON Patch;
- the name of another message.

A star before the kind means "repeated". The tests compare every event with the bytes that @ag-ui/proto 1.0.0 writes.
This module does not know core events or frames.
"""

import math
import re
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from holodeck.core.json_values import JsonObject

_MESSAGES = {
    "Usage": "1S provider 2S model 3i inputTokens 4i outputTokens 5i totalTokens 6i reasoningTokens"
    " 7i cachedInputTokens 8i cacheWriteInputTokens",
    "Operation": "1e op 2s path 3S from 4V value",
    "Function": "1s name 2s arguments",
    "ToolCall": "1s id 2s type 3Function function",
    "Data": "1s value 2s mimeType",
    "Url": "1s value 2S mimeType",
    "File": "1s value 2S provider 3S mimeType",
    "Source": "1Data data 2Url url 3File file",
    "Text": "1s text 2S id 3V metadata",
    "Media": "1Source source 2V metadata 3S id",
    "Part": "1Text text 2Media image 3Media audio 4Media video 5Media document",
    "Message": "1s id 2s role 3S content 5*ToolCall toolCalls 6S toolCallId 7S error 8*Part contentParts",
    "Interrupt": "1s id 2s reason 3S message 4S toolCallId 5V responseSchema 6S expiresAt 7V metadata",
}

_RUN_FINISHED = "2s threadId 3s runId 4V result 5s outcome 6*Interrupt interrupts 7*Usage usage 8*s pendingToolCallIds"
# name: (arm of the envelope, number in the enum EventType, fields after the base event)
_EVENTS = {
    "TEXT_MESSAGE_START": (1, 0, "2s messageId 3S role"),
    "TEXT_MESSAGE_CONTENT": (2, 1, "2s messageId 3s delta"),
    "TEXT_MESSAGE_END": (3, 2, "2s messageId"),
    "TOOL_CALL_START": (4, 3, "2s toolCallId 3s toolCallName 4S parentMessageId"),
    "TOOL_CALL_ARGS": (5, 4, "2s toolCallId 3s delta"),
    "TOOL_CALL_END": (6, 5, "2s toolCallId"),
    "STATE_SNAPSHOT": (7, 6, "2V snapshot"),
    "STATE_DELTA": (8, 7, "2*Operation delta"),
    "MESSAGES_SNAPSHOT": (9, 8, "2*Message messages"),
    "RAW": (10, 9, "2V event 3S source"),
    "CUSTOM": (11, 10, "2s name 3V value"),
    "RUN_STARTED": (12, 11, "2s threadId 3s runId 4S parentRunId 6S protocolVersion"),
    "RUN_FINISHED": (13, 12, _RUN_FINISHED),
    "RUN_ERROR": (14, 13, "2S code 3s message 4*Usage usage"),
    "STEP_STARTED": (15, 14, "2s stepName"),
    "STEP_FINISHED": (16, 15, "2s stepName"),
    "TOOL_CALL_RESULT": (22, 21, "3s messageId 4s toolCallId 5S content 6S role 7*Part contentParts"),
    "ACTIVITY_SNAPSHOT": (23, 22, "3s messageId 4s activityType 5T content 6b replace"),
    "ACTIVITY_DELTA": (24, 23, "3s messageId 4s activityType 5*Operation patch"),
    "REASONING_START": (25, 24, "3s messageId"),
    "REASONING_MESSAGE_START": (26, 25, "3s messageId 4s role"),
    "REASONING_MESSAGE_CONTENT": (27, 26, "3s messageId 4s delta"),
    "REASONING_MESSAGE_END": (28, 27, "3s messageId"),
    "REASONING_END": (30, 29, "3s messageId"),
}

_LENGTH_DELIMITED, _VARINT = 2, 0  # wire types
_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")
_FIELD = re.compile(r"(\d+)(\*?)(\w+) (\w+)")
_ONE_BYTE = 0x80  # seven bits a byte; the eighth bit means that more follow


def varint(number: int) -> bytes:
    return _SHORT[number] if number < len(_SHORT) else _varint(number)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= _ONE_BYTE:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_SHORT = tuple(map(_varint, range(512)))  # lengths of nearly all frames


def delimited(tag: bytes, payload: bytes) -> bytes:
    return tag + varint(len(payload)) + payload


def _tag(number: int, wire_type: int = _LENGTH_DELIMITED) -> bytes:
    return varint(number << 3 | wire_type)


def _write_value(value: Any) -> bytes:
    """A google.protobuf.Value: any JSON."""
    if value is None:
        return b"\x08\x00"
    if isinstance(value, bool):
        return b"\x20\x01" if value else b"\x20\x00"
    if isinstance(value, int | float):
        return b"\x11" + _write_number(value)
    if isinstance(value, str):
        return delimited(b"\x1a", value.encode())
    if isinstance(value, dict):
        return delimited(b"\x2a", _write_struct(value))
    return delimited(b"\x32", b"".join(delimited(b"\x0a", _write_value(item)) for item in value))


def _write_number(value: float) -> bytes:
    """A double. An integer that is too large becomes infinity, as in JSON.parse."""
    try:
        double = float(value)
    except OverflowError:
        double = math.inf if value > 0 else -math.inf
    return struct.pack("<d", double)


def _write_struct(value: JsonObject) -> bytes:
    """A google.protobuf.Struct: a list of entries, each with key and value."""
    entries = (
        (delimited(b"\x0a", key.encode()) if key else b"") + delimited(b"\x12", _write_value(item))
        for key, item in value.items()
    )
    return b"".join(delimited(b"\x0a", entry) for entry in entries)


class Field(NamedTuple):
    tag: bytes
    key: str
    write: Callable[[Any], bytes]  # writes what follows tag and length
    repeated: bool
    is_varint: bool
    omit_empty: bool


Layout: TypeAlias = tuple[Field, ...]

_SCALARS: dict[str, Callable[[Any], bytes]] = {
    "s": str.encode,
    "S": str.encode,
    "V": _write_value,
    "T": _write_struct,
    "b": lambda value: varint(int(value)),
    "i": varint,
    "e": lambda operation: varint(_OPERATIONS.index(operation)) if operation != _OPERATIONS[0] else b"",
}


def _layout(line: str, messages: dict[str, Callable[[Any], bytes]]) -> Layout:
    return tuple(
        Field(
            tag=_tag(int(number), _VARINT if kind in "bie" else _LENGTH_DELIMITED),
            key=key,
            write=_SCALARS.get(kind) or messages[kind],
            repeated=bool(star),
            is_varint=kind in "bie",
            omit_empty=kind in "se" and not star,
        )
        for number, star, kind, key in _FIELD.findall(line)
    )


def _write(layout: Layout, message: JsonObject) -> bytes:
    out = bytearray()
    for field in layout:
        if field.key not in message:
            continue
        value = message[field.key]
        for item in value if field.repeated else (value,):
            payload = field.write(item)
            if payload or not field.omit_empty:
                out += field.tag + payload if field.is_varint else delimited(field.tag, payload)
    return bytes(out)


def _by_type(union: JsonObject) -> JsonObject:
    return {union["type"]: union}


def _split_content(message: JsonObject) -> JsonObject:
    if not isinstance(message.get("content"), list):
        return message
    rest = {key: value for key, value in message.items() if key != "content"}
    return rest | {"contentParts": message["content"]}


def _split_outcome(event: JsonObject) -> JsonObject:
    outcome = event.get("outcome")
    return event | outcome | {"outcome": outcome["type"]} if outcome else event


# Protobuf has no union of text and list, so a JSON union is split into two members before it is written.
_PARTED: dict[str, Callable[[JsonObject], JsonObject]] = {
    "Part": _by_type,
    "Source": _by_type,
    "Message": _split_content,
    "TOOL_CALL_RESULT": _split_content,
    "RUN_FINISHED": _split_outcome,
}


def _writers() -> dict[str, Callable[[Any], bytes]]:
    writers: dict[str, Callable[[Any], bytes]] = {}
    for name, line in _MESSAGES.items():  # each line refers only to messages above it
        writers[name] = _writer(name, _layout(line, writers))
    return writers


def _writer(name: str, layout: Layout) -> Callable[[Any], bytes]:
    parted = _PARTED.get(name)
    return (lambda message: _write(layout, parted(message))) if parted else (lambda message: _write(layout, message))


class Shape(NamedTuple):
    arm: bytes
    base: bytes  # the base event's only required field: the type
    write: Callable[[Any], bytes]
    delta: bytes | None  # the tag of the field `delta`, if it is text


def _shape(name: str, arm: int, number: int, layout: Layout) -> Shape:
    base = _tag(1, _VARINT) + varint(number) if number else b""
    delta = next((field.tag for field in layout if field.key == "delta" and not field.repeated), None)
    return Shape(arm=_tag(arm), base=base, write=_writer(name, layout), delta=delta)


_KNOWN = _writers()
SHAPES = {name: _shape(name, arm, number, _layout(line, _KNOWN)) for name, (arm, number, line) in _EVENTS.items()}


def write_body(wire: JsonObject) -> bytes:
    """Returns the fields of one event: those of the base event and its own."""
    shape = SHAPES[wire["type"]]
    base = shape.base
    if "metadata" in wire:
        base += delimited(_tag(4), _write_struct(wire["metadata"]))
    return delimited(_tag(1), base) + shape.write(wire)


def before_messages(size: int) -> bytes:
    """Returns the beginning of a MESSAGES_SNAPSHOT `Event`. `size` bytes of `write_message` follow it."""
    shape = SHAPES["MESSAGES_SNAPSHOT"]
    base = delimited(_tag(1), shape.base)
    return shape.arm + varint(len(base) + size) + base


def write_message(message: JsonObject) -> bytes:
    """Encodes one message of a snapshot, with its tag and its length."""
    return delimited(_tag(2), _KNOWN["Message"](message))


def write_event(wire: JsonObject) -> bytes:
    """Encodes an `Event`: the envelope whose arm names the event inside."""
    return delimited(SHAPES[wire["type"]].arm, write_body(wire))
