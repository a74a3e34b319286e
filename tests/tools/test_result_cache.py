"""Results that are kept: for whom, for how long, and which never (issue 14.11)."""

import pytest

from holodeck.core.tools import Approval, ToolResult, ToolSchema
from holodeck.errors import StartError
from holodeck.tools.catalogue import Catalogue, Source
from holodeck.tools.port import ToolContext
from holodeck.tools.result_cache import MAX_RESULTS, CacheRule, ResultCache
from holodeck.tools.rules import ToolRules


class Counting:
    """Answers with the number of the call."""

    def __init__(self, *names, fails=False, approval=Approval.NEVER):
        self.calls = []
        self.fails = fails
        self._schemas = [
            ToolSchema(
                name=name,
                approval=approval,
                parameters={"type": "object", "properties": {"city": {"type": "string"}, "owner": {"type": "string"}}},
            )
            for name in names or ("look",)
        ]

    async def start(self):
        pass

    async def close(self):
        pass

    def schemas(self):
        return self._schemas

    def health(self):
        return []

    async def call(self, name, arguments, context):
        self.calls.append((name, arguments))
        return ToolResult(content=f"{name} {len(self.calls)}", failed=self.fails)


def catalogue(tools, per="user", seconds=60.0, clock=None, **rules):
    cache = rules.pop("cache", {"look": CacheRule(seconds=seconds, per=per)})
    made = Catalogue([Source(toolset=tools, name="weather", rules=ToolRules(cache=cache, **rules))])
    if clock is not None:
        made._results._clock = clock
        made._fold()
    return made


def asked_by(user, tenant="acme"):
    return ToolContext(user_id=user, tenant=tenant)


async def ask(made, context, name="look", **arguments):
    return await made.call(name, arguments, context)


async def test_the_same_question_is_asked_once():
    tools = Counting()
    made = catalogue(tools)
    first = await ask(made, asked_by("ann"), city="Oslo", owner="x")
    again = await ask(made, asked_by("ann"), owner="x", city="Oslo")
    assert (first.text, first.cached) == ("look 1", False)
    assert (again.text, again.cached) == ("look 1", True)
    assert (await ask(made, asked_by("ann"), city="Rome")).text == "look 2"


@pytest.mark.parametrize(
    ("per", "same_tenant", "other_tenant"), [("user", False, False), ("tenant", True, False), ("all", True, True)]
)
async def test_who_shares_a_result(per, same_tenant, other_tenant):
    made = catalogue(Counting(), per)
    await ask(made, asked_by("ann"), city="Oslo")
    assert (await ask(made, asked_by("bob"), city="Oslo")).cached is same_tenant
    assert (await ask(made, asked_by("ann", "other"), city="Oslo")).cached is other_tenant


async def test_bound_arguments_are_part_of_the_question():
    """Also where a result is shared by all: a tool that gets the user answers for the user."""
    made = catalogue(Counting(), "all", bind={"owner": "{tenant}/{user_id}"})
    await made.start()
    assert (await ask(made, asked_by("ann"), city="Oslo")).text == "look 1"
    assert (await ask(made, asked_by("bob"), city="Oslo")).text == "look 2"
    assert (await ask(made, asked_by("ann"), city="Oslo")).cached


async def test_a_result_is_kept_for_its_time():
    now = 0.0
    made = catalogue(Counting(), seconds=10.0, clock=lambda: now)
    await ask(made, asked_by("ann"))
    now = 9.9
    assert (await ask(made, asked_by("ann"))).cached
    now = 10.0
    assert not (await ask(made, asked_by("ann"))).cached


async def test_failures_and_shortened_results_are_not_kept():
    failing = Counting(fails=True)
    made = catalogue(failing)
    await ask(made, asked_by("ann"))
    await ask(made, asked_by("ann"))
    assert len(failing.calls) == 2

    class Long(Counting):
        async def call(self, name, arguments, context):
            self.calls.append(name)
            return ToolResult(content=context.shorten("x" * 100, 10))

    long = Long()
    made = catalogue(long)
    await ask(made, asked_by("ann"))
    assert not (await ask(made, asked_by("ann"))).cached


async def test_a_tool_with_approval_has_no_cache():
    tools = Counting("look", "delete")
    made = catalogue(tools, cache={"*": CacheRule(seconds=60)}, approval={"delete": Approval.ALWAYS})
    await made.start()
    for _ in range(2):
        await ask(made, asked_by("ann"), "delete")
        await ask(made, asked_by("ann"), "look")
    assert [name for name, _ in tools.calls] == ["delete", "look", "delete"]
    named = catalogue(Counting("delete"), cache={"delete": CacheRule(seconds=60)}, approval={"delete": Approval.ALWAYS})
    with pytest.raises(StartError, match="needs approval"):
        await named.start()


async def test_a_name_that_fits_no_tool_is_a_mistake():
    with pytest.raises(StartError, match="lok"):
        await catalogue(Counting(), cache={"lok": CacheRule(seconds=60)}).start()


def test_the_cache_is_bounded():
    cache = ResultCache()
    for number in range(MAX_RESULTS + 100):
        cache.put((str(number),), ToolResult(content="x"), 60.0)
    assert len(cache._kept) == MAX_RESULTS
    assert cache.get(("0",)) is None
    for number in range(50):
        cache.put((f"big {number}",), ToolResult(content="x" * 1_000_000), 60.0)
    assert cache._size <= 16_000_000
    cache.put(("huge",), ToolResult(content="x" * 2_000_000), 60.0)
    assert cache.get(("huge",)) is None


async def test_arguments_that_json_cannot_write_are_never_kept():
    tools = Counting()
    made = catalogue(tools)
    for _ in range(2):
        await ask(made, asked_by("ann"), city=object())
    assert len(tools.calls) == 2


AGENT = """
name: a
model: {provider: demo}
tools:
  - {name: look, type: function, file: tools.py, cache: {seconds: 60, per: tenant}%s}
"""


async def started(tmp_path, more=""):
    from holodeck.config.build import build_agent
    from holodeck.config.load import load_config

    (tmp_path / "tools.py").write_text('def look(city: str) -> str:\n    """Looks."""\n    return city\n')
    (tmp_path / "agent.yaml").write_text(AGENT % more)
    agent = build_agent(load_config(tmp_path / "agent.yaml", environment={}))
    await agent.tools.start()
    return agent


async def test_an_agent_file_turns_it_on(tmp_path):
    agent = await started(tmp_path)
    await ask(agent.tools, asked_by("ann"), city="Oslo")
    assert (await ask(agent.tools, asked_by("bob"), city="Oslo")).cached
    await agent.close()


async def test_an_agent_file_cannot_cache_what_a_person_approves(tmp_path):
    with pytest.raises(StartError, match="approval"):
        await started(tmp_path, ", approval: always")


async def test_a_hit_is_in_the_event():
    from holodeck.core.events import ToolFinished
    from holodeck.models.scripted import calls, says
    from tests.agent.agent_fixture import AgentFixture

    fixture = AgentFixture(calls(("look", "{}")), calls(("look", "{}")), says("done"), tools=catalogue(Counting()))
    await fixture.play("look twice")
    assert [event.cached for event in fixture.emitted(ToolFinished)] == [False, True]
