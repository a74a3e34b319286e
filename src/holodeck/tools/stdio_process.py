"""One child process with its pipes: started without a shell, ended without leftovers.

It knows nothing of MCP. The child gets an allow-list of our environment, a session of its own (so that its whole
group can be ended) and a launcher that makes it die with us, even when we are killed.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from holodeck.core.text import one_line
from holodeck.tools import stdio_launcher

INHERITED = frozenset({"PATH", "HOME", "LANG", "TZ", "USER", "TMPDIR"})  # and LC_*: nothing that could hold a secret
GRACE = 2.0  # seconds between end of input, SIGTERM and SIGKILL
LAST_WORDS = 0.05  # seconds for output that is still in the pipe when the process has ended
STDERR_LINES = 20
STDERR_RATE = 64_000  # bytes a second; more is thrown away unread
STDERR_LINE = 500

_log = logging.getLogger(__name__)


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    ours = {key: value for key, value in os.environ.items() if key in INHERITED or key.startswith("LC_")}
    return {**ours, **extra}


def find_command(command: str, cwd: Path | None, path: str) -> Path:
    """Where a command is: beside our own interpreter first, then on PATH; with a slash, relative to the agent.

    Raises an OSError whose text is a sentence.
    """
    if cwd is not None and not cwd.is_dir():
        raise NotADirectoryError(f"its working folder '{cwd.name}' does not exist")
    if os.sep in command:
        candidate = (cwd or Path.cwd()) / Path(command).expanduser()
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
        if candidate.exists():
            raise PermissionError(f"'{command}' is not executable")
        raise FileNotFoundError(f"there is no '{command}'")
    ours = str(Path(sys.executable).parent)
    if found := shutil.which(command, path=os.pathsep.join([ours, path])):
        return Path(found)
    raise FileNotFoundError(f"the command '{command}' was not found")


class StderrTail:
    """The last lines that a server complained with, however much it writes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: deque[str] = deque(maxlen=STDERR_LINES)
        self._rest = b""
        self._second = 0
        self._taken = 0

    def feed(self, data: bytes) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._taken = second, 0
        data = data[: max(0, STDERR_RATE - self._taken)]
        self._taken += len(data)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-STDERR_LINE:]
        for line in lines:
            self._keep(line)

    def _keep(self, line: bytes) -> None:
        if text := one_line(line.decode("utf-8", "replace"), STDERR_LINE):
            self._lines.append(text)
            _log.debug("mcp_stderr", extra={"details": {"server": self._name, "line": text}})

    def lines(self) -> list[str]:
        rest = one_line(self._rest.decode("utf-8", "replace"), STDERR_LINE)
        return [*self._lines, rest] if rest else list(self._lines)


class ServerProcess(asyncio.SubprocessProtocol):
    """A running child. `exited` is about the process itself, not about pipes that its own children may hold.

    `on_output` gets what it writes to its standard output, `on_end` is called once when no more will come.
    """

    def __init__(self, name: str, on_output: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_output, self._on_end = on_output, on_end
        self.stderr = StderrTail(name)
        self.exited = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._stdout_over = False
        self._verdict = ""  # why we ended it, if we did
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None

    # asyncio.SubprocessProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)  # uvloop's own class is no subclass
        self._stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd != 1:
            self.stderr.feed(data)
        elif not self._stdout_over:
            self._on_output(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's signature
        if fd == 1:
            self._end_stdout()
        elif fd == 0:
            self._writable.set()  # a waiting writer finds out
            self._end_stdout_soon()  # a server that no longer listens is of no use

    def process_exited(self) -> None:
        self.exited.set()
        self._end_stdout_soon()  # a grandchild may hold the pipe open for ever, so we cannot wait for its end

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _end_stdout_soon(self) -> None:
        asyncio.get_running_loop().call_later(LAST_WORDS, self._end_stdout)

    def _end_stdout(self) -> None:
        if not self._stdout_over:
            self._stdout_over = True
            self._on_end()

    # for the transport

    async def writable(self) -> None:
        """Waits until the child has read enough. Raises BrokenPipeError when it no longer reads."""
        await self._writable.wait()
        if self._stdin is None or self._stdin.is_closing():
            raise BrokenPipeError

    def write(self, data: bytes) -> None:
        """Never waits; after `writable` it adds little to what the child has not read yet."""
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(data)

    @property
    def unread(self) -> int:
        """Bytes that the child has not taken yet."""
        return self._stdin.get_write_buffer_size() if self._stdin is not None else 0

    async def close(self) -> None:
        """End of input, then SIGTERM, then SIGKILL, two seconds apart; the whole group, no matter what is left of it."""
        if self._stdin is not None:
            self._stdin.close()
        if not await self._exits_within(GRACE):
            self._verdict = self._verdict or "stopped talking"
            self._signal_group(signal.SIGTERM)
            if not await self._exits_within(GRACE):
                await self.kill(self._verdict)
        self._signal_group(signal.SIGKILL)  # what the process left behind
        if self._transport is not None:
            self._transport.close()

    def kill_now(self, verdict: str) -> None:
        self._verdict = self._verdict or verdict
        self._signal_group(signal.SIGKILL)

    async def kill(self, verdict: str) -> None:
        self.kill_now(verdict)
        if not await self._exits_within(GRACE):
            _log.error("mcp_server_cannot_be_killed", extra={"details": {"pid": self._pid}})

    def how_it_ended(self) -> str:
        """For people: why the child is no longer of use."""
        how = self._verdict or _exit_sentence(self._transport.get_returncode() if self._transport else None)
        return f"{how}: {lines[-1]}" if (lines := self.stderr.lines()) else how

    @property
    def _pid(self) -> int | None:
        return self._transport.get_pid() if self._transport else None

    async def _exits_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.exited.wait()
        return self.exited.is_set()

    def _signal_group(self, number: signal.Signals) -> None:
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)  # start_new_session made the child's pid the group's id


def _exit_sentence(code: int | None) -> str:
    if code is None:
        return "stopped talking"
    return f"exited with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"


async def launch(
    process: ServerProcess, command: str, args: tuple[str, ...], *, env: Mapping[str, str], cwd: Path | None
) -> None:
    """Starts the child of `process`. Raises OSError with a sentence when it cannot be started."""
    environment = child_environment(env)
    found = find_command(command, cwd, environment.get("PATH", os.defpath))
    launcher = [sys.executable, "-I", "-S", stdio_launcher.__file__, str(os.getpid())]
    await asyncio.get_running_loop().subprocess_exec(
        lambda: process,
        *launcher,
        str(found),  # as argv[0] too: a Python finds its virtual environment by it
        *args,
        env=environment,
        cwd=cwd,
        start_new_session=True,
    )
