"""What every wire's encoder is, so that one streaming response serves them all."""

from collections.abc import Iterable
from typing import ClassVar, Protocol

from holodeck.core.events import Event


class Encoder(Protocol):
    """Events in, bytes of one stream out. Synchronous; never fails on what a model, a tool or a client wrote."""

    content_type: ClassVar[str]
    keepalive: ClassVar[bytes]  # sent in silence; empty where the format has none

    def encode(self, event: Event, n: int | None = None) -> bytes: ...

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes: ...
