"""`holodeck serve --reload`: a process that restarts the server whenever a file of the agent changes.

It is for editing. It checks the times of files a few times a second: a library that asks the kernel would have to be
installed with every server. An invalid file does not end the running server: the mistake is printed, and the next
change is tried.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import click

from holodeck.cli.paint import Paint
from holodeck.config.load import LoadedConfig
from holodeck.errors import HoloDeckError

PAUSE = 0.3  # seconds between two checks
END_SECONDS = 5.0  # time for running answers before the server is killed
MAX_FILES = 5_000
SUFFIXES = (".yaml", ".yml", ".py", ".md", ".txt", ".json", ".env")
SKIPPED = {"__pycache__", "node_modules", "venv"}

Stamps = dict[str, tuple[int, int]]


def serve_again(words: Sequence[str], load: Callable[[], LoadedConfig]) -> int:
    """Runs `holodeck` with these arguments, without --reload, until a signal ends it. Returns an exit code."""
    folder = load().folder
    return _Supervisor([word for word in words if word != "--reload"], folder, load).run()


class _Supervisor:
    def __init__(self, words: Sequence[str], folder: Path, load: Callable[[], LoadedConfig]) -> None:
        self._command = [sys.executable, "-m", "holodeck", *words]
        self._folder = folder
        self._load = load
        self._child: subprocess.Popen[bytes] | None = None
        self._ended_by: int | None = None

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._end)
        seen = stamps(self._folder)
        self._start()
        while self._ended_by is None:
            time.sleep(PAUSE)
            now = stamps(self._folder)
            if now == seen:
                continue
            changed = sorted(name for name in now.keys() | seen.keys() if now.get(name) != seen.get(name))
            seen = now
            if self._is_valid():
                _say(f"{', '.join(changed[:3])} changed; starting again")
                self._stop()
                self._start(again=True)
        return self._child.wait() if self._child is not None else 0

    def _is_valid(self) -> bool:
        try:
            self._load()
        except HoloDeckError as error:
            _say(f"{error.message}; the server keeps running with the old file")
            return False
        return True

    def _start(self, *, again: bool = False) -> None:
        """Starts the server. Only the first start shows the banner and opens the browser."""
        if self._ended_by is None:
            command = [word for word in self._command if not (again and word == "--open")]
            environment = {**os.environ, "HOLODECK_BANNER": "false"} if again else None
            self._child = subprocess.Popen(command, process_group=0, env=environment)  # noqa: S603  our own command; Ctrl+C reaches only us

    def _stop(self) -> None:
        """Stops the server before the next one starts, by force if it takes longer than a moment."""
        child, self._child = self._child, None
        if child is None:
            return
        for _ in range(2):
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            return
        child.kill()
        child.wait()

    def _end(self, number: int, _frame: FrameType | None) -> None:
        """Passes a signal on. The second one kills the server."""
        self._ended_by = number
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)


def stamps(folder: Path) -> Stamps:
    """Maps every file that may be part of an agent to its time and size."""
    found: Stamps = {}
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith(".")]
        for name in files:
            if name.endswith(SUFFIXES) and len(found) < MAX_FILES:
                path = Path(here, name)
                try:
                    status = path.stat()
                except OSError:  # removed in the meantime
                    continue
                found[str(path.relative_to(folder))] = (status.st_mtime_ns, status.st_size)
    return found


def _say(text: str) -> None:
    click.echo(Paint.of(sys.stderr).yellow(text), err=True)
