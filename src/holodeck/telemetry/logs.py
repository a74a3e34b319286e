"""The log: one JSON line per event (SRV-18, ORC-08), or text lines for development.

Every JSON line has the same eight members. Lines are ASCII, so no control character, escape sequence or line separator
from a client can act on the reader's terminal (T29). A line is at most 16 kB long. Records of the standard library's
logging get the same form. This module does not decide which lines are written.

A separate thread encodes and writes the lines, many at a time, so that a caller never waits for the write (D13). A pipe
without a reader fills up, and so does a disk (D10). Then lines are dropped and counted, and the log writes the count
once there is room again.
"""

import hmac
import json
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from holodeck.core.secrets import Redactor
from holodeck.telemetry.log_context import current

T = TypeVar("T")
MAX_WAITING = 200  # lines whose size is not known yet
MAX_LINES = 10_000
MAX_BYTES = 4 * 1024 * 1024
GATHER_SECONDS = 0.05

MAX_LINE = 16 * 1024
_MAX_MASKED = 4 * MAX_LINE  # characters of a text in a line: the rest would be cut off anyway
STDOUT = 1
_ROOM_FOR_THE_REST = 2048
_MAX_MEMBER = 200
_MAX_UNPRINTABLE = 2000
_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, default=str, skipkeys=True).encode
_encode_fast = msgspec.json.Encoder(enc_hook=str).encode  # faster, but not always ASCII
# Keys that are not strings, characters that are not ASCII or half a surrogate pair, endless values.
_NOT_FAST = (TypeError, ValueError, RecursionError)

LogLine: TypeAlias = dict[str, Any]
"""The eight members of a line, not written out yet; its timestamp is in nanoseconds."""


