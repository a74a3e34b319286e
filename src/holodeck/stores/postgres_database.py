"""One PostgreSQL database: a pool of connections, migrations, and readable errors.

Works behind pgbouncer in transaction mode: then no statement is prepared on the server, no session setting is made, and
no connection listens. Without a pooler, a connection prepares statements that it gets repeatedly. A statement that
loses its connection is repeated only if its caller allows it.
"""

import asyncio
import contextlib
import enum
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from holodeck.core.cancellations import noticing_cancellation
from holodeck.errors import HoloDeckError, StartError, StorageFull, StoreRefused, StoreUnavailable
from holodeck.sessions.port import Durability
from holodeck.stores.postgres_schema import LOCK, MIGRATIONS

log = logging.getLogger(__name__)
# A pool warns three times a second while it cannot connect. `PostgresDatabase` logs that the database is lost, and again
# when it is back.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)

T = TypeVar("T")
PostgresConnection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"
Values: TypeAlias = Mapping[str, Any]
NO_VALUES: Values = MappingProxyType({})

DEFAULT_PORT = 5432
OF_OWNER = "agent = %(agent)s AND tenant = %(tenant)s AND user_name = %(user)s"
NAMED = f"{OF_OWNER} AND id = %(id)s"  # one session, or one run

CONNECT_SECONDS = 5
CLOSE_SECONDS = 2.0  # for attempts to connect that are under way
WAIT_SECONDS = 2.0  # for a free connection
SILENT_SECONDS = 10.0  # for a statement; then the connection counts as lost
OUTAGE_SECONDS = 10.0  # for a database that restarts or fails over, if a statement may be repeated
RETRY_SECONDS = 0.2
PREPARE_AFTER = 5  # uses of a statement on one connection
_FULL = ("53100", "53200")  # disk full, out of memory
_LOST = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout)


class Lane(enum.Enum):
    """How a statement gets its connection."""

    RUN = enum.auto()  # waits for a free one as long as for an unreachable database: accepted messages are not given up
    REQUEST = enum.auto()  # refused if all are in use for WAIT_SECONDS
    BEAT = enum.auto()  # has its own: a busy server is not a dead one


