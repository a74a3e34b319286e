"""Faults planted in our own code that a row of the rig has to notice: `python -m tests.store_faults --mutants`.

`tests` of a mutant is the row that has to break, and the store on which it is played.
"""

from tests.faults.mutants import Mutant

COMMIT, RUNS, LINK = "stores/postgres_commit.py", "stores/postgres_runs.py", "stores/valkey_link.py"

MUTANTS = (
    Mutant("agent/tool_calls.py", "        await self.begin_calls(self._cut_from_here(batch, begun))\n        try:", "        try:", "S01 sqlite", "no intent: a tool is called before the call is stored"),
    Mutant("runs/recovery.py", "        if message.id not in known\n", "", "S01 sqlite", "a question is stored twice after a crash"),
    Mutant("runs/stored_runs.py", "first_number=block * HOLE", "first_number=parts[-1].next_number", "S01 sqlite", "counters are not raised: numbers that a client has seen are used again"),
    Mutant("agent/loop.py", "        await self._commit(_worth_keeping(batch), ending=ending)\n", "        await self._commit(_worth_keeping(batch))\n", "S04 sqlite", "the ending is shown before it is stored"),
    Mutant("agent/pending.py", "if call.id in pending.begun:", "if False:", "S06 sqlite", "a call that may have taken effect is reported as not approved"),
    Mutant("runs/recovery.py", "text = unknown if call.id in step.begun else NOT_MADE", "text = NOT_MADE", "S06 sqlite", "a call that may have taken effect is reported as not made"),
    Mutant("runs/stored_runs.py", "may_go_on and remains.is_certain and", "may_go_on and", "S03 postgres and valkey", "a run goes on although a call may have taken effect"),
    Mutant(LINK, 'pipeline.xadd(key, {_SEALED: "1"}, id=_LAST_ID)', "pass", "S07 postgres and valkey", "no seal: a process that was taken for dead adds to its log"),
    Mutant(RUNS, "WHERE key = %(run)s AND replica = %(replica)s AND ended IS NULL", "WHERE key = %(run)s", "S07 postgres", "a process that was taken for dead stores what its run does"),
    Mutant(RUNS, "AND (other.state = 'running' OR other.key < runs.key)", "AND other.key < 0", "S09 postgres", "runs of one session do not wait for those of other servers"),
)  # fmt: skip
