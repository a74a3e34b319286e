"""Sources of the user's messages: a terminal with line editing (`terminal.keyboard`), a pipe, or the command line."""

import asyncio
import codecs
import contextlib
import os
import stat
import sys
import termios
import threading
from collections.abc import Iterator
from typing import Protocol


class Interrupted(Exception):
    """Ctrl+C at a prompt. KeyboardInterrupt would tear the event loop down when it leaves a task.

    `typed`: the user had typed something since the prompt appeared, so this is not the second of two presses.
    """

    def __init__(self, *, typed: bool = False) -> None:
        super().__init__()
        self.typed = typed


class Lines(Protocol):
    is_typed: bool
    """A person types, and sees the question that a line has to answer. Lines of a pipe were written before it."""

    async def read(self, prompt: str) -> str | None:
        """Returns the next message, or None at the end. Raises Interrupted on Ctrl+C, as `ask` does."""

    async def ask(self, question: str, default: str = "") -> str | None:
        """Returns the answer to a question, which is not a message."""


class OneMessage:
    """The one message of the command line or of a pipe. `answers` reads answers to questions, if a user can type."""

    def __init__(self, message: str | None, answers: "Lines | None" = None) -> None:
        self._message, self._answers = message, answers
        self.is_typed = answers is not None and answers.is_typed

    async def read(self, prompt: str) -> str | None:  # noqa: ARG002  there is nothing to type
        message, self._message = self._message, None
        return message

    async def ask(self, question: str, default: str = "") -> str | None:
        return None if self._answers is None else await self._answers.ask(question, default)


class PipedLines:
    """Lines of a pipe or file, each a message, without a prompt.

    A thread reads the descriptor itself: a blocked read of `sys.stdin` would hold a lock that the interpreter needs at
    its end, and event loops cannot watch a regular file. It starts at the first `read`: the kernel stops a background
    job that reads its terminal. Bytes that are not UTF-8 become lone surrogates.
    """

    is_typed = False

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._reads = False

    async def read(self, prompt: str) -> str | None:  # noqa: ARG002  a pipe has no prompt
        if not self._reads:
            self._reads = True
            threading.Thread(target=self._pump, name="stdin", daemon=True).start()
        line = await self._queue.get()
        if line is None:
            self._queue.put_nowait(None)  # so that every further read sees the end of input
        return line

    async def ask(self, question: str, default: str = "") -> str | None:  # noqa: ARG002  a pipe has no prompt
        return await self.read(question)

    def _pump(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        rest = ""
        while data := os.read(self._descriptor, 65_536):
            *lines, rest = (rest + decoder.decode(data)).split("\n")
            self._hand_over(*lines)
        rest += decoder.decode(b"", final=True)
        self._hand_over(*([rest] if rest else []), None)

    def _hand_over(self, *lines: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the chat has ended
            for line in lines:
                self._loop.call_soon_threadsafe(self._queue.put_nowait, line)


class TypedAnswers(PipedLines):
    """Answers that a user types at a terminal, for a command that takes no further messages."""

    is_typed = True

    async def ask(self, question: str, default: str = "") -> str | None:  # noqa: ARG002  an empty line is an answer
        sys.stderr.write(question)
        sys.stderr.flush()
        return await self.read(question)


async def whole_input(*, limit: int) -> bytes:
    """Reads everything piped into the command, at most a byte more than `limit`; nothing from a terminal or /dev/null.

    A daemon thread reads: a pipe that never ends must not keep a command alive that Ctrl+C has ended.
    """
    kind = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind) or stat.S_ISSOCK(kind)):
        return b""
    loop = asyncio.get_running_loop()
    read: asyncio.Future[bytes] = loop.create_future()

    def finish(data: bytes) -> None:
        if not read.done():
            read.set_result(data)

    def pump() -> None:
        pieces, size = [], 0
        while size <= limit and (data := os.read(0, 1 << 20)):
            pieces.append(data)
            size += len(data)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the command has ended
            loop.call_soon_threadsafe(finish, b"".join(pieces)[: limit + 1])

    threading.Thread(target=pump, name="stdin", daemon=True).start()
    return await read


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keeps keys pressed during an answer from being echoed into it; the next prompt gets them. Ctrl+C still works.

    It is used around a whole conversation: the line editor sets its own mode at each prompt and restores this one.
    """
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    changed = termios.tcgetattr(descriptor)
    changed[0] &= ~termios.ICRNL  # otherwise an Enter that was pressed early arrives as Ctrl+J
    changed[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(descriptor, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)
