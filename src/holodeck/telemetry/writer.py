"""Writes lines to a file descriptor in a thread of its own, so that a caller never waits for the write (D13).

The thread also encodes the lines, many at a time, which costs less than one by one. A pipe without a reader fills up, and so does
a disk (D10); then lines are dropped and counted, and the count is written once there is room again. This module does
not know what the lines hold.
"""

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
MAX_WAITING = 200  # lines whose size is not known yet
MAX_LINES = 10_000
MAX_BYTES = 4 * 1024 * 1024
GATHER_SECONDS = 0.05


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
        """`write_out` makes bytes of a line, `report` of the number of lines that were dropped."""
        self.dropped = 0
        self._fd = fd
        self._write_out, self._report = write_out, report
        self._max_lines, self._max_bytes = max_lines, max_bytes
        self._waiting: list[T] = []  # for the thread to write out
        self._lines: list[bytes] = []  # that came when there were many of those: so much memory is known
        self._size = 0
        self._torn = False  # whether the last line that was written is only half there
        self._closing = False
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._thread = threading.Thread(target=self._write_all, name="log writer", daemon=True)
        self._thread.start()

    def put(self, line: T) -> None:
        with self._lock:  # the condition's own: entering that would cost two calls more
            if len(self._lines) >= self._max_lines or self._size > self._max_bytes or self._closing:
                self.dropped += 1
            elif len(self._waiting) < MAX_WAITING:
                self._waiting.append(line)
                if len(self._waiting) == 1:  # the thread sleeps only when there is nothing
                    self._filled.notify()
            else:
                self._lines.append(self._write_out(line))
                self._size += len(self._lines[-1])

    def close(self, timeout: float = 1.0) -> None:
        """Writes what is left; gives up after `timeout` seconds, because the pipe may be blocked for ever."""
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
        """How many lines did not get out. On a full disk there may be half of one, which must not spoil the next."""
        data = b"\n" + data if self._torn else data
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:  # a full disk or a closed pipe: there is no other place to report it
            sent = len(data) - len(view)
            lost = data.count(b"\n", sent) - (self._torn and sent == 0)
            self._torn = not data.endswith(b"\n", 0, sent) if sent else self._torn
            return lost
        self._torn = False
        return 0

    def _take(self) -> list[bytes]:
        """All lines that wait; none at the end.

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
