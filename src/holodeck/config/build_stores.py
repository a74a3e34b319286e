"""LoadedConfig → the stores of sessions and runs. A store that cannot be opened is an error; memory never replaces it."""
# ruff: noqa: PLC0415  a store is imported when a file asks for it

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holodeck.config.load import LoadedConfig
from holodeck.core.owner import Owner
from holodeck.core.sizes import MB
from holodeck.runs.port import RunStore
from holodeck.sessions.port import SessionStore

FOLDER = ".holodeck"
FILE = f"{FOLDER}/sessions.db"
PATH_VARIABLE = "HOLODECK_SESSIONS_PATH"  # for images in which the agent's folder cannot be written


@dataclass(frozen=True)
class Stores:
    """Where conversations and the records of their runs are kept."""

    sessions: SessionStore
    runs: RunStore


def build_stores(config: LoadedConfig) -> Stores:
    """The stores of a server: a file beside the agent file, unless the agent file names another."""
    sessions = config.agent.sessions
    if sessions.store == "memory":
        from holodeck.runs.memory_runs import MemoryRunStore

        runs = MemoryRunStore()
        return Stores(build_memory(config, on_drop=runs.forget_session), runs)
    return build_sqlite(config, exclusive=True)


def build_memory(
    config: LoadedConfig,
    *,
    ttl_seconds: float | None = None,
    on_drop: Callable[[Owner, str], None] | None = None,
) -> SessionStore:
    from holodeck.sessions.memory import TTL_SECONDS, MemorySessionStore

    sessions = config.agent.sessions
    return MemorySessionStore(
        ttl_seconds or sessions.ttl_seconds or TTL_SECONDS,
        max_per_user=sessions.max_per_user,
        max_bytes=round(sessions.max_mb * MB),
        max_owner_bytes=round(sessions.stored_mb * MB),
        on_drop=on_drop,
    )


def sessions_path(config: LoadedConfig) -> Path:
    """The file that holds the sessions of an agent. It need not be there."""
    return config.folder / (config.agent.sessions.path or config.environment.get(PATH_VARIABLE) or FILE)


def build_sqlite(config: LoadedConfig, *, exclusive: bool = False) -> Stores:
    """The stores of the agent's file. `exclusive` is for servers: only one may open a file."""
    from holodeck.stores.session_rows import TTL_SECONDS
    from holodeck.stores.sqlite_file import SqliteFile
    from holodeck.stores.sqlite_runs import SqliteRunStore
    from holodeck.stores.sqlite_sessions import SqliteSessionStore

    sessions, name = config.agent.sessions, config.agent.name
    file = SqliteFile(sessions_path(config), durable=sessions.durability == "full", exclusive=exclusive)
    ttl = sessions.ttl_seconds or TTL_SECONDS
    runs = SqliteRunStore(file, name, replay_window=config.agent.server.runs.replay_window, kept_seconds=ttl)
    store = SqliteSessionStore(
        file,
        name,
        ttl,
        runs=runs,
        max_per_user=sessions.max_per_user,
        max_bytes=round(sessions.max_mb * MB),
        max_owner_bytes=round(sessions.stored_mb * MB),
    )
    return Stores(store, runs)
