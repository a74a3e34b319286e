"""An AG-UI protobuf reader for tests: written from the field list of the 1.0 wire, not from our encoder.

Strict: an unknown field number, a wrong wire type, an arm that disagrees with the enum or a broken frame is an error.
"""

import struct
from collections.abc import Callable
from typing import Any

Fields = dict[int, tuple[str, Any]]
STR, OPT, VALUE, STRUCT, INT, BOOL = "str", "optional str", "value", "struct", "int", "bool"


class Many:
    def __init__(self, item: Any, *, required: bool = False) -> None:
        self.item = item
        self.required = required


class OneOf:
    """A message with exactly one field set; JSON names it in `type`."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields


OPS = ["add", "remove", "replace", "move", "copy", "test"]
OP: Fields = {1: ("op", OPS), 2: ("path", STR), 3: ("from", OPT), 4: ("value", VALUE)}
USAGE: Fields = {1: ("provider", OPT), 2: ("model", OPT), 3: ("inputTokens", INT), 4: ("outputTokens", INT),
    5: ("totalTokens", INT), 6: ("reasoningTokens", INT), 7: ("cachedInputTokens", INT), 8: ("cacheWriteInputTokens", INT)}  # fmt: skip
SOURCE = OneOf({
    1: ("data", {1: ("value", STR), 2: ("mimeType", STR)}),
    2: ("url", {1: ("value", STR), 2: ("mimeType", OPT)}),
    3: ("file", {1: ("value", STR), 2: ("provider", OPT), 3: ("mimeType", OPT)}),
})  # fmt: skip
MEDIA: Fields = {1: ("source", SOURCE), 2: ("metadata", VALUE), 3: ("id", OPT)}
CONTENT = OneOf({1: ("text", {1: ("text", STR), 2: ("id", OPT), 3: ("metadata", VALUE)}),
    2: ("image", MEDIA), 3: ("audio", MEDIA), 4: ("video", MEDIA), 5: ("document", MEDIA)})  # fmt: skip
TOOL_CALL: Fields = {1: ("id", STR), 2: ("type", STR), 3: ("function", {1: ("name", STR), 2: ("arguments", STR)}),
    4: ("metadata", STRUCT), 5: ("encryptedValue", OPT)}  # fmt: skip
MESSAGE: Fields = {1: ("id", STR), 2: ("role", STR), 3: ("content", OPT), 4: ("name", OPT), 5: ("toolCalls", Many(TOOL_CALL)),
    6: ("toolCallId", OPT), 7: ("error", OPT), 8: ("content", Many(CONTENT)), 9: ("metadata", STRUCT), 10: ("subagentRunId", OPT),
    11: ("encryptedValue", OPT), 12: ("activityType", OPT), 13: ("activityContent", STRUCT)}  # fmt: skip
INTERRUPT: Fields = {1: ("id", STR), 2: ("reason", STR), 3: ("message", OPT), 4: ("toolCallId", OPT),
    5: ("responseSchema", VALUE), 6: ("expiresAt", OPT), 7: ("metadata", VALUE), 8: ("subagentRunId", OPT)}  # fmt: skip
BASE: Fields = {1: ("type", INT), 2: ("timestamp", INT), 3: ("rawEvent", VALUE), 4: ("metadata", STRUCT)}

# arm: (type, number in the enum, fields besides the base event)
EVENTS: dict[int, tuple[str, int, Fields]] = {
    1: ("TEXT_MESSAGE_START", 0, {2: ("messageId", STR), 3: ("role", OPT), 4: ("name", OPT)}),
    2: ("TEXT_MESSAGE_CONTENT", 1, {2: ("messageId", STR), 3: ("delta", STR)}),
    3: ("TEXT_MESSAGE_END", 2, {2: ("messageId", STR)}),
    4: ("TOOL_CALL_START", 3, {2: ("toolCallId", STR), 3: ("toolCallName", STR), 4: ("parentMessageId", OPT)}),
    5: ("TOOL_CALL_ARGS", 4, {2: ("toolCallId", STR), 3: ("delta", STR)}),
    6: ("TOOL_CALL_END", 5, {2: ("toolCallId", STR)}),
    7: ("STATE_SNAPSHOT", 6, {2: ("snapshot", VALUE)}),
    8: ("STATE_DELTA", 7, {2: ("delta", Many(OP, required=True))}),
    9: ("MESSAGES_SNAPSHOT", 8, {2: ("messages", Many(MESSAGE, required=True))}),
    10: ("RAW", 9, {2: ("event", VALUE), 3: ("source", OPT)}),
    11: ("CUSTOM", 10, {2: ("name", STR), 3: ("value", VALUE)}),
    12: ("RUN_STARTED", 11, {2: ("threadId", STR), 3: ("runId", STR), 4: ("parentRunId", OPT), 6: ("protocolVersion", OPT)}),
    13: ("RUN_FINISHED", 12, {2: ("threadId", STR), 3: ("runId", STR), 4: ("result", VALUE), 5: ("outcome", STR),
        6: ("interrupts", Many(INTERRUPT)), 7: ("usage", Many(USAGE)), 8: ("pendingToolCallIds", Many(STR))}),
    14: ("RUN_ERROR", 13, {2: ("code", OPT), 3: ("message", STR), 4: ("usage", Many(USAGE))}),
    15: ("STEP_STARTED", 14, {2: ("stepName", STR)}),
    16: ("STEP_FINISHED", 15, {2: ("stepName", STR)}),
    22: ("TOOL_CALL_RESULT", 21, {3: ("messageId", STR), 4: ("toolCallId", STR), 5: ("content", OPT), 6: ("role", OPT),
        7: ("content", Many(CONTENT))}),
    23: ("ACTIVITY_SNAPSHOT", 22, {3: ("messageId", STR), 4: ("activityType", STR), 5: ("content", STRUCT), 6: ("replace", BOOL)}),
    24: ("ACTIVITY_DELTA", 23, {3: ("messageId", STR), 4: ("activityType", STR), 5: ("patch", Many(OP, required=True))}),
    25: ("REASONING_START", 24, {3: ("messageId", STR)}),
    26: ("REASONING_MESSAGE_START", 25, {3: ("messageId", STR), 4: ("role", STR)}),
    27: ("REASONING_MESSAGE_CONTENT", 26, {3: ("messageId", STR), 4: ("delta", STR)}),
    28: ("REASONING_MESSAGE_END", 27, {3: ("messageId", STR)}),
    30: ("REASONING_END", 29, {3: ("messageId", STR)}),
}  # fmt: skip


def read_stream(stream: bytes) -> list[dict[str, Any]]:
    found = []
    while stream:
        (length,) = struct.unpack(">I", stream[:4])
        assert 0 < length <= len(stream) - 4, "a frame is empty or cut"
        found.append(read_event(stream[4 : 4 + length]))
        stream = stream[4 + length :]
    return found


def read_event(event: bytes) -> dict[str, Any]:
    ((arm, body),) = _raw_fields(event)
    name, enum, fields = EVENTS[arm]
    read = _message(body, {1: ("base", BASE), **fields})
    base = read.pop("base")
    assert base.pop("type", 0) == enum, "the arm and the enum disagree"
    outcome = read.pop("outcome", "")
    if outcome:
        inside = {key: read.pop(key) for key in ("interrupts", "pendingToolCallIds") if key in read}
        read["outcome"] = {"type": outcome, **inside}
    return {"type": name, **base, **read}


def _raw_fields(data: bytes) -> list[tuple[int, Any]]:
    fields: list[tuple[int, Any]] = []
    at = 0
    value: Any
    while at < len(data):
        key, at = _varint(data, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            value, at = _varint(data, at)
        elif wire_type == 1:
            value, at = data[at : at + 8], at + 8
        else:
            assert wire_type == 2
            length, at = _varint(data, at)
            assert at + length <= len(data), "a field is cut"
            value, at = data[at : at + length], at + length
        fields.append((number, value))
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def _message(data: bytes, fields: Fields) -> dict[str, Any]:
    read: dict[str, Any] = {key: "" for key, kind in fields.values() if kind == STR}
    read |= {key: [] for key, kind in fields.values() if isinstance(kind, Many) and kind.required}
    read |= {key: kind[0] for key, kind in fields.values() if isinstance(kind, list)}
    numbers = [number for number, _ in _raw_fields(data)]
    assert numbers == sorted(numbers), "fields are out of order"
    for number, raw in _raw_fields(data):
        key, kind = fields[number]
        if isinstance(kind, Many):
            read.setdefault(key, []).append(_field(raw, kind.item))
        else:
            read[key] = _field(raw, kind)
    return read


def _field(raw: Any, kind: Any) -> Any:
    if isinstance(kind, dict):
        return _message(raw, kind)
    if isinstance(kind, OneOf):
        ((number, inner),) = _raw_fields(raw)
        name, fields = kind.fields[number]
        return {"type": name, **_message(inner, fields)}
    if isinstance(kind, list):
        return kind[raw]
    readers: dict[str, Callable[[Any], Any]] = {
        STR: bytes.decode,
        OPT: bytes.decode,
        VALUE: _value,
        STRUCT: _struct,
        INT: int,
        BOOL: bool,
    }
    return readers[kind](raw)


def _value(data: bytes) -> Any:
    ((number, raw),) = _raw_fields(data)
    if number == 1:
        return None
    if number == 2:
        return struct.unpack("<d", raw)[0]
    readers: dict[int, Callable[[Any], Any]] = {
        3: bytes.decode,
        4: bool,
        5: _struct,
        6: lambda r: [_value(item) for _, item in _raw_fields(r)],
    }
    return readers[number](raw)


def _struct(data: bytes) -> dict[str, Any]:
    entries = [dict(_raw_fields(entry)) for _, entry in _raw_fields(data)]
    return {entry.get(1, b"").decode(): _value(entry[2]) for entry in entries}