class LineWriter(Generic[T]):
    def __init__(
        self,
        fd: int,
        write_out: Callable[[T], bytes],
        report: Callable[[int], bytes],
        *,
        max_lines: int = MAX_LINES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """`write_out` encodes a line, `report` the number of dropped lines."""
        self.dropped = 0
        self._fd = fd
        self._write_out, self._report = write_out, report
        self._max_lines, self._max_bytes = max_lines, max_bytes
        self._waiting: list[T] = []  # for the thread to encode
        self._lines: list[bytes] = []  # lines encoded early because many waited: their memory use is known
        self._size = 0
        self._torn = False  # whether the last line was written only in part
        self._closing = False
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._thread = threading.Thread(target=self._write_all, name="log writer", daemon=True)
        self._thread.start()

    def put(self, line: T) -> None:
        with self._lock:  # the condition's own lock: entering the condition would cost two more calls
            waiting = self._waiting
            if len(waiting) < MAX_WAITING and not self._closing:  # then no line was encoded early
                waiting.append(line)
                if len(waiting) == 1:  # the thread sleeps only when nothing waits
                    self._filled.notify()
            elif len(self._lines) >= self._max_lines or self._size > self._max_bytes or self._closing:
                self.dropped += 1
            else:
                self._lines.append(self._write_out(line))
                self._size += len(self._lines[-1])

    def close(self, timeout: float = 1.0) -> None:
        """Writes the remaining lines. Gives up after `timeout` seconds, because the pipe may be blocked for ever."""
        with self._filled:
            self._closing = True
            self._filled.notify()
        self._thread.join(timeout)

    def _write_all(self) -> None:
        reported = 0
        while lines := self._take():
            dropped = self.dropped
            report = [self._report(dropped - reported)] if dropped > reported else []
            lost = self._write(b"".join(lines + report))
            if not lost:
                reported = dropped
                continue
            with self._filled:
                self.dropped += lost - len(report)  # the report is the last line: lost with any other

    def _write(self, data: bytes) -> int:
        """Returns how many lines were not written. A full disk may leave half a line, which must not spoil the next."""
        data = b"\n" + data if self._torn else data
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:  # a full disk or a closed pipe: there is nowhere else to report it
            sent = len(data) - len(view)
            lost = data.count(b"\n", sent) - (self._torn and sent == 0)
            self._torn = not data.endswith(b"\n", 0, sent) if sent else self._torn
            return lost
        self._torn = False
        return 0

    def _take(self) -> list[bytes]:
        """Returns all waiting lines; none at the end.

        It lets some more gather first: a thread that woke for each line would take the interpreter from the requests.
        """
        with self._filled:
            while not self._waiting and not self._closing:
                self._filled.wait()
            if not self._closing:  # only `close` notifies now
                self._filled.wait(GATHER_SECONDS)
            waiting, self._waiting = self._waiting, []
            lines, self._lines = self._lines, []
            self._size = 0
        return [*map(self._write_out, waiting), *lines]


_CURRENT: Any = object()  # stands for the value of the current request


def note(
    put: Callable[[LogLine], T],
    level: str,
    event: str,
    /,
    *,
    details: dict[str, Any] | None = None,
    duration_ms: float | None = None,
    request_id: str | None = _CURRENT,
    user_id: str | None = _CURRENT,
    conversation_id: str | None = _CURRENT,
    **more: Any,
) -> T:
    """Queues a log line with the current time and request. `more` are details."""
    context = current()
    line: LogLine = {
        "timestamp": time.time_ns(),
        "level": level,
        "request_id": context.request_id if request_id is _CURRENT else request_id,
        "event": event,
        "duration_ms": duration_ms,
        "details": ({**details, **more} if more else details) if details else more,
        "user_id": context.user_id if user_id is _CURRENT else user_id,
        "conversation_id": context.conversation_id if conversation_id is _CURRENT else conversation_id,
    }
    if context.credential_id is not None:
        line["details"] = {"tenant": context.tenant, "credential_id": context.credential_id, **line["details"]}
    return put(line)


_USERS = ("user", "owner", "user_id")  # members of details that name a user


def _json(value: Any) -> str:
    """Encodes as JSON in ASCII. ValueError or RecursionError for a value that contains itself, or has no end."""
    try:
        return _encode_fast(value).decode("ascii")
    except _NOT_FAST:
        return _encode(value)


class LineFormat:
    """Encodes a line. The writer's thread does it, many at a time: no request waits for it."""

    def __init__(self, secrets: Iterable[str] = (), *, name_user: Callable[[str], str] | None = None) -> None:
        """`name_user` replaces ids of users, if they may not be in the log."""
        self._redact, self._name_user = Redactor(secrets), name_user
        self._clock = 0, ""  # the last formatted second, as one tuple, since any thread may read it

    _encoded: Callable[[dict[str, Any]], bytes] = staticmethod(_encode_fast)

    def __call__(self, line: LogLine | bytes, *, is_plain: bool = False) -> bytes:
        """Encodes a line. Never raises: that would end the writer's thread. `is_plain`: only texts and numbers."""
        if isinstance(line, bytes):
            return line  # encoded where it was logged
        try:
            second, millisecond = divmod(line["timestamp"] // 1_000_000, 1000)
            known, stamp = self._clock
            if second != known:
                stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
                self._clock = second, stamp
            duration = line["duration_ms"]
            members = line | {
                "timestamp": f"{stamp}.{millisecond:03d}Z",
                "duration_ms": None if duration is None else round(duration, 3),
            }
            if self._name_user is not None:
                members |= _with_names(members, self._name_user)
            try:
                text = self._encoded(members).decode("ascii")
            except _NOT_FAST:
                text = self._encoded_slowly(members)
            text = self._redact(text)
            if len(text) > MAX_LINE:
                text = self._shortened(members, len(text))
            return text.replace("\x7f", "\\u007f").encode("ascii") + b"\n"
        except Exception as error:  # values of foreign classes may raise anything
            if is_plain:
                raise
            return self(_unprintable(line, error), is_plain=True)

    def dropped(self, count: int) -> bytes:
        return note(self, "warning", "log_lines_dropped", details={"count": count})

    def _encoded_slowly(self, members: dict[str, Any]) -> str:
        try:
            return _encode(members)
        except (ValueError, RecursionError):
            return _json(members | {"details": {"unprintable": _shown(members["details"])}})

    def _shortened(self, line: dict[str, Any], length: int) -> str:
        """Cuts the line after masking, so that no half of a secret is left."""
        start = self._redact(_json(line["details"]))[: (MAX_LINE - _ROOM_FOR_THE_REST) // 2]  # quotes double in it
        members = {
            key: self._redact(value)[:_MAX_MEMBER] if isinstance(value, str) else value for key, value in line.items()
        }
        return self._redact(_json(members | {"details": {"cut": length, "start": start}}))


def _text(members: dict[str, Any]) -> bytes:
    clock = members["timestamp"][11:23]
    known = {name: members[name] for name in ("request_id", "user_id", "conversation_id", "duration_ms")}
    pairs = {name: value for name, value in (known | members["details"]).items() if value not in (None, "", {}, [])}
    shown = " ".join(
        f"{name}={value if isinstance(value, int | float) else _json(value)}" for name, value in pairs.items()
    )
    return f"{clock} {members['level'].upper():<7} {_json(members['event'])[1:-1]} {shown}".rstrip().encode("ascii")


class TextFormat(LineFormat):
    """Formats lines for a developer's terminal: time, level, event, then the other members as name=value."""

    _encoded = staticmethod(_text)

    def _encoded_slowly(self, members: dict[str, Any]) -> str:
        return _text(members | {"details": {"unprintable": _shown(members["details"])}}).decode("ascii")

    def _shortened(self, line: dict[str, Any], length: int) -> str:
        return f"{self._redact(_text(line).decode('ascii'))[: MAX_LINE - 64]} … ({length:,} characters)".replace(
            "…", "..."
        )


def hashed_with(key: bytes) -> Callable[[str], str]:
    """Names users by a keyed hash: the same user has the same name, and guessing it needs the key."""
    return lambda user: f"user:{hmac.digest(key, user.encode('utf-8', 'surrogatepass'), 'sha256').hex()[:16]}"


def _with_names(members: dict[str, Any], name: Callable[[str], str]) -> dict[str, Any]:
    details = members["details"]
    user = members["user_id"]
    known = {key: details[key] for key in _USERS if isinstance(details, dict) and isinstance(details.get(key), str)}
    return {
        "user_id": name(user) if isinstance(user, str) else user,
        "details": {**details, **{key: name(value) for key, value in known.items()}} if known else details,
    }


def _unprintable(line: LogLine, error: Exception) -> LogLine:
    """Replaces a line that cannot be encoded: keeps its texts, and says why the rest is missing."""
    texts = {name: value if type(value) is str else None for name, value in line.items()}
    plain = {"timestamp": line["timestamp"], "duration_ms": None}
    return texts | plain | {"details": {"unprintable": type(error).__name__}}


def _shown(details: Any) -> str:
    try:
        return repr(details)[:_MAX_UNPRINTABLE]
    except RecursionError:
        return type(details).__name__


class EventLog:
    """Takes events and passes them to the writer. Until `configure` is called, it drops them.

    The caller must not change the details afterwards: another thread encodes them a little later.
    """

    def __init__(self) -> None:
        self.connect(_drop)

    def connect(self, put: Callable[[LogLine | bytes], None], *, debug: bool = False) -> None:
        self.debug: Callable[..., None] = partial(note, put, "debug") if debug else _ignore
        self.info: Callable[..., None] = partial(note, put, "info")
        self.warning: Callable[..., None] = partial(note, put, "warning")
        self.error: Callable[..., None] = partial(note, put, "error")

    def exception(self, event: str, **members: Any) -> None:
        self.error(event, **{"traceback": traceback.format_exc(), **members})


def _ignore(_event: str, **_members: Any) -> None:
    """Discards lines that are not written."""


def _drop(_line: LogLine | bytes) -> None:
    """The output before `configure` is called, and after it is closed."""


event_log = EventLog()


class StandardBridge(logging.Handler):
    """Turns records of the standard library's logging into lines.

    A record with `extra={"details": {…}}` is an event, and its message is the event's name. Packages that do not know
    telemetry log this way.
    """

    def __init__(self, put: Callable[[LogLine], None]) -> None:
        """`put` encodes immediately: the caller may change these details afterwards."""
        super().__init__()
        self._put = put

    def emit(self, record: logging.LogRecord) -> None:
        message, given = _message(record)[:_MAX_MASKED], getattr(record, "details", None)
        event = "error_occurred" if record.levelno >= logging.ERROR else "log"
        details: dict[str, Any] = {"logger": record.name, "message": message}
        if isinstance(given, dict):
            event, details = message, {"logger": record.name, **given}
        if record.exc_info:
            details["traceback"] = "".join(traceback.format_exception(*record.exc_info))[:_MAX_MASKED]
        note(self._put, record.levelname.lower(), event, details=details)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError) as error:  # arguments that do not fit their text
        return f"{record.msg} [{error}]"


class Logging:
    """The configured output. Closing it writes the remaining lines and detaches it from Python's logging."""

    def __init__(self, writer: LineWriter[LogLine | bytes], bridge: StandardBridge) -> None:
        self.writer = writer
        self._bridge = bridge

    def close(self, timeout: float = 1.0) -> None:
        logging.getLogger().removeHandler(self._bridge)
        event_log.connect(_drop)
        self.writer.close(timeout)


def configure(
    *,
    debug: bool = False,
    secrets: Iterable[str] = (),
    fd: int = STDOUT,
    level: str = "info",
    style: str = "json",
    name_user: Callable[[str], str] | None = None,
) -> Logging:
    """Sends events and the standard library's logging to `fd`. `debug` is the same as level debug.

    `name_user` replaces ids of users.
    """
    lowest = logging.DEBUG if debug else logging.getLevelNamesMapping()[level.upper()]
    line_format = (LineFormat if style == "json" else TextFormat)(secrets, name_user=name_user)
    writer: LineWriter[LogLine | bytes] = LineWriter(fd, line_format, line_format.dropped)
    event_log.connect(_from_level(writer.put, lowest), debug=lowest <= logging.DEBUG)
    bridge = StandardBridge(lambda line: writer.put(line_format(line)))
    root = logging.getLogger()
    for handler in tuple(root.handlers):
        if type(handler) is logging.StreamHandler:  # from `holodeck --debug`: it masks no secrets and hashes no users
            root.removeHandler(handler)
    root.addHandler(bridge)
    root.setLevel(max(logging.WARNING, lowest))
    logging.getLogger("holodeck").setLevel(lowest)
    return Logging(writer, bridge)


def _from_level(put: Callable[[LogLine | bytes], None], lowest: int) -> Callable[[LogLine | bytes], None]:
    """Returns `put` for lines of this level and above."""
    if lowest <= logging.INFO:
        return put
    levels = {name.lower() for name, number in logging.getLevelNamesMapping().items() if number >= lowest}

    def put_some(line: LogLine | bytes) -> None:
        if isinstance(line, bytes) or line["level"] in levels:
            put(line)

    return put_some
