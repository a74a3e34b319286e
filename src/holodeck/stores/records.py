"""Stored bodies: JSON with a version beside it, the same bytes in every store, so that a session can be moved between them.

Reading validates. A body of an older version is upgraded in memory and written back with the next commit; one of a newer
version and one that cannot be read raise, and stay as they are.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from holodeck.core.events import AnyEvent, Ending, Event
from holodeck.core.messages import Message, PendingStep, Summary
from holodeck.core.request import RunRequest
from holodeck.errors import SessionBroken, SessionNewer

VERSION = 1
UPGRADES: dict[int, Callable[[bytes], bytes]] = {}  # from this version to the next; pure functions

T = TypeVar("T")

encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
_messages = msgspec.json.Decoder(list[Message])
_pending = msgspec.json.Decoder(PendingStep)
_summary = msgspec.json.Decoder(Summary)
_ending = msgspec.json.Decoder(Ending)
_request = msgspec.json.Decoder(RunRequest)
_anything = msgspec.json.Decoder()
_events = msgspec.json.Decoder(list[AnyEvent])


def messages_of(body: bytes, version: int) -> list[Message]:
    return _read(_messages, body, version)


def pending_of(body: bytes | None, version: int) -> PendingStep | None:
    return None if body is None else _read(_pending, body, version)


def summary_of(body: bytes | None, version: int) -> Summary | None:
    return None if body is None else _read(_summary, body, version)


def state_of(body: bytes | None, version: int) -> Any:
    return None if body is None else _read(_anything, body, version)


def ending_of(body: bytes | None, version: int) -> Ending | None:
    return None if body is None else _read(_ending, body, version)


def request_of(body: bytes, version: int) -> RunRequest:
    return _read(_request, body, version)


def optional(value: Any) -> bytes | None:
    return None if value is None else encode(value)


def events_of(bodies: Sequence[bytes]) -> list[Event]:
    """The events of a log copy, up to the first that cannot be read: what follows it would not fit."""
    events: list[Event] = []
    for body in bodies:
        try:
            events += _events.decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            break
    return events


def _read(decoder: "msgspec.json.Decoder[T]", body: bytes, version: int) -> T:
    if version > VERSION:
        raise SessionNewer("A newer version of HoloDeck wrote this session; it is left as it is.")
    try:
        for old in range(version, VERSION):
            body = UPGRADES[old](body)
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, KeyError) as error:
        raise SessionBroken("This session cannot be read; its data is kept as it is.") from error
