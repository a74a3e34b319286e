"""ToolBinding: the seed's three fields, what is refused, and whose user_id a call carries."""

import pytest
from pydantic import ValidationError

from holodeck.agent.definition import AgentContext, AgentDefinition
from holodeck.agent.loop import run
from holodeck.agent.settings import AgentLoopConfig
from holodeck.core.messages import UserMessage
from holodeck.models.scripted import ScriptedModel, calls, says
from holodeck.tools.binding import ToolBinding, toolset_of
from holodeck.tools.catalogue import Catalogue
from holodeck.tools.port import ToolContext

ALICE = ToolContext(user_id="alice")


async def add_task(user_id: str, title: str = "") -> dict:
    return {"user": user_id, "title": title}


async def anything(**arguments: object) -> dict:
    return arguments


async def no_user(title: str = "") -> str:
    return title


def sync(user_id: str) -> str:
    return user_id


class AsyncObject:
    async def __call__(self, user_id: str) -> str:
        return user_id


def schema(name="add_task", *, user=True, **function):
    properties = {"title": {"type": "string"}, **({"user_id": {"type": "string"}} if user else {})}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": "Adds a task",
            "parameters": {"type": "object", "properties": properties, "required": list(properties)},
            **function,
        },
    }


def bind(reference=add_task, made=None, name="add_task"):
    return ToolBinding(tool_name=name, openai_function_schema=made or schema(), mcp_tool_reference=reference)


@pytest.mark.req("AGT-05", "AGT-07")
async def test_a_binding_is_a_tool_and_the_user_is_hidden():
    tools = toolset_of([bind()])
    (offered,) = tools.schemas()
    assert (offered.name, offered.description) == ("add_task", "Adds a task")
    assert offered.parameters == {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    result = await tools.call("add_task", {"title": "x"}, ALICE)
    assert result.text == '{"user":"alice","title":"x"}'


@pytest.mark.req("AGT-07")
@pytest.mark.parametrize("claimed", [{"user_id": "bob"}, {"user_id": None}, {"userId": "bob"}, {"USER_ID": ["bob"]}])
@pytest.mark.parametrize(("reference", "user_in_schema"), [(add_task, True), (add_task, False), (anything, True)])
async def test_the_runtime_decides_the_user(reference, user_in_schema, claimed):
    tools = toolset_of([bind(reference, schema(user=user_in_schema))])
    result = await tools.call("add_task", {"title": "x", **claimed}, ALICE)
    assert not result.failed
    assert "alice" in result.text
    assert "bob" not in result.text


@pytest.mark.parametrize(("reference", "user_in_schema"), [(no_user, True), (no_user, False), (anything, False)])
async def test_a_tool_that_takes_no_user_gets_none(reference, user_in_schema):
    tools = toolset_of([bind(reference, schema(user=user_in_schema))])
    result = await tools.call("add_task", {"title": "x", "user_id": "bob"}, ALICE)
    assert not result.failed
    assert "alice" not in result.text
    assert "bob" not in result.text


async def test_an_object_with_an_async_call_is_a_coroutine_function():
    assert (await toolset_of([bind(AsyncObject())]).call("add_task", {}, ALICE)).text == "alice"


async def test_a_failure_is_a_text():
    result = await toolset_of([bind()]).call("add_task", {"nonsense": 1}, ALICE)
    assert result.failed
    assert result.text.startswith("add_task failed: TypeError")


BAD = [
    ({"reference": "no callable"}, "callable"),
    ({"reference": sync}, "must be an async function; write 'async def'"),
    ({"made": {"function": {"name": "add_task"}}}, "must start with"),
    ({"made": {"type": "tool", "function": {"name": "add_task"}}}, "must start with"),
    ({"made": {"type": "function"}}, "valid dictionary"),
    ({"made": {"type": "function", "function": {}}}, "name"),
    ({"made": schema("add task")}, "pattern"),
    ({"made": schema(parameters={"type": "array"})}, "JSON Schema of an object"),
    ({"made": schema(description=5)}, "valid string"),
    ({"made": schema("other")}, "the schema is of 'other', the binding of 'add_task'"),
]


@pytest.mark.req("AGT-05")
@pytest.mark.parametrize(("fields", "sentence"), BAD, ids=[each[1] for each in BAD])
def test_a_binding_that_cannot_work_is_refused(fields, sentence):
    with pytest.raises(ValidationError, match=sentence):
        bind(**fields)


@pytest.mark.req("AGT-05")
def test_a_schema_may_leave_out_what_is_optional():
    (offered,) = toolset_of(
        [bind(made={"type": "function", "function": {"name": "add_task", "strict": True}})]
    ).schemas()
    assert offered.parameters == {"type": "object", "properties": {}}


@pytest.mark.req("AGT-04")
@pytest.mark.parametrize("error", [ConnectionError("refused"), TimeoutError("late"), ValueError("wrong")])
async def test_enable_retry_repeats_a_binding_that_could_not_connect_or_ran_out_of_time(error):
    called = []

    async def flaky(user_id: str) -> str:
        called.append(user_id)
        raise error

    described = {"type": "function", "function": {"name": "flaky", "parameters": {"type": "object", "properties": {}}}}
    tools = toolset_of([ToolBinding(tool_name="flaky", openai_function_schema=described, mcp_tool_reference=flaky)])
    agent = AgentDefinition(
        name="a",
        model=ScriptedModel([calls(("flaky", '{"user_id": "bob"}')), says("pity")]),
        tools=Catalogue.of(tools),
        loop=AgentLoopConfig(enable_retry=True, retry_attempts=2),
    )
    async with agent:
        context = AgentContext(user_id="ann", input=[UserMessage(content="go")])
        await run(agent, context, lambda _event: None)
    assert called == ["ann"] * (1 if isinstance(error, ValueError) else 3)
