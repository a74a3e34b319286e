"""Runs the A2A compatibility kit against the agent: `make conformance-a2a`.

    python -m tests.conformance.a2a_suite FOLDER [options of run_tck.py]

FOLDER is a copy of a2aproject/a2a-tck, branch 1.0-dev; without one the command says so and does nothing. It is copied before it
is run, since it writes reports, and has an environment of its own in `.venv/a2a-tck`. What fails beyond EXCEPTIONS is an error.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv" / "a2a-tck"
SECONDS = 900
EXCEPTIONS = {
    "test_agent_card_validates_against_schema": "the card has the members of 0.3 beside those of 1.0, for clients of both; "
    "the kit's schema knows those of 1.0 only",
    "test_returns_message_with_text_part": "the agent answers every message with a task, which the protocol leaves to it",
}


def python_of(kit: Path) -> Path:
    program = ENVIRONMENT / "bin" / "python"
    if not program.exists():
        venv.create(ENVIRONMENT, with_pip=True)
        install = [str(program), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(kit)]
        subprocess.run(install, check=True, timeout=SECONDS)
    return program


def main(folder: str | None, options: Sequence[str]) -> int:
    if folder is None or not (Path(folder) / "run_tck.py").exists():
        sys.stdout.write(
            f"There is no A2A compatibility kit at {folder}; set A2A_TCK to a copy of a2aproject/a2a-tck.\n"
        )
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        kit = Path(shutil.copytree(folder, Path(scratch) / "kit"))
        failed = _run(python_of(kit), kit, options)
    unexpected = [name for name in failed if not any(known in name for known in EXCEPTIONS)]
    for name in failed:
        reason = next((why for known, why in EXCEPTIONS.items() if known in name), "NOT EXPECTED")
        sys.stdout.write(f"failed: {name}: {reason}\n")
    return 1 if unexpected else 0


def _run(python: Path, kit: Path, options: Sequence[str]) -> list[str]:
    """The names of the tests that fail."""
    command = [sys.executable, "-m", "tests.conformance.a2a_fixtures"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            suite = [str(python), "run_tck.py", "--sut-host", address, "--transport", "jsonrpc,http_json", *options]
            done = subprocess.run(suite, cwd=kit, capture_output=True, text=True, timeout=SECONDS, check=False)
        finally:
            server.stdin.close()
            server.wait(30)
    summary = re.findall(r"^.*\d+ passed.*$", done.stdout, re.MULTILINE)
    sys.stdout.write("\n".join(summary or [done.stdout[-2000:], done.stderr[-2000:]]) + "\n")
    if not summary:
        return ["the kit did not run"]
    return re.findall(r"^FAILED (\S+::\S+)", done.stdout, re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None, sys.argv[2:]))
