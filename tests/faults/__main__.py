"""`python -m tests.faults`: the fault matrix against the real server process. Prints a table; 1 if anything failed."""

import argparse
import asyncio
import sys

from tests.faults import page
from tests.faults.fault_catalogue import CI, KINDS
from tests.faults.matrix import run, say, table

SEEDS, CI_SEEDS = 10, 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs of each kind on each wire (%(default)s)")
    parser.add_argument("--only", default="", help="kinds, separated by commas: A05,B09")
    parser.add_argument("--ci", action="store_true", help="the quick kinds, with one seed each")
    parser.add_argument("--page", action="store_true", help="write docs/what-happens-when.md and play nothing")
    given = parser.parse_args()
    if given.page:
        page.PAGE.write_text(page.written(), encoding="utf-8")
        return 0
    only = {name.strip().upper() for name in given.only.split(",") if name.strip()}
    wanted = CI if given.ci and not only else {kind.id for kind in KINDS}
    chosen = [kind for kind in KINDS if kind.id in wanted and (not only or kind.id.upper() in only)]
    results = asyncio.run(run(chosen, CI_SEEDS if given.ci else given.seeds, say))
    sys.stdout.write("\n" + table(results).splitlines()[-1] + "\n")
    return 1 if any(result.failures for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
