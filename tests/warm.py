"""`holodeck` in a process of its own, without the second in which Python imports it: a fork of one that has done so.

Folder, environment, descriptors, session, signals and exit code are the process's own, as if it had been started. What is
about the start itself (imports, time, memory) must start Python, and some tests of each way to end do so as well.
"""

import atexit
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).parents[1]
COLD = ("holodeck.todo", "holodeck.telemetry.ot")  # a program of its own; an extra that few ask for
LARGEST_ORDER = 100_000  # bytes
MORE, MOST = 100, 4  # the number of the first further descriptor, and how many there may be


class Warm:
    """As `subprocess.Popen`. The process runs `holodeck` with these arguments; the descriptors stay the caller's."""

    def __init__(
        self,
        *arguments: str,
        folder: Path,
        environment: Mapping[str, str],
        stdin: int,
        stdout: int,
        stderr: int,
        terminal: bool = False,  # in a session of its own, which standard input is the terminal of
        more: Sequence[int] = (),  # descriptors that it has from number `MORE` on
    ) -> None:
        order = {"argv": arguments, "folder": str(folder), "environment": dict(environment), "terminal": terminal}
        status_end, report_end = os.pipe()
        socket.send_fds(_channel(), [json.dumps(order).encode()], [stdin, stdout, stderr, report_end, *more])
        os.close(report_end)
        self._status = os.fdopen(status_end, "rb", buffering=0)
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("holodeck", timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(int(self._status.readline()))
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Also when it may have ended by itself."""
        if self.returncode is None and not select.select([self._status], [], [], 0)[0]:
            os.kill(self.pid, signal.SIGKILL)


@cache
def _channel() -> socket.socket:
    """To the process that forks, one for all tests of this one."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        parent = subprocess.Popen(  # lives as long as we do
            [sys.executable, "-m", "tests.warm", str(its.fileno())],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
        )
    atexit.register(parent.wait)
    atexit.register(ours.close)  # the last is called first; it is what the other side waits for
    return ours


def _serve(channel: socket.socket) -> None:
    """Forks with every order. Returns only in the process that is to be `holodeck`, and to its end."""
    for module in pkgutil.walk_packages(importlib.import_module("holodeck").__path__, "holodeck."):
        if not module.name.startswith(COLD) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the nurse's own exit code is not used
    while True:
        order, descriptors, _, _ = socket.recv_fds(channel, LARGEST_ORDER, 4 + MOST)
        if not order:
            os._exit(0)
        if os.fork() == 0:
            channel.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _nurse(*descriptors)
            _become(json.loads(order))
            return
        for descriptor in descriptors:
            os.close(descriptor)


def _nurse(stdin: int, stdout: int, stderr: int, report_end: int, *more: int) -> None:
    """Stays behind to report the process's number, and how it ended."""
    child = os.fork()
    if child == 0:
        for number, descriptor in enumerate(more, MORE):
            os.dup2(descriptor, number)
            os.close(descriptor)
        for number, descriptor in enumerate((stdin, stdout, stderr)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(report_end)
        return
    for descriptor in (stdin, stdout, stderr, *more):
        os.close(descriptor)  # so that the other ends see it when the process closes its own
    os.write(report_end, b"%d\n" % child)
    os.write(report_end, b"%d\n" % os.waitpid(child, 0)[1])
    os._exit(0)


def _become(order: dict) -> None:
    if order["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    sys.argv[1:] = order["argv"]
    sys.path[0] = order["folder"]  # as `python -m` has it
    sys.stdin, sys.stdout, sys.stderr = map(_reopened, (sys.stdin, sys.stdout, sys.stderr))


def _reopened(stream: TextIO) -> TextIO:
    """The same descriptor, which may be a terminal now."""
    by_line = 1 if stream.line_buffering else -1
    same = open(stream.fileno(), stream.mode, by_line, stream.encoding, stream.errors, closefd=False)  # noqa: SIM115
    assert isinstance(same, io.TextIOWrapper)
    return same


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    importlib.import_module("holodeck.cli.main").main()
