"""Runs `holodeck` as users do: a process of its own, with a pipe or a pseudo-terminal."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.warm import Warm

SECONDS = 30


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


def environment(folder: Path, **extra: str) -> dict[str, str]:
    """Nothing of the machine that runs the tests: no keys, no home."""
    names = ("PATH", "PYTHONPATH", "LANG", "TMPDIR", "HOLODECK_BANNER")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, "HOME": str(folder), "XDG_DATA_HOME": str(folder / "data"), **extra}


class Piped(Warm):
    """With a pipe for each of its streams; `stdin` is unbuffered."""

    def __init__(self, *arguments: str, folder: Path, **extra: str) -> None:
        (stdin, its_stdin), (its_stdout, stdout), (its_stderr, stderr) = os.pipe(), os.pipe(), os.pipe()
        its = environment(folder, **extra)
        super().__init__(*arguments, folder=folder, environment=its, stdin=stdin, stdout=stdout, stderr=stderr)
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
        self.stdin = os.fdopen(its_stdin, "wb", buffering=0)
        self.stdout = os.fdopen(its_stdout, "rb")
        self.stderr = os.fdopen(its_stderr, "rb")

    def communicate(self, sent: bytes = b"") -> tuple[bytes, bytes]:
        """What it wrote from now on, to its end."""
        with ThreadPoolExecutor() as readers, self.stdout, self.stderr:
            out, err = readers.submit(self.stdout.read), readers.submit(self.stderr.read)
            try:
                with self.stdin:
                    self.stdin.write(sent)
                self.wait(SECONDS)
            finally:
                self.kill()
            return out.result(), err.result()


def holodeck(*arguments: str, folder: Path, stdin: str = "", **extra: str) -> Result:
    process = Piped(*arguments, folder=folder, **extra)
    out, err = process.communicate(stdin.encode())
    return Result(process.wait(), out.decode(), err.decode())


def started(*arguments: str, folder: Path, stdin: str = "") -> Result:
    """As `holodeck`, with everything that a start of Python is."""
    done = subprocess.run(
        [sys.executable, "-m", "holodeck", *arguments],
        input=stdin,
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)
