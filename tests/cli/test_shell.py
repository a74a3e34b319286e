"""`holodeck chat "question"` and `holodeck call`: what people type into a shell and put into scripts."""

import json
import os
import pty
import subprocess
import sys

import pytest

from tests.cli.process import SECONDS, environment, holodeck

ECHO = "name: a\nmodel: {provider: demo}\ntools: [{name: convert, type: function, file: units.py}, {name: wipe, type: function, file: units.py, approval: always}]\n"
UNITS = '''
def convert(miles: float, note: str = "") -> str:
    """Converts miles to kilometres."""
    return f"{miles * 1.609344:.1f} km{note}"


def wipe(user_id: str = "") -> str:
    """Deletes everything."""
    return "gone"
'''


@pytest.fixture
def project(tmp_path):
    (tmp_path / "agent.yaml").write_text(ECHO)
    (tmp_path / "units.py").write_text(UNITS)
    return tmp_path


@pytest.mark.req("USE-02")
@pytest.mark.parametrize(
    "arguments",
    [["hello"], ["-p", "hello"], [".", "hello"], ["agent.yaml", "hello"], ["agent.yaml", "--prompt", "hello"]],
)
def test_one_question_one_answer(project, arguments):
    result = holodeck("chat", "-q", *arguments, folder=project)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("Hello!")


def test_the_demo_takes_a_question(tmp_path):
    result = holodeck("chat", "-q", "--demo", "who are you?", folder=tmp_path)
    assert result.code == 0
    assert "demo model" in result.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["x.yaml"], "x.yaml: there is no such file"),
        (["./x"], "x: there is no such file"),
        (["agent.yaml", "two", "words"], "put it into quotes"),
        (["agent.yaml", "hello", "-p", "hello"], "more than one question"),
        (["hello", "-p", "hello"], "more than one question"),
        (["--demo", "agent.yaml"], "--demo runs the bundled agent"),
        (["hello", "--lines"], "--lines sends each line of the piped input; leave out the question"),
        ([""], "the question is empty"),
        (["-p", " "], "the question is empty"),
        (["hello", "-a", "."], ". is a folder; name a file."),
        (["hello", "-a", "nowhere.txt"], "There is no file nowhere.txt"),
        (["hello", "--model", "anthropic/"], "anthropic/"),
        (["hello", "--model", "opnai/gpt-5"], "there is no provider 'opnai'; did you mean openai?"),
        (["hello", "--model", "gpt-5"], "write provider/name, e.g. openai/gpt-5"),
    ],
)
def test_impossible_options_are_explained(project, arguments, sentence):
    result = holodeck("chat", *arguments, folder=project)
    assert result.code != 0
    assert sentence in result.err


@pytest.mark.req("USE-02")
def test_what_is_piped_in_goes_with_the_question(project):
    result = holodeck("chat", "--json", "hello", folder=project, stdin="a long report\n/attach units.py\n")
    assert result.code == 0
    events = [json.loads(line) for line in result.out.splitlines()]
    (files,) = [event["value"] for event in events if event["type"] == "CustomSent"]
    assert [each["name"] for each in files] == ["stdin.txt"]
    assert sum(event["type"] == "RunStarted" for event in events) == 1


def test_a_pipe_without_a_question_is_one_message(project):
    result = holodeck("chat", "--json", folder=project, stdin="first line\nsecond line\n")
    starts = [line for line in result.out.splitlines() if '"RunStarted"' in line]
    assert (result.code, len(starts)) == (0, 1)


def test_lines_are_messages_and_never_commands(project):
    result = holodeck("chat", "--json", "--lines", folder=project, stdin="hello\n/attach units.py\nexit\n")
    starts = [line for line in result.out.splitlines() if '"RunStarted"' in line]
    assert (result.code, len(starts)) == (0, 3)
    assert "stdin.txt" not in result.out
    assert "units.py" not in result.out


def test_a_file_is_attached(project):
    (project / "notes.txt").write_text("heron")
    result = holodeck("chat", "hello", "-a", "notes.txt", folder=project)
    assert "notes.txt: 5 characters as text" in result.out


TODO = '''
def create_todo(title: str) -> str:
    """Adds a todo."""
    return "added"
'''


