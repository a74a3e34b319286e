"""Builds the stores of sessions and runs. A store that cannot be opened is an error; memory never replaces it."""

# ruff: noqa: PLC0415  a store is imported when a file asks for it

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from holodeck.config.load import LoadedConfig
from holodeck.config.serving import WorkerSeat
from holodeck.core.ids import new_ulid
from holodeck.core.owner import Owner
from holodeck.core.sizes import MB
from holodeck.errors import StartError
from holodeck.runs.port import RunStore
from holodeck.sessions.port import Durability, SessionStore, StoreLimits

if TYPE_CHECKING:
    from holodeck.stores.postgres_database import PostgresDatabase
    from holodeck.stores.postgres_runs import PostgresRunStore
    from holodeck.stores.postgres_sessions import PostgresSessionStore
    from holodeck.stores.sqlite_file import SqliteFile
    from holodeck.stores.sqlite_runs import SqliteRunStore
    from holodeck.stores.sqlite_sessions import SqliteSessionStore
    from holodeck.stores.valkey_link import ValkeyLink


MAX_PER_USER = 10_000  # sessions, unless the file sets another limit: one key may serve many people
FOLDER = ".holodeck"
FILE = f"{FOLDER}/sessions.db"
PATH_VARIABLE = "HOLODECK_SESSIONS_PATH"  # for container images with a read-only agent folder
DurableSessions: TypeAlias = "SqliteSessionStore | PostgresSessionStore"


@dataclass(frozen=True)
class Stores:
    sessions: SessionStore
    runs: RunStore


def build_stores(config: LoadedConfig, worker: WorkerSeat | None = None) -> Stores:
    """Builds the stores of a server: a file beside the agent file, unless the agent file names another store."""
    sessions = config.agent.sessions
    if sessions.store == "memory":
        from holodeck.runs.memory_runs import MemoryRunStore

        runs = MemoryRunStore()
        return Stores(build_memory(config, on_drop=runs.forget_session), runs)
    if sessions.store == "postgres":
        return build_postgres(config, worker)
    return build_sqlite(config, exclusive=True) if worker is None else _shared_sqlite(config, worker)


def stores_around(sessions: SessionStore) -> Stores:
    """Wraps a given session store; the records of runs stay in memory."""
    from holodeck.runs.memory_runs import MemoryRunStore

    return Stores(sessions, MemoryRunStore())


def _shared_sqlite(config: LoadedConfig, worker: WorkerSeat) -> Stores:
    """Opens the shared file. The parent of the workers keeps other servers from it."""
    from holodeck.stores.sqlite_shared_runs import SharedSqliteRunStore

    file, window = _file_of(config, exclusive=False), config.agent.server.runs.replay_window
    runs = SharedSqliteRunStore(
        file, config.agent.name, worker.replica, replay_window=window, kept_seconds=_ttl_of(config)
    )
    return Stores(_sqlite_sessions(config, file, runs), runs)


class WorkersStore(Protocol):
    """What the parent process does for the store that its workers share."""

    @property
    def descriptors(self) -> Sequence[int]:
        """The descriptors that the workers inherit."""

    def ended(self, replica: str) -> None:
        """Marks a worker as ended: another one may take over its runs immediately."""


def open_for_workers(config: LoadedConfig) -> AbstractContextManager[WorkersStore]:
    """Opens the store in the parent of several workers. Raises StartError if they cannot share it."""
    store = config.agent.sessions.store
    if store == "memory":
        raise StartError("--workers needs sessions.store: sqlite or postgres, in which they share their conversations")
    if store == "postgres":
        return nullcontext(_WorkersDatabase(config))
    from holodeck.stores.sqlite_shared_runs import WorkersFile

    return WorkersFile.opened(sessions_path(config))


class _WorkersDatabase:
    """A database, which other servers may share.

    When a worker ends, the parent deregisters it. Otherwise its runs would wait until its heartbeat counts as stopped.
    """

    descriptors: Sequence[int] = ()

    def __init__(self, config: LoadedConfig) -> None:
        self._config = config

    def ended(self, replica: str) -> None:
        _database_of(self._config).sign_off(replica)


def build_durable(config: LoadedConfig) -> DurableSessions:
    """Opens the server's sessions for other commands, beside a server that uses the same store."""
    if config.agent.sessions.store == "postgres":
        return _postgres_sessions(config, None)
    file = _file_of(config, exclusive=False)
    return _sqlite_sessions(config, file, _sqlite_runs(config, file))


def build_memory(
    config: LoadedConfig,
    *,
    ttl_seconds: float | None = None,
    on_drop: Callable[[Owner, str], None] | None = None,
) -> SessionStore:
    from holodeck.sessions.memory import TTL_SECONDS, MemorySessionStore

    ttl = ttl_seconds or config.agent.sessions.ttl_seconds or TTL_SECONDS
    return MemorySessionStore(ttl, on_drop=on_drop, **_limits_of(config))


def _limits_of(config: LoadedConfig) -> StoreLimits:
    sessions = config.agent.sessions
    return {
        "max_per_user": sessions.max_per_user or MAX_PER_USER,
        "spares_anonymous": sessions.max_per_user is None,
        "max_bytes": round(sessions.max_mb * MB),
        "max_owner_bytes": round(sessions.stored_mb * MB),
    }


