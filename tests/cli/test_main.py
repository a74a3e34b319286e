"""The command line itself: quick help, exit codes, one line for each failure."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from holodeck._version import __version__
from holodeck.cli import main as cli_main
from holodeck.cli.main import COMMANDS, cli, run
from holodeck.cli.paint import Paint
from holodeck.errors import ModelUnreachable, StartError
from tests.cli.process import environment, holodeck

HEAVY = ("aiohttp", "fastapi", "mcp", "msgspec", "prompt_toolkit", "pydantic", "rich", "starlette", "uvicorn", "yaml")


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(tmp_path, argument):
    code = (
        "import sys\n"
        "from holodeck.cli.main import run\n"
        f"assert run([{argument!r}]) == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_help_names_every_command_and_each_has_help(capsys):
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, text in COMMANDS.items():
        assert f"{name} " in shown
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert command.get_short_help_str(100) == text


def test_version(tmp_path):
    assert holodeck("--version", folder=tmp_path).out == f"holodeck {__version__}\n"


@pytest.mark.req("SRV-01")
def test_serve_has_all_its_options(capsys):
    assert run(["serve", "--help"]) == 0
    shown = capsys.readouterr().out
    for option in ("--port", "--host", "--protocol", "--cors-origins", "--debug", "--open", "--demo", "[PATH]"):
        assert option in shown
    assert "127.0.0.1" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["chta"], 2, "Did you mean"),
        (["serve", "--port", "70000"], 2, "0<=x<=65535"),
        (["serve", "--root-path", "agents"], 2, "a path starts with /"),
        (["serve", "--root-path", "/a/../b"], 2, "a path starts with /"),
        (["serve", "--protocol", "smoke"], 2, "'ag-ui', 'rest', 'chat-stream', 'openai'"),
        (["chat", "x.yaml", "--demo"], 2, "--demo runs the bundled agent"),
        (["chat", "--colour"], 2, "No such option"),
    ],
)
def test_a_wrong_command_line_is_explained(capsys, arguments, code, text):
    assert run(arguments) == code
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (StartError("no port"), 2, "error: no port\n"),
        (ModelUnreachable("nobody there"), 2, "error: nobody there\n"),
        (KeyboardInterrupt(), 130, ""),
        (
            ZeroDivisionError("by zero"),
            70,
            "error: unexpected ZeroDivisionError: by zero; `holodeck --debug …` shows the traceback\n",
        ),
    ],
)
def test_every_failure_is_one_line_and_a_code(monkeypatch, capsys, error, code, line):
    def fail(*_args: object, **_kwargs: object) -> None:
        raise error

    monkeypatch.setattr(cli_main.cli, "main", fail)
    assert run([]) == code
    assert capsys.readouterr().err == line


def test_debug_shows_the_traceback(monkeypatch):
    def fail(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cli_main.cli, "main", fail)
    with pytest.raises(ZeroDivisionError):
        run(["--debug"])


def test_schema_prints_a_json_schema(capsys):
    assert run(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["required"] == ["name", "model"]
    assert schema["properties"]["loop"]["description"]


def test_a_reader_that_leaves_early_is_no_traceback(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "holodeck", "schema"],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=20)
    assert b"Traceback" not in err


def test_an_encoding_that_lacks_a_character_fails_no_command(tmp_path):
    """The terminal or the locale is Latin-1: text is shown with `?`, and exported JSON is UTF-8, as RFC 8259 wants it."""
    agent = (
        "name: a\nmodel: {provider: demo}\ninstructions: Say ✓.\ntools: [{name: say, type: function, file: say.py}]\n"
    )
    (tmp_path / "agent.yaml").write_text(agent, encoding="utf-8")
    (tmp_path / "say.py").write_text('def say(text: str) -> str:\n    """Say."""\n    return text\n')
    its = environment(tmp_path, PYTHONIOENCODING="latin-1")
    for arguments, shown in (
        (["check", "-v"], b"Say ?.\n"),
        (["chat", "-q", "--session", "s", "grüße ✓"], b"a rule-based demo"),
        (["chat", "--json", "--session", "t", "say ✓"], "✓".encode()),
        (["sessions", "list"], "grüße ?".encode("latin-1")),
        (["sessions", "export"], "grüße ✓".encode()),
    ):
        command = [sys.executable, "-m", "holodeck", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=its, capture_output=True, check=False)
        assert (done.returncode, done.stderr.replace(b"2 sessions exported.\n", b"")) == (0, b"")
        assert shown in done.stdout


@pytest.mark.parametrize(
    ("tty", "variables", "coloured"),
    [(True, {}, True), (True, {"NO_COLOR": "1"}, False), (True, {"TERM": "dumb"}, False), (False, {}, False)],
)
def test_colours_only_where_they_are_wanted(monkeypatch, tty, variables, coloured):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as terminal, Path(os.devnull).open("w") as nowhere:
        assert ("\x1b" in Paint.of(terminal if tty else nowhere).red("x")) is coloured
    os.close(master)
