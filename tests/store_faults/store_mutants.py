"""Faults planted in our own code that a row of the rig has to notice: `make mutants-stores`.

Where two checks keep one promise, both are removed: each alone is shown by `make mutants`.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.faults.mutate import SOURCES

COMMIT, RUNS, LINK = "stores/postgres_commit.py", "stores/postgres_runs.py", "stores/valkey_link.py"
STATEMENTS, DATABASE = "stores/postgres_run_statements.py", "stores/postgres_database.py"
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
        ("agent/tool_calls.py", "        await self.begin_calls(self._cut_from_here(batch, begun))\n        if len(paid)", "        if len(paid)"),
    )),
    StoreMutant("S01", SQLITE, "a question is stored twice after a crash", (
        ("runs/recovery.py", " if message.id not in known]", "]"),
    )),
    StoreMutant("S01", SQLITE, "counters are not raised: numbers that a client has seen are used again", (
        ("runs/remote_runs.py", "first_number=block * PART_STRIDE", "first_number=parts[-1].next_number"),
    )),
    StoreMutant("S04", SQLITE, "the ending is shown before it is stored", (
        ("agent/run_ending.py", "        await self._store(ending, messages, pending, state)\n        self._emitter", "        await self._context.conversation.commit(messages, pending, state=state)\n        self._emitter"),
    )),
    StoreMutant("S06", SQLITE, "no intent: an approval is not used up before the tool is called", (
        ("agent/tool_calls.py", "        await self.begin_calls(self._cut_from_here(batch, begun))\n        if len(paid)", "        if len(paid)"),
    )),
    StoreMutant("S06", SQLITE, "a call that may have taken effect is reported as not made", (
        ("runs/recovery.py", "text = unknown if call.id in step.begun else NOT_MADE", "text = NOT_MADE"),
    )),
    StoreMutant("S03", CLUSTER, "a run goes on although a call may have taken effect", (
        ("runs/interrupted_runs.py", "remains.is_certain and not remains.has_moved_on", "not remains.has_moved_on"),
    )),
    StoreMutant("S07", CLUSTER, "no seal: a process that was taken for dead adds to its log", (
        (LINK, 'pipeline.xadd(key, {_SEALED: "1"}, id=_LAST_ID)', "pass"),
    )),
    StoreMutant("S07", POSTGRES, "no epoch and no owner in the WHERE: a process that was taken for dead stores what its run does", (
        (COMMIT, "AND s.epoch = %(epoch)s AND s.steps = %(first)s", ""),
        (STATEMENTS, "WHERE key = %(run)s AND replica = %(replica)s AND ended IS NULL", "WHERE key = %(run)s"),
        (STATEMENTS, "WHERE key = %(key)s AND replica = %(me)s AND ended IS NULL RETURNING 1", "WHERE key = %(key)s RETURNING 1"),
    )),
    StoreMutant("S08", POSTGRES, "a server that lost the database keeps its runs", (
        ("runs/replica.py", "        self._runs.stop_all(RunInterrupted(LOST_TEXT), also_queued=False)\n", ""),
    )),
    StoreMutant("S09", POSTGRES, "runs of one session do not take turns in the order in which they were accepted", (
        (STATEMENTS, "AND (other.state = 'running' OR other.key < runs.key)", "AND other.state = 'running'"),
    )),
    StoreMutant("S09", POSTGRES, "two runs of one session run at once", (
        ("stores/postgres_schema.py", "CREATE UNIQUE INDEX one_at_a_time", "CREATE INDEX one_at_a_time"),
        (STATEMENTS, "  AND NOT EXISTS (SELECT 1 FROM holodeck.runs other WHERE {SAME_SESSION}\n    AND (other.state = 'running' OR other.key < runs.key))\n", ""),
    )),
    StoreMutant("S02", CLUSTER, "a run that was taken over shows no snapshot of what is stored", (
        ("runs/interrupted_runs.py", "(*remains.closings, correction(events, history_now))", "remains.closings"),
    )),
    StoreMutant("S05", SQLITE, "the message of a run that waited is not stored after a crash", (
        ("runs/interrupted_runs.py", "await conversation.commit(() if waits else remains.messages, pending, ending=ending)", "await conversation.commit((), pending, ending=ending)"),
    )),
    StoreMutant("S10", CLUSTER, "another body under the same id joins the run of the first", (
        ("runs/idempotency.py", "if fingerprint != first:", "if False:"),
    )),
    StoreMutant("S10", CLUSTER, "a request that comes late begins a run again that has ended", (
        (STATEMENTS, "WHERE runs.ending = %(continues)s::bytea OR", "WHERE runs.ended IS NOT NULL OR"),
    )),
    StoreMutant("S11", CLUSTER, "a client that comes back gets its last event again", (
        ("server/routes/runs.py", "first = 0 if after is None else after + 1", "first = 0 if after is None else after"),
    )),
    StoreMutant("S12", POSTGRES, "numbers are not raised at a take-over", (
        ("runs/remote_runs.py", "first_number=block * PART_STRIDE", "first_number=parts[-1].next_number"),
    )),
    StoreMutant("S13", CLUSTER, "a follower adds the log from its beginning each time it reads on", (
        ("runs/remote_runs.py", "pieces = await self.records.events(record, run.next_number)", "pieces = await self.records.events(record, 0)"),
        ("runs/remote_runs.py", "if first != run.next_number or run.log.ended:", "if run.log.ended:"),
    )),
    StoreMutant("S14", CLUSTER, "a server does not do what others want of its runs", (
        (RUNS, 'if command == "stop":', 'if command == "never":'),
        ("runs/replica.py", "for run in self._own(pulse.stops):", "for run in self._own([]):"),
    )),
    StoreMutant("S15", POSTGRES, "a session expires while another server has a run of it", (
        ("stores/postgres_sessions.py", "<= now and not runs and self._in_use", "<= now and self._in_use"),
    )),
    StoreMutant("S16", CLUSTER, "what Valkey lost in a failover is not copied again", (
        (LINK, "incomplete = await self._incomplete(pieces) if self.is_up else None", "incomplete: set[OwnedId] | None = set()"),
        (LINK, "if answers is None:\n                return None", "if answers is None:\n                return set()"),
    )),
    StoreMutant("S17", CLUSTER, "a Valkey that was away once is never used again", (
        (LINK, "return time.monotonic() >= self._down_until", "return self._down_until == 0"),
    )),
    StoreMutant("S18", POSTGRES, "holodeck check does not know a synchronous standby", (
        (DATABASE, 'if names and commit != "local" and synchronous:', "if False:"),
    )),
    StoreMutant("S19", POSTGRES, "a database that is silent for a moment ends the run", (
        (DATABASE, "OUTAGE_SECONDS = 10.0", "OUTAGE_SECONDS = 0.1"),
        (DATABASE, "SILENT_SECONDS = 10.0", "SILENT_SECONDS = 1.0"),
    )),
    StoreMutant("S20", POSTGRES, "an accepted run is given up when all connections are busy", (
        (DATABASE, "WAIT_SECONDS = 2.0", "WAIT_SECONDS = 0.02"),
        (DATABASE, "return lane is Lane.RUN", "return False"),
    )),
    StoreMutant("S21", SQLITE, "a full disk is reported as any failure", (
        ("stores/sqlite_file.py", '"sqlite_errorname", "") == "SQLITE_FULL":', '"sqlite_errorname", "") == "":'),
        ("stores/sqlite_file.py", 'return StoreUnavailable(f"Sessions cannot', 'return HoloDeckError(f"Sessions cannot'),
    )),
    StoreMutant("S21", SQLITE, "the ending that a client saw on a full disk is never stored", (
        ("agent/run_ending.py", 'could not be stored: %s", self._context.run_id, error.message)\n            self._context.not_stored(ending)\n', 'could not be stored: %s", self._context.run_id, error.message)\n'),
    )),
    StoreMutant("S21", SQLITE, "another ending than the one that a client saw is stored, which the memory of the server hides", (
        ("runs/unstored_endings.py", "await self._records.end(record, ending_kept(record.request, record.ending))", "await self._records.end(record, msgspec.structs.replace(record.ending, code='interrupted'))"),
    )),
    StoreMutant("S22", SQLITE, "a session of a newer version is read as if it were of this one", (
        ("stores/records.py", "if version > VERSION:", "if False:"),
    )),
    StoreMutant("S23", SQLITE, "a file of a newer version is used", (
        ("stores/sqlite_file.py", "if version > len(MIGRATIONS):", "if False:"),
    )),
    StoreMutant("S24", POSTGRES, "the clock on the wall decides when a session expires", (
        ("stores/stored_conversation.py", "return self._offset + time.monotonic()", "return time.time()"),
    )),
    StoreMutant("S25", CLUSTER, "a server that stops leaves its streams without an ending", (
        ("runs/runs.py", "            if run not in left:\n                self.stop(run, self._shutdown_of(run))", "            if run not in left:\n                pass"),
    )),
    StoreMutant("S26", SQLITE, "a second server uses the file of the first", (
        ("stores/sqlite_file.py", "fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass"),
    )),
    StoreMutant("S27", CLUSTER, "a server starts without its Valkey", (
        (LINK, 'raise StartError(f"the Valkey of cluster.valkey cannot be reached: {_words_of(error)}") from error', "policy = str(error)[:0]"),
    )),
    StoreMutant("S28", CLUSTER, "each server counts for itself", (
        ("limits/valkey.py", "answer = await self._ask(_TAKE, uses)", "answer = None"),
        ("limits/valkey.py", "limit // self.processes()", "limit"),
    )),
    StoreMutant("S29", CLUSTER, "runs and sessions are found by their ids alone, not by their owners", (
        ("stores/postgres_database.py", 'OF_OWNER = "agent = %(agent)s AND tenant = %(tenant)s AND user_name = %(user)s"', 'OF_OWNER = "agent = %(agent)s AND tenant = %(tenant)s"'),
    )),
    StoreMutant("S30", CLUSTER, "a run that can no longer be read stays in memory", (
        ("runs/runs.py", "if self._runs.get((run.owner, run.run_id)) is run:", "if False:"),
    )),
    StoreMutant("S30", CLUSTER, "logs stay in Valkey for ever", (
        (LINK, "redis.call('EXPIRE', KEYS[n], ARGV[at + 3])", "redis.call('PERSIST', KEYS[n])"),
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
