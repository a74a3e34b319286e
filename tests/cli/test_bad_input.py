"""Bad input, as a user meets it: one clear line with what to do, the right exit code, nothing left behind."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from tests.cli.process import holodeck, started

START = "name: a\nmodel: {provider: demo}\n"


class _WebPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>Welcome</title>")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        return None


@pytest.fixture
def web_page() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _WebPage)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def model(endpoint: str) -> str:
    return f"name: a\nmodel: {{provider: openai_compatible, name: x, endpoint: '{endpoint}'}}\n"


FILE_MISTAKES = {
    "missing key": (
        "name: a\nmodel:\n  provider: gemini\n  name: gemini-2.5-flash\n",
        (
            "agent.yaml:2:1: model.api_key: set GEMINI_API_KEY in the environment or in .env beside the file (or use "
            "provider: demo, which needs none)"
        ),
    ),
    "missing key of a fallback": (
        "name: a\nmodel:\n  provider: demo\n  fallback: [{provider: openai, name: x}]\n",
        "agent.yaml:4:14: model.fallback[0].api_key: set OPENAI_API_KEY in the environment",
    ),
    "unset variable": (START + "description: ${NOBODY}\n", "agent.yaml:3:14: description: NOBODY is not set"),
    "tab": ("name: a\nmodel:\n\tprovider: demo\n", "agent.yaml:3:1: a tab indents this line; YAML wants spaces"),
    "duplicate key": (START + "name: b\n", "agent.yaml:3:1: name: given twice; the first is in line 1"),
    "billion laughs": (
        START
        + "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n"
            for before, name in zip("abcdefg", "bcdefgh", strict=True)
        ),
        "aliases make this larger than 20000 values",
    ),
    "no instructions file": (
        START + "instructions: {file: prompt.md}\n",
        "agent.yaml:3:22: instructions.file: there is no file prompt.md in the agent's folder",
    ),
    "function outside": (
        START + "tools: [{name: f, type: function, file: ../f.py}]\n",
        "agent.yaml:3:9: tools[0]: ../f.py is outside the agent's folder; move it into the folder",
    ),
    "no such function file": (
        START + "tools: [{name: f, type: function, file: f.py}]\n",
        "agent.yaml:3:9: tools[0]: f.py: there is no such file",
    ),
    "bad bind": (
        START + "tools: [{name: f, type: mcp, command: x, bind: {user: '{usr}'}}]\n",
        "agent.yaml:3:9: tools[0]: bind.user: there is no value {usr}",
    ),
    "bind without quotes": (
        START + "tools: [{name: f, type: mcp, command: x, bind: {user: {user_id}}}]\n",
        'agent.yaml:3:9: tools[0]: bind.user: without quotes YAML reads a block; write "{user_id}"',
    ),
}


@pytest.mark.req("SRV-02", "CHT-10")
@pytest.mark.parametrize(("text", "line"), FILE_MISTAKES.values(), ids=FILE_MISTAKES)
def test_a_wrong_file_is_one_line_and_exit_code_1(tmp_path, text, line):
    (tmp_path / "agent.yaml").write_text(text)
    result = holodeck("chat", folder=tmp_path)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("error: ")
    assert line in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.req("SRV-01", "SRV-02")
@pytest.mark.parametrize(("command", "run"), [("serve", holodeck), ("chat", holodeck), ("check", started)])
def test_no_file_at_all(tmp_path, command, run):
    result = run(command, folder=tmp_path)
    assert result.code == 1
    assert result.err == (
        "error: agent.yaml: there is no such file; `holodeck init` writes one, and --demo runs the bundled agent\n"
    )


@pytest.mark.parametrize("command", ["chat", "check"])
def test_an_endpoint_that_is_a_web_page(tmp_path, web_page, command):
    (tmp_path / "agent.yaml").write_text(model(web_page))
    result = holodeck(command, folder=tmp_path)
    assert result.code == 2
    assert "usually ends in /v1" in result.err
    assert len(result.err.splitlines()) == 1


def test_an_endpoint_where_no_one_listens(tmp_path):
    (tmp_path / "agent.yaml").write_text(model("http://127.0.0.1:9/v1"))
    result = holodeck("check", folder=tmp_path)
    assert result.code == 2
    assert "127.0.0.1:9" in result.err


@pytest.mark.parametrize("command", ["chat", "check"])
def test_a_tool_server_that_is_not_there_takes_the_others_with_it(tmp_path, command):
    (tmp_path / "agent.yaml").write_text(
        START
        + "tools:\n"
        + "  - {name: todo, type: mcp, command: holodeck-todo, args: [--db, left-behind.sqlite3]}\n"
        + "  - {name: gone, type: mcp, command: no-such-server}\n"
    )
    result = holodeck(command, folder=tmp_path, stdin="hi\n")
    assert result.code == 2
    assert "gone" in result.err
    assert "no-such-server" in result.err
    assert len(result.err.splitlines()) == 1
    assert children_in(tmp_path) == []


def test_check_continues_after_a_tool_server_that_is_not_there(tmp_path):
    (tmp_path / "agent.yaml").write_text(
        START
        + "tools:\n"
        + "  - {name: todo, type: mcp, command: holodeck-todo, args: [--db, t.sqlite3], prefix: my_}\n"
        + "  - {name: gone, type: mcp, command: no-such-server}\n"
        + "  - {name: lost, type: mcp, command: nor-this}\n"
    )
    result = holodeck("check", folder=tmp_path)
    assert result.code == 2
    assert ["gone" in line for line in result.err.splitlines()] == [True, False]
    assert ["lost" in line for line in result.err.splitlines()] == [False, True]
    assert "my_list_todos" in result.out, "the tools of the others are listed"


@pytest.mark.parametrize("mode", [None, 0o644])
def test_check_finds_a_key_file_that_serve_would_refuse(tmp_path, mode):
    (tmp_path / "agent.yaml").write_text(
        "name: a\nmodel: {provider: demo}\nserver: {auth: {mode: api_key, api_key: {file: k.json}}}\n"
    )
    if mode is not None:
        (tmp_path / "k.json").write_text("{}")
        (tmp_path / "k.json").chmod(mode)
    checked = holodeck("check", folder=tmp_path)
    served = holodeck("serve", "--port", "0", folder=tmp_path)
    assert (checked.code, served.code) == (2, 2)
    reason = served.err.split("server.auth.api_key.file: ")[1].strip()
    assert reason in checked.err


def children_in(folder: Path) -> list[str]:
    """Processes that still work in this folder."""
    processes = psutil.process_iter(["cwd", "cmdline"])
    return [" ".join(each.info["cmdline"] or []) for each in processes if each.info["cwd"] == str(folder)]


def test_check_shows_the_approvals_of_the_file_beside_a_pattern_that_matches_no_tool(tmp_path):
    server = "{name: todo, type: mcp, command: holodeck-todo, args: [--db, t.sqlite3]"
    rules = 'include: ["*_todo", "x_*"], approval: {delete_todo: always}}'
    (tmp_path / "agent.yaml").write_text(f"{START}tools: [{server}, {rules}]\n")
    result = holodeck("check", folder=tmp_path)
    assert result.code == 2
    assert "✗ todo has no tool 'x_*' (include); it has" in result.err
    assert [line.split()[0] for line in result.out.splitlines() if "(asks first)" in line] == ["delete_todo"]


def test_a_server_that_cannot_start_logs_no_stop(tmp_path):
    (tmp_path / "agent.yaml").write_text(START + "tools: [{name: gone, type: mcp, command: no-such-server}]\n")
    result = holodeck("serve", "--port", "0", folder=tmp_path)
    assert (result.code, "server_stopping" in result.out, "no-such-server" in result.err) == (2, False, True)
