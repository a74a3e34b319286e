"""The terminal while an answer is written: nothing that is typed gets between its words."""

import contextlib
import sys
import termios
from collections.abc import Iterator


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keys that are pressed during an answer are not echoed into it; the next prompt gets them. Ctrl+C still works.

    For a whole conversation: the line editor sets its own mode at each prompt and comes back to this one.
    """
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    changed = termios.tcgetattr(descriptor)
    changed[0] &= ~termios.ICRNL  # else an Enter that was pressed early arrives as Ctrl+J
    changed[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(descriptor, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)
