"""Runs the conformance suite of MCP against the agent: `make conformance-mcp`.

    python -m tests.conformance.mcp_suite                       both revisions, all that they require
    python -m tests.conformance.mcp_suite tools-list caching    single scenarios of the newer one

The suite comes from npm, with the Node.js that it needs. `mcp_expected_failures.yaml` lists what is left out, and why.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NODE = HERE / "node_modules" / ".bin" / "node"
SUITE = HERE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
BASELINE = HERE / "mcp_expected_failures.yaml"
REVISIONS = ("2026-07-28", "2025-11-25")
SECONDS = 600


def is_installed() -> bool:
    return NODE.exists() and SUITE.exists()


def install() -> None:
    subprocess.run([str(ROOT / "tests" / "npm_install.sh"), str(HERE)], check=True, timeout=SECONDS)


@contextmanager
def fixtures() -> Iterator[str]:
    """The address of an agent with the tools that the suite calls, in a process of its own."""
    command = [sys.executable, "-m", "tests.conformance.mcp_fixtures"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.stdin.close()
            server.wait(30)


def suite(address: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(NODE), str(SUITE), "server", "--url", address, "--expected-failures", str(BASELINE), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def main(scenarios: Sequence[str]) -> int:
    if not is_installed():
        install()
    wanted = [["--scenario", each, "--spec-version", REVISIONS[0]] for each in scenarios]
    wanted = wanted or [["--requirements", revision] for revision in REVISIONS]
    failed = 0
    with fixtures() as address:
        for options in wanted:
            done = suite(address, *options)
            start = done.stdout.find("=== SUMMARY ===")
            sys.stdout.write(f"{' '.join(options)}\n{done.stdout[max(start, 0) :]}{done.stderr}\n")
            failed |= done.returncode
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
