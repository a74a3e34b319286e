"""Tells when something holds up the event loop, and what it is doing (D12).

A thread asks the loop for a sign of life, again and again, and measures how long each takes. One that takes longer than
`PATIENCE` means that every stream of the server stands still: the loop's stack is logged while it still shows who is to
blame, and one more line when it is over. The loop itself does nothing for it but answer.

A block that begins between two questions is seen up to `INTERVAL` late: from 250 ms on, none is missed.
"""

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)

INTERVAL = 0.05
PATIENCE = 0.2
_FRAMES = 20  # the innermost: the others are the server's own


class Watchdog:
    """Watches the loop that it is started on. `on_lag` is called there with the seconds of each answer."""

    def __init__(
        self,
        on_lag: Callable[[float], None],
        *,
        interval: float = INTERVAL,
        patience: float = PATIENCE,
    ) -> None:
        self._on_lag = on_lag
        self._interval, self._patience = interval, patience
        self._answered, self._closing = threading.Event(), threading.Event()

    def start(self) -> None:
        watched = (asyncio.get_running_loop(), threading.get_ident())
        threading.Thread(target=self._watch, args=watched, name="loop watchdog", daemon=True).start()

    def close(self) -> None:
        """The thread is told, not waited for: it may be asking the loop that calls this."""
        self._closing.set()
        self._answered.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, watched: int) -> None:
        while not self._closing.wait(self._interval):
            self._answered.clear()
            asked = time.monotonic()
            try:
                loop.call_soon_threadsafe(self._answer, asked)
            except RuntimeError:  # the loop was closed without us
                return
            if not self._answered.wait(self._patience) and not self._closing.is_set():
                self._tell(watched, asked)

    def _answer(self, asked: float) -> None:
        self._on_lag(time.monotonic() - asked)
        self._answered.set()

    def _tell(self, watched: int, asked: float) -> None:
        stack = _stack_of(watched)
        log.warning("event_loop_blocked", duration_ms=_since(asked), details={"stack": stack})
        self._answered.wait()
        if not self._closing.is_set():
            log.warning("event_loop_free", duration_ms=_since(asked))


def _stack_of(thread: int) -> list[str]:
    frame = sys._current_frames().get(thread)  # noqa: SLF001  the documented way to see another thread
    frames = traceback.extract_stack(frame)[-_FRAMES:] if frame else []
    return [f"{each.filename}:{each.lineno} {each.name}: {each.line}" for each in frames]


def _since(begin: float) -> float:
    return (time.monotonic() - begin) * 1000
