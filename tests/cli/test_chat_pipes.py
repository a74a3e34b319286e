"""`holodeck chat` for scripts: one answer, plain text or JSON, an exit code that means something."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import threading

import pytest

from tests.cli.fake_model import FakeModel
from tests.cli.process import Piped, environment, holodeck, started
from tests.warm import Warm

DEMO = "name: a\nmodel: {provider: demo}\n"
UNREACHABLE = "name: a\nmodel: {provider: openai_compatible, name: m, endpoint: 'http://127.0.0.1:9/v1', fallback: [{provider: openai_compatible, name: m, endpoint: 'http://127.0.0.1:9/v1'}]}\n"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "agent.yaml").write_text(DEMO)
    return tmp_path


@pytest.mark.req("CHT-10")
def test_one_question_one_answer(project):
    result = started("chat", "--quiet", folder=project, stdin="hello")
    assert (result.code, result.err) == (0, "")
    assert "not a language model" in result.out
    assert "\x1b" not in result.out


def test_a_script_does_not_pay_for_a_terminal(project):
    code = (
        "import sys\n"
        "from holodeck.cli.main import run\n"
        "assert run(['chat', '--quiet']) == 0\n"
        "print([name for name in ('rich', 'prompt_toolkit', 'aiohttp', 'opentelemetry') if name in sys.modules])\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, input="hello\n", cwd=project, env=environment(project), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.req("CHT-02")
def test_json_is_one_event_a_line(project):
    result = holodeck("chat", "--json", folder=project, stdin="hello\n")
    assert (result.code, result.err) == (0, "")
    events = [json.loads(line) for line in result.out.splitlines()]
    types = [event["type"] for event in events]
    assert types[:3] == ["RunStarted", "StepStarted", "TextStarted"]
    assert types[-1] == "RunFinished"
    assert "not a language model" in "".join(event.get("delta", "") for event in events)
    assert result.out.isascii() or "\x9b" not in result.out


async def test_an_empty_answer_is_reported_once(tmp_path):
    """It was reported as a warning of the model and as the failure of the run."""
    async with FakeModel() as model:
        model.agent(tmp_path)
        model.end()
        result = await asyncio.to_thread(holodeck, "chat", "hello", folder=tmp_path)
    assert (result.code, result.out, result.err) == (4, "", "✗ The model returned an empty answer.\n")


def test_a_script_learns_that_the_model_cannot_be_asked(tmp_path):
    (tmp_path / "agent.yaml").write_text(UNREACHABLE)
    result = holodeck("chat", "--quiet", folder=tmp_path, stdin="hello\n")
    assert (result.code, result.out) == (4, "")
    assert "✗ No connection to 127.0.0.1:9" in result.err


@pytest.mark.req("CHT-07")
def test_bytes_that_are_not_text_are_refused(project):
    process = Piped("chat", folder=project)
    out, err = process.communicate(b"\xff\xfe\n")
    assert (process.wait(), out) == (4, b"")
    assert "not valid UTF-8" in err.decode()


def test_ctrl_c_ends_a_script(project):
    process = subprocess.Popen(
        [sys.executable, "-m", "holodeck", "chat", "--lines"],
        cwd=project,
        env=environment(project),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"hello\nhello\n")
    process.stdin.flush()
    process.stdout.read(5)  # in the middle of the first answer
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"(stopped)" in out
    assert b"Traceback" not in err


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_an_answer_to_a_pipe_is_still_markdown_on_a_screen(project, term):
    """`echo … | holodeck chat`: there is no keyboard, but a reader; a simple terminal gets plain lines."""
    master, slave = pty.openpty()
    reading_end, stdin = os.pipe()
    process = Warm(
        "chat",
        folder=project,
        environment=environment(project, TERM=term),
        stdin=reading_end,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    os.close(reading_end)
    shown = bytearray()

    def read() -> None:
        try:
            while piece := os.read(master, 65_536):
                shown.extend(piece)
        except OSError:  # Linux's way to say that the other side is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    os.write(stdin, b"hello\n")
    os.close(stdin)
    assert process.wait(20) == 0
    reader.join()
    os.close(master)
    assert b"Hello! I am" in shown
    assert (b"\x1b[" in shown) is (term == "xterm")
