"""`run_agent`: the whole agent in one call, against an endpoint that speaks the real wire."""

import ast
import inspect
import json

import pytest
from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from holodeck import (
    AgentConfiguration,
    AgentLoopConfig,
    AgentResponse,
    SystemPrompt,
    ToolBinding,
    get_default_config,
    run_agent,
)
from holodeck.agent import settings
from holodeck.config import service
from holodeck.core.events import TextAdded
from holodeck.errors import InvalidRequest
from holodeck.tools.functions import FunctionTool, FunctionToolset
from tests.models.endpoint import ModelEndpoint, status, stream, text_frames, tool_call_frames

KEY = "sk-never-show-this-0123456789"
HELLO = [{"role": "user", "content": "Show me my tasks"}]


def configured(endpoint, **fields):
    return AgentConfiguration(api_base_url=endpoint.url, api_key=KEY, model_name="m", **fields)


def binding(function, **properties):
    schema = {"name": function.__name__, "parameters": {"type": "object", "properties": properties}}
    return ToolBinding(
        tool_name=function.__name__,
        openai_function_schema={"type": "function", "function": schema},
        mcp_tool_reference=function,
    )


@pytest.mark.req("AGT-01", "AGT-02")
async def test_it_answers_and_returns_the_whole_conversation():
    received = []
    async with ModelEndpoint(stream(*text_frames("You have ", "none."))) as endpoint:
        response = await run_agent(HELLO, "ada", configured(endpoint, temperature=0.5), emit=received.append)
        sent = endpoint.requests[0].json
    assert isinstance(response, AgentResponse)
    assert (response.status, response.final_response) == ("completed", "You have none.")
    assert (response.iterations, response.finish_reason, response.error) == (1, "completed", None)
    assert response.messages == [*HELLO, {"role": "assistant", "content": "You have none."}]
    assert "".join(event.delta for event in received if isinstance(event, TextAdded)) == "You have none."
    assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("m", 0.5, 1000)
    assert sent["messages"][0]["role"] == "system"
    assert "'ada'" in sent["messages"][0]["content"]


@pytest.mark.req("AGT-03")
@pytest.mark.parametrize(
    ("refusal", "advice"),
    [
        (status(401), "Check api_key of AgentConfiguration."),
        (status(302, headers={"Location": "http://elsewhere"}), "set api_base_url of AgentConfiguration"),
    ],
)
async def test_advice_names_what_a_caller_can_set(refusal, advice):
    """A program has neither an agent file nor an OPENAI_API_KEY."""
    async with ModelEndpoint(refusal) as endpoint:
        response = await run_agent(HELLO, "ada", configured(endpoint))
    assert advice in response.error
    assert "model." not in response.error
    assert "OPENAI_API_KEY" not in response.error


@pytest.mark.req("AGT-05", "AGT-07")
@pytest.mark.parametrize(
    "arguments",
    [
        '{"user_id": "bob"}',
        '{"user_id": null}',
        '{"user_id": ["bob"]}',
        '{"user_id": {"$ne": "ada"}}',
        '{"USER_ID": "bob"}',
        '{"user_id ": "bob"}',
        '{"userId": "bob"}',
        '{"user": "bob", "user_id": "bob"}',
        '{"status": "all", "user_id": "bob\\u0000"}',
        '{"kwargs": {"user_id": "bob"}}',
    ],
)
async def test_a_probe_for_another_users_tasks_gets_none(arguments):
    asked = []

    async def list_tasks(user_id: str, status: str = "all", **others: object) -> str:
        asked.append((user_id, others.get("user_id")))
        return "nothing"

    tool = binding(list_tasks, user_id={"type": "string"}, status={"type": "string"})
    answers = stream(*tool_call_frames(("c1", "list_tasks", arguments))), stream(*text_frames("There are none."))
    async with ModelEndpoint(*answers) as endpoint:
        await run_agent(HELLO, "ada", configured(endpoint), tools=[tool])
        offered = endpoint.requests[0].json["tools"][0]["function"]["parameters"]
    assert "user_id" not in offered["properties"]
    assert all(user == "ada" and other is None for user, other in asked)


