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

RESTART, DURABLE = "tests/faults/test_kill_and_restart.py::", "tests/agent/test_durable_steps.py::"
REPLICAS, KILLED = "tests/cluster/test_replicas.py::", "tests/cluster/test_killed_replicas.py::"
MODEL, LINK = "tests/stores/test_protocol_model.py::", "tests/stores/test_valkey_link.py::"
POSTGRES_STORE, POSTGRES_DATABASE = "tests/stores/test_postgres_store.py::", "tests/stores/test_postgres_database.py::"
SQLITE_STORE, SQLITE_FILE = "tests/stores/test_sqlite_store.py::", "tests/stores/test_sqlite_file.py::"
SESSIONS, RECOVERY = "tests/contracts/test_session_limits.py::", "tests/runs/test_recovery.py::"
CONTINUED, SHARED_STORES = "tests/runs/test_continued_runs.py::", "tests/stores/test_shared_stores.py::"
FOLLOWED, WINDOWS = "tests/stores/test_followed_runs_are_freed.py::", "tests/limits/test_windows.py::"
LATE, COMMANDS = "tests/cluster/test_late_requests.py::", "tests/cluster/test_shared_commands.py::"


@dataclass(frozen=True)
class Row:
    id: str
    fault: str
    holds: str
    play: Play
    stores: tuple[str, ...]
    rounds: int = 1
    full: int = 1  # rounds with --full: the counts of the design
    tests: tuple[str, ...] = ()  # file::function, that `make test` runs
    differs: str = ""


