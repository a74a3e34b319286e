"""The catalogue of store faults: what plays each row S01 to S30, on which stores, and the tests that play a bounded part.

`differs` names what the design asks for and a row does not play, and why.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from tests.store_faults import (
    clock_rows,
    failover_rows,
    file_rows,
    fleet_rows,
    kill_rows,
    link_rows,
    replica_rows,
    restart_rows,
)
from tests.store_faults.fault_rig import CLUSTER, POSTGRES, SQLITE, FaultRig

Play: TypeAlias = Callable[[FaultRig], Awaitable[None]]
ONE_SERVER, SHARED = (SQLITE, POSTGRES), (POSTGRES, CLUSTER)

RESTART, DURABLE = "tests/faults/test_kill_and_restart.py", "tests/agent/test_durable_steps.py"
REPLICAS, KILLED = "tests/cluster/test_replicas.py", "tests/cluster/test_killed_replicas.py"
MODEL, LINK = "tests/stores/test_protocol_model.py", "tests/stores/test_valkey_link.py"
POSTGRES_STORE, POSTGRES_DATABASE = "tests/stores/test_postgres_store.py", "tests/stores/test_postgres_database.py"
SQLITE_STORE, SQLITE_FILE = "tests/stores/test_sqlite_store.py", "tests/stores/test_sqlite_file.py"
SESSIONS, RECOVERY = "tests/contracts/test_session_limits.py", "tests/runs/test_recovery.py"
CONTINUED = "tests/runs/test_continued_runs.py"


@dataclass(frozen=True)
class Row:
    id: str
    fault: str
    holds: str
    play: Play
    stores: tuple[str, ...]
    rounds: int = 1
    full: int = 1  # rounds with --full: the counts of the design
    tests: tuple[str, ...] = ()  # that `make test` runs
    differs: str = ""


ROWS = (
    Row("S01", "kill -9 at random moments of runs with 0 to 3 tool calls, and before and after a tool acts", "nothing acknowledged is lost or doubled; no tool acts twice; a cut call is answered as unknown", kill_rows.killed_at_random, ONE_SERVER, 9, 500, (RESTART, DURABLE, RECOVERY)),
    Row("S02", "kill -9 of one of four servers under load", "its runs end elsewhere; a client that reconnects gets closings, snapshot and ending", replica_rows.killed_under_load, (CLUSTER,), 2, 100, (KILLED, REPLICAS), differs="a server counts as dead after 3 seconds, not 10: the limits are scaled"),
    Row("S03", "the same with on_crash: continue", "the answer completes elsewhere; only a repeatable tool is called again; one take-over for each run", replica_rows.continues_elsewhere, (CLUSTER,), 2, 50, (REPLICAS, CONTINUED)),
    Row("S04", "kill -9 right after RUN_FINISHED left the server", "the run is finished in the store", kill_rows.killed_after_the_ending, ONE_SERVER, 5, 500, (DURABLE,)),
    Row("S05", "kill -9 while a run is queued behind another", "its message is in the history once, or the run is carried out", kill_rows.killed_while_one_waits, ONE_SERVER, 3, 50, (RESTART,)),
    Row("S06", "kill -9 after an approval was taken, the tool not, half or fully done", "the outcome is unknown, never 'not approved'; a second approval is refused; the tool acts at most once", kill_rows.killed_after_an_approval, ONE_SERVER, 3, 60, (RESTART, "tests/faults/test_shown_by_mutants.py")),
    Row("S07", "SIGSTOP of a run's server in text and in a tool call, past the take-over; then SIGCONT", "the sealed log and the store refuse what it writes late; its clients get an ending; it serves again", replica_rows.paused, SHARED, 3, 100, (REPLICAS, MODEL, LINK), differs="the pause lasts until the take-over, 4 seconds with a time of 3, not 30 with 10; a pause in a commit comes by chance"),
    Row("S08", "the link between a run's server and PostgreSQL is cut, or swallows everything", "the server ends its runs before another takes them over; never two owners", link_rows.cut_off_from_the_database, SHARED, 2, 20, (POSTGRES_DATABASE, "tests/stores/test_shared_runs.py"), differs="a server counts as dead after 3 seconds, not 10, except in one more round with --full"),
    Row("S09", "pairs of requests on one session at two servers at once", "both are answered in the order of acceptance; with busy: reject exactly one gets 409", replica_rows.two_at_once, SHARED, 10, 1000, (REPLICAS, POSTGRES_STORE)),
    Row("S10", "one request under one id at four servers at once, and its server is killed; one of them enters it when its run has ended", "one run; all streams show the same events; another body gets 422", replica_rows.one_key_everywhere, (CLUSTER,), 2, 50, (REPLICAS, "tests/cluster/test_late_requests.py")),
    Row("S11", "a client in a burst is cut at every seventh event and reads on at the next server", "the exact text; event numbers rise; the first byte comes within 50 ms", replica_rows.read_here_and_there, SHARED, 2, 20, (REPLICAS,), differs="the limit of 50 ms is for the median of all changes, times --slack"),
    Row("S12", "a client changes servers in the moment in which its own is killed", "it gets the run's ending at the other; numbers that only it has seen lead to the next block", replica_rows.killed_while_resuming, SHARED, 2, 50, (REPLICAS,)),
    Row("S13", "many clients follow one run at another server, one of them reads nothing", "one connection waits for events; the owner's CPU grows by at most a tenth; every other follower gets the exact text", replica_rows.many_followers, (CLUSTER,), 5, 15, (LINK,)),
    Row("S14", "stop at another server: before the first token, in text, in a tool, queued, without Valkey, the owner dead", "the run is cancelled and the model's connection closed", replica_rows.stopped_from_elsewhere, (CLUSTER,), 1, 1, (REPLICAS,)),
    Row("S15", "DELETE of a session at another server than its run's, when its time to live is over", "the run stops; 404 everywhere; nothing of it comes back; an open run does not expire", replica_rows.deleted_elsewhere, SHARED, 2, 50, (REPLICAS, SESSIONS)),
    Row("S16", "Valkey's primary is killed, or silent and then killed, and Sentinels replace it, while clients stream", "local streams go on without a gap; remote readers go on within 5 s; the copy equals the log; nothing acknowledged is lost", failover_rows.valkey_fails_over, (CLUSTER,), 1, 50, (LINK,)),
    Row("S17", "Valkey is gone, is emptied, is full, evicts", "runs go on; the servers stay ready; afterwards logs are complete again", link_rows.valkey_in_need, (CLUSTER,), 1, 10, (REPLICAS, LINK)),
    Row("S18", "the PostgreSQL primary is killed under load and its synchronous standby promoted", "nothing acknowledged is lost; no take-over happens; holodeck check names the synchronous standby", failover_rows.postgres_fails_over, (POSTGRES,), 1, 50, (POSTGRES_DATABASE,)),
    Row("S19", "PostgreSQL is a black hole for a while, or slow", "a short one is waited for; after a long one the run ends as store-unavailable; /ready 503", link_rows.database_in_need, (POSTGRES,), 1, 10, (POSTGRES_DATABASE,), differs="a run never goes on without its store: there is no persisted:false"),
    Row("S20", "many runs at once on a pool of eight connections", "all are answered or refused with 503; nothing hangs", fleet_rows.many_at_once, (POSTGRES,), 1, 2, (POSTGRES_DATABASE,)),
    Row("S21", "the disk of the SQLite file fills up, then has space again", "a typed error; the file stays whole; the server works again without a restart", file_rows.disk_fills_up, (SQLITE,), 1, 5, (SQLITE_FILE,)),
    Row("S22", "rows of older and newer versions, cut, of wrong types, deeply nested, with flipped bits", "migrated, refused, or set aside for that session alone; bytes kept", file_rows.rows_are_damaged, ONE_SERVER, 1, 33, (SQLITE_STORE, POSTGRES_STORE), differs="nesting is 100,000 deep, not a million; other users' ids are in S29; --full flips 990 bits"),
    Row("S23", "a newer schema; two servers migrate at once; kill -9 in the middle of a migration", "exit code 2; one migrates and the other waits; old or new, never half", file_rows.schema_changes, ONE_SERVER, 1, 50, (SQLITE_FILE, POSTGRES_DATABASE)),
    Row("S24", "the clock of a server, of the database's host, of all jumps by an hour or a day in mid-run", "no take-over, no expired session; a limit holds for its minute", clock_rows.clocks_jump, (POSTGRES,), 1, 10, ("tests/sessions/test_memory_store.py",)),
    Row("S25", "three servers of the version before are replaced by this one under load, behind a round-robin balancer; clients retry under the same id", "no failed request, no doubled run; a stream longer than the drain can be continued elsewhere", restart_rows.rolling_restart, (CLUSTER,), 2, 20, (REPLICAS,), differs="a stream longer than the drain ends as shutting-down, and goes on when its client asks: POST /runs/{id}/continue"),
    Row("S26", "a second server on one file; a read-only or full disk; no WAL; an index that cannot be made; a file that is no database", "refused with a sentence; nothing is reset or renamed", file_rows.file_in_use, (SQLITE,), 1, 1, (SQLITE_FILE,), differs="no network disk: there is none without another machine"),
    Row("S27", "PostgreSQL or Valkey is down at the start", "exit code 2; memory never replaces the store", file_rows.store_away_at_start, (CLUSTER,), 1, 1, (LINK, "tests/cluster/test_shared_commands.py")),
    Row("S28", "more requests than a limit allows over several servers, one is killed", "exactly the limit while Valkey answers; without it the servers together allow no more than the limit again", fleet_rows.limits_of_all, (CLUSTER,), 1, 5, ("tests/limits",), differs="the links to Valkey are cut; it does not fail over by Sentinel"),
    Row("S29", "every route that takes an id is asked at another server for another user's ids", "the same 404 as for an unknown id; keys contain no text of a client", fleet_rows.foreign_ids, (CLUSTER,), 1, 1, (SESSIONS, LINK)),
    Row("S30", "hours of four servers under load, one kill a minute", "no run and no key in Valkey is left behind; what a server at rest has in use is flat", restart_rows.soak, (CLUSTER,), 2, 120, ("tests/faults/test_runs_are_freed.py", "tests/stores/test_followed_runs_are_freed.py", "tests/stores/test_valkey_link.py"), differs="the first of the four servers is not killed: its memory is what is measured; the bytes in use are judged, not RSS; without --full a minute has ten seconds and 20 streams"),
)  # fmt: skip
