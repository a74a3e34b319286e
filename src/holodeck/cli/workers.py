"""`holodeck serve --workers N`: several server processes on one port, and one that restarts them when they die.

The processes share their conversations and runs, in a SQLite file or in PostgreSQL, so any of them serves any request.
They listen on one socket, which this process has bound: the system gives a connection to whichever is free.
"""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from holodeck.config.build_stores import WorkersStore, open_for_workers
from holodeck.config.serving import WORKER_VARIABLE, ServeOptions, WorkerSeat
from holodeck.core.ids import new_ulid
from holodeck.errors import StartError
from holodeck.server.listen import PortBusy, bind
from holodeck.telemetry import logs
from holodeck.telemetry.logs import event_log
from holodeck.telemetry.worker_figures import socket_of

PAUSE = 0.1  # seconds between two checks
RESTART_SECONDS = 1.0  # before a dead process is restarted
MAX_FOLDER = 60  # characters
START_FAILED = (1, 2, 3)  # exit codes of a start that another attempt would not change


def serve_with(count: int, words: Sequence[str], options: ServeOptions) -> int:
    """Runs `holodeck` with these arguments in `count` processes until a signal ends them. Returns an exit code."""
    if options.uds:
        raise StartError("--workers cannot be combined with --uds; listen on a port")
    with (
        _bound(options) as listener,
        open_for_workers(options.config) as store,
        tempfile.TemporaryDirectory(prefix="holodeck-", dir=_folder_of_folders()) as folder,
        closing(logs.configure(level=options.log_level, style=options.log_format)),
    ):
        return _Workers(count, words, listener, store, folder).run()


def _bound(options: ServeOptions) -> socket.socket:
    try:
        return bind(options.host, options.port)
    except PortBusy as error:
        seconds = options.config.agent.server.shutdown_timeout
        raise PortBusy(
            f"{error.message}. If the parent process of workers was killed here, they keep the port until their runs have"
            f" ended, about {seconds:g} seconds at most."
        ) from error


def _folder_of_folders() -> str | None:
    """Returns a short temporary folder: paths of sockets may have 108 bytes."""
    return None if len(tempfile.gettempdir()) <= MAX_FOLDER else "/tmp"  # noqa: S108  the folder itself has another name each time


class _Workers:
    def __init__(
        self, count: int, words: Sequence[str], listener: socket.socket, store: WorkersStore, folder: str
    ) -> None:
        self._command, self._count, self._listener = [sys.executable, "-m", "holodeck", *words], count, listener
        self._store, self._folder, self._secret = store, folder, secrets.token_hex(32)
        self._lifeline, self._own_end = os.pipe()  # no worker has our end: the pipe ends with this process
        self._processes: dict[subprocess.Popen[bytes], WorkerSeat] = {}
        self._started: set[str] = set()  # the replicas whose start has succeeded
        self._is_ending = False
        self._code = 0

    def run(self) -> int:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, self._end)
        for number in range(self._count):
            if not self._is_ending:
                self._start(number, announces=number == 0)
        while self._processes:
            time.sleep(PAUSE)
            self._started |= {each.replica for each in self._processes.values() if self._socket_of(each).exists()}
            for process in [each for each in self._processes if each.poll() is not None]:
                self._ended(process.returncode, self._processes.pop(process))
        return self._code

    def _socket_of(self, seat: WorkerSeat) -> Path:
        return socket_of(Path(self._folder), seat.number)

    def _start(self, number: int, *, announces: bool = False) -> None:
        seat = WorkerSeat(
            number=number,
            replica=new_ulid(),
            listener=self._listener.fileno(),
            lifeline=self._lifeline,
            others=tuple(self._store.descriptors),
            folder=self._folder,
            secret=self._secret,
        )
        self._socket_of(seat).unlink(missing_ok=True)  # a worker that was killed leaves its socket
        process = subprocess.Popen(  # noqa: S603  our own command; Ctrl+C reaches only us
            [*self._command, *([] if announces else ["--no-banner"])],
            env={**os.environ, WORKER_VARIABLE: msgspec.json.encode(seat).decode()},
            pass_fds=seat.descriptors,
            process_group=0,
        )
        self._processes[process] = seat
        if self._is_ending:  # the signal came before this process was in the list
            process.send_signal(signal.SIGTERM)

    def _ended(self, code: int, seat: WorkerSeat) -> None:
        self._store.ended(seat.replica)
        serving = self._started & {seat.replica, *[each.replica for each in self._processes.values()]}
        if self._is_ending:
            self._code = self._code or max(0, code)
        elif code in START_FAILED and not serving:  # otherwise the others serve on: the disk may be full for a while
            self._code = code
            self._end()
        else:
            cause = {"signal": -code} if code < 0 else {"exit_code": code}
            event_log.error("worker_restarted", worker=seat.number + 1, **cause)
            time.sleep(RESTART_SECONDS)
            if not self._is_ending:
                self._start(seat.number)

    def _end(self, *_signal: object) -> None:
        """Stops the processes. The second signal kills them."""
        self._is_ending = True
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
