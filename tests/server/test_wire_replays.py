"""A run is encoded in the same way by every process that shows it: the bytes of a stream, read again after a restart."""

import asyncio
import re
from contextlib import asynccontextmanager

import pytest

from holodeck.core.events import RunFinished
from holodeck.core.usage import TokenUsage
from holodeck.models.scripted import calls, says
from holodeck.server.options import ServerSettings
from holodeck.server.wires import ENCODERS, WIRES
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.every_wire import QUESTIONS, SESSION, Question, wires_in
from tests.server.serving import served

ALL = ServerSettings(protocols=tuple(WIRES), remember_conversations=True)
TURNS = calls(("lookup", '{"of": "it"}')), says("It rains.", usage=TokenUsage(prompt_tokens=5, completion_tokens=2))
FUNCTION = {"name": "paint", "description": "Paints.", "parameters": {"type": "object", "properties": {}}}


def with_options(row):
    """The question with options that change how the answer looks."""
    path, body, headers = QUESTIONS[row]("hi", SESSION)
    match row:
        case "openai stream":
            tools = [{"type": "function", "function": FUNCTION}]
            return Question(path, {**body, "stream_options": {"include_usage": True}, "tools": tools}, headers)
        case "responses stream":
            more = {"metadata": {"a": "b"}, "temperature": 0.5, "tools": [{"type": "function", **FUNCTION}]}
            return Question(path, {**body, **more, "instructions": "Be short."}, headers)
        case "chat-stream":
            return Question(path, body, {**headers, "Prefer": "return=minimal"})
        case "ag-ui":
            return Question(path, {**body, "tools": [FUNCTION]}, headers)  # without a version: AG-UI before 1.0
        case "ai-sdk":
            return Question(path, {**body, "tools": [FUNCTION]}, headers)
    return Question(path, body, headers)


ANSWERS_OF_ONE_REQUEST = {"mcp", "a2a"}  # JSON-RPC: their frames have the id of the request that they answer
STREAMS = [row for row in QUESTIONS if row in wires_in(QUESTIONS) or row.endswith("stream")]
STREAMS = [row for row in STREAMS if f"{row} stream" not in QUESTIONS and row.split()[0] not in ANSWERS_OF_ONE_REQUEST]
ASKED = {row: lambda row=row: QUESTIONS[row]("hi", SESSION) for row in STREAMS}
ASKED |= {f"{row}, options": lambda row=row: with_options(row) for row in STREAMS}


@asynccontextmanager
async def on_file(path, *turns):
    file = SqliteFile(path)
    records = SqliteRunStore(file, "tester")
    store = SqliteSessionStore(file, "tester", runs=records)
    tools = PlainTools(lookup=echo)
    async with served(*turns, tools=tools, settings=ALL, store=store, records=records) as s:
        yield s


async def played(s, question):
    """The bytes of a stream, and its run, which is copied into the store."""
    async with s.post(question.body, question.path, **question.headers) as answer:
        assert answer.status == 200
        live = await answer.read()
    (run,) = s.server.runs._runs.values()
    async with asyncio.timeout(30):
        while not await _is_copied(s, run.record):
            await asyncio.sleep(0.01)
    return live, run.run_id


async def _is_copied(s, record):
    pieces = await s.server.runs.records.events(record)
    return bool(pieces) and isinstance(pieces[-1][1][-1], RunFinished)


async def replay(s, run_id, query=""):
    async with s.get(f"/runs/{run_id}/events{query}") as answer:
        assert answer.status == 200
        return await answer.read()


def test_every_wire_has_a_row():
    assert wires_in(STREAMS) | ANSWERS_OF_ONE_REQUEST == set(WIRES)
    assert set(ENCODERS) == {*WIRES, ""}


@pytest.mark.req("SRV-24")
@pytest.mark.parametrize("row", ASKED)
async def test_a_stream_that_is_read_again_after_a_restart_has_the_same_bytes(row, tmp_path):
    async with on_file(tmp_path / "sessions.db", *TURNS) as s:
        live, run_id = await played(s, ASKED[row]())
        assert await replay(s, run_id) == live, "in the process that started it"
    async with on_file(tmp_path / "sessions.db") as s:
        assert _timed(await replay(s, run_id)) == _timed(live)


def _timed(stream):
    """Without the moment of the end: a store has the time at which it stored the ending (docs/server.md)."""
    return re.sub(rb'"(execution_time_ms|completed_at)":\d+', rb'"\1":0', stream)


@pytest.mark.parametrize("row", ["ag-ui", "openai stream", "responses stream", "ai-sdk"])
async def test_a_call_of_a_clients_tool_looks_the_same_after_a_restart(row, tmp_path):
    async with on_file(tmp_path / "sessions.db", calls(("paint", "{}"))) as s:
        live, run_id = await played(s, with_options(row))
        assert b"paint" in live
    async with on_file(tmp_path / "sessions.db") as s:
        assert _timed(await replay(s, run_id)) == _timed(live)


@pytest.mark.parametrize("wire", sorted(ANSWERS_OF_ONE_REQUEST))
async def test_a_run_of_a_json_rpc_wire_reads_the_same_in_every_process(wire, tmp_path):
    async with on_file(tmp_path / "sessions.db", *TURNS) as s:
        _, run_id = await played(s, QUESTIONS[wire]("hi", SESSION))
        before = await replay(s, run_id)
        assert b"It rains." in before
    async with on_file(tmp_path / "sessions.db") as s:
        assert _moments(await replay(s, run_id)) == _moments(before)


def _moments(stream):
    """Without the times of a task's updates, which are those at which they are read."""
    return re.sub(rb'"timestamp":"[^"]+"', b"", stream)


async def test_a_session_that_was_new_is_new_after_a_restart(tmp_path):
    async with on_file(tmp_path / "sessions.db", says("hi")) as s:
        live, run_id = await played(s, QUESTIONS["rest stream"]("hi", SESSION))
        assert b'"session_is_new":true' in live
    async with on_file(tmp_path / "sessions.db") as s:
        assert b'"session_is_new":true' in await replay(s, run_id)
        run = s.run(run_id)
        assert run.seconds == pytest.approx((run.finished_at - run.created_at).total_seconds())
