"""Processes under test: started, waited for, watched through /proc, ended. Linux only.

CPU time is user + system of a process and all its descendants. It is read from the process's CPU clock, in nanoseconds:
the ticks of /proc/PID/stat are 10 ms, a hundred one-token requests.
"""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import CannotMeasureError

TICKS = os.sysconf("SC_CLK_TCK")
START_TIMEOUT = 60.0
STOP_TIMEOUT = 10.0
POLL = 0.02
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR")  # nothing else of our environment changes what is measured
SOURCES = str(Path(__file__).parents[1] / "src")


def environment(argv: Sequence[str] = (sys.executable,), **more: str) -> dict[str, str]:
    """Our own interpreter runs the code of this checkout, wherever it is installed from; another has its own."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    sources = {"PYTHONPATH": SOURCES} if sys.executable in argv else {}
    return {**kept, **sources, "PYTHONUNBUFFERED": "1", **more}


def cores() -> tuple[set[int], set[int]]:
    """(for load and fake model, for the server under test): one core each, so that neither steals the other's time."""
    available = sorted(os.sched_getaffinity(0))
    return ({available[0]}, {available[1]}) if len(available) > 1 else (set(available), set(available))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tree(pid: int) -> list[int]:
    """The process and its descendants that are alive now."""
    found, waiting = [], [pid]
    while waiting:
        each = waiting.pop()
        found.append(each)
        for task in Path(f"/proc/{each}/task").glob("*"):
            with contextlib.suppress(OSError):  # it ended while we looked
                waiting += map(int, (task / "children").read_text().split())
    return found


def cpu_seconds(pid: int, *, alone: bool = False) -> float:
    """CPU time so far: of the tree with the children that already ended, or of this one process alone."""
    if alone:
        return _clock(pid)
    return sum(_clock(each) + _ended_children(each) for each in tree(pid))


def _clock(pid: int) -> float:
    """The CPU clock of another process; the kernel's number for it is that of clock_getcpuclockid(3)."""
    with contextlib.suppress(OSError):  # it ended while we looked
        return time.clock_gettime((~pid << 3) | 2)
    return 0.0


def _ended_children(pid: int) -> float:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[13]) + int(fields[14])) / TICKS
    return 0.0


def rss_mib(pid: int, *, alone: bool = False) -> float:
    return sum(_rollup(each, "Rss:") for each in ([pid] if alone else tree(pid)))


def anonymous_mib(pid: int) -> float:
    """Memory of the tree that is no file's: which part of a library is this process's depends on what else runs."""
    return sum(_rollup(each, "Pss_Anon:") for each in tree(pid))


def pss_mib(pid: int) -> float:
    """Memory of the tree with shared pages counted in parts: what one more of something really adds."""
    return sum(_rollup(each, "Pss:") for each in tree(pid))


def _rollup(pid: int, key: str) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) / 1024
    return 0.0


def answers(port: int, path: str) -> bool:
    """Whether GET says 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@dataclass(frozen=True)
class Server:
    """A server that is ready. The CPU times are those it took until then."""

    pid: int
    port: int
    start_cpu: float
    start_cpu_alone: float


@contextlib.contextmanager
def serving(
    argv: Sequence[str], *, ready: str, env: Mapping[str, str], cwd: Path, log: Path, cpus: set[int] | None = None
) -> Iterator[Server]:
    """Starts a server ({port} in its arguments is replaced), waits until `ready` answers 200, ends it at the end."""
    port = free_port()
    command = [argument.replace("{port}", str(port)) for argument in argv]
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        if cpus:
            os.sched_setaffinity(process.pid, cpus)
        _wait_until_ready(process, port, ready, log)
        yield Server(process.pid, port, cpu_seconds(process.pid), cpu_seconds(process.pid, alone=True))
    finally:
        end(process)


def _wait_until_ready(process: "subprocess.Popen[bytes]", port: int, path: str, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not answers(port, path):
        if process.poll() is not None:
            raise CannotMeasureError(f"the server ended with {process.returncode}: {_last_line(log)}")
        if time.monotonic() > deadline:
            raise CannotMeasureError(f"the server was not ready after {START_TIMEOUT:g} s: {_last_line(log)}")
        time.sleep(POLL)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def end(process: "subprocess.Popen[bytes]") -> None:
    """Asks, waits, insists; then makes sure that nothing of its group is left."""
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
