"""Agents in Python programs: asked, streamed, resumed, with functions as tools, without a file and from one."""

import asyncio
import inspect
import subprocess
import sys
from dataclasses import dataclass

import pytest

import holodeck
from holodeck import Agent, Reply, errors, events
from holodeck.core.events import Outcome
from holodeck.models.scripted import Turn
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from holodeck.testing import ScriptedModel, calls, says
from tests.agent.agent_fixture import PlainTools

PUBLIC = [
    "Agent", "AgentConfiguration", "AgentContext", "AgentLoopConfig", "AgentResponse", "Conversation", "Listener", "Model",
    "ModelReply", "Prompt", "Reply", "SessionStore", "SystemPrompt", "ToolBinding", "ToolContext", "ToolResult",
    "ToolSchema", "Toolset", "__version__", "create_app", "errors", "events", "get_default_config", "load", "load_agent", "run", "run_agent", "testing",
]  # fmt: skip


def convert(miles: float) -> str:
    """Converts miles to kilometres."""
    return f"{miles * 1.609344:.1f} km"


async def greet(name: str, user_id: str = "") -> str:
    """Greets a person by name."""
    await asyncio.sleep(0)
    return f"Hello {name}"


def test_the_public_names_are_these_and_no_others():
    assert dir(holodeck) == sorted(PUBLIC)
    assert sorted(holodeck.__all__) == sorted(PUBLIC)
    assert all(getattr(holodeck, name) is not None for name in PUBLIC)
    with pytest.raises(AttributeError, match="no 'agent_of'"):
        _ = holodeck.agent_of


def test_importing_the_package_is_cheap():
    code = "import holodeck, sys; print([m for m in ('pydantic', 'uvicorn', 'anyio') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.req("USE-03")
async def test_ask_calls_functions_and_answers():
    model = ScriptedModel([calls(("convert", '{"miles": 5}'), ("greet", '{"name": "Ann"}')), says("Done.")])
    async with Agent(model, "You convert for {user_id}.", [convert, greet]) as agent:
        reply = await agent.ask("5 miles?", user_id="ann")
    assert str(reply) == reply.text == "Done."
    assert {each.result for each in reply.tools} == {"8.0 km", "Hello Ann"}
    assert (reply.waits, reply.outcome) == (False, Outcome.COMPLETED)
    assert "You convert for ann." in (model.prompts[0].system or "")
    assert reply.model == "scripted"


async def test_an_output_type_makes_the_answer_a_value():
    @dataclass
    class City:
        name: str
        people: int

    model = ScriptedModel([says("Bonn, I think."), says('{"name": "Bonn", "people": 330000}')])
    async with Agent(model, output_type=City) as agent:
        reply = await agent.ask("Which city?")
    assert reply.output == City("Bonn", 330_000)
    assert reply.text == '{"name": "Bonn", "people": 330000}'


async def test_a_session_continues_and_users_do_not_meet():
    model = ScriptedModel([says("one"), says("two"), says("three")])
    async with Agent(model) as agent:
        first = await agent.ask("a", user_id="ann")
        await agent.ask("b", session=first.session, user_id="ann")
        await agent.ask("c", session=first.session, user_id="bob")
    assert [len(prompt.messages) for prompt in model.prompts] == [1, 3, 1]


@pytest.mark.req("USE-03")
async def test_stream_gives_every_event_and_leaving_it_stops_the_run():
    gate = asyncio.Event()
    model = ScriptedModel([says("a b c"), Turn(text=["x"] * 3, pause=lambda: asyncio.ensure_future(gate.wait()))])
    async with Agent(model) as agent:
        seen = [event async for event in agent.stream("go")]
        assert isinstance(seen[0], events.RunStarted)
        assert "".join(each.delta for each in seen if isinstance(each, events.TextAdded)) == "a b c"
        assert isinstance(seen[-1], events.RunFinished)
        stream = agent.stream("go")
        async for event in stream:
            if isinstance(event, events.TextAdded):
                break
        await stream.aclose()
        await asyncio.wait_for(asyncio.shield(asyncio.gather(*(run.done() for run in agent._runs.active))), 30)
        assert agent._runs.active == []


