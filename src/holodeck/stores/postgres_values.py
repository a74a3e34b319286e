"""Small values in PostgreSQL, which replicas share. The port is `sessions.values`."""

from collections.abc import Callable, Sequence
from typing import Any

from holodeck.core.owner import Owner
from holodeck.sessions.values import KeptValue
from holodeck.stores.batches import BATCH, in_batches
from holodeck.stores.postgres_database import OF_OWNER, PostgresDatabase

_OF_KIND = f"{OF_OWNER} AND kind = %(kind)s"
_NAMED = f"{_OF_KIND} AND topic = %(topic)s AND name = %(name)s"
_INSERT = (
    "INSERT INTO holodeck.kept_values (agent, tenant, user_name, kind, topic, name, session, body, expires) VALUES"
    " (%(agent)s, %(tenant)s, %(user)s, %(kind)s, %(topic)s, %(name)s, %(session)s, %(body)s, %(expires)s)"
    " ON CONFLICT (agent, tenant, user_name, kind, topic, name)"
)
_REPLACED = "DO UPDATE SET key = DEFAULT, session = excluded.session, body = excluded.body, expires = excluded.expires"


class PostgresValues:
    def __init__(self, database: PostgresDatabase, agent: str, clock: Callable[[], float]) -> None:
        self._database, self._agent, self._clock = database, agent, clock

    async def put(
        self, value: KeptValue, *, owner: Owner, seconds: float | None = None, at_most: int | None = None
    ) -> None:
        values = self._values(value, owner, seconds)
        await self._database.rows(f"{_INSERT} {_REPLACED}", values, again=True)
        if at_most is not None:
            await self._database.rows(
                f"DELETE FROM holodeck.kept_values WHERE {_OF_KIND} AND key <= (SELECT key FROM holodeck.kept_values"
                f" WHERE {_OF_KIND} ORDER BY key DESC OFFSET %(at_most)s LIMIT 1)",
                {**values, "at_most": at_most},
                again=True,
            )

    async def put_first(self, value: KeptValue, *, owner: Owner, seconds: float | None = None) -> bool:
        values = {**self._values(value, owner, seconds), "now": self._clock()}
        is_over = "WHERE holodeck.kept_values.expires <= %(now)s"
        return bool(await self._database.rows(f"{_INSERT} {_REPLACED} {is_over} RETURNING 1", values))

    async def of_topic(self, kind: str, topic: str = "", *, owner: Owner) -> Sequence[KeptValue]:
        found = await self._database.rows(
            f"SELECT name, body, session FROM holodeck.kept_values WHERE {_OF_KIND} AND topic = %(topic)s"
            " AND (expires IS NULL OR expires > %(now)s) ORDER BY key",
            {**self._owner(owner), "kind": kind, "topic": topic, "now": self._clock()},
            again=True,
        )
        return [
            KeptValue(kind=kind, topic=topic, name=name, body=bytes(body), session_id=session)
            for name, body, session in found
        ]

    async def remove(self, kind: str, topic: str, name: str, *, owner: Owner) -> bool:
        values = {**self._owner(owner), "kind": kind, "topic": topic, "name": name, "now": self._clock()}
        gone = await self._database.rows(
            f"DELETE FROM holodeck.kept_values WHERE {_NAMED} RETURNING expires IS NULL OR expires > %(now)s", values
        )
        return any(was_alive for (was_alive,) in gone)

    async def remove_expired(self) -> int:
        return await in_batches(self._remove_batch)

    async def _remove_batch(self) -> tuple[int, bool]:
        gone = await self._database.rows(
            "DELETE FROM holodeck.kept_values WHERE key IN (SELECT key FROM holodeck.kept_values"
            " WHERE agent = %(agent)s AND expires <= %(now)s LIMIT %(batch)s FOR UPDATE SKIP LOCKED) RETURNING 1",
            {"agent": self._agent, "now": self._clock(), "batch": BATCH},
        )
        return len(gone), len(gone) >= BATCH

    def _owner(self, owner: Owner) -> dict[str, Any]:
        return {"agent": self._agent, "tenant": owner.tenant, "user": owner.user}

    def _values(self, value: KeptValue, owner: Owner, seconds: float | None) -> dict[str, Any]:
        return {
            **self._owner(owner),
            "kind": value.kind,
            "topic": value.topic,
            "name": value.name,
            "session": value.session_id,
            "body": value.body,
            "expires": None if seconds is None else self._clock() + seconds,
        }
