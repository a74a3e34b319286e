"""Rows B03 to B20: what an MCP server can do to us while it runs. Nothing of it may end a run: the model gets an error.

Every play also holds the server's own journal against what the model asked for: no call is carried out twice (I5).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.faults.planned_endpoint import tool_results
from tests.faults.scenario import FaultScenario, Turn
from tests.faults.server_process import until
from tests.models.endpoint import text_stream, tool_call_stream

OVER = "over"
MORE_MEMORY = 24.0  # MiB that a bad answer may cost a server for a moment: a read buffer, a batch of a log


@dataclass(frozen=True)
class Bad:
    """A call that goes wrong, or does not: `says` is in the result that the model reads."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    says: str = ""
    failed: bool | None = True
    carried_out: int = 1


def bad_utf8(random: Random) -> Bad:
    noise = random.choice(["\xff", "\xc3(", "caf\xe9"])
    reply = f'{{"jsonrpc":"2.0","id":ID,"result":{{"content":[{{"type":"text","text":"{noise}"}}]}}}}\n'
    return Bad("raw", {"bytes": reply}, failed=None)


def crash(random: Random) -> Bad:
    return Bad(random.choice(["crash", "segfault"]))


def hang(_random: Random) -> Bad:
    return Bad("hang", says="did not answer")


def enormous(random: Random) -> Bad:
    return Bad("big", {"size": 50_000_000, "id_last": random.random() < 0.5}, says="too_large")


def picture(_random: Random) -> Bad:
    return Bad("image", says="image/png", failed=False)


def honest_error(_random: Random) -> Bad:
    return Bad("error", says="no such todo")


def twice(_random: Random) -> Bad:
    return Bad("twice", says="first", failed=False)


RESULTS = (
    {"content": "x"},
    {"content": [1]},
    {"content": [{"type": "text"}]},
    {"content": [{"type": "video", "data": ""}]},
    {"content": [], "isError": "perhaps"},
    {"content": None},
    {"content": [], "structuredContent": "text"},
)


def against_the_schema(random: Random) -> Bad:
    return Bad("content", {"result": random.choice(RESULTS)}, says="breaks the MCP schema")


WEB = (
    Bad("cut"),
    Bad("html"),
    Bad("accepted"),
    Bad("status", {"status": 401}),
    Bad("status", {"status": 500}),
    Bad("status", {"status": 404}, carried_out=2),  # a session may be forgotten: begun anew once
    Bad("elsewhere", {"to": "http://127.0.0.1:9/mcp"}, says="not followed"),
    Bad("short"),
    Bad("reset"),
    Bad("big_json", says="too_large"),
    Bad("big_event"),
    Bad("zipped"),
    Bad("garbage"),
    Bad("retry", says="did not answer"),
    Bad("noisy", says="after", failed=False),
)


def web(random: Random) -> Bad:
    return random.choice(WEB)


def asks_back(random: Random) -> Bad:
    method = random.choice(["sampling/createMessage", "elicitation/create", "roots/list"])
    return Bad("ask", {"method": method}, says="asked", failed=False)


def stderr_flood(_random: Random) -> Bad:
    return Bad("flood_stderr", {"megabytes": 20}, failed=None)


def hostile_text(random: Random) -> Bad:
    escape = (
        '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\\u001b]52;c;x\\u0007\\u001b[2J"}]}}\n'
    )
    deep = Bad("deep", {"depth": random.choice([100, 300_000])}, failed=None)
    return random.choice([deep, Bad("raw", {"bytes": escape}, failed=False)])


CASES: dict[str, Callable[[Random], Bad]] = {
    "B04": bad_utf8,
    "B05": crash,
    "B06": hang,
    "B09": enormous,
    "B11": picture,
    "B12": honest_error,
    "B13": twice,
    "B14": against_the_schema,
    "B16": web,
    "B17": asks_back,
    "B19": stderr_flood,
    "B20": hostile_text,
}


async def call(scenario: FaultScenario, tool: str, arguments: dict[str, Any]) -> tuple[Turn, str]:
    """The model asks for one call, and then says that it is over. Returns the results that it was sent."""
    asked = tool_call_stream(("call-1", tool, json.dumps(arguments)))
    turn = scenario.turn(asked, text_stream(OVER), words="call it ")
    view = await scenario.finish(turn)
    assert view.ending == "finished", f"a tool ended the run: {view}"
    assert view.text == OVER, f"said {view.text!r}"
    assert len(turn.plan.requests) == 2, f"asked {len(turn.plan.requests)} times"
    return turn, tool_results(turn.plan.requests[1])[-1]


async def tool_misbehaves(scenario: FaultScenario) -> None:
    bad = CASES[scenario.kind](scenario.random)
    before, memory = scenario.tools.calls(), scenario.server.rss()
    turn, results = await call(scenario, bad.tool, bad.arguments)
    grown = scenario.server.rss() - memory
    scenario.figures["RSS growth MiB"] = grown
    assert turn.view is not None
    assert bad.says in results, f"the model heard {results!r}"
    if bad.failed is not None:
        assert [*turn.view.results.values()] == [bad.failed], f"the client heard {turn.view.results}: {results!r}"
    assert grown < MORE_MEMORY, f"{grown:.0f} MiB more"
    carried_out = (scenario.tools.calls() - before)[bad.tool]
    assert carried_out == bad.carried_out, f"I5: carried out {carried_out} times"
    if scenario.kind == "B06":
        await until(lambda: "notifications/cancelled" in scenario.tools.journal.read_text(), 3, "the cancellation")
    _, again = await call(scenario, "echo", {"still": "here"})
    assert "here" in again, f"the server is not usable any more: {again}"


async def many_calls_at_once(scenario: FaultScenario) -> None:
    """B18: more than are sent at a time; every one is answered, in its own name."""
    calls = tuple((f"call-{n}", "echo", json.dumps({"number": n})) for n in range(20))
    before = scenario.tools.calls()
    turn = scenario.turn(tool_call_stream(*calls), text_stream(OVER))
    view = await scenario.finish(turn)
    assert (view.ending, view.text) == ("finished", OVER), view
    results = tool_results(turn.plan.requests[1])
    assert results == [arguments for _, _, arguments in calls], f"mixed up: {results}"
    carried_out = (scenario.tools.calls() - before)["echo"]
    assert carried_out == len(calls), f"I5: {len(calls)} calls were carried out {carried_out} times"
    await scenario.continues()