@pytest.mark.parametrize(
    ("decision", "carried_out"),
    [(True, ["8.0 km"]), (False, []), (lambda question: question.tool == "convert", ["8.0 km"])],
)
async def test_approvals_are_answered_from_python(decision, carried_out):
    model = ScriptedModel([calls(("convert", '{"miles": 5}')), says("Done.")])
    async with Agent(model, tools=[convert], approve=["convert"]) as agent:
        waiting = await agent.ask("5 miles?")
        assert (waiting.waits, waiting.outcome) == (True, Outcome.INTERRUPTED)
        assert waiting.interrupts[0].tool == "convert"
        decided = await agent.resume(waiting.session, {waiting.interrupts[0].id: decision is not False})
        assert decided.text == "Done."
    model = ScriptedModel([calls(("convert", '{"miles": 5}')), says("Done.")])
    async with Agent(model, tools=[convert], approve=["*"]) as agent:
        reply = await agent.ask("5 miles?", approve=decision)
    assert reply.text == "Done."
    results = [message.content for message in model.prompts[-1].messages if message.__class__.__name__ == "ToolMessage"]
    assert [text for text in results if text == "8.0 km"] == carried_out


async def test_an_approval_that_is_not_true_is_a_refusal():
    model = ScriptedModel([calls(("convert", '{"miles": 5}')), says("Done.")])
    async with Agent(model, tools=[convert], approve=["convert"]) as agent:
        reply = await agent.ask("5 miles?", approve=lambda question: "no")  # type: ignore[arg-type, return-value]
    assert reply.tools == () or all(each.result != "8.0 km" for each in reply.tools)


async def test_failures_are_raised_with_their_class():
    async with Agent(ScriptedModel([Turn(error=errors.ModelUnavailable("away"))])) as agent:
        with pytest.raises(errors.ModelUnavailable, match="away"):
            await agent.ask("hello")
        with pytest.raises(errors.InvalidRequest, match="non-empty"):
            await agent.ask("  ")
        with pytest.raises(errors.InvalidRequest, match="cannot be read"):
            await agent.ask("read this", files=["nowhere.txt"])


async def test_cancelling_ask_stops_the_run():
    gate = asyncio.Event()
    model = ScriptedModel([Turn(text=["x"], pause=lambda: asyncio.ensure_future(gate.wait()))])
    async with Agent(model) as agent:
        asking = asyncio.create_task(agent.ask("hello"))
        while not agent._runs.active or not model.prompts:
            await asyncio.sleep(0)
        (run,) = agent._runs.active
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await run.done()
        assert run.state == "cancelled"


async def test_files_reach_the_model(tmp_path):
    (tmp_path / "notes.txt").write_text("the secret word is heron")
    model = ScriptedModel([says("ok")])
    async with Agent(model) as agent:
        await agent.ask("summarise", files=[tmp_path / "notes.txt"])
    assert "heron" in str(model.prompts[0].messages[0].content)


async def test_the_agent_files_limits_hold_for_files(tmp_path):
    (tmp_path / "agent.yaml").write_text("name: a\nmodel: {provider: demo}\nfiles: {max_files: 1}\n")
    (tmp_path / "notes.txt").write_text("a heron")
    async with await holodeck.load(tmp_path / "agent.yaml") as agent:
        with pytest.raises(errors.HoloDeckError, match="1 is the limit"):
            await agent.ask("summarise", files=[tmp_path / "notes.txt"] * 2)


def test_ask_sync_works_twice_without_a_loop():
    agent = Agent(ScriptedModel([says("one"), says("two")]))
    try:
        first = agent.ask_sync("a")
        assert agent.ask_sync("b", session=first.session).text == "two"
    finally:
        agent.close_sync()


