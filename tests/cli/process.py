"""Runs `holodeck` as users do: a process of its own, with a pipe or a pseudo-terminal."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


def environment(folder: Path, **extra: str) -> dict[str, str]:
    """Nothing of the machine that runs the tests: no keys, no home."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(folder), "XDG_DATA_HOME": str(folder / "data"), **extra}


def holodeck(*arguments: str, folder: Path, stdin: str = "", **extra: str) -> Result:
    done = subprocess.run(
        [sys.executable, "-m", "holodeck", *arguments],
        input=stdin,
        cwd=folder,
        env=environment(folder, **extra),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)
