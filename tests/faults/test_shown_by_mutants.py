"""Checks that planted faults showed to be missing: without these tests `make mutants` has survivors."""

import asyncio
import time

import pytest

from holodeck.config.limit_schema import RequestLimits
from holodeck.core.request import Resume
from holodeck.core.tools import ToolResult
from holodeck.models.scripted import calls, says
from tests.agent.agent_fixture import AgentFixture, PlainTools
from tests.server.serving import PATIENCE, served

HEAD = b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


async def test_a_call_that_failed_for_good_is_not_repeated():
    async def refuses(arguments, context):
        return ToolResult.failure("no such todo")

    tools = PlainTools(refuses=refuses)
    fixture = AgentFixture(calls(("refuses", "{}")), says("pity"), tools=tools, enable_retry=True, retry_attempts=2)
    await fixture.play("go")
    assert len(tools.called) == 1


@pytest.mark.req("D03")
async def test_an_approval_is_used_up_before_it_is_acted_on():
    """A process that dies while it carries out a call must not find the approval again when it comes back."""
    left_to_approve = []

    async def erase(arguments, context):
        left_to_approve.append(dict(fixture.conversation.pending.approvals))
        return ToolResult(content="gone")

    tools = PlainTools(approval=frozenset({"erase"}), erase=erase)
    fixture = AgentFixture(calls(("erase", "{}")), says("done"), tools=tools)
    await fixture.play("erase it")
    await fixture.play(resume=[Resume(interrupt_id=fixture.ending.interrupts[0].id, approved=True)])
    assert left_to_approve == [{}]


@pytest.mark.req("T15")
async def test_a_body_that_says_it_is_too_large_is_refused_before_a_byte_of_it():
    async with served() as s:
        reader, writer = await s.connect()
        writer.write(HEAD + b"Content-Length: 200000000\r\n\r\n")
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), PATIENCE)
        assert answer.startswith(b"HTTP/1.1 413")
        writer.transport.abort()


@pytest.mark.req("T17")
async def test_bytes_that_drip_into_a_body_do_not_win_time():
    async with served(limits=RequestLimits(body_seconds=0.2, body_rate=1e6)) as s:
        reader, writer = await s.connect()
        begun = time.monotonic()
        writer.write(HEAD + b"Content-Length: 1000\r\n\r\n{")
        answer = asyncio.create_task(reader.readuntil(b"\r\n"))
        while not answer.done():
            assert time.monotonic() - begun < PATIENCE, "the drip keeps it alive"
            writer.write(b" ")
            await asyncio.wait({answer}, timeout=0.02)  # the drip itself
        assert (await answer).startswith(b"HTTP/1.1 408")
        writer.transport.abort()
