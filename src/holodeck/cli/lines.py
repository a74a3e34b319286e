"""Where the user's lines come from: a terminal with line editing (`terminal.keyboard`), or a pipe."""

import asyncio
import codecs
import contextlib
import os
import threading
from typing import Protocol


class Interrupted(Exception):
    """Ctrl+C at a prompt. KeyboardInterrupt would tear the event loop down when it leaves a task."""


class Lines(Protocol):
    async def read(self, prompt: str) -> str | None:
        """The next message, or None at the end. Raises Interrupted on Ctrl+C, as `ask` does."""

    async def ask(self, question: str, default: str = "") -> str | None:
        """The answer to a question, which is no message."""


class PipedLines:
    """Lines of a pipe or file, without a prompt.

    A thread reads the descriptor itself: a blocked read of `sys.stdin` would hold a lock that the interpreter needs
    at its end, and event loops cannot watch a regular file. Bytes that are no UTF-8 come as lone surrogates.
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

    async def ask(self, question: str, default: str = "") -> str | None:  # noqa: ARG002  nobody is there to see them
        return await self.read(question)

    def _pump(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        rest = ""
        while data := os.read(self._descriptor, 65_536):
            *lines, rest = (rest + decoder.decode(data)).split("\n")
            self._tell(*lines)
        rest += decoder.decode(b"", final=True)
        self._tell(*([rest] if rest else []), None)

    def _tell(self, *lines: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            for line in lines:
                self._loop.call_soon_threadsafe(self._queue.put_nowait, line)
