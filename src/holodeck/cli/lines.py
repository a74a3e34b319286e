"""Where the user's lines come from: a terminal with line editing, or a pipe."""

import asyncio
import codecs
import os
import sys
import threading
from typing import Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.history import InMemoryHistory


class Lines(Protocol):
    async def read(self, prompt: str) -> str | None:
        """The next line, or None at the end. Raises KeyboardInterrupt on Ctrl+C."""


class TerminalLines:
    """prompt_toolkit: editing, history of this session, Ctrl+D as the end."""

    def __init__(self) -> None:
        self._session: PromptSession[str] = PromptSession(history=InMemoryHistory())

    async def read(self, prompt: str) -> str | None:
        try:
            return await self._session.prompt_async(prompt)
        except EOFError:
            return None


class PipedLines:
    """Lines of a pipe or file, without a prompt.

    A thread reads the descriptor itself: a blocked read of `sys.stdin` would hold a lock that the interpreter needs
    at its end, and event loops cannot watch a regular file.
    """

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._pump, name="stdin", daemon=True).start()

    async def read(self, prompt: str) -> str | None:  # noqa: ARG002  nobody is there to see it
        line = await self._queue.get()
        if line is None:
            self._queue.put_nowait(None)  # the end stays the end
        return line

    def _pump(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        rest = ""
        while data := os.read(self._descriptor, 65_536):
            *lines, rest = (rest + decoder.decode(data)).split("\n")
            self._tell(*lines)
        self._tell(*([rest] if rest else []), None)

    def _tell(self, *lines: str | None) -> None:
        for line in lines:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._queue.put_nowait, line)


def open_lines() -> Lines:
    return TerminalLines() if sys.stdin.isatty() and sys.stdout.isatty() else PipedLines()
