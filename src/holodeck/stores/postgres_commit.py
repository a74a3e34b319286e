"""A commit to PostgreSQL as one statement: one round trip, no open transaction.

It adds the steps, replaces parts of the session, and changes the run's row. All of that happens only if this process
has the run and no other has claimed the session. It returns the session's key if it had an effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgspec

from holodeck.errors import LostClaim
from holodeck.sessions.port import StoredSession
from holodeck.sessions.transcript import summary_after_cut
from holodeck.stores import records
from holodeck.stores.postgres_database import PostgresConnection
from holodeck.stores.postgres_run_statements import RunClause
from holodeck.stores.stored_conversation import LOST, SessionRow, Step, size_of_steps, steps_of

# A run's first commit raises the session's epoch by 1, or by 3 if it cuts the history; that of any other writer by 2.
# After a commit without effect, the epoch therefore shows whether our own commit succeeded before the connection broke.
RAISED_BY_RUN, RAISED_BY_OTHERS = 1, 2
USUAL_STEPS = 4  # most commits have no more steps; a history that is adopted from a client may have thousands


@dataclass(frozen=True, kw_only=True)
class Commit:
    name: Mapping[str, str]
    row: SessionRow  # as far as this process knows
    epoch: int  # the session's epoch afterwards
    steps: Sequence[Step]
    parts: Mapping[str, bytes | None]
    run: RunClause | None
    now: float

    @property
    def row_after(self) -> SessionRow:
        return self.row.grown(self.steps, epoch=self.epoch, used=self.now)

    @property
    def statement(self) -> str:
        has_ended = None if self.run is None else self.run.has_ended
        made = _usual_statement if len(self.steps) <= USUAL_STEPS else _statement
        return made(self.row.key is None, len(self.steps), tuple(self.parts), has_ended)

    @property
    def values(self) -> dict[str, Any]:
        row, steps = self.row, self.steps
        values: dict[str, Any] = {
            **self.name,
            **({} if self.run is None else self.run.values),
            **self.parts,
            "key": row.key,
            "epoch": row.epoch,
            "epoch_after": self.epoch,
            "now": self.now,
            "v": records.VERSION,
            "first": row.steps,
            "messages": sum(step[0] for step in steps),
            "steps": len(steps),
            "size": size_of_steps(steps),
        }
        for i, (count, by_user, body) in enumerate(steps):
            values |= {f"seq{i}": row.steps + i, f"count{i}": count, f"by_user{i}": by_user, f"body{i}": body}
        return values

    def behind(self, kept: StoredSession) -> "Commit":
        """The commit after the history is cut to these messages: `store_cut` does both in one transaction."""
        row = _filled(self.row, kept, self.now)
        has_run = self.run is not None and not self.run.has_ended
        return replace(self, row=row, epoch=row.epoch + RAISED_BY_RUN if has_run else row.epoch)

    async def store_cut(self, connection: PostgresConnection, kept: StoredSession) -> SessionRow:
        """Cuts the history and makes the commit, within a transaction. Raises LostClaim if it has no effect."""
        commit = self.behind(kept)
        await fill(connection, self.row, kept, self.now)
        if await (await connection.execute(commit.statement, commit.values)).fetchone() is None:
            raise LostClaim(LOST)
        return commit.row_after


def _statement(is_new: bool, steps: int, parts: tuple[str, ...], has_ended: bool | None) -> str:  # noqa: FBT001  a key of the cache
    """The statement for a new session or an existing one. `has_ended` is that of its run, None without a run."""
    run = None if has_ended is None else RunClause({}, has_ended=has_ended)
    source = "FROM run" if run and not run.has_ended else ""
    rows = ", ".join(f"(%(seq{i})s, %(count{i})s, %(by_user{i})s, %(body{i})s::bytea)" for i in range(steps))
    put = (
        "INSERT INTO holodeck.steps (session, seq, messages, by_user, v, body)"
        " SELECT mine.key, added.seq, added.messages, added.by_user, %(v)s, added.body"
        f" FROM mine, (VALUES {rows}) AS added (seq, messages, by_user, body)"
    )
    clauses = [
        *([run.lock] if run and not run.has_ended else []),
        f"mine AS ({_inserted(parts, source) if is_new else _updated(parts, source)})",
        *([f"put AS ({put})"] if steps else []),
        *([run.change("EXISTS (SELECT 1 FROM mine)")] if run else []),
    ]
    return f"WITH {', '.join(clauses)} SELECT key FROM mine"


_usual_statement = lru_cache(maxsize=100)(_statement)  # psycopg hashes a text, but the same object only once


def _inserted(parts: tuple[str, ...], source: str) -> str:
    names = "".join(f", {name}" for name in parts)
    given = "".join(f", %({name})s::bytea" for name in parts)
    return (
        "INSERT INTO holodeck.sessions"
        f" (agent, tenant, user_name, id, epoch, created, used, messages, steps, size, v{names})"
        " SELECT %(agent)s, %(tenant)s, %(user)s, %(id)s, %(epoch_after)s, %(now)s, %(now)s, %(messages)s, %(steps)s,"
        f" %(size)s, %(v)s{given} {source} ON CONFLICT DO NOTHING RETURNING key"
    )


def _updated(parts: tuple[str, ...], source: str) -> str:
    changes = "".join(f", {name} = %({name})s" for name in parts)
    return (
        "UPDATE holodeck.sessions s SET epoch = %(epoch_after)s, used = %(now)s, messages = messages + %(messages)s,"
        f" steps = steps + %(steps)s, size = size + %(size)s, v = %(v)s{changes} {source}"
        " WHERE s.key = %(key)s AND s.epoch = %(epoch)s AND s.steps = %(first)s RETURNING s.key"
    )


async def fill(connection: PostgresConnection, row: SessionRow, content: StoredSession, used: float) -> SessionRow:
    """Replaces the whole content of a session, within a transaction.

    A run that has the session open loses its claim.
    """
    steps = steps_of(content.messages)
    cursor = await connection.execute(
        "UPDATE holodeck.sessions SET epoch = %(epoch_after)s, used = %(used)s, messages = %(messages)s, steps = %(steps)s,"
        " size = %(size)s, v = %(v)s, pending = %(pending)s, state = %(state)s, summary = %(summary)s"
        " WHERE key = %(key)s AND epoch = %(epoch)s",
        {
            "key": row.key,
            "epoch": row.epoch,
            "epoch_after": row.epoch + RAISED_BY_OTHERS,
            "used": used,
            "messages": len(content.messages),
            "steps": len(steps),
            "size": size_of_steps(steps),
            "v": records.VERSION,
            "pending": records.optional(content.pending),
            "state": records.optional(content.state),
            "summary": records.optional(summary_after_cut(content.summary, content.messages)),
        },
    )
    if not cursor.rowcount:
        raise LostClaim("Another process has changed this conversation in the meantime; try again.")
    await connection.execute("DELETE FROM holodeck.steps WHERE session = %s", (row.key,))
    async with connection.cursor() as adding:
        await adding.executemany(
            "INSERT INTO holodeck.steps (session, seq, messages, by_user, v, body) VALUES (%s, %s, %s, %s, %s, %s)",
            [(row.key, seq, *step[:2], records.VERSION, step[2]) for seq, step in enumerate(steps)],
        )
    return _filled(row, content, used)


def _filled(row: SessionRow, content: StoredSession, used: float) -> SessionRow:
    """The row of a session after `fill`."""
    empty = msgspec.structs.replace(row, messages=0, steps=0, size=0)
    return empty.grown(steps_of(content.messages), epoch=row.epoch + RAISED_BY_OTHERS, used=used)
