"""The server that every client of this folder meets: the real application, in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.clients.driving import ROOT

# A suite of its own, `make react`: 600 MB of npm, and the timing of a foreign page in a browser.
collect_ignore = [] if os.environ.get("REACT") == "1" else ["test_copilotkit_react.py"]


@pytest.fixture(scope="session")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Where the agents are: {"plain": ..., "state": ...}."""
    written = tmp_path_factory.mktemp("scenes") / "server.log"
    with written.open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.clients.serve_scenes"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        with server:
            assert server.stdin is not None
            assert server.stdout is not None
            try:
                received = server.stdout.readline()
                assert received, written.read_text()
                yield json.loads(received)
            finally:
                server.stdin.close()
                server.wait(10)
