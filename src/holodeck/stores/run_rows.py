"""The row of a run, the same in SQLite and PostgreSQL except for the name of one column."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from holodeck.core.owner import Owner
from holodeck.runs.port import RunRecord, RunState
from holodeck.stores import records

KEY_SECONDS = 24 * 3600.0  # how long an idempotency key is kept after its run's end; a record at least as long
COLUMNS = (
    "tenant, {user}, id, session, wire, repeat_key, fingerprint, state, accepted, ended, v, request, ending, recovered,"
    " root, replica, stop_wanted"
)


def run_of(row: Sequence[Any]) -> RunRecord:
    """`row` has the values of `COLUMNS`."""
    tenant, user, run_id, session, wire, key, fingerprint, state, accepted, ended, v, request, ending, *rest = row
    recovered, root, replica, stop_wanted = rest
    return RunRecord(
        run_id=run_id,
        owner=Owner(tenant, user),
        session_id=session,
        wire=wire,
        key=key,
        fingerprint=fingerprint or b"",
        state=RunState(state),
        created_at=datetime.fromtimestamp(accepted, UTC),
        finished_at=None if ended is None else datetime.fromtimestamp(ended, UTC),
        request=records.request_of(request, v),
        ending=records.ending_of(ending, v),
        recovered=recovered,
        root=root or "",
        replica=replica or "",
        stop_wanted=bool(stop_wanted),
    )