ROWS = (
    Row("S01", "kill -9 at random moments of runs with 0 to 3 tool calls, before and after a tool acts, and before single writes", "nothing acknowledged is lost or doubled; no tool acts twice; a cut call is answered as unknown", kill_rows.killed_at_random, ONE_SERVER, 9, 500, (RESTART + "test_killed_at_random_nothing_acknowledged_is_lost_and_no_tool_acts_twice", RESTART + "test_killed_while_a_tool_runs_its_outcome_is_unknown_and_it_is_not_called_again", DURABLE + "test_after_a_crash_a_begun_call_is_answered_as_unknown_and_not_made_again", RECOVERY + "test_wherever_it_is_cut_the_log_gets_whole"), differs="on SQLite the moments between a result, its commit and the ending come by chance"),
    Row("S02", "kill -9 of one of four servers under load", "its runs end elsewhere; a client that reconnects gets closings, snapshot and ending", replica_rows.killed_under_load, (CLUSTER,), 2, 100, (KILLED + "test_killed_at_random_nothing_acknowledged_is_lost_and_no_tool_acts_twice", REPLICAS + "test_a_run_continues_at_another_server_when_its_own_is_killed"), differs="a server counts as dead after 3 seconds, not 10: the limits are scaled"),
    Row("S03", "the same with on_crash: continue", "the answer completes elsewhere; only a repeatable tool is called again; one take-over for each run", replica_rows.continues_elsewhere, (CLUSTER,), 2, 50, (REPLICAS + "test_a_run_continues_at_another_server_when_its_own_is_killed", CONTINUED + "test_calls_that_may_be_repeated_are_the_models_to_repeat")),
    Row("S04", "kill -9 right after RUN_FINISHED left the server", "the run is finished in the store", kill_rows.killed_after_the_ending, ONE_SERVER, 5, 500, (DURABLE + "test_the_ending_is_stored_before_it_is_shown",)),
    Row("S05", "kill -9 while a run is queued behind another", "its message is in the history once, or the run is carried out", kill_rows.killed_while_one_waits, ONE_SERVER, 3, 50, (RESTART + "test_killed_while_a_request_waits_its_message_is_not_lost",)),
    Row("S06", "kill -9 after an approval was taken, the tool not, half or fully done", "the outcome is unknown, never 'not approved'; a second approval is refused; the tool acts at most once", kill_rows.killed_after_an_approval, ONE_SERVER, 3, 60, (RESTART + "test_killed_after_an_approval_it_is_never_reported_as_not_approved", "tests/faults/test_shown_by_mutants.py::test_an_approval_is_used_up_before_it_is_acted_on")),
    Row("S07", "SIGSTOP of a run's server in text and in a tool call, past the take-over; then SIGCONT", "the sealed log and the store refuse what it writes late; its clients get an ending; it serves again", replica_rows.paused, SHARED, 3, 100, (REPLICAS + "test_a_server_that_was_paused_past_its_time_writes_nothing_more", MODEL + "test_no_interleaving_violates_the_protocol", LINK + "test_a_sealed_log_takes_nothing_more_and_the_next_part_follows_it"), differs="the pause lasts until the take-over, 4 seconds with a time of 3, not 30 with 10; a pause in a commit comes by chance"),
    Row("S08", "the link between a run's server and PostgreSQL is cut, or swallows everything", "the server ends its runs before another takes them over; never two owners", link_rows.cut_off_from_the_database, SHARED, 2, 20, (POSTGRES_DATABASE + "test_a_process_whose_database_does_not_answer_ends_its_runs_before_others_take_them_over", "tests/stores/test_shared_runs.py::test_a_process_that_loses_its_store_ends_its_runs_before_others_take_them_over"), differs="a server counts as dead after 3 seconds, not 10, except in one more round with --full"),
    Row("S09", "pairs of requests on one session at two servers at once", "both are answered in the order of acceptance; one of them runs at any time; with busy: reject exactly one gets 409", replica_rows.two_at_once, SHARED, 10, 1000, (REPLICAS + "test_runs_of_one_session_take_turns_whichever_server_they_came_to", REPLICAS + "test_a_busy_session_is_refused_at_the_other_server_too", SHARED_STORES + "test_the_run_that_came_first_is_the_first_to_go"), differs="only PostgreSQL writes down which runs are the running ones; --full plays 1,000 times four requests, and the order of acceptance in three of the rounds"),
    Row("S10", "one request under one id at four servers at once, and its server is killed; one of them enters it when its run has ended", "one run; all streams show the same events; another body gets 422", replica_rows.one_key_everywhere, (CLUSTER,), 2, 50, (REPLICAS + "test_the_same_request_at_both_servers_is_one_run", LATE + "test_it_joins_the_run_of_its_id", LATE + "test_with_another_body_it_is_refused")),
    Row("S11", "a client in a burst is cut at every seventh event and reads on at the next server", "the exact text; event numbers rise; the first byte comes within 50 ms", replica_rows.read_here_and_there, SHARED, 2, 20, (REPLICAS + "test_a_client_reads_on_at_the_other_server_and_gets_every_word_once", "tests/cluster/test_stock_clients.py::test_stock_clients_get_every_word_once_wherever_they_come_back"), differs="the limit of 50 ms is for the median of all changes, times --slack"),
    Row("S12", "a client changes servers in the moment in which its own is killed", "it gets the run's ending at the other; numbers that only it has seen lead to the next block", replica_rows.killed_while_resuming, SHARED, 2, 50, (REPLICAS + "test_a_run_continues_at_another_server_when_its_own_is_killed", CONTINUED + "test_numbers_of_a_part_that_was_shown_and_never_copied_are_not_used_again")),
    Row("S13", "many clients follow one run at another server, one of them reads nothing", "one connection waits for events; the owner's CPU grows by at most a tenth; every other follower gets the exact text", replica_rows.many_followers, (CLUSTER,), 5, 15, (LINK + "test_what_one_process_adds_every_other_reads_from_any_event_on", LINK + "test_commands_arrive_and_a_reader_is_woken")),
    Row("S14", "stop at another server: before the first token, in text, in a tool, queued, without Valkey, the owner dead", "the run is cancelled and the model's connection closed", replica_rows.stopped_from_elsewhere, (CLUSTER,), 1, 1, (REPLICAS + "test_a_run_is_stopped_approved_and_deleted_at_the_other_server", REPLICAS + "test_with_valkey_a_stop_does_not_wait_for_the_next_beat")),
    Row("S15", "DELETE of a session at another server than its run's, when its time to live is over", "the run stops; 404 everywhere; nothing of it comes back; an open run does not expire", replica_rows.deleted_elsewhere, SHARED, 2, 50, (REPLICAS + "test_a_run_is_stopped_approved_and_deleted_at_the_other_server", SESSIONS + "test_a_session_is_in_use_until_its_run_closes_it", SESSIONS + "test_a_run_that_continues_after_its_session_was_deleted_does_not_bring_it_back")),
    Row("S16", "Valkey's primary is killed, or silent and then killed, and Sentinels replace it, while clients stream", "local streams go on without a gap; remote readers go on within 5 s; the copy equals the log; nothing acknowledged is lost", failover_rows.valkey_fails_over, (CLUSTER,), 2, 50, (LINK + "test_a_log_that_lost_its_end_in_a_failover_is_copied_again",), differs="--full has 200 local streams and a reader elsewhere for each, all at one owner"),
    Row("S17", "Valkey is gone, is emptied, is full, evicts", "runs go on; /ready is 200, degraded; afterwards logs are complete again", link_rows.valkey_in_need, (CLUSTER,), 1, 10, (REPLICAS + "test_without_valkey_in_the_middle_of_a_run_the_database_carries_it", LINK + "test_a_log_that_the_store_forgot_is_copied_again_from_its_beginning", LINK + "test_a_store_that_is_full_counts_as_away_so_that_the_database_carries_the_piece")),
    Row("S18", "the PostgreSQL primary is killed under load and its synchronous standby promoted", "nothing acknowledged is lost; no take-over happens; holodeck check names the synchronous standby", failover_rows.postgres_fails_over, (POSTGRES,), 1, 50, (POSTGRES_DATABASE + "test_a_database_that_drops_every_connection_is_used_again", POSTGRES_STORE + "test_a_commit_that_is_repeated_after_a_lost_connection_counts_once")),
    Row("S19", "PostgreSQL is a black hole for a while, or slow", "a short one is waited for; after a long one the run ends as store-unavailable; /ready 503", link_rows.database_in_need, (POSTGRES,), 1, 10, (POSTGRES_DATABASE + "test_a_database_that_does_not_answer_fails_a_statement_and_serves_again_when_it_does",), differs="a run never goes on without its store: there is no persisted:false"),
    Row("S20", "many runs at once on a pool of eight connections", "all are answered or refused with 503; nothing hangs", fleet_rows.many_at_once, (POSTGRES,), 1, 2, (POSTGRES_DATABASE + "test_a_new_run_waits_once_for_a_free_connection_and_is_refused_a_commit_waits_on",)),
    Row("S21", "the disk of the SQLite file fills up, then has space again", "a typed error; the file stays whole; the server works again without a restart", file_rows.disk_fills_up, (SQLITE,), 1, 5, (SQLITE_FILE + "test_a_full_disk_refuses_and_recovers_without_a_restart",), differs="needs the right to mount a disk, else it counts as not played"),
    Row("S22", "rows of older and newer versions, cut, of wrong types, deeply nested, with flipped bits", "migrated, refused, or set aside for that session alone; bytes kept", file_rows.rows_are_damaged, ONE_SERVER, 1, 33, (SQLITE_STORE + "test_a_session_that_cannot_be_read_is_set_aside_and_the_others_are_served", SQLITE_STORE + "test_a_session_of_a_newer_version_is_left_as_it_is", POSTGRES_STORE + "test_a_session_that_cannot_be_read_is_set_aside_and_the_others_are_served"), differs="nesting is 100,000 deep, not a million; other users' ids are in S29; --full flips 990 bits"),
    Row("S23", "a newer schema; two servers migrate at once; kill -9 in the middle of a migration", "exit code 2; one migrates and the other waits; old or new, never half", file_rows.schema_changes, ONE_SERVER, 1, 50, (SQLITE_FILE + "test_a_file_of_an_older_version_is_brought_up_to_date_by_one_of_two_that_open_it", SQLITE_FILE + "test_a_file_of_a_newer_version_or_of_another_application_is_left_alone", POSTGRES_DATABASE + "test_of_processes_that_start_together_one_makes_the_tables", POSTGRES_DATABASE + "test_a_database_of_a_newer_version_is_left_alone")),
    Row("S24", "the clock of a server, of the database's host, of all jumps by an hour and a day, forward and back, in mid-run", "no take-over, no expired session; a limit holds for its minute", clock_rows.clocks_jump, (POSTGRES,), 1, 10, ("tests/stores/test_store_clock.py::test_it_begins_at_the_time_that_ends_no_session_early", SHARED_STORES + "test_how_long_ago_a_run_has_ended_is_read_from_the_clock_of_the_store", "tests/server/test_server_clocks.py::test_a_clock_that_jumps_during_a_run_does_not_change_how_long_it_took"), differs="no clock of Valkey jumps; the limit is counted in the memory of one server"),
    Row("S25", "three servers of the version before are replaced by this one under load, behind a round-robin balancer; clients retry under the same id", "no failed request, no doubled run; a stream longer than the drain can be continued elsewhere", restart_rows.rolling_restart, (CLUSTER,), 2, 20, (REPLICAS + "test_a_server_that_stops_leaves_its_waiting_run_to_the_other", REPLICAS + "test_a_browser_that_reconnects_to_the_server_that_stops_gets_the_rest_from_the_other", POSTGRES_DATABASE + "test_a_database_of_an_older_version_keeps_its_sessions"), differs="a stream longer than the drain ends as shutting-down, and goes on when its client asks: POST /runs/{id}/continue"),
    Row("S26", "a second server on one file; a read-only or full disk; no WAL; an index that cannot be made; a file that is no database", "refused with a sentence; nothing is reset or renamed", file_rows.file_in_use, (SQLITE,), 1, 1, (SQLITE_FILE + "test_a_second_server_on_one_file_is_refused_and_a_chat_is_not", SQLITE_FILE + "test_a_folder_that_cannot_be_written_is_one_sentence", SQLITE_FILE + "test_a_file_that_is_no_database_is_left_alone"), differs="needs the right to mount a disk, else it counts as not played; no network disk: there is none without another machine"),
    Row("S27", "PostgreSQL or Valkey is down at the start", "exit code 2; memory never replaces the store", file_rows.store_away_at_start, (CLUSTER,), 1, 1, (LINK + "test_one_that_is_not_there_is_an_error_at_the_start_and_nothing_later", COMMANDS + "test_check_fails_without_the_database", POSTGRES_DATABASE + "test_start_up_failures_are_one_sentence_without_the_password")),
    Row("S28", "more requests than a limit allows over several servers, one is killed", "exactly the limit while Valkey answers; without it the servers together allow no more than the limit again", fleet_rows.limits_of_all, (CLUSTER,), 1, 5, (WINDOWS + "test_two_replicas_let_exactly_the_limit_through", WINDOWS + "test_a_killed_replica_gives_its_leases_back", WINDOWS + "test_a_store_that_is_away_counts_here"), differs="the limit is 30 without --full; the links to Valkey are cut; it does not fail over by Sentinel"),
    Row("S29", "every route that takes an id is asked at another server for another user's ids", "the same 404 as for an unknown id; keys contain no text of a client", fleet_rows.foreign_ids, (CLUSTER,), 1, 1, ("tests/server/test_access_matrix.py::test_only_the_owner_gets_at_what_is_there", "tests/server/test_access_matrix.py::test_an_id_with_control_characters_finds_nothing_on_any_route", SESSIONS + "test_another_owners_session_is_as_if_it_were_not_there")),
    Row("S30", "hours of four servers under load, one kill a minute", "no run and no key in Valkey is left behind; what a server at rest has in use is flat", restart_rows.soak, (CLUSTER,), 2, 120, ("tests/faults/test_runs_are_freed.py::test_nothing_of_a_request_waits_for_the_collector", FOLLOWED + "test_a_run_that_was_followed_is_gone_without_the_collector", LINK + "test_nothing_is_kept_for_ever"), differs="the first of the four servers is not killed: its memory is what is measured; the bytes in use are judged, not RSS; without --full a minute has ten seconds and 20 streams"),
)  # fmt: skip
