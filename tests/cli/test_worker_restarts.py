"""What the parent of workers does when one of them ends."""

import socket
import sys
from types import SimpleNamespace

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


def test_a_worker_that_fails_after_its_start_is_replaced_and_one_that_cannot_start_is_not(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(workers, "RESTART_SECONDS", 0)
    monkeypatch.setattr(workers, "PAUSE", 0.01)
    monkeypatch.setattr(workers.signal, "signal", lambda *_: None)
    ended = []
    store = SimpleNamespace(descriptors=(), ended=ended.append)
    with socket.socket() as listener:
        parent = workers._Workers(1, [], listener, store, str(tmp_path))
        parent._command = [sys.executable, "-c", WORKER]
        assert parent.run() == 1
    assert (tmp_path / "starts").read_text() == "xx"
    assert len(set(ended)) == 2
    assert capsys.readouterr().err == "Worker 1 ended with exit code 1; starting another one.\n"
