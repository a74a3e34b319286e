"""Several toolsets as one: started together or not at all, closed whatever happens, every name with one owner."""

import asyncio
import logging

import pytest

from holodeck.core.tools import Approval, ToolSchema
from holodeck.errors import StartError
from holodeck.tools.catalogue import MAX_TOOLS, Catalogue, Source
from holodeck.tools.port import ToolContext
from holodeck.tools.rules import ToolRules
from tests.tools.recording import RecordingToolset

CONTEXT = ToolContext(user_id="a")


def offering(label, *names, **options):
    return RecordingToolset(*(ToolSchema(name=name) for name in names), name=label, **options)


def names(tools):
    return [schema.name for schema in tools.schemas()]


async def test_calls_go_to_the_owner():
    a, b = offering("a", "one"), offering("b", "two", "three")
    tools = Catalogue.of(a, b)
    await tools.start()
    assert names(tools) == ["one", "two", "three"]
    assert [(await tools.call(name, {}, CONTEXT)).text for name in names(tools)] == ["a.one", "b.two", "b.three"]
    assert [each.name for each in tools.health()] == ["a", "b"]
    await tools.close()
    assert a.log == b.log == ["start", "close"]


async def test_nothing_combined_is_a_toolset_too():
    tools = Catalogue.of()
    await tools.start()
    assert (names(tools), list(tools.health())) == ([], [])
    assert (await tools.call("x", {}, CONTEXT)).text == "There is no tool 'x'; there are no tools"
    await tools.close()


async def test_all_start_at_the_same_time():
    slow = [offering("a", never_starts=True), offering("b", never_starts=True)]
    starting = asyncio.create_task(Catalogue.of(*slow).start())
    await asyncio.gather(*(each.starting.wait() for each in slow))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert [each.log for each in slow] == [["start", "close"]] * 2


async def test_when_one_cannot_start_nothing_is_left_behind():
    fine, failing = offering("a", "one"), offering("b", start_error=StartError("b: no such command"))
    hanging = offering("c", never_starts=True)
    with pytest.raises(StartError, match="b: no such command"):
        await Catalogue.of(fine, failing, hanging).start()
    assert [each.log for each in (fine, failing, hanging)] == [["start", "close"]] * 3


async def test_to_check_an_agent_every_toolset_is_tried():
    fine = offering("a", "one")
    broken = [offering(name, start_error=StartError(f"{name}: no such command")) for name in ("b", "c")]
    rules = ToolRules(include=["one", "two"])
    tools = Catalogue([Source(toolset=fine, rules=rules), *(Source(toolset=each) for each in broken)])
    problems = await tools.start_each()
    assert problems == ["b: no such command", "c: no such command", "a has no tool 'two' (include); it has one"]
    assert names(tools) == ["one"]
    assert fine.log == ["start"]
    assert tools.schemas()[0].approval is Approval.ALWAYS  # as long as a name is wrong
    assert tools.approval_in_file("one") is Approval.NEVER


async def test_toolsets_whose_rules_leave_no_tool_are_named():
    rules = ToolRules(include=["one"], exclude=["o*"])
    tools = Catalogue([Source(toolset=offering("a", "one"), rules=rules), Source(toolset=offering("b", "two"))])
    assert await tools.start_each() == []
    assert tools.without_tools() == ["a"]


async def test_all_are_closed_also_when_one_close_fails(caplog):
    bad, good = offering("bad", close_error=OSError("pipe")), offering("good")
    tools = Catalogue.of(bad, good)
    await tools.start()
    with caplog.at_level(logging.ERROR):
        await tools.close()
    assert good.log == ["start", "close"]
    assert [(record.message, record.exc_info[1].args) for record in caplog.records] == [
        ("bad could not be closed", ("pipe",))
    ]


@pytest.mark.req("T26")
async def test_one_name_in_two_toolsets_is_refused():
    a, b = offering("todo", "add"), offering("notes", "add")
    with pytest.raises(StartError) as caught:
        await Catalogue.of(a, b).start()
    assert caught.value.message == (
        "todo and notes both have a tool 'add'; give one of them a prefix, or exclude it in one"
    )
    assert a.log == b.log == ["start", "close"]


@pytest.mark.req("T26", "B15")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["later in the file", "earlier in the file"])
async def test_a_name_cannot_be_taken_over_later(order, caplog):
    owner, intruder = offering("todo", "delete"), offering("evil")
    both = [owner, intruder]
    tools = Catalogue.of(*(both[i] for i in order))
    await tools.start()
    intruder.offer(ToolSchema(name="delete"), ToolSchema(name="new"))
    with caplog.at_level(logging.WARNING):
        assert [sorted(names(tools)) for _ in range(3)] == [["delete", "new"]] * 3
        assert (await tools.call("delete", {}, CONTEXT)).text == "todo.delete"
        owner.offer()  # restarting: for now it has none
        assert names(tools) == ["new"]
        await tools.call("delete", {}, CONTEXT)
    assert intruder.calls == []
    assert [record.message for record in caplog.records] == [
        "tool_hidden: delete of evil is not offered: todo has one of that name"
    ]


@pytest.mark.req("T18")
async def test_no_more_than_128_tools(caplog):
    with pytest.raises(StartError, match="there are 129 tools, at most 128 can be offered"):
        await Catalogue.of(offering("many", *(f"t{i}" for i in range(MAX_TOOLS + 1)))).start()
    grows = offering("grows", "t0")
    tools = Catalogue.of(grows)
    await tools.start()
    grows.offer(*(ToolSchema(name=f"t{i}") for i in range(MAX_TOOLS + 1)))
    with caplog.at_level(logging.WARNING):
        assert len(names(tools)) == MAX_TOOLS
    assert "there are 128 already" in caplog.text
    assert (await tools.call("t128", {}, CONTEXT)).failed


async def test_a_listing_is_folded_once_until_it_changes():
    toolset = offering("a", "one")
    tools = Catalogue.of(toolset)
    await tools.start()
    before = tools.offered()
    assert tools.offered() is before
    toolset.offer(ToolSchema(name="one"), ToolSchema(name="two"))
    assert list(tools.offered()) == ["one", "two"]


async def test_a_name_belongs_to_the_agent_while_its_server_restarts():
    server = offering("server", "one", "hidden")
    tools = Catalogue([Source(toolset=server, rules=ToolRules(exclude=("hidden",)))])
    await tools.start()
    assert list(tools.names()) == ["one"]
    server.offer()
    assert (names(tools), list(tools.names())) == ([], ["one"])
    server.offer(ToolSchema(name="two"))
    assert list(tools.names()) == ["one", "two"]
