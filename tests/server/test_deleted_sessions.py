"""A session that is deleted while a run works on it: the run stores nothing more, and nothing in any other session."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.tools import ToolResult
from holodeck.models.scripted import calls, says
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from holodeck.tools.port import ToolContext
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.serving import PATIENCE, Gate, Served, ask, frames, read_to, types
from tests.server.test_server_restart import started


async def texts(s: Served, session: str) -> list[str]:
    async with s.get(f"/sessions/{session}") as shown:
        return [message["content"] for message in (await shown.json())["messages"]]


@pytest.mark.req("SRV-11")
async def test_a_tool_that_cleans_up_after_its_session_was_deleted_writes_into_no_other_session(tmp_path: Path) -> None:
    acting, cleaned, gate = asyncio.Event(), asyncio.Event(), Gate()

    async def act(_arguments: dict[str, Any], _context: ToolContext) -> ToolResult:
        acting.set()
        try:
            await asyncio.Event().wait()
        finally:
            await cleaned.wait()
        raise AssertionError("it is cancelled")

    script = calls(("act", '{"secret": "of ann"}')), says("for bob", pause=gate), says("more")
    async with started(tmp_path / "sessions.db", *script, tools=PlainTools(act=act)) as s:
        async with s.post(ask("a secret", thread="ann", run="r1")) as first:
            await asyncio.wait_for(acting.wait(), PATIENCE)
            async with s.client.delete(f"{s.url}/sessions/ann") as gone:
                assert gone.status == 204
            async with s.post(ask("hello", thread="bob", run="r2")) as second:
                await read_to(second, "TEXT_MESSAGE_CONTENT")
                cleaned.set()
                assert types(await first.read())[-1] == "RUN_FINISHED", "it was stopped"
                gate.open.set()
                assert types(await second.read())[-1] == "RUN_FINISHED"
        assert await texts(s, "bob") == ["hello", "for bob"]
        async with s.post(ask("on", thread="bob", run="r3")) as third:
            assert types(await third.read())[-1] == "RUN_FINISHED"
        for path in ("/sessions/ann", "/runs/r1"):
            async with s.get(path) as shown:
                assert shown.status == 404


@pytest.mark.req("SRV-11")
@pytest.mark.parametrize("then", ["it answers", "it calls a tool"])
async def test_a_run_whose_session_a_command_deletes_ends_with_an_error_and_calls_no_tool(
    tmp_path: Path, then: str
) -> None:
    """The command is another process: the server learns of it from the store, when the run stores the next thing."""
    gate, file, tools = Gate(), tmp_path / "sessions.db", PlainTools(echo=echo)
    turn = says("a b", pause=gate) if then == "it answers" else calls(("echo", "{}"), text=("a",), pause=gate)
    async with started(file, turn, says("done"), tools=tools) as s, s.post(ask(thread="t", run="r")) as answer:
        await read_to(answer, "TEXT_MESSAGE_CONTENT")
        command = SqliteSessionStore(SqliteFile(file, durable=False), "tester")
        await command.start()
        assert await command.delete("t", owner=ME)
        await command.close()
        gate.open.set()
        ending = frames(await answer.read())[-1][1]
        assert (ending["type"], ending["code"]) == ("RUN_ERROR", "session-deleted")
        assert tools.called == [], "its intent could not be stored"
        async with s.get("/sessions/t") as shown:
            assert shown.status == 404
