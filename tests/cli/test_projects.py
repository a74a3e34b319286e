"""`init`, `check` and `chat` on projects that are right."""

import pytest

from holodeck.cli.agent_choice import load_demo
from holodeck.cli.check import commands_of
from holodeck.config.build import build_agent, load_agent
from holodeck.config.load import load_config
from tests.cli.process import holodeck


@pytest.mark.req("CHT-10")
def test_init_writes_a_project_that_checks_and_answers_at_once(tmp_path):
    first = holodeck("init", "My Agent!", folder=tmp_path)
    assert first.code == 0
    assert "cd 'My Agent!' && holodeck chat" in first.out
    project = tmp_path / "My Agent!"
    assert load_config(project).agent.name == "my-agent"
    assert load_config(project).warnings == ()
    assert {".env", ".holodeck/"} <= set((project / ".gitignore").read_text().splitlines())
    checked = holodeck("check", str(project), folder=tmp_path)
    assert checked.code == 0, checked.err
    tools = "✓ the tools are available\n  create_todo"
    for text in ("is valid", "runs holodeck-todo", "✓ the demo model is ready", tools, "convert"):
        assert text in checked.out
    again = holodeck("init", "My Agent!", folder=tmp_path)
    assert (again.code, again.out) == (1, "")
    assert "agent.yaml exists; choose another folder, e.g. holodeck init 'My Agent!-2'" in again.err
    assert "holodeck init my-agent\n" in holodeck("init", folder=project).err


@pytest.mark.parametrize(("folder", "name"), [("2024", "agent-2024"), ("true", "agent-true"), ("1e3", "agent-1e3")])
def test_init_in_a_folder_whose_name_is_not_text_in_yaml(tmp_path, folder, name):
    assert holodeck("init", folder, folder=tmp_path).code == 0
    assert load_config(tmp_path / folder).agent.name == name


@pytest.mark.req("T28")
def test_check_shows_the_commands_but_nothing_that_came_from_variables(tmp_path):
    (tmp_path / ".env").write_text("TODOS=sqlite:///nowhere-hunter2/x.sqlite3\n")
    (tmp_path / "agent.yaml").write_text(
        "name: a\nmodel: {provider: demo}\n"
        "tools: [{name: todo, type: mcp, command: holodeck-todo, args: [--database-url, '${TODOS}']}]\n"
    )
    assert commands_of(load_config(tmp_path)) == ["holodeck-todo --database-url ${…}"]


@pytest.mark.req("CHT-02", "CHT-10")
def test_the_demo_can_be_talked_to_through_a_pipe(tmp_path):
    result = holodeck("chat", "--demo", "--lines", folder=tmp_path, stdin="add buy milk\nwhat is on my list?\n")
    assert (result.code, result.err) == (0, "")
    assert '→ create_todo(title="Buy milk") … ✓ ' in result.out
    assert "1. **Buy milk**" in result.out
    assert "\x1b" not in result.out
    assert [path.name for path in tmp_path.iterdir()] == ["data"]  # nothing in the folder itself


def test_an_end_of_input_without_a_line_is_a_good_end(tmp_path):
    (tmp_path / "agent.yaml").write_text("name: a\nmodel: {provider: demo}\n")
    result = holodeck("chat", folder=tmp_path)
    assert (result.code, result.out, result.err) == (0, "", "")


def test_upstream_blocks_warn_and_the_agent_runs(tmp_path):
    (tmp_path / "agent.yaml").write_text("name: a\nmodel: {provider: demo}\nevaluations: {metrics: []}\n")
    result = holodeck("chat", folder=tmp_path, stdin="hello\n")
    assert result.code == 0
    assert result.err == "warning: agent.yaml:3:1: evaluations: is not used here; ignored\n"
    assert "not a language model" in result.out


def test_load_agent_gives_the_pieces_of_the_file(tmp_path):
    (tmp_path / "prompt.md").write_text("---\nversion: 1\n---\nYou help {user_id}.\n")
    (tmp_path / "agent.yaml").write_text(
        "name: a\nmodel: {provider: ollama, name: llama3, endpoint: 'http://localhost:11434'}\n"
        "instructions: {file: prompt.md}\nloop: {max_iterations: 3}\n"
        "state: {initial: {n: 1}, predict: [{state_key: n, tool: t, tool_argument: x}]}\n"
    )
    agent = load_agent(tmp_path)
    assert agent.instructions.render(user_id="u1", timezone="UTC") == "You help u1."
    assert agent.model.name == "ollama/llama3"
    assert "11434/v1" in repr(agent.model)
    assert agent.loop.max_iterations == 3
    assert agent.state is not None
    assert agent.state.predict[0].tool_argument == "x"


async def test_the_bundled_agent_starts_and_stops(tmp_path):
    config = load_demo({"XDG_DATA_HOME": str(tmp_path)})
    async with build_agent(config) as agent:
        assert {schema.name for schema in agent.tools.schemas()} == {
            "create_todo",
            "list_todos",
            "update_todo",
            "delete_todo",
        }
        assert all("user_id" not in schema.parameters["properties"] for schema in agent.tools.schemas())
    assert not agent.tools.schemas()
