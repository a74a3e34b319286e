"""Server-sent events: frames as bytes.

Data is always one line of JSON, so no text that a model, a tool or a client wrote can end a frame or begin another one
(T21). Frames are separated by LF alone: the AG-UI client splits on two LFs and knows nothing of CRLF. This module knows
frames; what is in them, and when they are sent, is decided elsewhere.
"""

from typing import Any

import msgspec

from holodeck.core.text import scalar

CONTENT_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # no cache and no proxy may hold a stream back
KEEPALIVE = b": keepalive\n\n"

_FORBIDDEN = frozenset("\r\n\0")
_MAX_DIGITS = 15
_encode = msgspec.json.Encoder().encode


def json_bytes(value: Any) -> bytes:
    """One line of JSON in valid UTF-8. Halves of surrogate pairs, which UTF-8 cannot carry, become U+FFFD."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_scalar_tree(msgspec.to_builtins(value)))


def frame(data: Any, *, event: str | None = None, event_id: str | None = None) -> bytes:
    """A whole frame around `data`, which becomes JSON."""
    named = b"" if event is None else _line("event", event)
    numbered = b"" if event_id is None else _line("id", event_id)
    return b"%b%bdata: %b\n\n" % (numbered, named, json_bytes(data))


def id_prefix(run_id: str) -> bytes:
    """What stands before the number in the `id` line of a run's frames; made once, since it is the same in all."""
    return _line("id", f"{run_id}:")[:-1]


def position_after(last_event_id: str, run_id: str) -> int | None:
    """The number in a `Last-Event-ID`, or None if it is no id of this run's frames.

    HTTP takes spaces from the front of a header, so they do not count.
    """
    run, _, number = last_event_id.rpartition(":")
    if (
        run.lstrip(" ") != run_id.lstrip(" ")
        or not (number.isascii() and number.isdigit())
        or len(number) > _MAX_DIGITS
    ):
        return None
    return int(number)


def _line(name: str, value: str) -> bytes:
    if not _FORBIDDEN.isdisjoint(value):
        raise ValueError(f"CR, LF and NUL cannot be part of an SSE {name}")
    return f"{name}: {scalar(value)}\n".encode()


def _scalar_tree(value: Any) -> Any:
    if isinstance(value, str):
        return scalar(value)
    if isinstance(value, dict):
        return {_scalar_tree(key): _scalar_tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_scalar_tree(item) for item in value]
    return value
