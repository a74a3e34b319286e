"""The statements with which processes that share a PostgreSQL begin, queue and end runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from holodeck.core.messages import Message
from holodeck.stores import records
from holodeck.stores.postgres_database import NAMED, OF_OWNER
from holodeck.stores.stored_conversation import COLUMNS, SessionRow

SMALL_SESSION = 65_536  # bytes of messages that are read when a run begins
SAME_SESSION = (
    "other.agent = runs.agent AND other.tenant = runs.tenant AND other.user_name = runs.user_name"
    " AND other.session = runs.session AND other.key <> runs.key AND other.ended IS NULL"
)

BEGIN = f"""
WITH ahead AS (
  SELECT id FROM holodeck.runs WHERE {OF_OWNER} AND session = %(session)s AND ended IS NULL AND id <> %(id)s),
put AS (
  INSERT INTO holodeck.runs (agent, tenant, user_name, id, session, wire, repeat_key, fingerprint, replica, state,
    accepted, v, request, root, without_session)
  SELECT %(agent)s, %(tenant)s, %(user)s, %(id)s, %(session)s, %(wire)s, %(repeat_key)s, %(fingerprint)s::bytea, %(me)s,
    CASE WHEN EXISTS (SELECT 1 FROM ahead) THEN 'queued' ELSE 'running' END, %(accepted)s, %(v)s, %(request)s::bytea,
    %(root)s, %(without_session)s::boolean
  ON CONFLICT (agent, tenant, user_name, id) DO UPDATE SET state = excluded.state, request = excluded.request,
    v = excluded.v, root = excluded.root, replica = excluded.replica, stop_wanted = false, ended = NULL, ending = NULL
    WHERE runs.ending = %(continues)s::bytea OR (runs.replica = excluded.replica AND (runs.accepted = excluded.accepted
      OR (%(continues)s::bytea IS NOT NULL AND runs.ended IS NULL)))
  RETURNING key, state)
SELECT (SELECT key FROM put), (SELECT state FROM put), ARRAY(SELECT id FROM ahead),
  (SELECT holodeck.is_unchanged(%(agent)s, %(tenant)s, %(user)s, %(session)s, s.key, s.epoch) FROM put),
  steps.counts, steps.by_user, steps.versions, steps.bodies, {", ".join(f"s.{name}" for name in COLUMNS.split(", "))}
FROM (VALUES (1)) AS one
LEFT JOIN holodeck.sessions s ON s.agent = %(agent)s AND s.tenant = %(tenant)s AND s.user_name = %(user)s AND s.id = %(session)s
LEFT JOIN LATERAL (
  SELECT array_agg(messages ORDER BY seq) AS counts, array_agg(by_user ORDER BY seq) AS by_user,
    array_agg(v ORDER BY seq) AS versions, array_agg(body ORDER BY seq) AS bodies
  FROM holodeck.steps WHERE session = s.key AND seq < s.steps) AS steps ON s.size <= {SMALL_SESSION}
"""
# The session is read in the same statement: if no run is before this one, every change of it raises its epoch. A run that
# began and ended after this statement began, but before the row was put, has changed the session unseen: `is_unchanged` is
# evaluated for the row of `put`, so afterwards, and from then on no other run of the session begins. A part
# that continues a run under its own id replaces the part with the ending that it has seen; any other request finds the
# ended run unchanged. A statement that is repeated because its connection was lost inserts the same row again, which is
# not another run.


class FoundSession(NamedTuple):
    """A session as BEGIN has found it. The run that begins need not read it again."""

    row: SessionRow | None  # None: the session does not exist
    steps: Sequence[tuple[int, bool, int, bytes]] | None  # message count, user's first?, version, body; None: unread

    @classmethod
    def of(cls, columns: Sequence[Any]) -> "FoundSession":
        """`columns` are `counts`, `by_user`, `versions` and `bodies` of the steps, then the session's COLUMNS."""
        counts, by_user, versions, bodies, *values = columns
        if values[0] is None:
            return cls(None, None)
        row = SessionRow(*values)
        if row.steps and counts is None:
            return cls(row, None)
        return cls(row, [*zip(counts or (), by_user or (), versions or (), bodies or (), strict=True)])

    def end(self, wanted: int) -> list[Message] | None:
        """The last messages, at least `wanted`, starting at a user's message. None if the caller must read them."""
        if self.steps is None:
            return None
        count, first = 0, 0
        for place in reversed(range(len(self.steps))):
            count += self.steps[place][0]
            if count >= wanted and self.steps[place][1]:
                first = place
                break
        return [message for _, _, v, body in self.steps[first:] for message in records.messages_of(body, v)]


