"""A terminal that breaks lines anew when its width changes (tmux); `vt`'s emulator cuts them, as old terminals do."""

import asyncio
import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Self

import pytest

from tests.cli.process import environment

PATIENCE = 45.0
GLANCE = 0.05
MISSING = "tmux is not installed: run tests/playground/setup.sh"


class Tmux:
    """`async with Tmux("chat", folder=tmp_path) as terminal:`. It can only be looked at, so waiting is looking often."""

    def __init__(self, *arguments: str, folder: Path, columns: int, rows: int = 24) -> None:
        self._command = [sys.executable, "-m", "holodeck", *arguments]
        self._folder, self._size = folder, (columns, rows)
        self._socket = folder / "tmux"
        self._environment = environment(folder, TERM="xterm-256color", LC_ALL="C.UTF-8")

    async def __aenter__(self) -> Self:
        if shutil.which("tmux") is None:
            if os.environ.get("CI") == "true":
                pytest.fail(MISSING)
            pytest.skip(MISSING)
        columns, rows = map(str, self._size)
        await self._tmux("new-session", "-d", "-x", columns, "-y", rows, shlex.join(self._command))
        await self._tmux("set-option", "status", "off")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tmux("kill-server")

    async def enter(self, line: str) -> None:
        await self._tmux("send-keys", "-l", line)
        await self._tmux("send-keys", "Enter")

    async def resize(self, columns: int, rows: int = 24) -> None:
        """Until the program can know of it: tmux breaks its lines at once, but reports a size only every 250 ms."""
        await self._tmux("resize-window", "-x", str(columns), "-y", str(rows))
        ends = time.monotonic() + PATIENCE
        while (size := await self._reported_size()) != (columns, rows):
            assert time.monotonic() < ends, f"the program did not take the size {size}"
            await asyncio.sleep(GLANCE)

    async def lines(self) -> list[str]:
        """All that is to be seen, also what has scrolled away. A line that was broken is in pieces, as on the screen."""
        shown = await self._tmux("capture-pane", "-p", "-S", "-")
        return [line.rstrip() for line in shown.splitlines()]

    async def wait_for(self, wanted: str) -> None:
        ends = time.monotonic() + PATIENCE
        while wanted not in "".join(await self.lines()):
            assert time.monotonic() < ends, f"{wanted!r} did not come:\n" + "\n".join(await self.lines())
            await asyncio.sleep(GLANCE)

    async def _reported_size(self) -> os.terminal_size:
        """As the pane's program would read it; tmux itself only says how wide its own lines are."""
        terminal = (await self._tmux("display-message", "-p", "#{pane_tty}")).strip()
        descriptor = os.open(terminal, os.O_RDONLY | os.O_NOCTTY)
        try:
            return os.get_terminal_size(descriptor)
        finally:
            os.close(descriptor)

    async def _tmux(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *("tmux", "-S", str(self._socket), "-f", "/dev/null", *arguments),
            cwd=self._folder,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, arguments
        return out.decode()
