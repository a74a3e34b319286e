"""Colours: on a terminal only, and not if NO_COLOR is set (no-color.org)."""

import os
from typing import IO, Any, Self

_RESET = "\x1b[0m"


class Paint:
    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled

    @classmethod
    def of(cls, stream: IO[Any]) -> Self:
        return cls(enabled=stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")

    def red(self, text: str) -> str:
        return self._in("31", text)

    def green(self, text: str) -> str:
        return self._in("32", text)

    def yellow(self, text: str) -> str:
        return self._in("33", text)

    def bold(self, text: str) -> str:
        return self._in("1", text)

    def dim(self, text: str) -> str:
        return self._in("2", text)

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}{_RESET}" if self.enabled else text