@pytest.mark.req("AGT-04")
async def test_the_loop_stops_at_its_limit():
    async def tick() -> str:
        return "tock"

    async with ModelEndpoint(stream(*tool_call_frames(("c1", "tick", "{}")))) as endpoint:
        response = await run_agent(
            HELLO, "ada", configured(endpoint), tools=[binding(tick)], loop=AgentLoopConfig(max_iterations=2)
        )
        assert len(endpoint.requests) == 2
    assert response.status == "max_iterations_reached"
    assert response.warning
    roles = [message["role"] for message in response.messages]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]


@pytest.mark.req("AGT-01", "A20")
async def test_a_refused_key_is_in_the_response_and_not_in_its_text():
    refusal = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}}).encode()
    async with ModelEndpoint(status(401, refusal)) as endpoint:
        response = await run_agent(HELLO, "ada", configured(endpoint))
    assert (response.status, response.error_code, response.final_response) == ("error", "model-error", None)
    assert KEY not in repr(response)
    assert KEY not in repr(configured(endpoint))


@pytest.mark.req("AGT-01")
@pytest.mark.parametrize(
    ("history", "user"),
    [
        ([], "ada"),
        ("hi", "ada"),
        ([1], "ada"),
        (HELLO, None),
        (HELLO, " "),
        ([{"role": "wizard", "content": "x"}], "ada"),
        ([{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "t", "arguments": "{}"}}]}], "ada"),
    ],
)
async def test_misuse_raises(history, user):
    with pytest.raises(InvalidRequest):
        await run_agent(history, user, AgentConfiguration(api_key=KEY))


