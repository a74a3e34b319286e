"""Logs when something blocks the event loop, and what it is doing (D12).

A thread pings the loop again and again, and measures how long each answer takes. If one takes longer than `REPORT_AFTER`,
every stream of the server stands still. Then the thread logs the loop's stack while it still shows the culprit, and one
more line when the block is over. The loop only has to answer.

A block that begins between two pings is seen up to `INTERVAL` late: from 250 ms on, none is missed.
"""

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable

from holodeck.telemetry.logs import event_log

INTERVAL = 0.05
REPORT_AFTER = 0.2
_FRAMES = 20  # the innermost: the others are the server's own


class Watchdog:
    """Watches the loop that it is started on. `on_lag` is called there with the seconds of each answer."""

    def __init__(
        self,
        on_lag: Callable[[float], None],
        *,
        interval: float = INTERVAL,
        report_after: float = REPORT_AFTER,
    ) -> None:
        self._on_lag = on_lag
        self._interval, self._report_after = interval, report_after
        self._asked: float | None = None  # time of the ping that is not answered yet
        self._reported = False
        self._closing = False

    def start(self) -> None:
        watched = (asyncio.get_running_loop(), threading.get_ident())
        threading.Thread(target=self._watch, args=watched, name="loop watchdog", daemon=True).start()

    def close(self) -> None:
        """Signals the thread without joining it: a join would block the loop that calls this."""
        self._closing = True

    def _watch(self, loop: asyncio.AbstractEventLoop, watched: int) -> None:
        while not self._closing and not loop.is_closed():
            asked = self._asked
            if asked is None:
                self._ask(loop)
            elif not self._reported and time.monotonic() - asked >= self._report_after:
                self._reported = True
                event_log.warning(
                    "event_loop_blocked", duration_ms=_since(asked), details={"stack": _stack_of(watched)}
                )
            time.sleep(self._interval)

    def _ask(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asked, self._reported = time.monotonic(), False
        try:
            loop.call_soon_threadsafe(self._answer, self._asked)
        except RuntimeError:  # the loop was closed at this moment
            self._closing = True

    def _answer(self, asked: float) -> None:
        """Runs on the loop."""
        self._on_lag(time.monotonic() - asked)
        if self._reported:
            event_log.warning("event_loop_free", duration_ms=_since(asked))
        self._asked = None


def _stack_of(thread: int) -> list[str]:
    frame = sys._current_frames().get(thread)  # noqa: SLF001  the documented way to see another thread
    frames = traceback.extract_stack(frame)[-_FRAMES:] if frame else []
    return [f"{each.filename}:{each.lineno} {each.name}: {each.line}" for each in frames]


def _since(begin: float) -> float:
    return (time.monotonic() - begin) * 1000
