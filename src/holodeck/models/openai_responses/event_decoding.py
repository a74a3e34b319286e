"""Decodes one event of a Responses stream as leniently as real gateways need, and finds the item that it belongs to.

Only the members that matter are decoded, and none of them is trusted to have the right type or to be there.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from holodeck.models.chunks import DECODE_ERRORS, InBandError, Malformed, error_in, present
from holodeck.models.openai_responses.output_items import Item
from holodeck.models.pieces import TextPieces

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
        value = _loaded(data)
        event = ResponseEvent(**{name: value[name] for name in ResponseEvent.__struct_fields__ if name in value})
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


def _error_in(data: bytes) -> Any:
    try:
        value = _loaded(data)
    except Malformed:
        return {"message": data.decode(errors="replace")}
    return value.get("error") or value


@dataclass(slots=True, eq=False)
class OutputItem:
    """One item of the output. `parts` are its texts by kind and index; `known` is its JSON so far."""

    number: int
    kind: str
    ids: set[str] = field(default_factory=set)
    known: Item = field(default_factory=dict)
    parts: dict[tuple[str, int], TextPieces] = field(default_factory=dict)
    annotations: dict[int, list[Any]] = field(default_factory=dict)
    thoughts: str | None = None  # summary or content: which one is shown, if both are sent
    name: str = ""  # this and the next are set for a call that HoloDeck runs
    call_id: str = ""
    shown: str = ""  # the id under which the listener knows a tool that the provider runs
    done: bool = False
    answered: bool = False  # the listener has the result of the tool that is shown


class ItemLookup:
    """All items so far, in order of arrival.

    An event finds its item by, in this order: the item's id; its output index, if the kinds agree; the last item of its
    kind. Ids come first because some gateways give every item the index 0; they are not enough because others give every
    event a new id.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, OutputItem] = {}
        self._all: list[OutputItem] = []
        self._by_index: dict[int, OutputItem] = {}

    def __iter__(self) -> Iterator[OutputItem]:
        return iter(self._all)

    def of(self, event: ResponseEvent, kind: str, member: Item | None = None) -> OutputItem:
        """The item that the event belongs to; a new one if there is none yet."""
        sent_id = event.item_id if member is None else member.get("id")
        given_id = sent_id if isinstance(sent_id, str) else ""
        index = event.output_index if type(event.output_index) is int else None
        adds = event.type == "response.output_item.added"
        found = self._found(given_id, index, kind)
        is_another = found is not None and given_id not in found.ids
        if found is None or (is_another and ((adds and found.known) or (member is not None and found.done))):
            found = self.new(kind, index)
        if given_id and (member is not None or not found.ids):
            found.ids.add(given_id)
            self.by_id.setdefault(given_id, found)
        return found

    def is_reasoning(self, event: ResponseEvent) -> bool:
        """Whether the event belongs to an item that is known to be reasoning, whatever the event says."""
        item = self.by_id.get(event.item_id) if isinstance(event.item_id, str) else None
        if item is None and type(event.output_index) is int:
            item = self._by_index.get(event.output_index)
        return item is not None and item.kind == "reasoning"

    def _found(self, given_id: str, index: int | None, kind: str) -> OutputItem | None:
        there = self._by_index.get(index) if index is not None else None
        if there is not None and there.kind != kind:
            there = None
        if there is not None and given_id in there.ids:
            return there
        known = self.by_id.get(given_id)
        if known is not None and known.kind == kind:
            return known
        if index is not None:
            return there
        return next((item for item in reversed(self._all) if item.kind == kind), None)

    def new(self, kind: str, index: int | None = None) -> OutputItem:
        item = OutputItem(len(self._all), kind)
        self._all.append(item)
        if index is not None:
            self._by_index[index] = item
        return item
