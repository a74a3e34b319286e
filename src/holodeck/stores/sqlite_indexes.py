"""Indexes that a run's commit does not change: rows are added to them afterwards.

A commit writes one page for each index that it changes, and a client waits for it. Only the clean-up and rare reads need
these indexes, so a new row is not in them. The thread adds it a moment later, in a transaction that nothing waits for:
`noted` is then the time that the index has. New rows have the highest keys, so they are found without an index.
"""

import sqlite3

from holodeck.stores.batches import BATCH

_NEW = "key > coalesce((SELECT key FROM {0} NOT INDEXED WHERE noted IS NOT NULL ORDER BY key DESC LIMIT 1), 0)"
NEW_SESSION, NEW_RUN = _NEW.format("sessions"), _NEW.format("runs")

# The values of both are agent, tenant, user and session. The plus signs keep SQLite from an index of all runs.
RUN_OF_SESSION = (
    "key IN (SELECT key FROM runs WHERE agent = ?1 AND tenant = ?2 AND user = ?3 AND session = ?4 AND noted IS NOT NULL"
    f" UNION ALL SELECT key FROM runs WHERE {NEW_RUN} AND +agent = ?1 AND +tenant = ?2 AND +user = ?3 AND session = ?4)"
)

_NOTE = "UPDATE {0} SET noted = {1} WHERE key IN (SELECT key FROM {0} WHERE {2} ORDER BY key LIMIT ?)"
_STATEMENTS = (
    _NOTE.format("sessions", "used", NEW_SESSION),
    _NOTE.format("runs", "coalesce(ended, accepted)", NEW_RUN),
)


def note_new(connection: sqlite3.Connection) -> bool:
    """Adds new sessions and runs to the indexes, at most `BATCH` of each. Returns whether there may be more."""
    return max([connection.execute(statement, (BATCH,)).rowcount for statement in _STATEMENTS]) >= BATCH
