"""What every toolset promises. A new one joins by one more case; no test changes."""

import asyncio
import re
from typing import get_args

import msgspec
import pytest
from jsonschema import Draft202012Validator

from holodeck.config.tool_schema import ToolSettings
from holodeck.core.tools import ToolSchema
from holodeck.tools.port import ToolContext
from tests.contracts.toolset_cases import CASES
from tests.tools.mcp.contract_case import mcp

CONTEXT = ToolContext(user_id="alice")
ALL_CASES = {**CASES, "mcp": mcp}


def test_every_tool_type_of_the_agent_file_has_a_case():
    types = {tag.tag for each in get_args(get_args(ToolSettings)[0]) for tag in each.__metadata__}
    assert types - ALL_CASES.keys() == set(), 'CONTRIBUTING.md, "A tool type": tests/contracts/toolset_cases.py'


@pytest.fixture(params=ALL_CASES.values(), ids=ALL_CASES.keys())
async def case(request):
    async with request.param() as made:
        yield made
        await made.toolset.close()


@pytest.fixture
async def tools(case):
    await case.toolset.start()
    return case.toolset


@pytest.mark.req("ORC-04")
async def test_the_tools_are_offered_after_the_start(tools):
    assert sorted(schema.name for schema in tools.schemas()) == ["echo", "fail", "wait"]


async def test_schemas_are_proper_and_can_be_stored(tools):
    for schema in tools.schemas():
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", schema.name)
        assert schema.description
        Draft202012Validator.check_schema(schema.parameters)
        assert schema.parameters["type"] == "object"
        assert msgspec.json.decode(msgspec.json.encode(schema), type=ToolSchema) == schema


async def test_asking_for_the_schemas_changes_nothing(tools):
    assert list(tools.schemas()) == list(tools.schemas())


async def test_a_call_is_answered(tools):
    result = await tools.call("echo", {"text": "hällo"}, CONTEXT)
    assert result.text.endswith("hällo")
    assert not result.failed


async def test_the_arguments_of_the_caller_are_left_as_they_are(tools):
    arguments = {"text": "x"}
    await tools.call("echo", arguments, CONTEXT)
    assert arguments == {"text": "x"}


@pytest.mark.req("AGT-08")
async def test_a_failure_is_a_result(tools):
    result = await tools.call("fail", {}, CONTEXT)
    assert result.failed
    assert "on purpose" in result.text
    assert "Traceback" not in result.text


@pytest.mark.req("AGT-08")
async def test_wrong_arguments_are_a_result(tools):
    result = await tools.call("echo", {"txt": 1}, CONTEXT)
    assert result.failed
    assert result.text


@pytest.mark.req("A27", "AGT-08")
async def test_an_unknown_tool_is_a_result(tools):
    result = await tools.call("ecko", {}, CONTEXT)
    assert result.failed
    assert "ecko" in result.text


@pytest.mark.req("AGT-08")
async def test_calls_do_not_wait_for_each_other(case, tools):
    waiting = asyncio.create_task(tools.call("wait", {}, CONTEXT))
    await case.signals.started.wait()
    assert (await tools.call("echo", {"text": "meanwhile"}, CONTEXT)).text.endswith("meanwhile")
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait({waiting})


async def test_only_cancellation_travels_as_an_exception_and_reaches_the_tool(case, tools):
    waiting = asyncio.create_task(tools.call("wait", {}, CONTEXT))
    await case.signals.started.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await case.signals.stopped.wait()


async def test_closing_ends_a_call_that_is_running(case, tools):
    waiting = asyncio.create_task(tools.call("wait", {}, CONTEXT))
    await case.signals.started.wait()
    await tools.close()
    assert (await waiting).failed
    assert case.signals.stopped.is_set()


async def test_closing_twice_and_leaving_no_task(tools):
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await tools.close()
    await tools.close()
    assert asyncio.all_tasks() - {asyncio.current_task()} <= others


async def test_closing_without_a_start(case):
    await case.toolset.close()


async def test_health_names_every_part(tools):
    states = tools.health()
    assert states
    assert all(state.name and state.ready for state in states)
