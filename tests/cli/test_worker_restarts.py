"""What the parent of workers does when one of them ends."""

import socket
import sys
from types import SimpleNamespace

import pytest

from holodeck.cli import workers

WORKER = """
import json, os, pathlib
seat = json.loads(os.environ["HOLODECK_WORKER"])
starts = pathlib.Path("starts")
with starts.open("a") as file:
    file.write("x")
if starts.read_text() == "x":  # the first one is ready, and then fails
    pathlib.Path(seat["folder"], f"{seat['number']}.sock").touch()
raise SystemExit(1)
"""


def test_a_worker_that_fails_after_its_start_is_replaced_and_one_that_cannot_start_is_not(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(workers, "RESTART_SECONDS", 0)
    monkeypatch.setattr(workers, "PAUSE", 0.01)
    monkeypatch.setattr(workers.signal, "signal", lambda *_: None)
    ended = []
    lines = []
    monkeypatch.setattr(workers.event_log, "error", lambda event, **details: lines.append((event, details)))
    store = SimpleNamespace(descriptors=(), ended=ended.append)
    with socket.socket() as listener:
        parent = workers._Workers(1, [], listener, store, str(tmp_path))
        parent._command = [sys.executable, "-c", WORKER]
        assert parent.run() == 1
    assert (tmp_path / "starts").read_text() == "xx"
    assert len(set(ended)) == 2
    assert lines == [("worker_restarted", {"worker": 1, "exit_code": 1})]


ONE_SERVES = """
import json, os, pathlib, time
seat = json.loads(os.environ["HOLODECK_WORKER"])
first = pathlib.Path(seat["folder"], "0.sock")
if seat["number"] == 0:
    first.touch()
    time.sleep(60)
while not first.exists():
    time.sleep(0.01)
raise SystemExit(2)
"""


def test_a_worker_that_cannot_start_again_does_not_end_those_that_serve(monkeypatch, tmp_path):
    """The agent file is being edited, the disk is full or the database is away when one of the workers dies."""
    monkeypatch.setattr(workers, "RESTART_SECONDS", 0)
    monkeypatch.setattr(workers, "PAUSE", 0.01)
    monkeypatch.setattr(workers.signal, "signal", lambda *_: None)
    lines = []

    def note(_event, **details):
        lines.append(details)
        if len(lines) == 3:
            parent._end(15, None)

    monkeypatch.setattr(workers.event_log, "error", note)
    with socket.socket() as listener:
        store = SimpleNamespace(descriptors=(), ended=lambda _replica: None)
        parent = workers._Workers(2, [], listener, store, str(tmp_path))
        parent._command = [sys.executable, "-c", ONE_SERVES]
        code = parent.run()
    assert (code, lines) == (0, [{"worker": 2, "exit_code": 2}] * 3)


@pytest.mark.parametrize("at", [1, 2], ids=["while the first starts", "while the last starts"])
def test_a_signal_that_comes_while_workers_start_ends_all_of_them(monkeypatch, tmp_path, at):
    """A worker that starts after the signal, or at the same time, would serve for ever."""
    monkeypatch.setattr(workers, "PAUSE", 0)
    monkeypatch.setattr(workers.signal, "signal", lambda *_: None)
    started = []

    class Process:
        """Ends with a signal. The parent can send one only to a process that it knows."""

        returncode = None

        def __init__(self, *_arguments, **_options):
            started.append(self)
            self.checks = 0
            if len(started) == at:
                parent._end(15, None)

        def send_signal(self, number):
            self.returncode = -number

        def poll(self):
            self.checks += 1
            assert self.checks < 100, "nothing ends this worker"
            return self.returncode

    monkeypatch.setattr(workers.subprocess, "Popen", Process)
    with socket.socket() as listener:
        store = SimpleNamespace(descriptors=(), ended=lambda _replica: None)
        parent = workers._Workers(2, [], listener, store, str(tmp_path))
        assert parent.run() == 0
    assert len(started) == at
