"""A whole conversation as JSON. A longer version of the conversation shares it.

A client that does not know a conversation is sent all of it. The cost must not grow with each turn, so a message is
encoded once, and once more for each format in which it is sent. A conversation that has grown adds to the same lists,
and an earlier version of it keeps its length. Messages are decoded only when a caller reads them.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import overload

import msgspec

from holodeck.core.messages import Content, Message

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Message]).decode

_BYTES_OF_A_MESSAGE = 300  # besides its JSON: its id, and its entries in the lists and the dictionary
_USER_SAYS = b'{"role":"user","content":'  # how the JSON of a user's message begins


class _Ledger:
    """Append-only lists: the part below a reader's length never changes."""

    __slots__ = ("encoded", "places", "size", "written")

    def __init__(self) -> None:
        self.encoded: list[bytes] = []
        self.places: dict[str, int] = {}
        self.written: dict[Hashable, list[bytes]] = {}
        self.size = 0

    def add(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.places.setdefault(message.id, len(self.encoded))
            self.encoded.append(encoded := _encode(message))
            self.size += len(encoded) + _BYTES_OF_A_MESSAGE

    def beginning(self, length: int) -> "_Ledger":
        """A copy of the first `length` messages, for a conversation that took another course after them."""
        copy = _Ledger()
        copy.encoded = self.encoded[:length]
        copy.places = {message_id: place for message_id, place in self.places.items() if place < length}
        copy.size = sum(map(len, copy.encoded)) + length * _BYTES_OF_A_MESSAGE
        return copy


class History(Sequence[Message]):
    """The messages of a conversation, oldest first. Immutable."""

    __slots__ = ("_ledger", "_length", "last")

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self._ledger, self._length = _Ledger(), len(messages)
        self.last = messages[-1] if messages else None
        self._ledger.add(messages)

    def extended(self, added: Sequence[Message]) -> "History":
        """This conversation with the added messages at its end."""
        if not added:
            return self
        longer = History()
        is_longest = len(self._ledger.encoded) == self._length
        longer._ledger = self._ledger if is_longest else self._ledger.beginning(self._length)
        longer._ledger.add(added)
        longer._length, longer.last = self._length + len(added), added[-1]
        return longer

    @property
    def size(self) -> int:
        """Its approximate size in bytes, including what it shares."""
        return self._ledger.size

    @property
    def places(self) -> Mapping[str, int]:
        """The index of each message, by its id; of the first one if several have the same."""
        places = self._ledger.places
        if len(self._ledger.encoded) == self._length:
            return places
        return {message_id: place for message_id, place in places.items() if place < self._length}

    def says(self, place: int, content: Content) -> bool:
        """Whether the message at this index is a user's with exactly this content."""
        return self._ledger.encoded[place].startswith(_USER_SAYS + _encode(content) + b",")

    def written(self, form: Hashable, write: Callable[[Message], bytes]) -> Sequence[bytes]:
        """Each message as `write` encodes it.

        Messages that were encoded before under the name `form` are not encoded again.
        """
        written = self._ledger.written.setdefault(form, [])
        if len(written) < self._length:
            added = [write(message) for message in self[len(written) :]]
            written += added
            self._ledger.size += sum(map(len, added)) + len(added) * _BYTES_OF_A_MESSAGE // 4
        return written[: self._length]

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> list[Message]: ...
    def __getitem__(self, place: int | slice) -> "Message | list[Message]":
        found = range(self._length)[place]
        if isinstance(found, int):
            return _decode(b"[%b]" % self._ledger.encoded[found])[0]
        encoded = self._ledger.encoded
        return _decode(b"[%b]" % b",".join([encoded[each] for each in found]))

    def __iter__(self) -> Iterator[Message]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list: equal to sequences of other types


def places_of(messages: Sequence[Message]) -> Mapping[str, int]:
    """The index of each message, by its id; of the first one if several have the same."""
    if isinstance(messages, History):
        return messages.places
    places: dict[str, int] = {}
    for place, message in enumerate(messages):
        places.setdefault(message.id, place)
    return places
