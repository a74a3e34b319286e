"""What is acknowledged is on the disk: `kill -9` does not show it, since the system keeps what a process has written."""

import asyncio
import re
import shutil
import subprocess
import sys

import pytest

from holodeck.stores.sqlite_file import SqliteFile

STRACE = shutil.which("strace")
FULL, NORMAL = (2,), (1,)  # of `PRAGMA synchronous`; in WAL mode FULL is a flush of the log with each transaction
PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from holodeck.core.events import RunFinished
from holodeck.core.messages import AssistantMessage, PendingStep, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.runs.port import RunRecord
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore

async def main():
    file = SqliteFile(Path(sys.argv[1]))
    store = SqliteSessionStore(file, "tester", runs=SqliteRunStore(file, "tester"))
    await store.start()
    store.runs.register(RunRecord(run_id="r", owner=ME, session_id="s"))
    conversation = await store.open("s", owner=ME, run_id="r", create=True)
    os.write(2, b"begins")
    await conversation.accept([UserMessage(content="question")])
    os.write(2, b"stored a message that waited")
    conversation.accept([UserMessage(content="and another")])
    await conversation.begin_calls(PendingStep(assistant=AssistantMessage(), run_id="r"))
    os.write(2, b"stored a call with a message")
    await conversation.commit([AssistantMessage(content="answer")], ending=RunFinished("r", "s"))
    os.write(2, b"stored an ending")
    await store.close()

asyncio.run(main())
"""


async def synchronous(file: SqliteFile, *, synced: bool) -> tuple[int]:
    return await file.write(lambda connection: connection.execute("PRAGMA synchronous").fetchone(), synced=synced)


@pytest.mark.parametrize("durable", [True, False])
async def test_a_transaction_is_flushed_if_one_of_its_jobs_is_acknowledged(tmp_path, durable):
    file = SqliteFile(tmp_path / "sessions.db", durable=durable)
    await file.open()
    try:
        flushed = FULL if durable else NORMAL
        assert [await synchronous(file, synced=synced) for synced in (True, False, True)] == [flushed, NORMAL, flushed]
        together = await asyncio.gather(*[synchronous(file, synced=synced) for synced in (False, True, False)])
        assert together[1] == flushed
    finally:
        await file.close()


@pytest.mark.skipif(STRACE is None, reason="strace shows what a process asks the system for")
def test_the_log_is_flushed_between_its_last_write_and_each_acknowledgement(tmp_path):
    trace, program = tmp_path / "trace", tmp_path / "program.py"
    program.write_text(PROGRAM)
    calls = "trace=pwrite64,fdatasync,fsync,write"
    argv = [STRACE, "-f", "-y", "-qq", "-o", str(trace), "-e", calls, sys.executable, str(program)]
    done = subprocess.run([*argv, str(tmp_path / "sessions.db")], capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr:
        pytest.skip(f"this machine lets no process be traced: {done.stderr}")
    assert done.returncode == 0, done.stderr
    _, *acknowledged = re.split(r'write\(2<[^>]*>, "(?:begins|stored)', trace.read_text())
    assert len(acknowledged) == 4
    for before in acknowledged[:-1]:  # what comes between two acknowledgements; the last is the end of the process
        wrote, flushed = before.rfind("-wal>, "), before.rfind("-wal>)")
        resumed = before.rfind("fdatasync resumed")
        assert 0 < wrote < max(flushed, resumed), before
        assert "= 0" in before[max(flushed, resumed) :], before
