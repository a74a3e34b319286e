"""Conversations and records of runs, as the tests of the stores make and read them."""

from typing import Any

from holodeck.core.ids import new_ulid
from holodeck.core.messages import UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.runs.port import RunRecord
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from holodeck.stores.sqlite_shared_runs import SharedSqliteRunStore


def run(name: str = "r", session: str = "s", **more: Any) -> RunRecord:
    return RunRecord(run_id=name, owner=ME, session_id=session, **more)


async def say(store: Any, text: str, name: str = "s") -> None:
    conversation = await store.open(name, owner=ME, create=True)
    await conversation.commit([UserMessage(content=text)])
    conversation.close()


async def texts(store: Any, name: str = "s") -> list[Any] | None:
    stored = await store.read(name, owner=ME)
    return None if stored is None else [message.content for message in stored.messages]


async def begun(store: Any, record: RunRecord, last: int | None = None) -> Any:
    """A run's conversation, as the process that has the run opens it."""
    await store.runs.begin(record)
    return await store.open(record.session_id, owner=ME, run_id=record.run_id, last=last, create=True)


def on_file(path, agent):
    """A store on a file that several processes share."""
    file = SqliteFile(path, durable=False)
    return SqliteSessionStore(file, agent, runs=SharedSqliteRunStore(file, agent, new_ulid()))
