r"""The last lines of a terminal, repainted in place. Unchanged lines are not written again.

Text above the live lines belongs to the terminal's own scrollback and is never touched. No alternate screen, no hidden
cursor, no mode that a crash would leave behind: the only sequences are "up", "erase below" and colours. Lines must fit
the width; `markdown_lines` and `screen` wrap them.
"""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import IO

_ERASE_BELOW = "\x1b[J"


class Painter:
    def __init__(self, out: IO[str], height: Callable[[], int]) -> None:
        self._out = out
        self._height = height
        self._painted: list[str] = []  # the cursor is at the end of the last one
        self._scrolled = 0  # lines of the picture that scrolled off the screen and can no longer change

    def show(self, lines: Sequence[str]) -> None:
        """Replaces the live lines with these."""
        self._scroll()  # the window may have become shorter
        fresh = list(lines[self._scrolled :])
        if fresh == self._painted:
            return
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(fresh, self._painted, strict=False)))
        same = min(same, max(len(fresh) - 1, 0))  # the cursor has to end after a line
        self._write(self._change(fresh, same))
        self._painted = fresh
        self._scroll()

    def keep(self, lines: Sequence[str]) -> None:
        """Prints these lines permanently. The next output comes below them."""
        self.show(lines)
        self.settle(len(lines))

    def settle(self, number: int) -> None:
        """Removes the first lines from the picture. They stay on the screen as they are."""
        on_screen = number - self._scrolled
        self._scrolled = max(-on_screen, 0)
        settled = self._painted[: max(on_screen, 0)]
        del self._painted[: len(settled)]
        if settled and not self._painted:
            self._write("\n")

    def begin_anew(self, *, over_last: bool) -> None:
        """Starts over after the width changed. The old lines stay, since their rows are not known; the last may be replaced.

        Some terminals break lines that have become too long for their width, others cut them. The last line can be
        replaced only if neither happened to it. Otherwise the next output comes below it.
        """
        if self._painted:
            self._write(f"\r{_ERASE_BELOW}" if over_last else "\n")
        self._painted, self._scrolled = [], 0

    def _change(self, fresh: list[str], same: int) -> str:
        before = self._painted
        if not before:
            return "\n".join(fresh)
        if same == len(before):
            return "\n" + "\n".join(fresh[same:])
        if same == len(before) - 1 and same < len(fresh) and fresh[same].startswith(before[same]):
            return fresh[same][len(before[same]) :] + "".join(f"\n{line}" for line in fresh[same + 1 :])
        up = len(before) - 1 - same
        climb = f"\x1b[{up}A" if up else ""
        return f"\r{climb}{_ERASE_BELOW}" + "\n".join(fresh[same:])

    def _scroll(self) -> None:
        over = len(self._painted) - max(self._height() - 1, 1)
        if over > 0:
            self._scrolled += over
            del self._painted[:over]

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
