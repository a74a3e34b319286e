"""Small values that a server stores beside its sessions, so that replicas share them and they survive a restart.

Examples: addresses of push notifications, which runs answered a conversation, the secret of tickets. A store does not
know what they mean: it keeps bytes by owner, kind, topic and name, until they expire.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from holodeck.core.owner import OwnedId, Owner

MAX_VALUES = 100_000  # in memory, of all owners
K = TypeVar("K")
V = TypeVar("V")


class KeptValue(msgspec.Struct, frozen=True, kw_only=True):
    """One value. Kind, topic and name identify it among the values of its owner."""

    kind: str
    topic: str = ""
    name: str
    body: bytes = b""
    session_id: str | None = None  # the session with which it is deleted


class ValueStore(Protocol):
    """Stores small values. Every call names the owner: another owner's value looks like one that does not exist."""

    async def put(
        self, value: KeptValue, *, owner: Owner, seconds: float | None = None, at_most: int | None = None
    ) -> None:
        """Stores a value for `seconds`, or permanently if that is None. Replaces the value with the same names.

        An owner with more than `at_most` values of this kind loses the oldest ones.
        """

    async def put_first(self, value: KeptValue, *, owner: Owner, seconds: float | None = None) -> bool:
        """Stores a value unless one with its names exists, and returns whether it did.

        Only one of several processes succeeds.
        """

    async def of_topic(self, kind: str, topic: str = "", *, owner: Owner) -> Sequence[KeptValue]:
        """The values of a topic, the latest one last."""

    async def remove(self, kind: str, topic: str, name: str, *, owner: Owner) -> bool:
        """Deletes a value, and returns whether it existed."""

    async def remove_expired(self) -> int:
        """Deletes expired values, and returns how many."""


class _Entry(msgspec.Struct, frozen=True):
    value: KeptValue
    expires: float | None


_Names = tuple[str, str]
_OwnedKind = tuple[Owner, str]


class MemoryValues:
    """Values in memory. If there are too many, the owner with the most values of one kind loses the oldest."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, limit: int = MAX_VALUES) -> None:
        self._clock, self._limit = clock, limit
        self._shelves: dict[_OwnedKind, dict[_Names, _Entry]] = {}  # by owner and kind; the oldest value first
        self._topics: dict[tuple[_OwnedKind, str], dict[str, None]] = {}
        self._sessions: dict[OwnedId, dict[tuple[_OwnedKind, _Names], None]] = {}
        self._count = 0

    async def put(
        self, value: KeptValue, *, owner: Owner, seconds: float | None = None, at_most: int | None = None
    ) -> None:
        self._add(value, owner, seconds)
        shelf = owner, value.kind
        while at_most is not None and len(self._shelves[shelf]) > at_most:
            self._drop(shelf, next(iter(self._shelves[shelf])))
        while self._count > self._limit:
            most = max(self._shelves, key=lambda each: len(self._shelves[each]))
            self._drop(most, next(iter(self._shelves[most])))

    async def put_first(self, value: KeptValue, *, owner: Owner, seconds: float | None = None) -> bool:
        found = self._shelves.get((owner, value.kind), {}).get((value.topic, value.name))
        if found is not None and not self._is_over(found):
            return False
        self._add(value, owner, seconds)
        return True

    async def of_topic(self, kind: str, topic: str = "", *, owner: Owner) -> Sequence[KeptValue]:
        shelf = owner, kind
        found = [self._shelves[shelf][topic, name] for name in self._topics.get((shelf, topic), ())]
        return [each.value for each in found if not self._is_over(each)]

    async def remove(self, kind: str, topic: str, name: str, *, owner: Owner) -> bool:
        found = self._shelves.get((owner, kind), {}).get((topic, name))
        self._drop((owner, kind), (topic, name))
        return found is not None and not self._is_over(found)

    async def remove_expired(self) -> int:
        over = [
            (shelf, names)
            for shelf, values in self._shelves.items()
            for names, entry in values.items()
            if self._is_over(entry)
        ]
        for shelf, names in over:
            self._drop(shelf, names)
        return len(over)

    def forget_session(self, owner: Owner, session_id: str) -> None:
        for shelf, names in self._sessions.pop((owner, session_id), ()):
            self._drop(shelf, names)

    def _add(self, value: KeptValue, owner: Owner, seconds: float | None) -> None:
        shelf, names = (owner, value.kind), (value.topic, value.name)
        self._drop(shelf, names)
        expires = None if seconds is None else self._clock() + seconds
        self._shelves.setdefault(shelf, {})[names] = _Entry(value, expires)
        self._topics.setdefault((shelf, value.topic), {})[value.name] = None
        if value.session_id is not None:
            self._sessions.setdefault((owner, value.session_id), {})[shelf, names] = None
        self._count += 1

    def _drop(self, shelf: _OwnedKind, names: _Names) -> None:
        values = self._shelves.get(shelf, {})
        entry = values.pop(names, None)
        if entry is None:
            return
        self._count -= 1
        if not values:
            del self._shelves[shelf]
        _take_out(self._topics, (shelf, names[0]), names[1])
        if entry.value.session_id is not None:
            _take_out(self._sessions, (shelf[0], entry.value.session_id), (shelf, names))

    def _is_over(self, entry: _Entry) -> bool:
        return entry.expires is not None and entry.expires <= self._clock()


def _take_out(index: dict[K, dict[V, None]], key: K, value: V) -> None:
    found = index.get(key)
    if found is not None:
        found.pop(value, None)
        if not found:
            del index[key]
