"""`holodeck` in a process of its own, as asyncio would have started it (`tests.warm` says why it does not)."""

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from tests.warm import Warm


class Forked:
    """As `asyncio.subprocess.Process`, as far as the tests need it."""

    def __init__(self) -> None:
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self._warm: Warm
        self._open: list[Any] = []

    @classmethod
    async def start(
        cls,
        *arguments: str,
        folder: Path,
        environment: Mapping[str, str],
        stdout: int | IO[Any],
        stderr: int | IO[Any],
        more: Sequence[int] = (),
    ) -> Self:
        self, nothing = cls(), os.open(os.devnull, os.O_RDWR)
        self.stdout, its_stdout = await self._stream(stdout, nothing)
        self.stderr, its_stderr = await self._stream(stderr, nothing)
        self._warm = Warm(
            *arguments,
            folder=folder,
            environment=environment,
            stdin=nothing,
            stdout=its_stdout,
            stderr=its_stderr,
            more=more,
        )
        for descriptor in {nothing, *([its_stdout] if self.stdout else []), *([its_stderr] if self.stderr else [])}:
            os.close(descriptor)
        return self

    async def _stream(self, wanted: int | IO[Any], nothing: int) -> tuple[asyncio.StreamReader | None, int]:
        """What we read of it, and the process's end of it."""
        if wanted != PIPE:
            return None, nothing if wanted == DEVNULL else wanted if isinstance(wanted, int) else wanted.fileno()
        reader = asyncio.StreamReader()
        ours, its = os.pipe()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb")
        )
        self._open.append(transport)
        return reader, its

    @property
    def pid(self) -> int:
        return self._warm.pid

    @property
    def returncode(self) -> int | None:
        return self._warm.returncode

    def send_signal(self, number: int) -> None:
        self._warm.send_signal(number)

    def kill(self) -> None:
        self._warm.kill()

    async def wait(self) -> int:
        return await asyncio.to_thread(self._warm.wait)

    async def communicate(self) -> None:
        """Its last words are not asked for."""
        for transport in self._open:
            transport.close()
