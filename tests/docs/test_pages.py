"""The guide is followed to the letter, and held against the code where both say the same thing."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from docs import chat_picture, picture, tables
from holodeck.cli.main import COMMANDS, cli
from holodeck.models.providers import PROVIDERS
from holodeck.server.agent_server import AgentServer
from holodeck.server.app import Application
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from holodeck.sessions.memory import MemorySessionStore
from holodeck.todo.__main__ import _parser
from holodeck.todo.toolbox import TOOLS
from tests.agent.agent_fixture import AgentFixture
from tests.docs.newcomer import Newcomer, local_model, targets_of_makefile
from tests.docs.snippets import PAGES, ROOT, Snippet, missing_line, snippets

DOCS = ROOT / "docs"
NAMES = [page.name for page in PAGES]
LANGUAGES = {"bash", "js", "json", "markdown", "nginx", "python", "text", "tsx", "yaml"}
WORDS = re.compile(r"server|output|file=\S+|no-run:.*")


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with local_model() as url:
        yield url


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_newcomer_gets_what_the_page_shows(page, model, tmp_path):
    printed, source, is_of_client = "", None, False
    with Newcomer(tmp_path, model) as newcomer:
        for snippet in snippets(page):
            if "output" in snippet.words:
                if is_of_client:
                    continue
                assert source is not None, f"{snippet.where} is the output of nothing"
                missing = missing_line(snippet.text, printed)
                assert missing is None, f"{snippet.where}: {source.where} did not print {missing!r} but:\n{printed}"
            else:
                is_of_client = snippet.needs_a_client
                if snippet.runs:
                    printed, source = newcomer.follow(snippet), snippet


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_what_is_not_run_is_at_least_well_formed(page):
    for snippet in snippets(page):
        assert snippet.language in LANGUAGES, snippet.where
        assert WORDS.fullmatch(" ".join(snippet.words)) or not snippet.words, snippet.where
        _parse(snippet)


def _parse(snippet: Snippet) -> None:
    if snippet.language == "bash":
        done = subprocess.run(["bash", "-n"], input=snippet.text, text=True, capture_output=True, check=False)
        assert done.returncode == 0, f"{snippet.where}: {done.stderr}"
    elif snippet.language == "python":
        compile(snippet.text, snippet.where, "exec")
    elif snippet.language == "json":
        json.loads(snippet.text)


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.name)
def test_tables_are_as_the_code_has_them(page):
    assert tables.rewritten(page) == page.read_text(encoding="utf-8"), "run: python docs/tables.py"


def test_every_block_of_an_agent_file_has_its_table():
    found, wanted = tables.tables_in(DOCS / "agent-yaml.md"), tables.blocks()
    missing = "".join(f"\n<!-- table: {name} -->\n<!-- /table -->" for name in set(wanted) - set(found))
    assert sorted(found) == sorted(wanted), f"add to docs/agent-yaml.md, then run python docs/tables.py:{missing}"


def test_the_glossary_has_few_terms_of_our_own():
    rows = re.findall(r"^\| ([a-z][\w ]*) \|", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert 0 < len(set(rows) - {"term"}) <= 15


def test_every_event_and_every_error_is_documented():
    assert "events" in tables.tables_in(DOCS / "python.md")
    assert {"problems", "reasons"} <= set(tables.tables_in(DOCS / "errors.md"))
    assert len(tables.event_types()) > 20
    assert {"invalid-request", "model-error", "timeout"} <= set(tables.codes())


def test_own_words_are_only_where_the_code_has_none():
    named = {kind.__name__: kind for kind in (*tables.event_types(), *tables.error_types())}
    for name in tables._OWN_WORDS:
        description = tables._description(named[name])
        assert description == tables._OWN_WORDS[name], f"{name} has a docstring now"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_every_command_is_documented(command):
    section = _section(DOCS / "cli.md", f"## holodeck {command}")
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    commands = found.commands.values() if isinstance(found, click.Group) else [found]
    options = {name for one in commands for each in one.params if isinstance(each, click.Option) for name in each.opts}
    documented = set(re.findall(r"^\| (`-.*?) \|", section, re.MULTILINE))
    assert {name.strip("` ") for each in documented for name in each.split(",")} == options


def test_every_option_of_the_todo_server_is_documented():
    documented = set(re.findall(r"^\| `(--[a-z-]+)`", (DOCS / "todo-server.md").read_text(), re.MULTILINE))
    known = {name for action in _parser()._actions for name in action.option_strings if name.startswith("--")}
    assert documented == known - {"--help"}


def test_every_tool_of_the_todo_server_is_documented_with_its_arguments():
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", (DOCS / "todo-server.md").read_text(), re.MULTILINE))
    documented = {name: set(re.findall(r"`(\w+)`", arguments)) for name, arguments in rows.items()}
    assert documented == {
        tool.name: set(tool.arguments.model_fields) - {"user_id", "tenant", "timezone"} for tool in TOOLS
    }


def test_every_provider_is_documented_with_its_address_and_its_key():
    text = (DOCS / "models.md").read_text()
    for provider in PROVIDERS.values():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{provider.name}` |"))
        assert f"`{provider.key_variable}`" in row
        assert provider.endpoint is None or f"`{provider.endpoint}`" in row
        assert ("not needed" in row) is not provider.needs_key


def test_every_endpoint_is_documented_and_no_other():
    everything = ServerSettings(protocols=tuple(WIRES))
    schema = Application(AgentServer(AgentFixture().agent, MemorySessionStore(60), settings=everything)).openapi()
    served = {f"{method.upper()} {path}" for path, methods in schema["paths"].items() for method in methods}
    rows = _section(DOCS / "server.md", "# Server")
    documented = set(re.findall(r"`((?:GET|POST|DELETE) /[^`]*)`", rows))
    assert documented - {"GET /docs", "GET /openapi.json"} == served, "the table of routes at the top of docs/server.md"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in _anchors(file), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_named_targets_and_files_exist(page):
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"(?:^|`)make ([a-z0-9-]+)", text, re.MULTILINE)) <= targets_of_makefile()
    for path in re.findall(r"\b(?:tests|docs|benchmarks|src)/[\w/.-]+", text):
        assert (ROOT / path.rstrip(".")).exists(), f"{page.name}: {path}"


def test_the_programs_that_draw_the_pictures_fit_the_code():
    """They import what they draw with; a rename that forgets them fails here."""
    assert chat_picture.PICTURE.exists()
    assert picture.PICTURE.exists()


def test_the_picture_loads_nothing_from_elsewhere():
    svg = (DOCS / "picture.svg").read_text(encoding="utf-8")
    assert svg.startswith("<svg ")
    assert set(re.findall(r"\w+://[^\s\"<]+", svg.replace("http://127.0.0.1:8000", ""))) == {
        "http://www.w3.org/2000/svg"
    }
    assert not re.search(r"@font-face|<script|<image|<foreignObject|@import|href", svg)


def _section(page: Path, heading: str) -> str:
    text = page.read_text(encoding="utf-8")
    _, _, rest = text.partition(f"{heading}\n")
    assert rest, f"{page.name} has no {heading}"
    return rest.split("\n## ", 1)[0]


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