class PostgresDatabase:
    def __init__(self, url: str, *, connections: int = 8) -> None:
        self._url = url
        self._connections = connections  # beside the one for beats
        self._in_use = 0
        self._busy: set[PostgresConnection] = set()  # those with a statement that is not answered yet
        self._pool: AsyncConnectionPool[PostgresConnection] | None = None
        self._beats: AsyncConnectionPool[PostgresConnection] | None = None
        self._is_lost = False

    async def open(self) -> None:
        """Connects and brings the schema up to date. Raises StartError if the database cannot be used."""
        first = await self._first_connection()
        try:
            async with first:
                await _prepare(first)
        except psycopg.errors.DuplicateTable as error:
            wrong = "its schema holodeck has tables of another program; set another sessions.url"
            raise StartError(f"{self.name} cannot be used: {wrong}") from error
        except psycopg.Error as error:
            raise StartError(f"{self.name} cannot be used: {_words_of(error)}") from error
        self._pool, self._beats = self._new_pool(1, self._connections), self._new_pool(0, 1)
        await self._pool.open()
        await self._beats.open()

    def _new_pool(self, least: int, most: int) -> "AsyncConnectionPool[PostgresConnection]":
        return AsyncConnectionPool(
            self._url,
            min_size=least,
            max_size=most,
            open=False,
            timeout=WAIT_SECONDS,
            reconnect_timeout=1.0,  # the next request tries again
            configure=_prepare_if_direct,
            kwargs={"autocommit": True, "prepare_threshold": None, **self._parameters()},
        )

    async def close(self) -> None:
        """Idempotent. Statements that the database has not answered fail."""
        pools = [pool for pool in (self._pool, self._beats) if pool is not None]
        self._pool = self._beats = None
        for connection in self._busy:
            _break(connection)
        await asyncio.gather(*[pool.close(CLOSE_SECONDS) for pool in pools])

    def sign_off(self, replica: str) -> None:
        """Notes that a process has ended, so that another takes its runs over immediately. Blocks on the database.

        The parent of the process calls it.
        """
        statement = "DELETE FROM holodeck.replicas WHERE id = %s"
        with (
            contextlib.suppress(psycopg.Error),  # then its counter stands still, which has the same effect later
            psycopg.connect(self._url, autocommit=True, **self._parameters()) as connection,
        ):
            connection.execute(statement, (replica,))

    @property
    def is_open(self) -> bool:
        return self._pool is not None

    @property
    def name(self) -> str:
        """The address of the database, without the password."""
        given = _parts_of(self._url)
        host, port = given.get("host") or "", given.get("port") or DEFAULT_PORT
        place = f"{f'[{host}]' if ':' in host else host}:{port}" if host else f"this machine, port {port}"
        return f"PostgreSQL on {place}, database {given.get('dbname') or given.get('user') or 'postgres'},"

    async def durability(self) -> Durability:
        """Whether an acknowledged commit survives a power loss and a failover, by the database's own settings."""
        found = await self.row(
            "SELECT current_setting('fsync'), current_setting('synchronous_commit'),"
            " current_setting('synchronous_standby_names'),"
            " (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')),"
            " (SELECT count(*) FROM pg_stat_replication),"
            " (SELECT count(*) FROM pg_stat_replication WHERE sync_state IS NULL), quote_ident(current_user)"  # hidden from this role
        )
        fsync, commit, names, synchronous, standbys, hidden, role = found or ("off", "off", "", 0, 0, 0, "")
        if fsync != "on" or commit == "off":
            lost = f"a power failure may lose the last messages (fsync {fsync}, synchronous_commit {commit})"
            return Durability(lost, is_doubtful=True)
        if names and commit != "local" and synchronous:
            sentence = f"a power failure or a failover loses nothing (synchronous_commit {commit}, synchronous standby)"
            return Durability(sentence)
        if hidden:
            unknown = (
                "what a failover loses is not known, because this role may not see the state of the standbys: "
                f"GRANT pg_read_all_stats TO {role} (synchronous_commit {commit})"
            )
            return Durability(unknown, is_doubtful=True)
        if standbys or names:
            lost = f"a failover may lose the last messages: no standby is synchronous (synchronous_commit {commit})"
            return Durability(lost, is_doubtful=True)
        return Durability(
            f"a power failure loses nothing that was acknowledged (synchronous_commit {commit}, no standby)"
        )

    async def warn_of_losses(self) -> None:
        """Logs if a power failure or a failover may lose messages. A server starts meanwhile, and without the answer."""
        with contextlib.suppress(HoloDeckError):
            durability = await self.durability()
            if durability.is_doubtful:
                log.warning("%s %s", self.name, durability.sentence)

    async def rows(
        self, statement: str, values: Values = NO_VALUES, *, again: bool = False, lane: Lane = Lane.RUN
    ) -> Sequence[tuple[Any, ...]]:
        """Executes one statement, which is its own transaction.

        `again`: it may be repeated if its connection is lost.
        """

        async def execute(connection: PostgresConnection) -> Sequence[tuple[Any, ...]]:
            cursor = await connection.execute(statement, values, binary=True)
            return [] if cursor.rownumber is None else await cursor.fetchall()

        return await noticing_cancellation(self._attempt(execute, again=again, lane=lane))

    async def row(
        self, statement: str, values: Values = NO_VALUES, *, again: bool = False, lane: Lane = Lane.RUN
    ) -> tuple[Any, ...] | None:
        found = await self.rows(statement, values, again=again, lane=lane)
        return found[0] if found else None

    async def transaction(self, job: Callable[[PostgresConnection], Awaitable[T]], *, again: bool = False) -> T:
        """Executes several statements, all of them or none. `again` as in `rows`."""

        async def execute(connection: PostgresConnection) -> T:
            async with connection.transaction():
                return await job(connection)

        return await noticing_cancellation(self._attempt(execute, again=again, lane=Lane.RUN))

    async def _attempt(self, job: Callable[[PostgresConnection], Awaitable[T]], *, again: bool, lane: Lane) -> T:
        deadline = time.monotonic() + OUTAGE_SECONDS
        while True:
            try:
                result = await self._once(job, lane)
            except _LOST as error:
                if getattr(error, "sqlstate", None) in _FULL:
                    raise _failure(error) from error
                if not self._may_repeat(error, again=again, lane=lane) or time.monotonic() >= deadline:
                    self._note_lost(error)
                    raise _failure(error) from error
            except psycopg.errors.UniqueViolation:
                raise  # the caller's to handle
            except psycopg.Error as error:
                log.exception("a statement of the session store failed")
                raise _failure(error) from error
            else:
                if self._is_lost:
                    self._is_lost = False
                    log.warning("%s can be used again", self.name)
                return result
            await asyncio.sleep(RETRY_SECONDS)

    def _note_lost(self, error: BaseException) -> None:
        """Logs that the database is lost, once: every request and every task of this process may find it so."""
        if isinstance(error, PoolTimeout) and self._in_use >= self._connections:
            log.warning("sessions cannot be stored: all %d connections are in use", self._connections)
        elif not self._is_lost:
            self._is_lost = True
            log.warning("%s cannot be used: %s", self.name, _words_of(error))

    def _may_repeat(self, error: BaseException, *, again: bool, lane: Lane) -> bool:
        if not isinstance(error, PoolTimeout) or self._in_use < self._connections:
            return again
        return lane is Lane.RUN  # it had no connection, so it had no effect

    async def _once(self, job: Callable[[PostgresConnection], Awaitable[T]], lane: Lane) -> T:
        """Executes a statement without the pool's context manager.

        Autocommit leaves that manager nothing to end, and it takes longer than a short statement.
        """
        pool = self._beats if lane is Lane.BEAT else self._pool
        if pool is None:
            raise StoreUnavailable("The session store is closed.")
        connection = await pool.getconn()
        silent = asyncio.get_running_loop().call_later(SILENT_SECONDS, _break, connection)
        self._in_use += lane is not Lane.BEAT
        self._busy.add(connection)
        try:
            return await job(connection)
        finally:
            self._busy.discard(connection)
            self._in_use -= lane is not Lane.BEAT
            silent.cancel()
            await pool.putconn(connection)

    async def _first_connection(self) -> PostgresConnection:
        """Opens a connection outside the pool, whose error explains the problem."""
        try:
            return await psycopg.AsyncConnection.connect(
                self._url, autocommit=True, prepare_threshold=None, **self._parameters()
            )
        except psycopg.ProgrammingError as error:
            raise StartError(
                "sessions.url is not the address of a PostgreSQL database: postgresql://user@host/name"
            ) from error
        except psycopg.OperationalError as error:
            raise StartError(f"{self.name} cannot be reached: {_words_of(error)}") from error

    def _parameters(self) -> dict[str, Any]:
        """Connection defaults, which the address itself may change."""
        given, defaults = _parts_of(self._url), {"connect_timeout": CONNECT_SECONDS, "application_name": "holodeck"}
        return {name: value for name, value in defaults.items() if name not in given}


