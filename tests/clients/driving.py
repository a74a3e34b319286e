"""Runs clients as processes of their own: scenarios in as JSON, one line of JSON out for each."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SECONDS = 200  # a client that hangs; on a loaded machine all scenarios of one take a minute
CLIENTS_PYTHON = ROOT / ".venv" / "clients" / "bin" / "python"
NODE_22 = HERE / "node_modules" / ".bin" / "node"  # from npm: newer clients do not run on the Node.js of older systems

Json = dict[str, Any]


def missing(what: str) -> None:
    """Skips here, fails in CI: there a client that is not tested is an error."""
    reason = f"{what} is not installed: run tests/clients/setup.sh"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def node(driver: str, *arguments: str, scenarios: Sequence[Json], package: str = "@ag-ui/client") -> list[Json]:
    """Runs a driver on the system's Node.js."""
    program = shutil.which("node")
    if program is None:
        missing("Node.js")
    return _node(str(program), driver, arguments, scenarios, package)


def node_22(driver: str, *arguments: str, scenarios: Sequence[Json], package: str) -> list[Json]:
    """Runs a driver on the Node.js 22 that npm has as a package."""
    if not NODE_22.exists():
        missing("the npm package node")
    return _node(str(NODE_22), driver, arguments, scenarios, package)


def _node(program: str, driver: str, arguments: Sequence[str], scenarios: Sequence[Json], package: str) -> list[Json]:
    if not (HERE / "node_modules" / package).is_dir():
        missing(package)
    return _lines([program, str(HERE / driver), *arguments], scenarios)


def python(driver: str, scenarios: Sequence[Json]) -> list[Json]:
    if not CLIENTS_PYTHON.exists():
        missing("the environment of the Python clients")
    return _lines([str(CLIENTS_PYTHON), str(HERE / driver)], scenarios)


def _lines(command: Sequence[str], scenarios: Sequence[Json]) -> list[Json]:
    done = subprocess.run(
        command, input=json.dumps(scenarios), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    results = [json.loads(line) for line in done.stdout.split("\n") if line]  # splitlines would cut at U+2028
    assert [result["name"] for result in results] == [scenario["name"] for scenario in scenarios]
    return results


def kinds(run: Json) -> list[str]:
    """The types of a run's events, repetitions left out."""
    found: list[str] = []
    for event in run["events"]:
        if not found or found[-1] != event["type"]:
            found.append(event["type"])
    return found


def events(run: Json, kind: str) -> list[Json]:
    return [event for event in run["events"] if event["type"] == kind]


def conversation(messages: Iterable[Json]) -> list[tuple[str, Any]]:
    """(role, what it says) of each message; a call is `name(arguments)`."""
    return [(message["role"], _content(message)) for message in messages]


def _content(message: Json) -> Any:
    calls = [f"{call['function']['name']}({call['function']['arguments']})" for call in message.get("toolCalls", ())]
    text = message.get("content") or ""
    return " ".join([text, *calls]).strip() if calls else text
