"""`holodeck serve --workers N`: several server processes on one port, and one that starts them again when they die.

The processes share their conversations and runs in a database (`sessions.store: postgres`), so any of them serves any
request. They listen on one socket, which this process has bound: the system gives a connection to whichever is free.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

import click

from holodeck.config.serving import LISTENER_VARIABLE, ServeOptions
from holodeck.errors import StartError
from holodeck.server.listen import bind

PAUSE = 0.2  # seconds between two looks
RESTART_SECONDS = 1.0  # before a process that died is started again
START_FAILED = (1, 2, 3)  # exit codes that another attempt would not change


def serve_with(count: int, words: Sequence[str], options: ServeOptions) -> int:
    """Runs `holodeck` with these words in so many processes until a signal ends them. Returns an exit code."""
    if options.config.agent.sessions.store != "postgres":
        raise StartError("--workers needs sessions.store: postgres, in which the processes share their conversations")
    if options.uds:
        raise StartError("--workers does not go with --uds; listen on a port")
    with bind(options.host, options.port) as listener:
        return _Workers(count, words, listener).run()


class _Workers:
    def __init__(self, count: int, words: Sequence[str], listener: socket.socket) -> None:
        self._command, self._count, self._listener = [sys.executable, "-m", "holodeck", *words], count, listener
        self._processes: dict[subprocess.Popen[bytes], None] = {}
        self._is_ending = False
        self._code = 0

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._end)
        for place in range(self._count):
            self._start(announces=place == 0)
        while self._processes:
            time.sleep(PAUSE)
            for process in [each for each in self._processes if each.poll() is not None]:
                del self._processes[process]
                self._ended(process.returncode)
        return self._code

    def _start(self, *, announces: bool = False) -> None:
        environment = {**os.environ, LISTENER_VARIABLE: str(self._listener.fileno())}
        words = [] if announces else ["--no-banner"]
        process = subprocess.Popen(  # noqa: S603  our own command; Ctrl+C reaches only us
            [*self._command, *words], env=environment, pass_fds=[self._listener.fileno()], process_group=0
        )
        self._processes[process] = None

    def _ended(self, code: int) -> None:
        if self._is_ending:
            self._code = self._code or max(0, code)
        elif code in START_FAILED:
            self._code = code
            self._stop_all()
        else:
            click.echo(f"A worker ended ({code}); another one starts.", err=True)
            time.sleep(RESTART_SECONDS)
            if not self._is_ending:
                self._start()

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        """Passes a signal on; the second one ends the processes at once."""
        self._stop_all()

    def _stop_all(self) -> None:
        self._is_ending = True
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
