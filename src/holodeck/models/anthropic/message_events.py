"""One event of a Messages stream, decoded as leniently as real gateways need. Keeps no state.

Nearly every event is a piece of text, of a thought or of a tool's input: those are decoded into structs. Every other
event is rare and is read as plain JSON, with none of its members trusted to be there or to have the right type.
"""

from typing import Any, TypeAlias

import msgspec

from holodeck.models.chunks import InBandError, error_in, values_in

Value: TypeAlias = dict[str, Any]


class TextDelta(msgspec.Struct, tag_field="type", tag="text_delta", rename={"piece": "text"}, gc=False):
    piece: str


class ThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta", rename={"piece": "thinking"}, gc=False):
    piece: str
    estimated_tokens: Any = None  # grows with hidden thoughts, and is their only sign of progress


class InputDelta(msgspec.Struct, tag_field="type", tag="input_json_delta", rename={"piece": "partial_json"}, gc=False):
    piece: str


class BlockDelta(msgspec.Struct, tag_field="type", tag="content_block_delta", gc=False):
    """A piece of a content block. An event of any other kind cannot be decoded into this."""

    index: int
    delta: TextDelta | ThinkingDelta | InputDelta


decode_delta = msgspec.json.Decoder(BlockDelta).decode

EVENTS = frozenset(
    {
        "message_start",
        "message_delta",
        "message_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    }
)
_STATUSES = {  # HTTP status by error type, as the API documents them
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def decode_events(name: bytes, data: bytes) -> tuple[list[Value], bool]:
    """The events in `data`, and whether bytes that are not UTF-8 had to be replaced.

    An event without a type has the SSE event's name as its type. Raises Malformed if it is not a JSON object,
    InBandError for an error in any of its shapes.
    """
    values, replaced = values_in(data)
    for value in values:
        if not isinstance(value.get("type"), str):
            value["type"] = name.decode(errors="replace")
        if value["type"] == "error" or name == b"error":
            raise InBandError(_error(value))
        is_known = value["type"] in EVENTS or value["type"] in ("ping", "message")
        if not is_known and (error := error_in(value)):
            raise InBandError(_with_status(error))
    return values, replaced


def _error(value: Value) -> Any:
    error = _with_status(value.get("error") or value)
    request_id = value.get("request_id")
    if isinstance(error, dict) and isinstance(request_id, str) and isinstance(error.get("message"), str):
        error["message"] += f" (request id {request_id})"
    return error


def _with_status(error: Any) -> Any:
    """The error with the HTTP status that its type stands for, so that it is diagnosed like a refusal."""
    if not isinstance(error, dict):
        return error
    status = _STATUSES.get(str(error.get("type")))
    return dict(error) if status is None else {**error, "status": status}
