"""`python -m tests.faults.mutate`: plants each fault of `mutants` in a copy of the code and runs the tests, or the row of
the fault catalogue, that must notice.

1 if one survives, if one does not fit the code any more, or if the tests fail without any.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.mutants import MUTANTS, ROWS, Mutant

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
AT_A_TIME = 2
SECONDS = 300
CAUGHT = 1  # pytest's code for tests that failed; others mean that it did not run


def planted(mutant: Mutant, folder: Path) -> Path:
    """A copy of the code with the fault in it."""
    copy = folder / "src"
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / "holodeck" / mutant.file
    text = file.read_text(encoding="utf-8")
    count = text.count(mutant.old)
    if count != 1:
        raise LookupError(f"its text stands {count} times in {mutant.file}")
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    return copy


def tests_fail(sources: Path, tests: str, row: str) -> tuple[int, str]:
    """The exit code of the tests, or of rows of the fault catalogue, and their last lines."""
    path = os.pathsep.join([str(sources), str(ROOT)])
    pytest = ["pytest", "-x", "-q", "-p", "no:cacheprovider", *tests.split()]
    command = [sys.executable, "-m", *(["tests.faults", "--seeds", "2", "--only", row] if row else pytest)]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return CAUGHT, "hung"
    return done.returncode, "\n".join(done.stdout.splitlines()[-3:])


def judge(mutant: Mutant) -> str:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        try:
            sources = planted(mutant, Path(folder))
        except LookupError as error:
            return f"does not fit: {error}"
        code, received = tests_fail(sources, mutant.tests, mutant.row)
    return {CAUGHT: "caught", 0: "SURVIVED"}.get(code, f"pytest ended with {code}: {received}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.mutate", description=__doc__)
    parser.add_argument("--only", default="", help="a part of the file's name or of what the fault does")
    given = parser.parse_args()
    chosen = [each for each in (*MUTANTS, *ROWS) if given.only in f"{each.file} {each.says}"]
    if not chosen:
        parser.error(f"no planted fault has {given.only!r} in its file or in what it does")
    suites = " ".join(sorted({name for each in chosen for name in each.tests.split()}))
    rows = ",".join(each.row for each in chosen if each.row)
    code, received = tests_fail(SOURCES, suites, "") if suites else (0, "")
    if rows and not code:
        code, received = tests_fail(SOURCES, "", rows)
    if code:
        sys.stdout.write(f"The tests fail without any planted fault:\n{received}\n")
        return 1
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        verdicts = []
        for mutant, verdict in zip(chosen, pool.map(judge, chosen), strict=True):
            verdicts.append(verdict)
            sys.stdout.write(f"{verdict:9} {mutant.file:24} {mutant.says}\n")
            sys.stdout.flush()
    caught = verdicts.count("caught")
    sys.stdout.write(f"\n{caught} of {len(chosen)} planted faults were caught\n")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
