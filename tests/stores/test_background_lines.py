"""The log lines of a store's own work: they belong to no request, and say once that a database is lost."""

import asyncio
import logging
from typing import Any

import psycopg
import pytest

from holodeck.core.events import RunFailed
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.errors import StoreUnavailable
from holodeck.runs.log import RunLog
from holodeck.runs.unstored_endings import UnstoredEndings
from holodeck.stores.log_copier import LogCopier
from holodeck.stores.postgres_database import PostgresDatabase
from holodeck.stores.postgres_runs import PostgresRunStore
from holodeck.telemetry.log_context import RequestContext, current, enter
from tests.stores.stored_sessions import run

ENDING = RunFailed("r", "s", code="interrupted", message="Cut")


class Asked:
    """Stands for a store. Notes in which request each call is made."""

    outlives_process = True

    def __init__(self) -> None:
        self.requests: list[str | None] = []
        self.called = asyncio.Event()

    async def __call__(self, *_values: object, **_options: object) -> tuple[()]:
        self.requests.append(current().request_id)
        self.called.set()
        return ()

    end = rows = __call__

    def release(self, _record: object) -> None:
        """The port's."""


async def copied(asked: Asked) -> None:
    log = RunLog()
    LogCopier(asked).follow((ME, "r"), log)
    log.append(ENDING)
    await asked.called.wait()


async def stored_later(asked: Any) -> None:
    UnstoredEndings(asked).keep(run(), ENDING)
    await asked.called.wait()


async def watched(asked: Any) -> None:
    runs = PostgresRunStore(asked, "tester")
    watch = runs.watch_session("s", owner=ME)
    await asked.called.wait()
    watch.close()


@pytest.mark.req("ORC-09")
@pytest.mark.parametrize("work", [copied, stored_later, watched])
async def test_work_that_outlives_a_request_is_logged_without_it(work: Any) -> None:
    enter(RequestContext(request_id="req_1"))
    asked = Asked()
    await work(asked)
    assert asked.requests == [None]


async def test_a_database_that_is_lost_is_logged_once_and_once_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_away = True

    async def once(*_: object) -> list[object]:
        if is_away:
            raise psycopg.OperationalError("connection failed: Connection refused")
        return []

    monkeypatch.setattr(PostgresDatabase, "_once", once)
    database = PostgresDatabase("postgresql://me:hunter2@db.test:6543/sessions")
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await database.rows("SELECT 1")
    is_away = False
    for _ in range(3):
        await database.rows("SELECT 1")
    assert [record.getMessage() for record in caplog.records] == [
        "PostgreSQL on db.test:6543, database sessions, cannot be used: Connection refused",
        "PostgreSQL on db.test:6543, database sessions, can be used again",
    ]
    assert not logging.getLogger("psycopg.pool").isEnabledFor(logging.WARNING), "it repeats what the first line says"