def sessions_path(config: LoadedConfig) -> Path:
    """Returns the path of the file with an agent's sessions. The file need not exist."""
    return config.folder / (config.agent.sessions.path or config.environment.get(PATH_VARIABLE) or FILE)


async def durability_of(config: LoadedConfig) -> Durability:
    """Describes where a server stores sessions, and what they survive. Raises StartError if it could not use the store."""
    sessions = config.agent.sessions
    if sessions.store == "memory":
        return Durability("sessions are kept in memory; they end with the process")
    if sessions.store != "postgres":
        from holodeck.stores.sqlite_file import check_usable

        await asyncio.to_thread(check_usable, sessions_path(config))
        survives = "a power failure loses nothing that was acknowledged"
        if sessions.durability == "process":
            survives = "kill -9 loses nothing that was acknowledged, a power failure may"
        where = f"sessions are kept in the file {sessions_path(config)}, which workers share"
        return Durability(f"{where}; {survives} (durability {sessions.durability})")
    database = _database_of(config)
    await database.open()
    try:
        sentence, is_doubtful = await database.durability()
        return Durability(f"sessions are kept in {database.name} and {sentence}", is_doubtful)
    finally:
        await database.close()


async def reach_link(config: LoadedConfig, url: str) -> str:
    """Connects to the Valkey of `cluster.valkey`, as a server does when it starts. Raises StartError."""
    link = _link_of(config, url, replica=new_ulid())
    try:
        await link.start()
    finally:
        await link.close()
    return "the Valkey of cluster.valkey answers"


def build_sqlite(config: LoadedConfig, *, exclusive: bool = False) -> Stores:
    """Opens the stores in the agent's file. `exclusive` is for servers: only one may open a file."""
    file = _file_of(config, exclusive=exclusive)
    runs = _sqlite_runs(config, file)
    return Stores(_sqlite_sessions(config, file, runs), runs)


def _file_of(config: LoadedConfig, *, exclusive: bool) -> "SqliteFile":
    from holodeck.stores.sqlite_file import SqliteFile

    return SqliteFile(sessions_path(config), durable=config.agent.sessions.durability == "full", exclusive=exclusive)


def _sqlite_runs(config: LoadedConfig, file: "SqliteFile") -> "SqliteRunStore":
    from holodeck.stores.sqlite_runs import SqliteRunStore

    window = config.agent.server.runs.replay_window
    return SqliteRunStore(file, config.agent.name, replay_window=window, kept_seconds=_ttl_of(config))


def _ttl_of(config: LoadedConfig) -> float:
    from holodeck.stores.stored_conversation import TTL_SECONDS

    return config.agent.sessions.ttl_seconds or TTL_SECONDS


def _sqlite_sessions(config: LoadedConfig, file: "SqliteFile", runs: "SqliteRunStore") -> "SqliteSessionStore":
    from holodeck.stores.sqlite_sessions import SqliteSessionStore

    return SqliteSessionStore(file, config.agent.name, _ttl_of(config), runs=runs, **_limits_of(config))


def build_postgres(config: LoadedConfig, worker: WorkerSeat | None = None) -> Stores:
    """Opens the stores in the agent's database, which its servers share."""
    database = _database_of(config)
    from holodeck.stores.postgres_runs import PostgresRunStore

    window = config.agent.server.runs.replay_window
    replica = None if worker is None else worker.replica
    runs = PostgresRunStore(database, config.agent.name, replica, replay_window=window, kept_seconds=_ttl_of(config))
    if config.agent.cluster.valkey is not None:
        runs.connect(_link_of(config, config.agent.cluster.valkey.get_secret_value(), runs.replica))
    return Stores(_postgres_sessions(config, runs, database), runs)


def _link_of(config: LoadedConfig, url: str, replica: str) -> "ValkeyLink":
    try:
        from holodeck.stores.valkey_link import ValkeyLink

        return ValkeyLink(url, config.agent.name, replica, replay_window=config.agent.server.runs.replay_window)
    except ImportError as error:
        raise StartError("cluster.valkey needs the package redis: pip install 'holodeck-agents[cluster]'") from error
    except ValueError as error:
        text = "this is not the address of a Valkey or Redis; write e.g. valkeys://user:password@host:6379/0"
        raise StartError(str(config.error(("cluster", "valkey"), text))) from error


def _postgres_sessions(
    config: LoadedConfig, runs: "PostgresRunStore | None", database: "PostgresDatabase | None" = None
) -> "PostgresSessionStore":
    database = database or _database_of(config)
    from holodeck.stores.postgres_sessions import PostgresSessionStore

    return PostgresSessionStore(database, config.agent.name, _ttl_of(config), runs=runs, **_limits_of(config))


def _database_of(config: LoadedConfig) -> "PostgresDatabase":
    try:
        from holodeck.stores.postgres_database import PostgresDatabase
    except ImportError as error:
        raise StartError("sessions.store: postgres needs psycopg: pip install 'holodeck-agents[postgres]'") from error
    url = config.agent.sessions.url
    return PostgresDatabase("" if url is None else url.get_secret_value())
