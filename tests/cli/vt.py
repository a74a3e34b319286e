"""A terminal for tests: the real program in a pseudo-terminal, its screen read by an emulator (pyte)."""

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pyte

from tests.cli.process import environment
from tests.warm import Warm

PATIENCE = 45.0
GLANCE = 0.05


class Terminal:
    """`async with Terminal("chat", "--demo", folder=tmp_path) as terminal:` — what it shows, and keys for it."""

    def __init__(
        self,
        *arguments: str,
        folder: Path,
        columns: int = 80,
        rows: int = 24,
        cold: bool = False,  # starts Python: for its time and its memory
        **variables: str,
    ) -> None:
        self.raw = b""
        self._cold = cold
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        self._changed = asyncio.Event()
        self._arguments, self._folder = arguments, folder
        self._environment = environment(folder, TERM="xterm-256color", PROMPT_TOOLKIT_NO_CPR="1", **variables)

    async def __aenter__(self) -> Self:
        self.master, slave = os.openpty()
        self._set_size(self.screen.columns, self.screen.lines)
        self.process = self._started(slave) if self._cold else self._forked(slave)
        os.close(slave)
        asyncio.get_running_loop().add_reader(self.master, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self.master)
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def _forked(self, slave: int) -> Warm:
        return Warm(
            *self._arguments,
            folder=self._folder,
            environment=self._environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            terminal=True,
        )

    def _started(self, slave: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "holodeck", *self._arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=self._folder,
            env=self._environment,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509  one system call, no lock
        )

    # keys and the window

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def enter(self, line: str) -> None:
        self.type(f"{line}\r")

    def interrupt(self) -> None:
        """Ctrl+C, through the terminal's own line discipline."""
        self.type("\x03")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self._set_size(columns, rows)

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self.master)[3] & termios.ECHO)

    # what is to be seen

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        """Everything, also what has scrolled away."""
        above = ["".join(line[x].data for x in range(self.screen.columns)).rstrip() for line in self.screen.history.top]
        return "\n".join([*above, *self.lines]).rstrip()

    async def wait_for(self, wanted: str | Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Until the text is somewhere on the screen or above it, or the condition holds."""
        holds = wanted if callable(wanted) else lambda: wanted in self.text
        glance = GLANCE if callable(wanted) else seconds  # a condition may be about more than the screen
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not holds():
                    self._changed.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), glance)
        assert holds(), f"{wanted!r} did not come; the screen shows\n{self.text}"

    async def prompt(self) -> None:
        """Until the line editor waits on an empty line."""
        await self.wait_for(lambda: self.lines[self.screen.cursor.y] == ">" and not self.echoes())

    async def exit_code(self) -> int:
        return await asyncio.wait_for(asyncio.to_thread(self.process.wait), PATIENCE)

    def _read(self) -> None:
        try:
            data = os.read(self.master, 65_536)
        except OSError:  # Linux's way to say that the other side is closed
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self.master)
        self.raw += data
        self._stream.feed(data)
        self._changed.set()

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
