"""The port of every wire's encoder, so that one streaming response serves all wires; and events with metadata."""

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

from holodeck.core.events import Event


class WithMetadata(Event, frozen=True, tag=True):
    """An event with metadata for the client, added by a middleware. Never in a log; it counts as the event it holds."""

    event: Event
    metadata: dict[str, Any]


def bare(event: Event) -> Event:
    while isinstance(event, WithMetadata):
        event = event.event
    return event


class Encoder(Protocol):
    """Encodes events as bytes of one stream. Synchronous; never fails on text from a model, a tool or a client."""

    content_type: ClassVar[str]
    needs_all_events: ClassVar[bool]  # it has state: a reader that starts in the middle feeds it the run from the start
    shows_metadata: ClassVar[bool]  # it encodes `WithMetadata`; other encoders get the bare event

    @property
    def keepalive(self) -> bytes:
        """The bytes to send during silence. Empty if the format has nothing for it."""

    def encode(self, event: Event, n: int | None = None) -> bytes: ...

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes: ...
