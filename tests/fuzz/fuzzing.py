"""Schemathesis over the OpenAPI document of a server that runs: every phase, every check, no server error allowed.

The model behind the server is quick and always says the same: what is under test is everything in front of it.
"""

import asyncio
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from holodeck.access.key_file import change_key_file
from tests.faults.planned_endpoint import PlannedEndpoint
from tests.faults.server_process import config, environment, serving

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
)
SECRET_WORDS = "bobs-words-of-a-conversation"
CANARY = ("-m", "tests.fuzz.canary")
CANARY_PATH = "/sessions/{id}"
_CASES = re.compile(r"(\d[\d,]*) (?:test cases )?generated")


@dataclass(frozen=True)
class Fuzzed:
    code: int
    output: str

    @property
    def cases(self) -> int:
        found = _CASES.search(self.output)
        return int(found[1].replace(",", "")) if found else 0

    @property
    def server_errors(self) -> int:
        return self.output.count("Server error")


def _key_of(file: Path, user: str) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    return change_key_file(file, lambda keys: keys.add(name=user, user=user))[1]


async def _say(url: str, text: str, headers: dict[str, str]) -> None:
    """A conversation under an id that is guessed first."""
    body: dict[str, Any] = {"threadId": "0", "runId": "0", "messages": [{"id": "0", "role": "user", "content": text}]}
    body |= {"tools": [], "context": [], "state": {}, "forwardedProps": {}}
    async with aiohttp.ClientSession() as http, http.post(f"{url}/awp", json=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        await answer.read()


def installed() -> str | None:
    beside = Path(sys.executable).with_name("schemathesis")
    return str(beside) if beside.exists() else shutil.which("schemathesis")


async def fuzz(
    folder: Path,
    examples: int,
    *,
    canary: bool = False,
    seed: int = 1,
    only: str | None = None,
    phases: str = "examples,coverage,fuzzing,stateful",
    keyed: bool = False,
) -> Fuzzed:
    """One run of schemathesis against one server.

    `keyed`: the server wants keys. Schemathesis has one; no answer may hold what another user wrote there.
    """
    program = installed()
    assert program, "schemathesis is not installed"
    entry = CANARY if canary else ("-m", "holodeck")
    changes: dict[str, Any] = {}
    checks: tuple[str, ...] = CHECKS
    headers: dict[str, str] = {}
    if keyed:
        keys = {user: _key_of(folder / "keys.json", user) for user in ("ann", "bob")}
        changes = {"server": {"auth": {"mode": "api_key", "api_key": {"file": "keys.json"}}}}
        checks, headers = (*CHECKS, "nothing_of_another_user"), {"Authorization": f"Bearer {keys['ann']}"}
    async with PlannedEndpoint() as endpoint, serving(folder, config(endpoint.url, **changes), entry=entry) as server:
        if keyed:
            await _say(server.url, SECRET_WORDS, {"Authorization": f"Bearer {keys['bob']}"})
        words = [
            *("run", f"{server.url}/openapi.json", "--checks", ",".join(checks)),
            *("--phases", phases, "--max-examples", str(examples), "--seed", str(seed), "--workers", "1"),
            *("--generation-database", "none", "--suppress-health-check", "all", "--warnings", "off", "--no-color"),
            *(("--include-path", only) if only else ()),
            *(word for name, value in headers.items() for word in ("--header", f"{name}: {value}")),
        ]
        process = await asyncio.create_subprocess_exec(
            program,
            *words,
            cwd=folder,
            env={**environment(folder, {}), "SCHEMATHESIS_HOOKS": "tests.fuzz.hooks"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert await server.answers(), "the server did not survive"
    return Fuzzed(process.returncode or 0, output.decode(errors="replace"))