@pytest.mark.parametrize("options", [[], ["-q"], ["--json"]])
def test_a_script_learns_that_a_tool_was_not_approved(tmp_path, options):
    tool = "{name: create_todo, type: function, file: todo.py, approval: always}"
    (tmp_path / "agent.yaml").write_text(f"name: a\nmodel: {{provider: demo}}\ntools: [{tool}]\n")
    (tmp_path / "todo.py").write_text(TODO)
    result = holodeck("chat", *options, "add buy bread", folder=tmp_path)
    assert result.code == 5
    assert "create_todo was not run: it needs approval; answer on a terminal or with --lines\n" in result.err
    approved = holodeck("chat", *options, "--lines", folder=tmp_path, stdin="add buy bread\ny\n")
    assert (approved.code, "was not run" in approved.err) == (0, False)


def test_a_line_that_does_not_answer_the_question_before_it_is_named(tmp_path):
    tool = "{name: create_todo, type: function, file: todo.py, approval: always}"
    (tmp_path / "agent.yaml").write_text(f"name: a\nmodel: {{provider: demo}}\ntools: [{tool}]\n")
    (tmp_path / "todo.py").write_text(TODO)
    lines = "add buy bread\nhow are you?\ny\nthanks\n"
    result = holodeck("chat", "-q", "--lines", folder=tmp_path, stdin=lines)
    assert (result.code, result.err.count("\n")) == (4, 1)
    assert result.err.startswith("✗ “how are you?” is not an answer: y = yes")
    assert result.err.endswith("it was not sent\n")
    assert result.out.splitlines()[-2:] == ["added", "You are welcome!"]
    unanswered = holodeck("chat", "-q", "--lines", folder=tmp_path, stdin="add buy bread\nhow are you?\n")
    assert (unanswered.code, unanswered.err.count("\n")) == (5, 2)


def test_a_call_that_waits_in_a_session_is_not_declined_by_the_next_question(tmp_path):
    tool = "{name: create_todo, type: function, file: todo.py, approval: always}"
    (tmp_path / "agent.yaml").write_text(f"name: a\nmodel: {{provider: demo}}\ntools: [{tool}]\n")
    (tmp_path / "todo.py").write_text(TODO)
    holodeck("chat", "--session", "s", "add buy bread", folder=tmp_path)
    second = holodeck("chat", "--session", "s", "hello", folder=tmp_path)
    assert (second.code, second.out) == (5, '? create_todo(title="Buy bread")\n')
    assert "create_todo was not run" in second.err
    assert second.err.endswith("no message was sent\n")
    answered = holodeck("chat", "--session", "s", "--lines", folder=tmp_path, stdin="y\n")
    assert (answered.code, "was not run" in answered.err) == (0, False)


def test_call_runs_a_tool_without_a_model(project):
    result = holodeck("call", "convert", "miles=5", "note= by 7", folder=project)
    assert (result.code, result.out, result.err) == (0, "8.0 km by 7\n", "")
    result = holodeck("call", "convert", "--json", '{"miles": 10}', folder=project)
    assert result.out == "16.1 km\n"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["convrt", "miles=5"], 2, "no tool 'convrt'; did you mean convert?\n"),
        (["nothing"], 2, "no tool 'nothing'; `holodeck check` lists them.\n"),
        (["convert", "5"], 2, "'5' is not NAME=VALUE; convert takes miles, note; "),
        (["convert", "miles=far"], 4, "miles"),
        (["convert"], 4, "miles"),
        (["wipe"], 2, "--yes"),
        (["convert", "miles=5", "--json", "{}"], 2, "not both"),
        (["convert", "--json", "{"], 4, "JSON"),
    ],
)
def test_call_says_what_is_wrong(project, arguments, code, sentence):
    result = holodeck("call", *arguments, folder=project)
    assert (result.code, result.out) == (code, "")
    assert sentence in result.err


def test_call_with_a_yes(project):
    assert holodeck("call", "wipe", "--yes", folder=project).out == "gone\n"


# conversations of scripts


def test_a_script_continues_its_session(project):
    first = holodeck("chat", "-q", "--session", "nightly-7", "hello", folder=project)
    assert (first.code, first.err) == (0, "")
    second = holodeck("chat", "-q", "--session", "nightly-7", "hello again", folder=project)
    assert second.code == 0
    shown = json.loads(holodeck("sessions", "export", "nightly-7", folder=project).out)
    texts = [message["content"] for message in shown["messages"] if message["role"] == "user"]
    assert texts == ["hello", "hello again"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--session", "a\tb", "hello"], "a session id has 1 to 128 printable characters"),
        (["--session", "a", "--resume", "last", "hello"], "leave out --resume"),
        (["--session", "a", "--no-save", "hello"], "leave out --resume and --no-save"),
    ],
)
def test_a_session_that_cannot_be_meant(project, arguments, sentence):
    result = holodeck("chat", *arguments, folder=project)
    assert result.code == 2
    assert sentence in " ".join(result.err.split())


