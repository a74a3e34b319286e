"""Faults planted in our own code that a row of the rig has to notice: `python -m tests.store_faults --mutants`.

Where two checks keep one promise, both are removed: each alone is shown by `make mutants`.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.faults.mutate import SOURCES

COMMIT, RUNS, LINK = "stores/postgres_commit.py", "stores/postgres_runs.py", "stores/valkey_link.py"
STATEMENTS = "stores/postgres_run_statements.py"
SQLITE, POSTGRES, CLUSTER = "sqlite", "postgres", "postgres and valkey"


@dataclass(frozen=True)
class StoreMutant:
    row: str  # that has to break
    store: str  # on which it is played
    says: str  # what the planted fault does
    changes: tuple[
        tuple[str, str, str], ...
    ]  # file below src/holodeck, the text that stands there once, and the new one


MUTANTS = (
    StoreMutant("S01", SQLITE, "no intent: a tool is called before the call is stored", (
        ("agent/tool_calls.py", "        await self.begin_calls(self._cut_from_here(batch, begun))\n        try:", "        try:"),
    )),
    StoreMutant("S01", SQLITE, "a question is stored twice after a crash", (
        ("runs/recovery.py", "        if message.id not in known\n", ""),
    )),
    StoreMutant("S01", SQLITE, "counters are not raised: numbers that a client has seen are used again", (
        ("runs/stored_runs.py", "first_number=block * HOLE", "first_number=parts[-1].next_number"),
    )),
    StoreMutant("S04", SQLITE, "the ending is shown before it is stored", (
        ("agent/loop.py", "        await self._commit(_worth_keeping(batch), ending=ending)\n", "        await self._commit(_worth_keeping(batch))\n"),
    )),
    StoreMutant("S06", SQLITE, "no intent: an approval is not used up before the tool is called", (
        ("agent/tool_calls.py", "        await self.begin_calls(self._cut_from_here(batch, begun))\n        try:", "        try:"),
    )),
    StoreMutant("S06", SQLITE, "a call that may have taken effect is reported as not made", (
        ("runs/recovery.py", "text = unknown if call.id in step.begun else NOT_MADE", "text = NOT_MADE"),
    )),
    StoreMutant("S03", CLUSTER, "a run goes on although a call may have taken effect", (
        ("runs/stored_runs.py", "may_go_on and remains.is_certain and", "may_go_on and"),
    )),
    StoreMutant("S07", CLUSTER, "no seal: a process that was taken for dead adds to its log", (
        (LINK, 'pipeline.xadd(key, {_SEALED: "1"}, id=_LAST_ID)', "pass"),
    )),
    StoreMutant("S07", POSTGRES, "no epoch and no owner in the WHERE: a process that was taken for dead stores what its run does", (
        (COMMIT, "AND s.epoch = %(epoch)s AND s.steps = %(first)s", ""),
        (RUNS, "WHERE key = %(run)s AND replica = %(replica)s AND ended IS NULL", "WHERE key = %(run)s"),
        (STATEMENTS, 'WHERE key = %(key)s AND replica = %(me)s AND ended IS NULL\n"""\n\nEND_RELEASED', 'WHERE key = %(key)s\n"""\n\nEND_RELEASED'),
    )),
    StoreMutant("S08", POSTGRES, "a server that lost the database keeps its runs", (
        ("runs/replica.py", "        self._runs.stop_all(RunInterrupted(INTERRUPTED_TEXT))\n", ""),
    )),
    StoreMutant("S09", POSTGRES, "runs of one session do not take turns in the order in which they were accepted", (
        (STATEMENTS, "AND (other.state = 'running' OR other.key < runs.key)", "AND other.state = 'running'"),
    )),
)  # fmt: skip


def planted(mutant: StoreMutant, folder: Path) -> Path:
    """A copy of the code with the fault in it."""
    copy = folder / "src"
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in mutant.changes:
        file = copy / "holodeck" / name
        text = file.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise LookupError(f"its text stands {text.count(old)} times in {name}")
        file.write_text(text.replace(old, new), encoding="utf-8")
    return copy
