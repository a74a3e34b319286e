"""Server-sent events: frames as bytes.

Data is always one line of JSON, so no text of a model, a tool or a client can end a frame or begin another one (T21).
Frames are separated by LF alone: the AG-UI client splits on two LFs and does not know CRLF. This module knows frames
only, not their content or when they are sent.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from holodeck.core.events import Event
from holodeck.core.text import scalar

CONTENT_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # no cache and no proxy may hold a stream back
KEEPALIVE = b": keepalive\n\n"
DONE = b"data: [DONE]\n\n"  # the last frame of OpenAI's streams and of the AI SDK

_FORBIDDEN = frozenset("\r\n\0")
_MAX_DIGITS = 15
MAX_DEPTH = 64  # nesting levels of a value that must be repaired before it is written
_encode = msgspec.json.Encoder().encode

log = logging.getLogger(__name__)


class FrameEncoder:
    """Base of the encoders of all wires. A wire's own encoder defines how a batch becomes bytes."""

    content_type: ClassVar[str] = CONTENT_TYPE
    needs_all_events: ClassVar[bool] = True
    shows_metadata: ClassVar[bool] = False

    @property
    def keepalive(self) -> bytes:
        return KEEPALIVE

    def encode(self, event: Event, n: int | None = None) -> bytes:
        return self.encode_many(((n, event),))

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes:
        raise NotImplementedError


class NamedEventEncoder(FrameEncoder):
    """Frames with a name and one line of JSON (REST, chat-stream). `read` turns an event into them, without `id` lines.

    The encoder adds the id: `<run>:<n>`, where n is the event's position in the run's log. When one event becomes several
    frames, only the last has an id, so that a client which reconnects never misses the rest.
    """

    def __init__(self, run_id: str, read: Callable[[Event], Sequence[bytes]]) -> None:
        self._id, self._read = id_prefix(run_id), read

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes:
        out: list[bytes] = []
        for n, event in batch:
            frames = self._read(event)
            if frames:
                out += frames[:-1]
                out.append(frames[-1] if n is None else b"%b%d\n%b" % (self._id, n, frames[-1]))
        return b"".join(out)


def json_bytes(value: Any) -> bytes:
    """Returns one line of JSON in valid UTF-8, whatever the value is: an event must not break its stream.

    Halves of surrogate pairs, which UTF-8 cannot carry, become U+FFFD. An object that JSON does not know becomes the
    name of its type. Values nested too deep become an ellipsis.
    """
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_writable(value))
    except Exception as error:  # noqa: BLE001  values of tools and middleware, which may raise anything when they are read
        log.warning("an event holds a value that cannot be written as JSON: %s", type(error).__name__)
        return _encode(_writable(value))


def frame(data: Any, *, event: str | None = None, event_id: str | None = None) -> bytes:
    named = b"" if event is None else _line("event", event)
    numbered = b"" if event_id is None else _line("id", event_id)
    return b"%b%bdata: %b\n\n" % (numbered, named, json_bytes(data))


def id_prefix(run_id: str) -> bytes:
    """Returns the part before the number in the `id` line of a run's frames. It is built once per run."""
    return _line("id", f"{run_id}:")[:-1]


def position_after(last_event_id: str, run_id: str) -> int | None:
    """Returns the number in a `Last-Event-ID`, or None if it is not an id of this run's frames.

    HTTP strips leading spaces from a header, so they do not count.
    """
    found = event_of(last_event_id)
    return found[1] if found is not None and found[0].lstrip(" ") == run_id.lstrip(" ") else None


def event_of(last_event_id: str) -> tuple[str, int] | None:
    """Returns the run and the number in a `Last-Event-ID`, if it has both."""
    run_id, _, number = last_event_id.rpartition(":")
    is_number = number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS
    return (run_id, int(number)) if run_id and is_number else None


def _line(name: str, value: str) -> bytes:
    if not _FORBIDDEN.isdisjoint(value):
        raise ValueError(f"CR, LF and NUL cannot be part of an SSE {name}")
    return f"{name}: {scalar(value)}\n".encode()


def _writable(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Returns the value with everything replaced that cannot be written."""
    if isinstance(value, str):
        return scalar(value)
    if isinstance(value, msgspec.Struct):
        value = {name: getattr(value, name) for name in value.__struct_encode_fields__}
    if isinstance(value, dict | list | tuple | set | frozenset) and depth == 0:
        return "…"
    if isinstance(value, dict):
        return {scalar(str(key)): _writable(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_writable(item, depth - 1) for item in value]
    try:
        return msgspec.to_builtins(value)
    except Exception:  # noqa: BLE001  as above
        return f"<{type(value).__name__}>"