TURN = f"""
WITH run AS (
  UPDATE holodeck.runs SET state = 'running' WHERE key = %(key)s AND replica = %(me)s AND ended IS NULL
  AND NOT EXISTS (SELECT 1 FROM holodeck.runs other WHERE {SAME_SESSION}
    AND (other.state = 'running' OR other.key < runs.key))
  RETURNING key)
SELECT key, EXISTS (SELECT 1 FROM run) FROM holodeck.runs WHERE key = %(key)s AND replica = %(me)s AND ended IS NULL
"""

END = """
UPDATE holodeck.runs SET state = %(state_after)s, ending = %(ending)s, ended = %(ended)s, v = %(v)s, request = %(request)s,
  root = %(root)s
WHERE key = %(key)s AND replica = %(me)s AND ended IS NULL RETURNING 1
"""

END_RELEASED = f"""
WITH named AS (
  UPDATE holodeck.runs SET state = %(state_after)s, ending = %(ending)s, ended = %(ended)s, v = %(v)s, request = %(request)s
  WHERE {NAMED} AND (ended IS NOT NULL OR replica = %(me)s)
  RETURNING 1),
new AS (
  INSERT INTO holodeck.runs (agent, tenant, user_name, id, session, wire, repeat_key, fingerprint, replica, state,
    accepted, v, request, root, without_session, ending, ended)
  SELECT %(agent)s, %(tenant)s, %(user)s, %(id)s, %(session)s, %(wire)s, %(repeat_key)s, %(fingerprint)s::bytea, %(me)s,
    %(state_after)s, %(ended)s, %(v)s, %(request)s::bytea, %(root)s, %(without_session)s::boolean, %(ending)s::bytea, %(ended)s
  WHERE NOT EXISTS (SELECT 1 FROM named)
  ON CONFLICT DO NOTHING RETURNING 1)
SELECT 1 FROM named UNION ALL SELECT 1 FROM new
"""
# END_RELEASED changes the row of a run that has ended, because its interrupt is withdrawn, or that this process released
# because its session was to be deleted. It inserts the row of a run that never began.
#
# It does not change the row of a run that another process has in progress.


@dataclass(frozen=True, slots=True)
class RunClause:
    """The part of a commit about its run.

    Only the process that has the run may write, and the run's row changes with the commit. A run that `has_ended`
    belongs to no process: the commit withdraws what it waited for, and only replaces its ending.
    """

    values: dict[str, Any]
    has_ended: bool = False
    lock: str = (
        "run AS (SELECT key FROM holodeck.runs WHERE key = %(run)s AND replica = %(replica)s AND ended IS NULL"
        " FOR NO KEY UPDATE)"
    )

    def change(self, condition: str) -> str:
        if self.has_ended:
            return (
                "changed AS (UPDATE holodeck.runs SET state = %(state_after)s, ending = %(ending)s, ended = %(ended)s"
                f" WHERE {OF_OWNER} AND id = %(run)s AND ended IS NOT NULL AND {condition})"
            )
        return (
            "changed AS (UPDATE holodeck.runs SET request = coalesce(%(request)s::bytea, request), v = %(v)s, root = %(root)s,"
            " state = coalesce(%(state_after)s::text, state), ending = %(ending)s::bytea, ended = %(ended)s::float8"
            f" WHERE key IN (SELECT key FROM run) AND {condition})"
        )
