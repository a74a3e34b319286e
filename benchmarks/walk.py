"""Counts the calls that one request makes inside holodeck: how far a reader has to walk to follow it.

A hop is a Python call, or the resumption of a coroutine, in a module of holodeck, the demo model and the watchdog left
out, and comprehensions, which are calls before Python 3.12 only. The server is warmed up first; what is counted is one more request of the same kind. Linux and loopback only.
`python -m benchmarks walk` prints the table, `python -m benchmarks.walk` every function in the order of its first call.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks.options import Options
from benchmarks.processes import free_port
from benchmarks.report import CannotMeasureError, Row, Target

PATIENCE = 60.0
TOOL_TURN, TEXT, TOOL_CALL = "AG-UI, one MCP tool call", "REST, text only", "the MCP call alone"
TARGETS = {TOOL_TURN: (900, 50), TEXT: (700, None), TOOL_CALL: (120, None)}  # hops, files
NO_CALLS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<module>")
LEFT_OUT = ("models/demo/", "demo/", "telemetry/watchdog")
TRACER = r"""
import os, signal, sys, threading
import holodeck
ROOT = os.path.dirname(holodeck.__file__) + os.sep
calls, counting = [], []
DEMO = ROOT + "models" + os.sep + "demo" + os.sep
def left_out(file, caller):  # what the watchdog and the demo model call for themselves; the model's listener is counted
    if caller is None or file.endswith("emitter.py"):
        return False
    return caller.f_code.co_filename.endswith("watchdog.py") or caller.f_code.co_filename.startswith(DEMO)
def profile(frame, event, _):
    file = frame.f_code.co_filename
    if event == "call" and counting and file.startswith(ROOT) and not left_out(file, frame.f_back):
        calls.append(file[len(ROOT):] + ":" + frame.f_code.co_qualname)
def begin(*_):
    calls.clear()
    counting.append(True)
    open(os.environ["WALK_OUT"] + ".begun", "w").close()
def end(*_):
    counting.clear()
    with open(os.environ["WALK_OUT"] + ".part", "w") as out:
        out.write("\n".join(calls))
    os.replace(os.environ["WALK_OUT"] + ".part", os.environ["WALK_OUT"])
signal.signal(signal.SIGUSR1, begin)
signal.signal(signal.SIGUSR2, end)
threading.setprofile(profile)
sys.setprofile(profile)
from holodeck.cli.main import main
sys.argv = ["holodeck", *sys.argv[1:]]
sys.exit(main())
"""


class Walk(NamedTuple):
    """The calls of one request, in order: `file:function`."""

    name: str
    calls: list[str]

    @property
    def files(self) -> set[str]:
        return {call.partition(":")[0] for call in self.calls}

    @property
    def changes(self) -> int:
        """How often two consecutive calls are in different packages."""
        packages = [call.partition("/")[0] for call in self.calls]
        return sum(one != other for one, other in pairwise(packages))

    def between(self, name: str, first: str, last: str) -> "Walk":
        """From the first call of one function to the last of another."""
        begin = next(i for i, call in enumerate(self.calls) if call.endswith(first))
        end = max(i for i, call in enumerate(self.calls) if call.endswith(last))
        return Walk(name, self.calls[begin : end + 1])

    def rows(self) -> list[Row]:
        hops, files = TARGETS[self.name]
        of = {"measure": self.name, "system": "holodeck"}
        return [
            Row(**of, unit="hops", samples=[len(self.calls)], target=Target(limit=hops)),
            Row(**of, unit="files", samples=[len(self.files)], target=Target(limit=files) if files else None),
            Row(**of, unit="changes of package", samples=[self.changes]),
        ]


def walks(folder: Path) -> list[Walk]:
    port, out = free_port(), folder / "calls"
    environment = {**os.environ, "WALK_OUT": str(out), "HOLODECK_TODO_DB": str(folder / "todo.sqlite3")}
    environment |= {"HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    command = [sys.executable, "-c", TRACER, "serve", "--demo", "--port", str(port), "--protocol", "all"]
    with _running(command, folder, environment) as server:
        _until(lambda: server.poll() is not None or _status(port) == http.client.OK, "the server")
        if server.poll() is not None:
            raise CannotMeasureError("the server did not start")
        agent = json.loads(_ask(port, "GET", "/health")[1])["agent_name"]

        def agui(number: str) -> None:
            message = {"id": f"m{number}", "role": "user", "content": "What is on my list?"}
            ids = {"threadId": f"t{number}", "runId": f"r{number}", "protocolVersion": "1.0"}
            _ask(port, "POST", "/awp", {**ids, "messages": [message]})

        def rest(_number: str) -> None:
            _ask(port, "POST", f"/agent/{agent}/chat", {"message": "What can you do?"})

        tool_turn = Walk(TOOL_TURN, _calls(server, port, out, agui))
        text = Walk(TEXT, _calls(server, port, out, rest))
    tool_call = tool_turn.between(TOOL_CALL, "ToolRunner._run_one", "ToolRunner._finish")
    return [tool_turn, text, tool_call]


def run(options: Options) -> list[Row]:
    return [row for walk in walks(options.scratch) for row in walk.rows()]


def _calls(server: "subprocess.Popen[bytes]", port: int, out: Path, ask: Callable[[str], None]) -> list[str]:
    for number in range(3):
        ask(f"{ask.__name__}-{number}")
    time.sleep(0.3)  # for what follows the last byte, as below: it belongs to the request before
    begun = out.with_name(f"{out.name}.begun")
    begun.unlink(missing_ok=True)
    out.unlink(missing_ok=True)
    _signal_until(server, signal.SIGUSR1, port, begun)
    ask(f"{ask.__name__}-counted")
    time.sleep(0.3)  # for what follows the last byte: the end of the run's task, the log's lines
    _signal_until(server, signal.SIGUSR2, port, out)
    lines = out.read_text().splitlines()
    last = max((i for i, line in enumerate(lines) if line.endswith(":RequestTrace.end")), default=len(lines))
    return [line for line in lines[: last + 200] if not line.startswith(LEFT_OUT) and not line.endswith(NO_CALLS)]


def _signal_until(server: "subprocess.Popen[bytes]", number: signal.Signals, port: int, file: Path) -> None:
    """Python runs a handler between two instructions: an idle event loop has to be woken for it."""
    server.send_signal(number)
    time.sleep(0.1)
    if not file.exists():
        with http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE) as connection:
            connection.connect()
    _until(file.exists, str(number))


@contextmanager
def _running(command, folder, environment):
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, cwd=folder, env=environment, **silent)
    try:
        yield server
    finally:
        server.terminate()
        server.wait(PATIENCE)


def _status(port: int) -> int:
    try:
        return _ask(port, "GET", "/ready", expected=None)[0]
    except OSError:
        return 0


def _ask(port: int, method: str, path: str, body=None, expected: int | None = http.client.OK) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if expected not in (None, answer.status):
        raise CannotMeasureError(f"{path} answered {answer.status}")
    return answer.status, text


def _until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise CannotMeasureError(f"waited {PATIENCE:g} s for {what}")
        time.sleep(0.02)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for walk in walks(Path(scratch)):
            print(f"{walk.name}: {len(walk.calls)} hops, {len(walk.files)} files, {walk.changes} changes of package")
            for call, times in Counter(walk.calls).items():
                print(f"  {times:4d} {call}")
