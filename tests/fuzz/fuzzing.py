"""Schemathesis over the OpenAPI document of a server that runs: every phase, every check, no server error allowed.

The model behind the server is quick and always says the same: what is under test is everything in front of it.
"""

import asyncio
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.faults.endpoint import PlannedEndpoint
from tests.faults.house import config, environment, serving

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
)
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
) -> Fuzzed:
    """One run of schemathesis against one server."""
    program = installed()
    assert program, "schemathesis is not installed"
    entry = CANARY if canary else ("-m", "holodeck")
    async with PlannedEndpoint() as endpoint, serving(folder, config(endpoint.url), entry=entry) as house:
        words = [
            *("run", f"{house.url}/openapi.json", "--checks", ",".join(CHECKS)),
            *("--phases", phases, "--max-examples", str(examples), "--seed", str(seed), "--workers", "1"),
            *("--generation-database", "none", "--suppress-health-check", "all", "--warnings", "off", "--no-color"),
            *(("--include-path", only) if only else ()),
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
        assert await house.answers(), "the server did not survive"
    return Fuzzed(process.returncode or 0, output.decode(errors="replace"))