def test_a_program_ends_that_does_not_close_the_agent_it_asked():
    program = """
from holodeck import Agent
from holodeck.testing import ScriptedModel, says

agent = Agent(ScriptedModel([says("Hello.")]))
print(agent.ask_sync("Hi"))
raise SystemExit(7)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (7, "Hello.\n", "")


async def test_load_takes_a_file_with_other_model_tools_and_variables(tmp_path):
    (tmp_path / "agent.yaml").write_text(
        "name: helper\nmodel: {provider: gemini, name: x, api_key: '${KEY_OF_TEST}'}\ninstructions: Hi.\n"
    )
    model = ScriptedModel([calls(("convert", '{"miles": 5}')), says("Done.")])
    agent = await holodeck.load(tmp_path / "agent.yaml", model=model, tools=[convert], variables={"KEY_OF_TEST": "k"})
    async with agent:
        assert (agent.name, (await agent.ask("5 miles?")).text) == ("helper", "Done.")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Agent(None), "model is None; write provider/name"),
        (lambda: Agent("nonsense"), "provider/name, e.g. openai/nonsense"),
        (lambda: Agent("openai"), "provider/name, e.g. openai/gpt-5"),
        (lambda: Agent("opnai/gpt-5"), "there is no provider 'opnai'; did you mean openai?"),
        (lambda: Agent("foo/gpt-5"), "there is no provider 'foo'; known are openai"),
        (lambda: Agent("dmeo"), "names no provider; did you mean demo?"),
        (lambda: Agent("demo", settings={"lop": {}}), "loop"),
        (lambda: Agent("demo", tools=[lambda x: x]), "has no type"),
        (lambda: Agent("demo", tools=[3]), "tools: int is not a tool; pass a function, a ToolBinding or a Toolset"),
        (
            lambda: Agent("openai/gpt-5"),
            '^model.api_key: set OPENAI_API_KEY in the environment or in .env of this folder .or use the model "demo"',
        ),
        (lambda: Agent("demo", name="a/b"), "^name: may hold letters"),
        (lambda: Agent("demo", settings={"loop": {"max_iterations": "x"}}), "^loop.max_iterations: must be a whole"),
    ],
)
def test_misuse_is_a_sentence_without_a_position_in_a_file(monkeypatch, make, sentence):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(errors.ConfigError, match=sentence):
        make()


async def test_bad_arguments_of_ask_are_explained():
    agent = Agent("demo", tools=[convert], approve="convert")
    for options, sentence in (
        ({"session": "x" * 129}, "session must have 1 to 128 printable characters"),
        ({"timezone": "Mars/Olympus"}, "timezone must be an IANA name"),
        ({"files": ["nope.pdf"]}, "nope.pdf cannot be read"),
        ({"files": "nope.pdf"}, "nope.pdf cannot be read"),
        ({"user_id": 5}, r"user_id must be a string, e.g. str\(user.id\), not int"),
        ({"user_id": None}, "user_id must be a string"),
        (
            {"session": Reply(text="", session="s", run_id="r")},
            "session must be a string, e.g. reply.session, not Reply",
        ),
    ):
        with pytest.raises(errors.InvalidRequest, match=sentence):
            await agent.ask("hi", **options)
    assert (await agent.ask("convert miles=5")).waits, "one name is one tool, not its letters"
    with pytest.raises(errors.InvalidRequest, match="session must be a string"):
        await agent.resume(await agent.ask("convert miles=5"), {"x": True})
    await agent.close()
    with pytest.raises(errors.InvalidRequest, match="This agent is closed"):
        await agent.ask("hi")


async def test_a_file_that_is_missing_gets_advice_for_python(tmp_path):
    with pytest.raises(errors.ConfigError, match=r"no such file; give the path .* holodeck\.Agent"):
        await holodeck.load(tmp_path / "nope.yaml")


def test_every_public_callable_has_a_docstring():
    missing = [name for name in PUBLIC if inspect.isroutine(each := getattr(holodeck, name)) and not each.__doc__]
    assert missing == []


class CountedTools(PlainTools):
    """Tools that take a moment to start, and count how often they were started."""

    starts = 0

    async def start(self):
        self.starts += 1
        await asyncio.sleep(0)


async def test_first_questions_that_come_together_start_the_tools_once():
    tools = CountedTools()
    agent = Agent(ScriptedModel([says("yes")]), tools=[tools])
    await asyncio.gather(*(agent.ask("ready?") for _ in range(3)))
    await agent.close()
    assert tools.starts == 1


async def test_an_answer_to_a_question_of_an_earlier_process_can_be_the_first_thing(tmp_path):
    turns, saved = [calls(("convert", '{"miles": 5}')), says("Done.")], tmp_path / "sessions.db"

    def agent_on_file(*replies):
        return Agent(
            ScriptedModel(replies),
            tools=[convert],
            approve=["convert"],
            store=SqliteSessionStore(SqliteFile(saved), "a"),
        )

    async with agent_on_file(turns[0]) as agent:
        waiting = await agent.ask("5 miles?")
    agent = agent_on_file(turns[1])
    reply = await agent.resume(waiting.session, {each.id: True for each in waiting.interrupts})
    await agent.close()
    assert (reply.text, [each.result for each in reply.tools]) == ("Done.", ["8.0 km"])