@pytest.mark.req("AGT-02")
def test_the_configuration_has_the_promised_defaults(monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    config = AgentConfiguration()
    assert "generativelanguage.googleapis.com" in config.api_base_url
    assert (config.model_name, config.temperature, config.max_tokens, config.timeout) == (
        "gemini-2.5-flash", 1.0, 1000, 30,
    )  # fmt: skip
    assert config.api_key.get_secret_value() == KEY
    assert KEY not in f"{config!r} {config}"


@pytest.mark.req("AGT-02")
@pytest.mark.parametrize(
    "fields",
    [{"temperature": 1.1}, {"temperature": -0.1}, {"max_tokens": 0}, {"timeout": 0}, {"api_key": ""},
     {"api_base_url": "not a url"}, {"nonsense": 1}],
)  # fmt: skip
def test_a_bad_configuration_is_refused(fields):
    with pytest.raises(ValidationError):
        AgentConfiguration(**{"api_key": KEY} | fields)


def test_a_missing_key_says_which_variable_to_set(monkeypatch):
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    with pytest.raises(ValidationError, match="GEMINI_API_KEY"):
        AgentConfiguration()


@pytest.mark.req("AGT-03")
async def test_a_prompt_of_ones_own_reaches_the_model():
    prompt = SystemPrompt(role_definition="You are a gardener's diary.")
    async with ModelEndpoint(stream(*text_frames("ok"))) as endpoint:
        await run_agent(HELLO, "ada", configured(endpoint), prompt=prompt)
        assert endpoint.requests[0].json["messages"][0]["content"].startswith("You are a gardener's diary.")


@pytest.mark.req("AGT-03")
async def test_a_text_is_the_whole_prompt():
    async with ModelEndpoint(stream(*text_frames("ok"))) as endpoint:
        await run_agent(HELLO, "ada", configured(endpoint), prompt="You are a pirate. {user_id}")
        received = endpoint.requests[0].json["messages"][0]["content"]
    assert received.startswith("You are a pirate. {user_id}\n\nIt is ")
    assert "task" not in received


def test_type_checkers_see_the_defaults():
    """They take no positional argument of Field for a default, and no text for a SecretStr."""
    for file in (service, settings):
        calls = [node for node in ast.walk(ast.parse(inspect.getsource(file))) if isinstance(node, ast.Call)]
        fields = [call for call in calls if getattr(call.func, "id", "") == "Field"]
        assert len(fields) > 5
        assert [ast.unparse(field) for field in fields if field.args] == []
    assert "api_key: str | SecretStr = ..." in inspect.getsource(AgentConfiguration)


class TestTools:
    """The document's usage example, with tools of every kind."""

    @staticmethod
    async def list_tasks(user_id: str, status: str = "all") -> str:
        """Lists the user's tasks."""
        return f"{user_id} has 2 tasks ({status})"

    @pytest.mark.req("AGT-05", "AGT-07")
    @pytest.mark.parametrize("kind", ["function", "toolset"])
    async def test_functions_and_toolsets_are_tools_and_the_runtime_fills_in_the_user(self, kind):
        tool = self.list_tasks if kind == "function" else FunctionToolset([FunctionTool.of(self.list_tasks)])
        answers = stream(*tool_call_frames(("c1", "list_tasks", '{"user_id": "bob"}'))), stream(*text_frames("Two."))
        async with ModelEndpoint(*answers) as endpoint:
            response = await run_agent(HELLO, "ada", configured(endpoint), tools=[tool])
            offered = endpoint.requests[0].json["tools"][0]["function"]
        assert (offered["name"], list(offered["parameters"]["properties"])) == ("list_tasks", ["status"])
        assert response.executions[0].result == "ada has 2 tasks (all)"

    @pytest.mark.req("AGT-03")
    async def test_the_prompt_speaks_of_tools_only_if_there_are_some(self):
        async with ModelEndpoint(stream(*text_frames("Hi.")), stream(*text_frames("Hi."))) as endpoint:
            await run_agent(HELLO, "ada", configured(endpoint))
            await run_agent(HELLO, "ada", configured(endpoint), tools=[self.list_tasks])
            without, with_tools = (each.json["messages"][0]["content"] for each in endpoint.requests)
        assert "You have no tools in this conversation." in without
        assert "Use the tools" not in without
        assert "Use the tools" in with_tools
        for limit in ("under 200 words", "what the user can do next", "Help with tasks only."):
            assert limit in with_tools


@pytest.mark.req("AGT-03")
async def test_a_user_id_is_never_a_template():
    async with ModelEndpoint(stream(*text_frames("Hi."))) as endpoint:
        await run_agent(HELLO, "{now}{timezone}", configured(endpoint))
        assert "'{now}{timezone}'" in endpoint.requests[0].json["messages"][0]["content"]


@pytest.mark.req("AGT-01")
async def test_a_response_can_be_serialised():
    class Answer(BaseModel):
        response: AgentResponse

    async with ModelEndpoint(stream(*text_frames("You have none."))) as endpoint:
        response = await run_agent(HELLO, "ada", configured(endpoint))
    result = json.loads(response.model_dump_json())
    assert to_jsonable_python(response) == result == dict(Answer(response=response).model_dump(mode="json"))["response"]
    assert (result["status"], result["final_response"], result["outcome"]) == (
        "completed",
        "You have none.",
        "completed",
    )
    assert result["messages"] == response.messages == [*HELLO, {"role": "assistant", "content": "You have none."}]
    assert AgentResponse.model_json_schema(mode="serialization")["properties"]["messages"]["type"] == "array"


@pytest.mark.req("AGT-02")
def test_the_default_configuration(monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", "k-123")
    assert get_default_config() == AgentConfiguration(api_key="k-123")


@pytest.mark.req("AGT-01")
@pytest.mark.parametrize(
    ("history", "config", "field", "sentence"),
    [
        (HELLO, {"api_key": "k"}, "config", "must be an AgentConfiguration, not dict"),
        ([{"role": "user", "content": "   "}], None, "message_history", "is blank"),
        ([*HELLO, {"role": "assistant", "content": "Hi."}], None, "message_history", "nothing to answer"),
    ],
)
async def test_misuse_is_a_sentence(history, config, field, sentence):
    with pytest.raises(InvalidRequest, match=sentence) as refused:
        await run_agent(history, "ada", config)
    assert refused.value.field == field


async def test_a_prompt_that_is_none_is_a_sentence():
    with pytest.raises(InvalidRequest, match="prompt must be a SystemPrompt or a string, not list"):
        await run_agent(HELLO, "ada", AgentConfiguration(api_key=KEY), prompt=["You are a pirate"])
