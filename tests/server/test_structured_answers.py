"""An agent with a response_format over every wire, from a file and from Python."""

import json

import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.agent.structured_output import OutputType
from holodeck.config.build import build_agent
from holodeck.config.load import load_config
from holodeck.config.service import AgentConfiguration, run_agent
from holodeck.errors import ConfigError
from holodeck.models.scripted import ScriptedModel, says
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools
from tests.models.endpoint import ModelEndpoint, text_stream
from tests.scenarios.wire_clients import AGENT, named
from tests.server.serving import ask, served
from tests.wires.sse_parsers import whatwg

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
VALUE = {"city": "Bonn"}
EVERYTHING = ServerSettings(protocols=tuple(WIRES))


async def agui(s):
    async with s.post(ask("Where?")) as answer:
        return json.loads(list(whatwg(await answer.read()))[-1].data)["result"]["output"]


async def rest(s):
    async with s.post({"message": "Where?"}, f"/agent/{AGENT}/chat") as answer:
        return (await answer.json())["output"]


async def rest_stream(s):
    async with s.post({"message": "Where?"}, f"/agent/{AGENT}/chat/stream") as answer:
        return named(await answer.read())[-1][1]["output"]


async def chat_stream(s):
    async with s.post({"input": "Where?"}, "/chat/stream") as answer:
        return named(await answer.read())[-1][1]["output"]


@pytest.mark.parametrize("wire", [agui, rest, rest_stream, chat_stream])
async def test_every_wire_gives_the_value(wire):
    model = ScriptedModel([says(json.dumps(VALUE))])
    agent = AgentDefinition(
        name=AGENT, model=model, tools=Catalogue.of(PlainTools()), output=OutputType.of_schema(SCHEMA)
    )
    async with served(agent=agent, settings=EVERYTHING) as s:
        assert await wire(s) == VALUE


async def test_python_gives_the_value():
    async with ModelEndpoint(text_stream(json.dumps(VALUE))) as endpoint:
        config = AgentConfiguration(api_base_url=endpoint.url, api_key="k", model_name="m")
        response = await run_agent([{"role": "user", "content": "Where?"}], "ada", config, output_type=SCHEMA)
    assert response.output == VALUE
    assert endpoint.requests[0].json["response_format"]["json_schema"]["schema"] == SCHEMA


START = "name: a\nmodel: {provider: demo}\n"


def loaded(tmp_path, text):
    (tmp_path / "agent.yaml").write_text(START + text)
    return load_config(tmp_path / "agent.yaml")


@pytest.mark.parametrize("name", ["place.json", "place.yaml"])
def test_a_file_may_hold_the_schema(tmp_path, name):
    (tmp_path / name).write_text(json.dumps(SCHEMA))
    agent = build_agent(loaded(tmp_path, f"response_format: {name}\n"))
    assert agent.output is not None
    assert agent.output.schema.schema == SCHEMA


def test_the_schema_may_stand_in_the_file(tmp_path):
    agent = build_agent(loaded(tmp_path, f"response_format: {json.dumps(SCHEMA)}\n"))
    assert agent.output is not None
    assert agent.output.read('{"city": "Bonn"}')[0] == VALUE


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "response_format: {type: objekt}\n",
            "agent.yaml:3:18: response_format: is not a JSON Schema: 'objekt' is not valid",
        ),
        ("response_format: nothing.json\n", "agent.yaml:3:18: response_format: there is no file nothing.json"),
        ("response_format: list.json\n", "agent.yaml:3:18: response_format: list.json does not contain a JSON Schema"),
    ],
)
def test_a_schema_that_is_none_is_reported_at_its_line(tmp_path, text, problem):
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ConfigError) as caught:
        build_agent(loaded(tmp_path, text))
    assert problem in caught.value.message
