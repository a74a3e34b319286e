"""A wire is one value: everything that knows the wires derives it from the list."""

import re
import threading

import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.cli.serve import command
from holodeck.errors import StartError
from holodeck.models.scripted import ScriptedModel
from holodeck.server.agent_server import AgentServer
from holodeck.server.app import Application
from holodeck.server.banner import banner
from holodeck.server.intake import DECODED_AT_ONCE
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES, wires_of
from holodeck.sessions.memory import MemorySessionStore
from holodeck.tools.catalogue import Catalogue
from holodeck.wires import body as body_module
from tests.agent.agent_fixture import PlainTools
from tests.clients.every_client import ASK
from tests.scenarios.wire_clients import CLIENTS
from tests.server.every_wire import QUESTIONS, SESSION, wires_in
from tests.server.serving import served
from tests.server.test_access_matrix import BODIES
from tests.server.test_server_reader_failures import ENDINGS
from tests.server.test_server_steering import PLACES

TABLES = {
    "QUESTIONS of tests/server/every_wire.py": wires_in(QUESTIONS),
    "CLIENTS of tests/scenarios/wire_clients.py": wires_in(CLIENTS),
    "ENDINGS of tests/server/test_server_reader_failures.py": wires_in(ENDINGS),
    "BODIES of tests/server/test_access_matrix.py": {
        name for name, wire in WIRES.items() if wire.endpoints[0][1] in BODIES
    },
    "PLACES of tests/server/test_server_steering.py": {
        name for name, wire in WIRES.items() if wire.path_of("tester") in {path for path, _ in PLACES.values()}
    },
    "ASK of tests/clients/every_client.py": {
        *ASK,
        "chat-stream",
    },  # chat-stream remembers nothing unless the file says so
}
EACH = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)


def test_the_command_line_offers_each():
    (protocol,) = [option for option in command.params if option.name == "protocols"]
    assert list(protocol.type.choices) == [*WIRES, "all"]
    assert protocol.default == ("ag-ui", "rest", "openai", "responses")


@EACH
def test_the_banner_shows_its_addresses_and_an_example(wire):
    text = banner(agent="a b", model="m", host="127.0.0.1", port=8000, wires=[wire], tools=0, colours=False)
    for label, path in wire.endpoints:
        assert re.search(f"{label} +http://127.0.0.1:8000{re.escape(path.format(name='a%20b'))}", text)
    assert f"-d '{wire.example}'" in text


@EACH
async def test_its_example_is_answered(wire):
    _, path = wire.endpoints[0]
    body = wire.example.replace("'$RANDOM'", "1").encode()
    settings = ServerSettings(protocols=(wire.name,))
    async with served(settings=settings) as s, s.post(body, path.format(name="tester")) as answer:
        assert answer.status == 200
        assert b"hello" in await answer.read()


@EACH
def test_only_the_wires_that_are_asked_for_are_served_and_described(wire):
    agent = AgentDefinition(name="tester", model=ScriptedModel([]), tools=Catalogue.of(PlainTools()))
    server = AgentServer(agent, MemorySessionStore(), settings=ServerSettings(protocols=(wire.name,)))
    document = Application(server).openapi()
    paths = document["paths"]
    for other in WIRES.values():
        for operation in other.operations:
            assert (operation.shown_path in paths) is (operation in wire.operations), operation.path
    references = re.findall(r"#/components/schemas/(\w+)", str(document))
    assert set(references) == set(document["components"]["schemas"]), "components of this wire only, and all of them"


@EACH
@pytest.mark.parametrize("table", TABLES)
def test_every_table_of_the_tests_has_it(wire, table):
    assert wire.name in TABLES[table], f'CONTRIBUTING.md, "A wire": add {wire.name} to {table}'


@EACH
def test_openapi_describes_its_answers(wire):
    """Without it the fuzzer calls every answer undocumented, seconds later and in more words."""
    for operation in wire.operations:
        assert any(str(status).startswith("2") for status in operation.responses), f"{operation.path}: responses="


def test_one_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(StartError, match="There is no protocol soap; there are ag-ui, rest"):
        wires_of(["rest", "soap"])


def test_files_may_be_posted_where_a_wire_takes_them():
    takes_files = [name for name, wire in WIRES.items() if any(each.takes_files for each in wire.operations)]
    assert takes_files == ["rest"]


@pytest.mark.parametrize(
    ("method", "path", "flag"),
    [("post", "/v1/responses", "responses"), ("get", "/v1/models", "openai"), ("post", "/agent/tester/chat", "rest")],
)
async def test_a_404_names_the_flag_that_turns_the_wire_on(method, path, flag):
    async with served(settings=ServerSettings(protocols=("ag-ui",))) as s:
        async with s.client.request(method, s.url + path, json={}) as answer:
            result = await answer.json(content_type=None)
        assert (answer.status, f"--protocol {flag}" in result["detail"]) == (404, True)
        assert ("error" in result) is path.startswith("/v1"), "in the form that clients of the wire read"
        async with s.get("/nothing") as answer:
            assert "--protocol" not in await answer.text()


async def test_a_base_url_without_v1_is_explained_in_the_form_that_the_client_reads():
    async with served(settings=ServerSettings(protocols=("openai",))) as s:
        async with s.post(b'{"model": "m", "messages": []}', "/chat/completions") as answer:
            assert answer.status == 404
            assert "must end with /v1" in (await answer.json())["error"]["message"]
        async with s.post(b"{}", "/v1/embeddings") as answer:
            assert "/v1/embeddings" in (await answer.json())["error"]["message"], "an SDK shows no other member"
        async with s.get("/nowhere") as answer:
            assert "/v1" not in (await answer.json())["detail"]


@pytest.mark.req("T15")
@pytest.mark.parametrize("asked", ["ag-ui", "ag-ui copilotkit", "openai", "responses", "ai-sdk"])
@pytest.mark.parametrize(("size", "by_a_thread"), [(10, False), (DECODED_AT_ONCE, True)])
async def test_a_large_body_of_messages_is_decoded_by_a_thread(asked, size, by_a_thread, monkeypatch):
    """Ten thousand messages take 40 ms, in which the event loop would serve no other client (F4)."""
    threads = []
    monkeypatch.setattr(
        body_module, "_has_many_values", lambda _: threads.append(threading.get_ident()) if not threads else None
    )
    path, body, headers = QUESTIONS[asked]("x" * size, SESSION)
    async with served(settings=ServerSettings(protocols=tuple(WIRES))) as s, s.post(body, path, **headers) as answer:
        assert answer.status == 200
        assert b"hello" in await answer.read()
    assert (threading.get_ident() not in threads) is by_a_thread
