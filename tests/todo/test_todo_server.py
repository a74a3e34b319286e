"""The real process and the official client, over stdio and over streamable HTTP. Without a process where it would show nothing more."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import httpx2
import psutil
import psycopg
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from holodeck.todo.database import default_file, file_url
from holodeck.todo.server import build_server
from holodeck.todo.store import TodoStore
from holodeck.todo.toolbox import Toolbox

MODULE = ["-m", "holodeck.todo"]
VOCABULARIES = [
    *("create_todo", "list_todos", "update_todo", "delete_todo"),
    *("add_task", "list_tasks", "complete_task", "update_task", "delete_task"),
]


@asynccontextmanager
async def over_stdio(*options: str, log: Path) -> AsyncIterator[Client]:
    with log.open("a") as errors:
        parameters = StdioServerParameters(command=sys.executable, args=[*MODULE, *options])
        async with Client(stdio_client(parameters, errlog=errors)) as client:
            yield client


@asynccontextmanager
async def in_memory(file: Path, user: str | None = None) -> AsyncIterator[Client]:
    with closing(TodoStore(file_url(file))) as store:
        async with Client(build_server(Toolbox(lambda: store, user=user))) as client:
            yield client


@pytest.fixture(scope="module")
def over_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server on a free port, which it says itself once it listens."""
    file = tmp_path_factory.mktemp("http") / "t.sqlite3"
    command = [sys.executable, *MODULE, "--http", "--port", "0", "--db", str(file), "--timezone", "Asia/Tokyo"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline()
            yield re.search("http://[^ ]+/mcp", line)[0]
        finally:
            process.terminate()
            process.communicate(timeout=30)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


@pytest.mark.req("ORC-05", "AGT-06")
async def test_both_vocabularies_over_stdio(database_url, log):
    async with over_stdio("--database-url", database_url, log=log) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == VOCABULARIES
        created = await client.call_tool(
            "create_todo",
            {"user_id": "ann", "title": "buy eggs", "due_date": "2026-11-16T15:00", "timezone": "Europe/Berlin"},
        )
        todo = created.structured_content
        assert todo["due_date"] == "2026-11-16T15:00:00+01:00"
        assert created.content[0].text == json.dumps(todo, separators=(",", ":"))
        done = await client.call_tool("complete_task", {"user_id": "ann", "task_id": todo["id"]})
        assert done.structured_content["status"] == "completed"
        listed = await client.call_tool("list_todos", {"user_id": "ann", "status": "all"})
        assert listed.structured_content["count"] == 1
    assert log.read_text() == ""


@pytest.mark.req("ORC-05")
async def test_a_mistake_is_a_result_that_the_model_can_read(tmp_path, caplog):
    async with in_memory(tmp_path / "t.sqlite3", "ann") as client:
        await client.list_tools()
        mistakes = {
            "due_date 'tomorow' is not ISO 8601": ("create_todo", {"title": "a", "due_date": "tomorow"}),
            "There is no todo with the id 'k7'": ("complete_task", {"task_id": "k7"}),
            "confirmation is required": ("delete_todo", {"todo_id": "k7"}),
            "Nothing was deleted": ("delete_todo", {"todo_id": "k7", "confirmation": False}),
        }
        for sentence, (name, arguments) in mistakes.items():
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert sentence in result.content[0].text
            assert "Traceback" not in result.content[0].text
        with pytest.raises(MCPError, match="There is no tool 'drop_todos'"):
            await client.call_tool("drop_todos", {})
    assert caplog.text == ""


@pytest.mark.req("ORC-05")
async def test_a_failing_database_shows_no_sql(new_postgres_database, postgres, log):
    url = new_postgres_database()
    async with over_stdio("--database-url", url, "--user", "ann", log=log) as client:
        await client.call_tool("add_task", {"title": "a"})
        with psycopg.connect(url) as connection:
            connection.execute("DROP TABLE todo")
        result = await client.call_tool("add_task", {"title": "confidential"})
    assert result.is_error
    assert result.content[0].text.startswith("The todo database cannot be used right now")
    assert "confidential" not in log.read_text()
    assert "UndefinedTable" in log.read_text()


@pytest.mark.req("AGT-07")
async def test_a_fixed_user_takes_the_argument_out_of_the_schemas(tmp_path):
    file = tmp_path / "t.sqlite3"
    async with in_memory(file, "ann") as ann:
        tools = (await ann.list_tools()).tools
        assert not any("user_id" in tool.input_schema["properties"] for tool in tools)
        await ann.call_tool("add_task", {"title": "secret"})
    async with in_memory(file, "bob") as bob:
        stolen = await bob.call_tool("list_tasks", {"user_id": "ann"})
    assert stolen.structured_content == {"count": 0, "todos": []}


async def test_the_tools_say_which_of_them_destroy(tmp_path):
    async with in_memory(tmp_path / "t.sqlite3") as client:
        tools = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    assert {name for name, hints in tools.items() if hints.read_only_hint} == {"list_todos", "list_tasks"}
    assert {"delete_todo", "delete_task"} <= {name for name, hints in tools.items() if hints.destructive_hint}


@pytest.mark.req("ORC-05")
async def test_two_servers_on_one_file_lose_nothing(tmp_path, log):
    file = str(tmp_path / "t.sqlite3")

    async def write(name: str) -> None:
        async with over_stdio("--db", file, "--user", "ann", log=log) as client:
            results = await asyncio.gather(
                *(client.call_tool("add_task", {"title": f"{name} {number}"}) for number in range(25))
            )
            assert not any(result.is_error for result in results)

    await asyncio.gather(write("left"), write("right"))
    async with in_memory(Path(file), "ann") as client:
        listed = (await client.call_tool("list_tasks", {})).structured_content
    assert listed["count"] == 50
    assert len({todo["title"] for todo in listed["todos"]}) == 50


@pytest.mark.req("ORC-05", "AGT-07")
async def test_streamable_http(over_http):
    async with Client(over_http) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == VOCABULARIES
        todo = await client.call_tool("create_todo", {"user_id": "ann", "title": "a", "due_date": "2026-11-16T15:00"})
        assert todo.structured_content["due_date"] == "2026-11-16T15:00:00+09:00"
        hers = await client.call_tool("list_todos", {"user_id": "ann"})
        his = await client.call_tool("list_todos", {"user_id": "bob"})
    assert (hers.structured_content["count"], his.structured_content["count"]) == (1, 0)


async def test_http_refuses_a_page_that_rebinds_a_name_to_loopback(over_http):
    async with httpx2.AsyncClient() as browser:
        answer = await browser.post(over_http, json={}, headers={"Host": "evil.example"})
    assert answer.status_code == 421


REQUESTS = [
    {
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    },
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
]
HANDSHAKE = b"".join(json.dumps({"jsonrpc": "2.0", **request}).encode() + b"\n" for request in REQUESTS)


@contextmanager
def raw(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server process that has answered the handshake and the list of tools."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, *command], stdin=pipe, stdout=pipe, stderr=pipe) as server:
        server.stdin.write(HANDSHAKE)
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["result"]["serverInfo"]["name"] == "holodeck-todo"
        assert len(json.loads(server.stdout.readline())["result"]["tools"]) == len(VOCABULARIES)
        yield server


def test_the_start_to_the_first_answer_needs_no_database_toolkit(tmp_path, capsys):
    """Measured and printed, not asserted: CPU seconds depend on the machine, the modules that are loaded do not."""
    code = """if True:
        import runpy, sys
        sys.argv = ["holodeck-todo", "--db", sys.argv[1]]
        try:
            runpy.run_module("holodeck.todo", run_name="__main__")
        finally:
            sys.stderr.write(" ".join(sys.modules))
    """
    with raw("-c", code, str(tmp_path / "t.sqlite3")) as server:
        times = psutil.Process(server.pid).cpu_times()
        loaded = server.communicate(timeout=30)[1].decode().split()
    with capsys.disabled():
        sys.stdout.write(f"\nholodeck-todo: start to first answer {times.user + times.system:.2f} s of CPU\n")
    assert "mcp.server.lowlevel.server" in loaded
    assert not {"sqlmodel", "sqlalchemy", "psycopg"} & set(loaded)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_at_once(tmp_path, number):
    with raw(*MODULE, "--db", str(tmp_path / "t.sqlite3")) as server:
        server.send_signal(number)
        assert server.wait(timeout=20) == -number
        assert server.stderr.read() == b""


def test_a_client_that_leaves_early_is_no_failure(tmp_path):
    with raw(*MODULE, "--db", str(tmp_path / "t.sqlite3")) as server:
        server.stdout.close()
        server.stdin.write(HANDSHAKE)
        server.stdin.close()
        assert server.wait(timeout=20) == 0
        assert server.stderr.read() == b""


def test_help_needs_neither_mcp_nor_a_database():
    code = (
        "import sys; from holodeck.todo.__main__ import main\n"
        "try: main(['--help'])\n"
        "finally: assert not {'mcp', 'pydantic', 'sqlmodel'} & set(sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert "--database-url URL" in shown.stdout


@pytest.mark.parametrize(
    ("environ", "file"),
    [
        ({"HOLODECK_TODO_DB": "here.sqlite3", "XDG_DATA_HOME": "/data"}, Path("here.sqlite3")),
        ({"XDG_DATA_HOME": "/data"}, Path("/data/holodeck/todo.sqlite3")),
        ({"XDG_DATA_HOME": ""}, Path.home() / ".local/share/holodeck/todo.sqlite3"),
        ({}, Path.home() / ".local/share/holodeck/todo.sqlite3"),
    ],
)
def test_the_default_file(environ, file):
    assert default_file(environ) == file


def test_the_url_of_a_file_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert file_url(Path("t.sqlite3")) == f"sqlite:///{tmp_path}/t.sqlite3"
