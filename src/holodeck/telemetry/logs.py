"""JSON lines, one for each thing worth knowing (SRV-18, ORC-08): structlog in front, one writer thread behind.

Every line has the same eight members. Lines are ASCII, so no control character, escape sequence or line separator that
a client sent can act on whoever reads them (T29), and at most 16 kB long. What the standard library logs comes out the
same way. Which lines are written, and when, is decided elsewhere.
"""

import json
import logging
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

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
_encode_fast = msgspec.json.Encoder(enc_hook=str).encode  # quicker, but not always ASCII
_NOT_FAST = (TypeError, ValueError, RecursionError)  # keys that are no strings, halves of surrogate pairs, no end


Line: TypeAlias = dict[str, Any]
"""The eight members of a line, not written out yet; its timestamp is in nanoseconds."""


def noted(level: str, event: str, members: dict[str, Any]) -> Line:
    """What somebody logs, with what is known only now: when it was, and who is being served."""
    context, take = current(), members.pop
    line = {
        "timestamp": time.time_ns(),
        "level": level,
        "request_id": take("request_id", context.request_id),
        "event": event,
        "duration_ms": take("duration_ms", None),
        "details": take("details", None) or {},
        "user_id": take("user_id", context.user_id),
        "conversation_id": take("conversation_id", context.conversation_id),
    }
    if members:  # what has no member of its own is a detail
        line["details"] = {**line["details"], **members}
    return line


class LineFormat:
    """Writes a line out. Done by the writer's thread, many at a time: no request waits for it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._redact = Redactor(secrets)
        self._clock = 0, ""  # the second that was written last, and how: in one, since any thread may look

    def __call__(self, line: Line | bytes) -> bytes:
        """Never fails: the thread that calls this has nobody to tell."""
        if isinstance(line, bytes):
            return line  # written out where it was logged
        try:
            return self._written(line)
        except Exception as error:  # noqa: BLE001  values of somebody's own, which may raise whatever they like
            return self._written(_told_of(line, error))

    def _written(self, line: Line) -> bytes:
        duration = line["duration_ms"]
        members = line | {
            "timestamp": self._time(line["timestamp"]),
            "duration_ms": None if duration is None else round(duration, 3),
        }
        text = self._redact(_ascii(members))
        if len(text) > MAX_LINE:
            text = self._shortened(members, len(text))
        return text.replace("\x7f", "\\u007f").encode("ascii") + b"\n"

    def dropped(self, count: int) -> bytes:
        return self(noted("warning", "log_lines_dropped", {"details": {"count": count}}))

    def _time(self, nanoseconds: int) -> str:
        second, millisecond = divmod(nanoseconds // 1_000_000, 1000)
        known, stamp = self._clock
        if second != known:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._clock = second, stamp
        return f"{stamp}.{millisecond:03d}Z"

    def _shortened(self, line: dict[str, Any], length: int) -> str:
        """Cut after the secrets are out, so that no half of one is left."""
        start = self._redact(_json(line["details"]))[: (MAX_LINE - _ROOM_FOR_THE_REST) // 2]  # quotes double in it
        members = {key: value[:_MAX_MEMBER] if isinstance(value, str) else value for key, value in line.items()}
        return self._redact(_json(members | {"details": {"cut": length, "start": start}}))


def _told_of(line: Line, error: Exception) -> Line:
    """Instead of a line that cannot be written: its texts, and why the rest is not there."""
    texts = {name: value if type(value) is str else None for name, value in line.items()}
    plain = {"timestamp": line["timestamp"], "duration_ms": None}
    return texts | plain | {"details": {"unprintable": type(error).__name__}}


def _ascii(line: dict[str, Any]) -> str:
    try:
        return _json(line)
    except (ValueError, RecursionError):  # a value that holds itself; one without end
        line["details"] = {"unprintable": _shown(line["details"])}
        return _encode(line)


def _json(value: Any) -> str:
    try:
        data = _encode_fast(value)
        if data.isascii():
            return data.decode("ascii")
    except _NOT_FAST:
        pass  # the slow way can do more
    return _encode(value)


def _shown(details: Any) -> str:
    try:
        return repr(details)[:_MAX_UNPRINTABLE]
    except RecursionError:
        return type(details).__name__


class LineLogger(structlog.BoundLoggerBase):
    """structlog's logger without its chain of processors: there is one thing to do with a line, and it is not done here.

    Whoever logs gives its details away: they are written out a little later.
    """

    def info(self, event: str, *args: Any, **members: Any) -> None:
        self._tell("info", event, args, members)

    def warning(self, event: str, *args: Any, **members: Any) -> None:
        self._tell("warning", event, args, members)

    def error(self, event: str, *args: Any, **members: Any) -> None:
        self._tell("error", event, args, members)

    def critical(self, event: str, *args: Any, **members: Any) -> None:
        self._tell("critical", event, args, members)

    def exception(self, event: str, *args: Any, **members: Any) -> None:
        members.pop("exc_info", None)
        self._tell("error", event, args, {"traceback": traceback.format_exc(), **members})

    def log(self, level: int, event: str, *args: Any, **members: Any) -> None:
        getattr(self, logging.getLevelName(level).lower(), self.info)(event, *args, **members)

    def debug(self, event: str, *args: Any, **members: Any) -> None:
        """Nothing, unless somebody debugs."""

    warn, msg, fatal = warning, info, critical

    def _tell(self, level: str, event: str, args: tuple[Any, ...], members: dict[str, Any]) -> None:
        told = event % args if args else event
        self._logger(noted(level, told, {**self._context, **members} if self._context else members))


class DebugLogger(LineLogger):
    def debug(self, event: str, *args: Any, **members: Any) -> None:
        self._tell("debug", event, args, members)


class StandardBridge(logging.Handler):
    """The standard library's records as lines like all others.

    A record with `extra={"details": {…}}` is an event, and its message the event's name: how layers speak that know
    nothing of telemetry.
    """

    def __init__(self, put: Callable[[Line], None]) -> None:
        """`put` writes out at once: these details are somebody else's, who may change them."""
        super().__init__()
        self._put = put

    def emit(self, record: logging.LogRecord) -> None:
        message, given = _message(record), getattr(record, "details", None)
        event = "error_occurred" if record.levelno >= logging.ERROR else "log"
        details: dict[str, Any] = {"logger": record.name, "message": message}
        if isinstance(given, dict):
            event, details = message, {"logger": record.name, **given}
        if record.exc_info:
            details["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        self._put(noted(record.levelname.lower(), event, {"details": details}))


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError) as error:  # arguments that do not fit their text
        return f"{record.msg} [{error}]"


class Logging:
    """The configured output. Close it to write what is left and to give the standard library its own back."""

    def __init__(self, writer: LineWriter[Line | bytes], bridge: StandardBridge) -> None:
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
    writer: LineWriter[Line | bytes] = LineWriter(fd, line_format, line_format.dropped)
    structlog.configure(
        processors=[],
        wrapper_class=DebugLogger if debug else LineLogger,
        logger_factory=lambda *_: writer.put,
        cache_logger_on_first_use=False,
    )
    bridge = StandardBridge(lambda line: writer.put(line_format(line)))
    root = logging.getLogger()
    root.addHandler(bridge)
    root.setLevel(logging.WARNING)
    logging.getLogger("holodeck").setLevel(level)
    return Logging(writer, bridge)
