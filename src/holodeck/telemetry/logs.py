"""JSON lines, one for each thing worth knowing (SRV-18, ORC-08): structlog in front, one writer thread behind.

Every line has the same eight members. Lines are ASCII, so no control character, escape sequence or line separator that
a client sent can act on whoever reads them (T29), and at most 16 kB long. What the standard library logs comes out the
same way. Which lines are written, and when, is decided elsewhere.
"""

import json
import logging
import time
import traceback
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

import msgspec
import structlog

from holodeck.core.secrets import Redactor
from holodeck.telemetry.context import current
from holodeck.telemetry.writer import LineWriter

MAX_LINE = 16 * 1024
STDOUT = 1
_ROOM_FOR_THE_REST = 2048
_MAX_MEMBER = 200
_MAX_UNPRINTABLE = 2000
_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, default=str, skipkeys=True).encode
_encode_fast = msgspec.json.Encoder(enc_hook=str).encode  # a fifth of the time, but not always ASCII
_NOT_FAST = (TypeError, ValueError, RecursionError)  # keys that are no strings, halves of surrogate pairs, no end


class LineFormat:
    """Turns what somebody logs into one line of bytes. The last of structlog's processors."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._redact = Redactor(secrets)
        self._second, self._stamp = 0, ""

    def __call__(self, _logger: Any, level: str, event: MutableMapping[str, Any]) -> bytes:
        context = current()
        event.pop("exc_info", None)  # added by .exception(); the traceback comes through the standard library's logging
        line = {
            "timestamp": self._now(),
            "level": level,
            "request_id": event.pop("request_id", context.request_id),
            "event": event.pop("event"),
            "duration_ms": _milliseconds(event.pop("duration_ms", None)),
            "details": event.pop("details", None) or {},
            "user_id": event.pop("user_id", context.user_id),
            "conversation_id": event.pop("conversation_id", context.conversation_id),
        }
        if event:  # what has no member of its own is a detail
            line["details"] = {**line["details"], **event}
        return self._written(line)

    def dropped(self, count: int) -> bytes:
        return self(None, "warning", {"event": "log_lines_dropped", "details": {"count": count}})

    def _now(self) -> str:
        second, millisecond = divmod(time.time_ns() // 1_000_000, 1000)
        if second != self._second:
            self._second, self._stamp = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._stamp}.{millisecond:03d}Z"

    def _written(self, line: dict[str, Any]) -> bytes:
        text = self._redact(_ascii(line))
        if len(text) > MAX_LINE:
            text = self._shortened(line, len(text))
        return text.replace("\x7f", "\\u007f").encode("ascii") + b"\n"

    def _shortened(self, line: dict[str, Any], length: int) -> str:
        """Cut after the secrets are out, so that no half of one is left."""
        start = self._redact(_encode(line["details"]))[: (MAX_LINE - _ROOM_FOR_THE_REST) // 2]  # quotes double in it
        members = {key: value[:_MAX_MEMBER] if isinstance(value, str) else value for key, value in line.items()}
        return self._redact(_encode(members | {"details": {"cut": length, "start": start}}))


def _ascii(line: dict[str, Any]) -> str:
    try:
        data = _encode_fast(line)
        if data.isascii():
            return data.decode("ascii")
    except _NOT_FAST:
        pass  # the slow way can do more
    try:
        return _encode(line)
    except (ValueError, RecursionError):  # a value that holds itself; one without end
        line["details"] = {"unprintable": _shown(line["details"])}
        return _encode(line)


def _shown(details: Any) -> str:
    try:
        return repr(details)[:_MAX_UNPRINTABLE]
    except RecursionError:
        return type(details).__name__


def _milliseconds(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


class _Outlet:
    """What structlog calls a logger: takes finished lines."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        self.msg = self.debug = self.info = self.warning = self.error = self.critical = put


class StandardBridge(logging.Handler):
    """The standard library's records as lines like all others.

    A record with `extra={"details": {…}}` is an event, and its message the event's name: how layers speak that know
    nothing of telemetry.
    """

    def __init__(self, line_format: LineFormat, writer: LineWriter) -> None:
        super().__init__()
        self._format, self._writer = line_format, writer

    def emit(self, record: logging.LogRecord) -> None:
        message, given = _message(record), getattr(record, "details", None)
        event = "error_occurred" if record.levelno >= logging.ERROR else "log"
        details: dict[str, Any] = {"logger": record.name, "message": message}
        if isinstance(given, dict):
            event, details = message, {"logger": record.name, **given}
        if record.exc_info:
            details["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        self._writer.put(self._format(None, record.levelname.lower(), {"event": event, "details": details}))


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError) as error:  # arguments that do not fit their text
        return f"{record.msg} [{error}]"


class Logging:
    """The configured output. Close it to write what is left and to give the standard library its own back."""

    def __init__(self, writer: LineWriter, bridge: StandardBridge) -> None:
        self.writer = writer
        self._bridge = bridge

    def close(self, timeout: float = 1.0) -> None:
        logging.getLogger().removeHandler(self._bridge)
        structlog.reset_defaults()
        self.writer.close(timeout)


def configure(*, debug: bool = False, secrets: Iterable[str] = (), fd: int = STDOUT) -> Logging:
    """Sends structlog and the standard library's logging to `fd`. `debug` also lets through what is only for debugging."""
    level = logging.DEBUG if debug else logging.INFO
    line_format = LineFormat(secrets)
    writer = LineWriter(fd, line_format.dropped)
    outlet = _Outlet(writer.put)
    structlog.configure(
        processors=[line_format],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: outlet,
        cache_logger_on_first_use=False,
    )
    bridge = StandardBridge(line_format, writer)
    root = logging.getLogger()
    root.addHandler(bridge)
    root.setLevel(logging.WARNING)
    logging.getLogger("holodeck").setLevel(level)
    return Logging(writer, bridge)
