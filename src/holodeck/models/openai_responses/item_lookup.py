"""The items of a response in progress, and the lookup of the item that an event belongs to.

An event finds its item by, in this order: the item's id; its output index, if the kinds agree; the last item of its kind.
Ids come first because some gateways give every item the index 0; they are not enough because others give every event a
new id.
"""

from collections.abc import Iterator
from typing import Any

from holodeck.models.openai_responses.event_decoding import ResponseEvent
from holodeck.models.openai_responses.output_items import Item
from holodeck.models.pieces import Pieces


class OutputItem:
    """One item of the output. `parts` are its texts by kind and index; `known` is its JSON so far."""

    __slots__ = (
        "annotations",
        "answered",
        "call_id",
        "done",
        "ids",
        "kind",
        "known",
        "name",
        "number",
        "parts",
        "shown",
        "thoughts",
    )

    def __init__(self, number: int, kind: str) -> None:
        self.number = number
        self.kind = kind
        self.ids: set[str] = set()
        self.known: Item = {}
        self.parts: dict[tuple[str, int], Pieces] = {}
        self.annotations: dict[int, list[Any]] = {}
        self.thoughts: str | None = None  # summary or content: which one is shown, if both are sent
        self.name = self.call_id = ""  # of a call that we have to run
        self.shown = ""  # the id under which the listener knows a tool that the provider runs
        self.done = False
        self.answered = False  # the listener has the result of the tool that is shown


class ItemLookup:
    """All items so far, in order of arrival."""

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
        return there if index is not None else self._last(kind)

    def _last(self, kind: str) -> OutputItem | None:
        return next((item for item in reversed(self._all) if item.kind == kind), None)

    def new(self, kind: str, index: int | None = None) -> OutputItem:
        item = OutputItem(len(self._all), kind)
        self._all.append(item)
        if index is not None:
            self._by_index[index] = item
        return item
