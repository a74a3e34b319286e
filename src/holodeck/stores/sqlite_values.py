"""Small values in the SQLite file of the sessions. The port is `sessions.values`."""

import sqlite3
from collections.abc import Callable, Sequence

from holodeck.core.owner import Owner
from holodeck.sessions.values import KeptValue
from holodeck.stores.batches import BATCH, in_batches
from holodeck.stores.sqlite_file import OF_OWNER, SqliteFile

_NAMED = f"{OF_OWNER} AND kind = ? AND topic = ? AND name = ?"


class SqliteValues:
    def __init__(self, file: SqliteFile, agent: str, clock: Callable[[], float]) -> None:
        self._file, self._agent, self._clock = file, agent, clock

    async def put(
        self, value: KeptValue, *, owner: Owner, seconds: float | None = None, at_most: int | None = None
    ) -> None:
        expires, of_kind = self._expires(seconds), (*self._owner(owner), value.kind)

        def job(connection: sqlite3.Connection) -> None:
            self._insert(connection, "INSERT OR REPLACE", value, owner, expires)
            if at_most is not None:
                connection.execute(
                    f"DELETE FROM kept_values WHERE {OF_OWNER} AND kind = ? AND key <= (SELECT key FROM kept_values"
                    f" WHERE {OF_OWNER} AND kind = ? ORDER BY key DESC LIMIT 1 OFFSET ?)",
                    (*of_kind, *of_kind, at_most),
                )

        await self._file.write(job)

    async def put_first(self, value: KeptValue, *, owner: Owner, seconds: float | None = None) -> bool:
        now, expires = self._clock(), self._expires(seconds)

        def job(connection: sqlite3.Connection) -> bool:
            names = (*self._owner(owner), value.kind, value.topic, value.name)
            connection.execute(f"DELETE FROM kept_values WHERE {_NAMED} AND expires <= ?", (*names, now))
            return self._insert(connection, "INSERT OR IGNORE", value, owner, expires) > 0

        return await self._file.write(job)

    async def of_topic(self, kind: str, topic: str = "", *, owner: Owner) -> Sequence[KeptValue]:
        now = self._clock()

        def job(connection: sqlite3.Connection) -> list[KeptValue]:
            found = connection.execute(
                f"SELECT name, body, session FROM kept_values WHERE {OF_OWNER} AND kind = ? AND topic = ?"
                " AND (expires IS NULL OR expires > ?) ORDER BY key",
                (*self._owner(owner), kind, topic, now),
            )
            return [
                KeptValue(kind=kind, topic=topic, name=name, body=body, session_id=session)
                for name, body, session in found
            ]

        return await self._file.look(job)

    async def remove(self, kind: str, topic: str, name: str, *, owner: Owner) -> bool:
        now, names = self._clock(), (*self._owner(owner), kind, topic, name)

        def job(connection: sqlite3.Connection) -> bool:
            connection.execute(f"DELETE FROM kept_values WHERE {_NAMED} AND expires <= ?", (*names, now))
            return connection.execute(f"DELETE FROM kept_values WHERE {_NAMED}", names).rowcount > 0

        return await self._file.write(job)

    async def remove_expired(self) -> int:
        return await in_batches(self._remove_batch)

    async def _remove_batch(self) -> tuple[int, bool]:
        now = self._clock()

        def job(connection: sqlite3.Connection) -> tuple[int, bool]:
            removed = connection.execute(
                "DELETE FROM kept_values WHERE key IN"
                " (SELECT key FROM kept_values WHERE expires <= ? AND agent = ? LIMIT ?)",
                (now, self._agent, BATCH),
            ).rowcount
            return removed, removed >= BATCH

        return await self._file.write(job)

    def forget_session(self, connection: sqlite3.Connection, owner: Owner, session_id: str) -> None:
        """Deletes the values of a session, in the transaction that deletes the session."""
        statement = f"DELETE FROM kept_values WHERE {OF_OWNER} AND session = ?"
        connection.execute(statement, (*self._owner(owner), session_id))

    def forget_expired_session(self, connection: sqlite3.Connection, owner: Owner, session_id: str) -> None:
        """Deletes the values of an expired session whose id is used again.

        Values with a time limit stay: they may be of the run that uses it.
        """
        statement = f"DELETE FROM kept_values WHERE {OF_OWNER} AND session = ? AND expires IS NULL"
        connection.execute(statement, (*self._owner(owner), session_id))

    def forget_owner(self, connection: sqlite3.Connection, owner: Owner) -> None:
        connection.execute(f"DELETE FROM kept_values WHERE {OF_OWNER}", self._owner(owner))

    def _insert(
        self, connection: sqlite3.Connection, how: str, value: KeptValue, owner: Owner, expires: float | None
    ) -> int:
        return connection.execute(
            f"{how} INTO kept_values (agent, tenant, user, kind, topic, name, session, body, expires)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*self._owner(owner), value.kind, value.topic, value.name, value.session_id, value.body, expires),
        ).rowcount

    def _owner(self, owner: Owner) -> tuple[str, str, str]:
        return self._agent, owner.tenant, owner.user

    def _expires(self, seconds: float | None) -> float | None:
        return None if seconds is None else self._clock() + seconds
