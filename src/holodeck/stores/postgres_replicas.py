"""This process among the others that share a PostgreSQL: whether each is alive, and the runs of those that are not.

A process is alive as long as its counter in `replicas` moves. Others measure that with their own clocks, so neither a
change of a clock nor a pause of the database ends a live process.
"""

import math
import time

from holodeck._version import __version__
from holodeck.core.owner import Owner
from holodeck.runs.port import RunRecord, RunState
from holodeck.stores import records
from holodeck.stores.heartbeats import Heartbeats, OpenRun
from holodeck.stores.postgres_database import Lane, PostgresDatabase
from holodeck.stores.postgres_run_statements import SAME_SESSION

MISSED_BEATS = 2  # after which a process registers again before it begins a run
RUN_COLUMNS = records.COLUMNS.format(user="user_name")


class PostgresReplicas(Heartbeats):
    def __init__(self, database: PostgresDatabase, agent: str, replica: str) -> None:
        """`replica` is the name of this process."""
        super().__init__()
        self._database, self._agent, self.replica = database, agent, replica
        self._beaten = time.monotonic()  # the last beat
        self._pause = math.inf  # the time between it and the previous one

    @property
    def is_overdue(self) -> bool:
        """Whether the others may consider this process dead."""
        return time.monotonic() - self._beaten > MISSED_BEATS * self._pause

    async def enter(self) -> None:
        await self._database.rows(
            "INSERT INTO holodeck.replicas (id, agent, version) VALUES (%(id)s, %(agent)s, %(version)s)"
            " ON CONFLICT DO NOTHING",
            {"id": self.replica, "agent": self._agent, "version": __version__},
            again=True,
        )

    async def leave(self) -> None:
        await self._database.rows("DELETE FROM holodeck.replicas WHERE id = %(id)s", {"id": self.replica})

    async def beat(self) -> bool:
        """Raises the counter of this process, and reads those of the others. False if they considered it dead."""
        found = await self._database.rows(
            "WITH me AS (UPDATE holodeck.replicas SET beats = beats + 1 WHERE id = %(me)s RETURNING 1)"
            " SELECT id, beats, (SELECT count(*) FROM me) FROM holodeck.replicas WHERE agent = %(agent)s",
            {"me": self.replica, "agent": self._agent},
            lane=Lane.BEAT,
        )
        if not found or not found[0][2]:
            return False
        now = time.monotonic()
        self._beaten, self._pause = now, now - self._beaten
        self.see((replica, beats) for replica, beats, _ in found if replica != self.replica)
        return True

    async def open_runs(self) -> list[OpenRun]:
        """The rows of this process that have not ended, with what the others want of them."""
        mine = await self._database.rows(
            "SELECT key, tenant, user_name, id, stop_wanted, followed,"
            f" EXISTS (SELECT 1 FROM holodeck.runs other WHERE {SAME_SESSION} AND other.key > runs.key)"
            " FROM holodeck.runs WHERE replica = %(me)s AND ended IS NULL",
            {"me": self.replica},
            lane=Lane.BEAT,
        )
        return [OpenRun(key, (Owner(tenant, user), name), *rest) for key, tenant, user, name, *rest in mine]

    async def take_over(self, seconds: float, now: float) -> list[tuple[int, RunRecord]]:
        """Gives this process the runs of those that have left, or whose counter has stood still for `seconds`.

        Returns them with the keys of their rows. Those that cannot be read are ended, with the time `now`. A stray row
        of this process counts as recovered before: its run has ended here and is not continued.
        """
        still = self.still(seconds)
        if still:
            await self._database.rows(
                "DELETE FROM holodeck.replicas USING unnest(%(ids)s::text[], %(beats)s::bigint[]) AS gone (id, beats)"
                " WHERE replicas.id = gone.id AND replicas.beats = gone.beats",
                {"ids": [each[0] for each in still], "beats": [each[1] for each in still]},
                lane=Lane.BEAT,
            )
        found = await self._database.rows(
            # If two processes take over at the same time, the second waits, and then checks only the row itself. So the
            # statement must name the process that it takes the run from.
            "WITH abandoned AS MATERIALIZED (SELECT key AS its_key, replica AS its_replica FROM holodeck.runs"
            f"   WHERE agent = %(agent)s AND ended IS NULL AND v <= {records.VERSION} AND (key = ANY(%(strays)s) OR replica <> %(me)s"
            "   AND NOT EXISTS (SELECT 1 FROM holodeck.replicas WHERE id = runs.replica))),"
            " taken AS (UPDATE holodeck.runs SET replica = %(me)s,"
            "   recovered = recovered + CASE WHEN its_replica = %(me)s THEN 1 ELSE 0 END FROM abandoned"
            "   WHERE key = its_key AND replica = its_replica AND ended IS NULL"
            f"  RETURNING key, agent, {RUN_COLUMNS}),"
            " fenced AS (UPDATE holodeck.sessions s SET epoch = epoch + 1 FROM taken"
            "   WHERE s.agent = taken.agent AND s.tenant = taken.tenant AND s.user_name = taken.user_name"
            "   AND s.id = taken.session AND taken.state = 'running')"  # one that waits has written nothing
            f" SELECT key, {RUN_COLUMNS} FROM taken ORDER BY key",
            {"me": self.replica, "agent": self._agent, "strays": self.strays},
            lane=Lane.BEAT,
        )
        opened = records.OpenRuns(found)
        if opened.broken:
            await self._set_aside(opened, now)
        return opened.readable

    async def _set_aside(self, found: records.OpenRuns, now: float) -> None:
        """If this fails, the rows are strays of this process, and it takes them over again."""
        await self._database.rows(
            f"UPDATE holodeck.runs SET state = '{RunState.INTERRUPTED}', ended = %(now)s,"
            " ending = coalesce(runs.ending, broken.ending)"
            " FROM unnest(%(keys)s::bigint[], %(endings)s::bytea[]) AS broken (key, ending)"
            " WHERE runs.key = broken.key AND replica = %(me)s AND ended IS NULL",
            {
                "keys": [key for key, _ in found.broken],
                "endings": [ending for _, ending in found.broken],
                "now": now,
                "me": self.replica,
            },
            lane=Lane.BEAT,
        )
