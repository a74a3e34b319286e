"""`python -m tests.store_faults`: plays the rows S01 to S30 with real servers and stores, and prints their figures.

Exit code 1 if a promise was broken. `--mutants` plants faults in a copy of the code: each has to break its row.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.faults.mutate import ROOT
from tests.store_faults.fault_rig import Backends, FaultRig, PromiseBroken, RowFigures
from tests.store_faults.store_catalogue import ROWS, Row
from tests.store_faults.store_mutants import MUTANTS, planted

LONGEST = 900.0  # seconds for one row, however many rounds: more than that is a hang
HEAD = (
    f"{'row':4} {'store':20} {'rounds':>6} {'acked':>6} {'lost':>5} {'twice':>5} {'unknown':>7}  "
    f"{'seconds: median':>15} {'max':>6}   notes\n"
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.store_faults", description=__doc__)
    parser.add_argument("--only", default="", help="rows, separated by commas: S01,S07")
    parser.add_argument("--store", default="", help="only on this store: sqlite, postgres, postgres and valkey")
    parser.add_argument("--rounds", type=int, help="rounds of each row; default: a few, minutes in all")
    parser.add_argument(
        "--full", action="store_true", help="as many rounds, clients and seconds as the design asks for; hours"
    )
    parser.add_argument("--streams", type=int, help="streams of S30 at a time; default: 20, with --full 200")
    parser.add_argument("--live", action="store_true", help="S30 also prints what the first server has in memory")
    parser.add_argument("--seed", type=int, default=15, help="of all random choices (%(default)s)")
    parser.add_argument(
        "--slack",
        type=float,
        default=5.0,
        help="factor on every time limit, beyond which a row is broken (%(default)s); medians are printed beside the limits "
        "themselves",
    )
    parser.add_argument("--mutants", action="store_true", help="plant faults; each has to break its row")
    given = parser.parse_args()
    if given.mutants:
        return _all_noticed(given)
    only = {name.strip().upper() for name in given.only.split(",") if name.strip()}
    chosen = [row for row in ROWS if not only or row.id in only]
    if not chosen:
        parser.error(f"no row is called {given.only}")
    return asyncio.run(_played(chosen, given))


def _all_noticed(given: argparse.Namespace) -> int:
    """Plays, for each planted fault, its row on a copy of the code that has it. The row has to break."""
    survivors = 0
    for mutant in MUTANTS:
        if given.only and mutant.row not in given.only:
            continue
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            path = os.pathsep.join([str(planted(mutant, Path(folder))), str(ROOT)])
            words = ["--only", mutant.row, "--store", mutant.store, "--seed", str(given.seed)]
            done = subprocess.run(
                [sys.executable, "-m", "tests.store_faults", *words],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
        noticed = done.returncode == 1 and "BROKEN" in done.stdout
        survivors += not noticed
        why = next((line.strip() for line in done.stdout.splitlines() if "BROKEN" in line), done.stderr[-300:])
        sys.stdout.write(
            f"{'noticed' if noticed else 'SURVIVED'}  {mutant.row} {mutant.store}: {mutant.says}\n    {why[:200]}\n"
        )
        sys.stdout.flush()
    return 1 if survivors else 0


async def _played(rows: Sequence[Row], given: argparse.Namespace) -> int:
    broken, kept, not_played = 0, 0, []
    sys.stdout.write(HEAD)
    with Backends() as backends, tempfile.TemporaryDirectory(prefix="rows") as folder:
        for row in rows:
            for store in row.stores:
                if given.store in ("", store):
                    rounds = given.rounds or (row.full if given.full else row.rounds)
                    rig = FaultRig(
                        backends,
                        Path(folder) / row.id,
                        store,
                        seed=given.seed,
                        rounds=rounds,
                        slack=given.slack,
                        full=given.full,
                        streams=given.streams,
                        live=given.live,
                    )
                    if not await _keeps(row, rig):
                        broken += 1
                    elif rig.figures.not_played:
                        not_played.append(f"{row.id} {store}")
                    else:
                        kept += 1
    away = f", {len(not_played)} were not played, or not all of them: {', '.join(not_played)}" if not_played else ""
    sys.stdout.write(f"\n{kept} rows kept their promises, {broken} broke one{away}\n")
    return 1 if broken else 0


async def _keeps(row: Row, rig: FaultRig) -> bool:
    begun, problem = time.monotonic(), ""
    try:
        async with asyncio.timeout(LONGEST + 90 * rig.rounds):
            await row.play(rig)
    except PromiseBroken as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001  a row that cannot be played is broken; the others are played all the same
        problem = f"{type(error).__name__}: {error} in {traceback.extract_tb(error.__traceback__)[-1].name}"
    sys.stdout.write(_line(row, rig.store, rig.figures, time.monotonic() - begun))
    for what, timed in rig.figures.timed.items():
        sys.stdout.write(f"     {what}: {timed}\n")
    if rig.figures.not_played:
        sys.stdout.write(f"     NOT PLAYED: {rig.figures.not_played}\n")
    if row.differs and rig.full:
        sys.stdout.write(f"     not as designed: {row.differs}\n")
    if problem:
        sys.stdout.write(f"     BROKEN: {problem}\n")
    sys.stdout.flush()
    return not problem


def _line(row: Row, store: str, figures: RowFigures, seconds: float) -> str:
    times = figures.seconds or [0.0]
    notes = ", ".join(f"{name} {value}" for name, value in figures.notes.items())
    return (
        f"{row.id:4} {store:20} {figures.rounds:6} {figures.acknowledged:6} {figures.lost:5} {figures.doubled:5}"
        f" {figures.unknown:7}  {median(times):15.2f} {max(times):6.2f}   {notes} ({seconds:.0f} s)\n"
    )


if __name__ == "__main__":
    sys.exit(main())
