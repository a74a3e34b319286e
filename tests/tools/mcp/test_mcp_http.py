"""Servers over streamable HTTP: a real one, and one that does everything wrong (row B16; T13)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from holodeck.core.tools import ToolResult
from holodeck.errors import StartError
from holodeck.tools import mcp_server
from holodeck.tools.mcp_settings import McpSettings
from holodeck.tools.mcp_toolset import McpToolset
from holodeck.tools.port import ToolContext
from tests.ports import free_port
from tests.tools.mcp.real_http import serving
from tests.tools.mcp.rogue_client import until
from tests.tools.mcp.rogue_http import rogue_http


@asynccontextmanager
async def connected(url: str, **changes: Any) -> AsyncIterator[McpToolset]:
    toolset = McpToolset(McpSettings(**{"name": "web", "url": url, "timeout": 30.0, "required": True, **changes}))
    await toolset.start()
    try:
        yield toolset
    finally:
        await toolset.close()


async def call(toolset: McpToolset, tool: str, **arguments: Any) -> ToolResult:
    return await toolset.call(tool, arguments, ToolContext(user_id="alice"))


@pytest.mark.req("ORC-04")
@pytest.mark.parametrize("json_response", [False, True])
async def test_a_server_of_the_official_sdk(json_response):
    server = MCPServer("real")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    async with serving(server, json_response=json_response) as url, connected(url) as toolset:
        (schema,) = toolset.schemas()
        assert (schema.name, schema.description) == ("add", "Adds two numbers.")
        assert (await call(toolset, "add", a=2, b=3)).text == "5"
        assert (await call(toolset, "add", a="two", b=3)).failed


@pytest.mark.req("B16")
async def test_a_call_that_was_stopped_frees_its_connection(caplog):
    caplog.set_level(logging.INFO, "mcp")
    async with rogue_http() as rogue, connected(rogue.url) as toolset:
        made = asyncio.create_task(call(toolset, "pings"))
        await until(lambda: rogue.answering == 1)
        made.cancel()
        with suppress(asyncio.CancelledError):
            await made
        await until(lambda: rogue.answering == 0)
        assert (await call(toolset, "echo", n=1)).text == '{"n": 1}'
    assert "SSE stream disconnected" not in caplog.text, "the SDK does not resume the stream"


@pytest.mark.req("B16")
async def test_a_stopped_call_frees_its_connection_although_the_server_has_used_its_number():
    """Client and server number their requests independently, so an answer of ours may have the number of a call."""
    async with rogue_http() as rogue, connected(rogue.url) as toolset:
        made = asyncio.create_task(call(toolset, "asks"))
        await until(lambda: "POST" in rogue.journal)
        made.cancel()
        with suppress(asyncio.CancelledError):
            await made
        await until(lambda: rogue.answering == 0)


@pytest.mark.req("B16")
async def test_a_server_that_takes_no_more_connections_still_answers_the_calls_that_it_has():
    async with rogue_http() as rogue, connected(rogue.url) as toolset:
        made = [asyncio.create_task(call(toolset, "slow", n=n)) for n in range(6)]  # no connection is idle
        await until(lambda: rogue.answering == 6)
        rogue.server.close()
        refused = await call(toolset, "echo")
        assert refused.unsent
        assert "cannot be reached" in refused.text
        rogue.drained.set()
        assert [(await each).text for each in made] == [f'{{"n": {n}}}' for n in range(6)]


@pytest.mark.req("B16")
@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("cut", {}, "SSE stream ended without a response"),
        ("html", {}, "Unexpected content type"),
        ("accepted", {}, "202 Accepted"),
        ("status", {"status": 401}, "does not accept our credentials (HTTP 401)"),
        ("status", {"status": 403}, "does not accept our credentials (HTTP 403)"),
        ("status", {"status": 500}, "answered with HTTP 500"),
        ("status", {"status": 503}, "answered with HTTP 503"),
        ("short", {}, "the connection broke"),
        ("reset", {}, "broke the connection"),
        ("big_json", {}, "too_large"),
        ("big_event", {}, "SSE stream failed"),
        ("zipped", {}, "compressed"),
        ("garbage", {}, "Failed to parse JSON"),
    ],
)
async def test_whatever_goes_wrong_fails_one_call_and_keeps_the_session(tool, arguments, words):
    async with rogue_http() as rogue, connected(rogue.url) as toolset:
        result = await call(toolset, tool, **arguments)
        assert result.failed
        assert words in result.text
        assert (await call(toolset, "echo", n=1)).text == '{"n": 1}'
        assert rogue.session == 1
        assert rogue.journal.count(f"POST tools/call {tool}") == 1


@pytest.mark.req("B16")
@pytest.mark.parametrize("tool", ["hang", "retry"])
async def test_a_server_that_keeps_us_waiting_meets_the_timeout(tool):
    async with rogue_http() as rogue, connected(rogue.url, timeout=0.3) as toolset:
        result = await call(toolset, tool)
        assert "did not answer in 0.3 s" in result.text
        await until(lambda: "POST notifications/cancelled" in rogue.journal)


@pytest.mark.req("B16")
async def test_a_forgotten_session_is_restarted_once():
    async with rogue_http() as rogue, connected(rogue.url) as toolset:
        rogue.session = 7
        assert (await call(toolset, "echo", n=1)).text == '{"n": 1}'
        assert rogue.session == 8
        assert rogue.journal.count("POST tools/call echo") == 2
        assert (await call(toolset, "status", status=404)).failed  # for ever: given up after the second time
        assert rogue.journal.count("POST tools/call status") == 2


@pytest.mark.req("B16", "T13")
async def test_a_redirect_to_elsewhere_is_not_followed():
    async with rogue_http() as canary, rogue_http() as rogue:
        async with connected(rogue.url, headers={"authorization": "Bearer ours"}) as toolset:
            result = await call(toolset, "elsewhere", to=canary.url)
            assert result.failed
            assert "not followed" in result.text
        assert canary.journal == []


@pytest.mark.req("T13")
async def test_a_server_cannot_send_us_elsewhere_for_a_token():
    async with rogue_http() as canary, rogue_http() as rogue:
        async with connected(rogue.url, headers={"authorization": "Bearer ours"}) as toolset:
            assert "does not accept our credentials" in (await call(toolset, "sign_in", at=canary.url)).text
        assert canary.journal == []


@pytest.mark.req("T13")
async def test_credentials_of_the_agent_file_are_what_the_server_sees():
    async with rogue_http(token="ours") as rogue:
        async with connected(rogue.url, headers={"authorization": "Bearer ours"}) as toolset:
            assert not (await call(toolset, "echo")).failed
        assert {headers.get("authorization") for headers in rogue.headers} == {"Bearer ours"}
        assert "DELETE" in rogue.journal  # it ended its session


@pytest.mark.req("B16")
async def test_missing_credentials_are_named_at_the_start():
    async with rogue_http(token="ours") as rogue:
        with pytest.raises(
            StartError, match=r"our credentials \(HTTP 401\)\. Check its `headers`; if it requires OAuth"
        ):
            async with connected(rogue.url):
                pass


@pytest.mark.req("B16", "B01")
async def test_a_server_that_is_not_there_is_named_at_the_start():
    with pytest.raises(StartError, match=r"cannot be reached\. Is it running"):
        async with connected(f"http://127.0.0.1:{free_port()}/mcp"):
            pass


def test_the_library_prints_nothing_between_the_lines_of_a_chat():
    """Without any handler Python prints a warning, such as "Session termination failed", to standard error."""
    import_module("holodeck.tools.mcp_http")
    assert any(isinstance(each, logging.NullHandler) for each in logging.getLogger("mcp").handlers)
    assert logging.getLogger("mcp").propagate


@pytest.mark.req("B05", "B16")
async def test_a_server_that_goes_away_and_comes_back(monkeypatch):
    monkeypatch.setattr(mcp_server, "pause_before_attempt", lambda *_, **__: 0.05)
    port = free_port()
    async with rogue_http(port=port) as rogue:
        toolset = McpToolset(McpSettings(name="web", url=rogue.url, timeout=30.0))
        await toolset.start()
    try:
        await call(toolset, "echo")  # finds the connection dead, or the port closed
        assert (await call(toolset, "echo")).failed
        assert not toolset.health()[0].ready
        async with rogue_http(port=port):
            await until(lambda: toolset.health()[0].ready)
            assert (await call(toolset, "echo", n=1)).text == '{"n": 1}'
            await toolset.close()
    finally:
        await toolset.close()


async def test_streams_and_notifications_in_them_are_understood():
    async with rogue_http() as rogue, connected(rogue.url) as toolset:
        assert (await call(toolset, "sse")).text == "streamed"
        assert (await call(toolset, "noisy")).text == "after"
        await until(lambda: rogue.journal.count("POST tools/list") == 2)


@pytest.mark.req("B04")
@pytest.mark.parametrize("tool", ["half_json", "half_sse"])
async def test_half_a_surrogate_pair_does_not_cost_the_whole_answer(tool):
    async with rogue_http() as rogue, connected(rogue.url) as toolset:
        assert (await call(toolset, tool)).text == "cut \ufffd and whole \U0001f98a"


@pytest.mark.req("T13")
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://tools.example/mcp", "plain http is for this machine only"),
        ("http://10.0.0.1/mcp", "plain http is for this machine only"),
        ("https://:/mcp", "is not an http address"),
    ],
)
async def test_addresses_that_are_never_talked_to(url, words):
    with pytest.raises(StartError, match=words):
        async with connected(url):
            pass