async def _prepare_if_direct(connection: PostgresConnection) -> None:
    """Lets the server prepare repeated statements, unless a pooler may give each transaction another server process.

    A pooler answers a new client itself, with a process number of its own. Behind one, a statement that another client
    has prepared under the same name would be executed in place of ours.
    """
    (process,) = await _one(connection, "SELECT pg_backend_pid()")
    if process == connection.info.backend_pid:
        connection.prepare_threshold = PREPARE_AFTER


async def _prepare(connection: PostgresConnection) -> None:
    """Checks the schema and migrates it, completely or not at all."""
    (encoding,) = await _one(connection, "SHOW server_encoding")
    if encoding != "UTF8":
        encoding = encoding.decode() if isinstance(encoding, bytes) else encoding  # SQL_ASCII: every text is bytes
        raise StartError(f"the database's encoding is {encoding}; sessions need one with the encoding UTF8")
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        (there,) = await _one(connection, "SELECT count(*) FROM pg_namespace WHERE nspname = 'holodeck'")
        if not there:
            await connection.execute("CREATE SCHEMA holodeck")
        await connection.execute("CREATE TABLE IF NOT EXISTS holodeck.version (migrations integer NOT NULL)")
        found = await (await connection.execute("SELECT migrations FROM holodeck.version")).fetchone()
        version = 0 if found is None else int(found[0])
        if version > len(MIGRATIONS):
            raise StartError(
                "the database was written by a newer version of HoloDeck; update HoloDeck, or set another sessions.url"
            )
        for script in MIGRATIONS[version:]:
            await connection.execute(script)
        if found is None:
            await connection.execute("INSERT INTO holodeck.version VALUES (%s)", (len(MIGRATIONS),))
        elif version < len(MIGRATIONS):
            await connection.execute("UPDATE holodeck.version SET migrations = %s", (len(MIGRATIONS),))


def _break(connection: PostgresConnection) -> None:
    """Ends a connection whose server does not answer. Its statement fails as if the server had closed the connection.

    Cancelling the statement instead would wait for the server's answer as well.
    """
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


async def _one(connection: PostgresConnection, statement: str) -> tuple[Any, ...]:
    found = await (await connection.execute(statement)).fetchone()
    if found is None:
        raise StoreUnavailable("The database returned nothing.")
    return found


def _parts_of(url: str) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(url))
    except psycopg.ProgrammingError:
        return {}


def _failure(error: BaseException) -> HoloDeckError:
    if getattr(error, "sqlstate", None) in _FULL:
        return StorageFull("The disk of the database that holds the sessions is full.")
    if isinstance(error, psycopg.DataError | psycopg.IntegrityError):
        return StoreRefused("The session store refuses this: the server's log has the reason.")
    return StoreUnavailable("Sessions cannot be stored at the moment: the database cannot be used.")


def _words_of(error: BaseException) -> str:
    """The first line of the message of the server or the library. Neither repeats a password."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rpartition("failed: ")[2].removeprefix("FATAL:").strip()
