"""One event of a Responses stream, decoded as leniently as real gateways need. Keeps no state.

Only the members that matter are decoded, and none of them is trusted to have the right type or to be there.
"""

import json
from typing import Any, Literal

import msgspec

from holodeck.models.chunks import DECODE_ERRORS, InBandError, Malformed, error_in, present

TERMINAL = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
_ERRORS = frozenset({"error", "response.error"})
WITHOUT_CONTENT = frozenset({"response.created", "response.queued", "response.in_progress"})


class ResponseTextDelta(msgspec.Struct, gc=False):
    """A piece of text, as in nearly every event. Any other event cannot be decoded into this."""

    type: Literal["response.output_text.delta"]
    delta: str
    item_id: Any = None
    output_index: Any = None
    content_index: Any = None


class ResponseEvent(msgspec.Struct, gc=False):  # JSON has no cycles, so the GC need not track it
    type: Any = None
    item_id: Any = None
    output_index: Any = None
    content_index: Any = None
    summary_index: Any = None
    delta: Any = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    input: Any = None
    name: Any = None
    part: Any = None
    item: Any = None
    annotation: Any = None
    response: Any = None
    error: Any = None
    # Members of a whole response: an endpoint that does not stream sends it as one JSON value.
    object: Any = None
    output: Any = None
    status: Any = None


decode_text = msgspec.json.Decoder(ResponseTextDelta).decode
_decode = msgspec.json.Decoder(ResponseEvent).decode


def decode_event(name: bytes, data: bytes) -> ResponseEvent:
    """The event in `data`, its type taken from the SSE event's name where the data has none.

    Raises Malformed if it is not a JSON object, InBandError for an error in any of its shapes.
    """
    try:
        event = _decode(data)
    except DECODE_ERRORS:
        event = _event_of(_loaded(data))
    if not isinstance(event.type, str) or not event.type:
        event.type = name.decode(errors="replace")
    if name == b"error" or event.type in _ERRORS:
        raise InBandError(_error_in(data))
    is_response = event.object == "response" or isinstance(event.output, list)
    if not event.type and is_response:
        event.response, event.type = _loaded(data), "response.completed"
    elif not event.type.startswith("response.") and present(event.error):
        raise InBandError(event.error)
    return event


def _loaded(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError):
        raise Malformed(data) from None
    if isinstance(value, list) and (error := error_in(value)):
        raise InBandError(error)
    if not isinstance(value, dict):
        raise Malformed(data)
    return value


def _event_of(value: dict[str, Any]) -> ResponseEvent:
    return ResponseEvent(**{name: value[name] for name in ResponseEvent.__struct_fields__ if name in value})


def _error_in(data: bytes) -> Any:
    try:
        value = _loaded(data)
    except Malformed:
        return {"message": data.decode(errors="replace")}
    return value.get("error") or value