# check


def test_check_shows_what_the_model_sees(project):
    (project / "agent.yaml").write_text(ECHO + "instructions: You count miles.\n")
    result = holodeck("check", "-v", folder=project)
    assert (result.code, result.err) == (0, "")
    assert "System prompt\nYou count miles." in result.out
    assert "Tool convert\nConverts miles to kilometres.\n{" in result.out
    assert '"miles": {' in result.out
    assert "System prompt" not in holodeck("check", folder=project).out


def test_check_warns_of_a_function_without_a_docstring(project):
    (project / "units.py").write_text(UNITS.replace('"""Converts miles to kilometres."""', ""))
    result = holodeck("check", folder=project)
    assert result.code == 0
    assert "warning: convert has no description" in result.err
    assert "wipe" not in result.err


def test_check_warns_of_a_misspelt_variable_in_the_instructions(tmp_path):
    agent = "name: a\nmodel: {provider: demo}\ninstructions: "
    (tmp_path / "agent.yaml").write_text(
        agent + '|\n  You serve {user_id}.\n  It is {today}; {usr_id} {"a": 1} {name}.\n'
    )
    result = holodeck("check", folder=tmp_path)
    assert result.err.splitlines() == [
        "warning: agent.yaml:5: {today} is not a variable, the model sees it as it is; did you mean {now}?",
        "warning: agent.yaml:5: {usr_id} is not a variable, the model sees it as it is; did you mean {user_id}?",
    ]
    assert result.code == 0
    (tmp_path / "agent.yaml").write_text(agent + "{file: prompt.md}\n")
    (tmp_path / "prompt.md").write_text("It is {now}\nin {time_zone}.\n")
    result = holodeck("check", folder=tmp_path)
    assert "warning: prompt.md:2: {time_zone} is not a variable" in result.err


def test_check_refuses_a_session_file_with_which_serve_would_not_start(tmp_path):
    (tmp_path / "agent.yaml").write_text("name: a\nmodel: {provider: demo}\n")
    (tmp_path / ".holodeck").mkdir()
    (tmp_path / ".holodeck" / "sessions.db").write_text("no database\n" * 100)
    result = holodeck("check", folder=tmp_path)
    assert result.code == 2
    assert "sessions.db cannot be used: file is not a database; set another sessions.path" in result.err
    assert "sessions are kept" not in result.out


# completion


@pytest.mark.parametrize(("shell", "words"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete ")])
def test_completion_prints_the_script_of_a_shell(tmp_path, shell, words):
    result = holodeck("completion", shell, folder=tmp_path)
    assert result.code == 0
    assert words in result.out
    assert "_HOLODECK_COMPLETE" in result.out


@pytest.mark.parametrize(
    ("typed", "expected"), [("holodeck che", "plain,check"), ("holodeck serve --rel", "plain,--reload")]
)
def test_the_shell_completes_commands_and_options(tmp_path, typed, expected):
    asked = {"_HOLODECK_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    result = holodeck(folder=tmp_path, **asked)
    assert expected in result.out.splitlines()


def test_a_question_in_the_background_does_not_read_the_terminal(project):
    """`holodeck chat "hello" > out.txt &`: the kernel stops a background job that reads its terminal (SIGTTIN)."""
    master, slave = pty.openpty()
    script = (
        f"exec < {os.ttyname(slave)}\n"  # the first terminal that a session's leader opens is the session's
        "set -m\n"
        f"{sys.executable} -m holodeck chat -q agent.yaml hello > out.txt &\n"
        'wait "$!"; code=$?; [ "$code" = 0 ] || kill -KILL -- "-$!"; exit "$code"\n'
    )
    command = ["bash", "-c", script]
    done = subprocess.run(
        command, cwd=project, env=environment(project), start_new_session=True, timeout=SECONDS, check=False
    )
    os.close(slave)
    os.close(master)
    assert done.returncode == 0
    assert (project / "out.txt").read_text().startswith("Hello!")
