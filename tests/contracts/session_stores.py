"""Every store of sessions and of runs, for the contract suites: a new one joins by one more line in each table."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from holodeck.core.owner import Owner
from holodeck.runs.memory_runs import MemoryRunStore
from holodeck.runs.port import RunStore
from holodeck.sessions.memory import MemorySessionStore
from holodeck.sessions.port import SessionStore
from holodeck.stores.postgres_database import PostgresDatabase
from holodeck.stores.postgres_runs import PostgresRunStore
from holodeck.stores.postgres_sessions import PostgresSessionStore
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from holodeck.stores.sqlite_shared_runs import SharedSqliteRunStore
from tests.postgres_server import socket_of
from tests.stores import pgbouncer
from tests.stores.pooling_proxy import PoolingProxy

ADA, EVE = Owner("default", "ada"), Owner("default", "eve")
SAME_NAME_ELSEWHERE = Owner("another tenant", "ada")
TTL = 1800


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


Opener: TypeAlias = Callable[..., Any]


@asynccontextmanager
async def _started(store: SessionStore) -> AsyncIterator[None]:
    await store.start()
    try:
        yield
    finally:
        await store.close()


@asynccontextmanager
async def memory(_folder: Path, clock: Clock, **settings: Any) -> AsyncIterator[SessionStore]:
    store = MemorySessionStore(TTL, clock=clock, **settings)
    async with _started(store):
        yield store


@asynccontextmanager
async def sqlite(folder: Path, clock: Clock, **settings: Any) -> AsyncIterator[SessionStore]:
    file = SqliteFile(folder / "sessions.db", durable=False)
    store = SqliteSessionStore(file, "tester", TTL, clock=clock, **settings)
    async with _started(store):
        yield store


@asynccontextmanager
async def memory_with_runs(_folder: Path, clock: Clock) -> AsyncIterator[tuple[SessionStore, RunStore]]:
    runs = MemoryRunStore()
    yield MemorySessionStore(TTL, clock=clock, on_drop=runs.forget_session), runs


@asynccontextmanager
async def sqlite_with_runs(folder: Path, clock: Clock) -> AsyncIterator[tuple[SessionStore, RunStore]]:
    file = SqliteFile(folder / "sessions.db", durable=False)
    runs = SqliteRunStore(file, "tester")
    store = SqliteSessionStore(file, "tester", TTL, clock=clock, runs=runs)
    async with _started(store):
        yield store, runs


@asynccontextmanager
async def shared_sqlite_with_runs(folder: Path, clock: Clock) -> AsyncIterator[tuple[SessionStore, RunStore]]:
    """As one of several workers has it."""
    file = SqliteFile(folder / "sessions.db", durable=False)
    runs = SharedSqliteRunStore(file, "tester", "worker")
    store = SqliteSessionStore(file, "tester", TTL, clock=clock, runs=runs)
    async with _started(store):
        yield store, runs


@asynccontextmanager
async def postgres_with_runs(database: str, clock: Clock) -> AsyncIterator[tuple[SessionStore, RunStore]]:
    shared = PostgresDatabase(database)
    runs = PostgresRunStore(shared, "tester")
    store = PostgresSessionStore(shared, "tester", TTL, clock=clock, runs=runs)
    async with _started(store):
        yield store, runs


@asynccontextmanager
async def postgres(database: str, clock: Clock, **settings: Any) -> AsyncIterator[SessionStore]:
    store = PostgresSessionStore(PostgresDatabase(database), "tester", TTL, clock=clock, **settings)
    async with _started(store):
        yield store


@asynccontextmanager
async def pooler_of(database: str) -> AsyncIterator[str]:
    """The address of a pooler in transaction mode: a real pgbouncer if `PGBOUNCER` names one, else our own."""
    if pgbouncer.program():
        async with pgbouncer.pgbouncer(socket_of(database)) as url:
            yield url
    else:
        async with PoolingProxy(socket_of(database)) as pooler:
            yield pooler.url


@asynccontextmanager
async def pooled(database: str, clock: Clock, **settings: Any) -> AsyncIterator[SessionStore]:
    """PostgreSQL behind a pooler that gives each transaction another server connection."""
    async with pooler_of(database) as url, postgres(url, clock, **settings) as store:
        yield store


@asynccontextmanager
async def pooled_with_runs(database: str, clock: Clock) -> AsyncIterator[tuple[SessionStore, RunStore]]:
    async with pooler_of(database) as url, postgres_with_runs(url, clock) as stores:
        yield stores


RUN_STORES: dict[str, Opener] = {
    "memory": memory_with_runs,
    "sqlite": sqlite_with_runs,
    "sqlite of workers": shared_sqlite_with_runs,
    "postgres": postgres_with_runs,
    "postgres behind a pooler": pooled_with_runs,
}
STORES: dict[str, Opener] = {
    "memory": memory,
    "sqlite": sqlite,
    "postgres": postgres,
}
if os.environ.get("POOLED"):  # of `make faults-stores`: every test of the suite once more
    STORES["postgres behind a pooler"] = pooled
