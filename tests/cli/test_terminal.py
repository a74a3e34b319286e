"""What reaches the screen, and what Ctrl+C and Ctrl+D do there."""

import asyncio
import io
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.agent.agent import Agent
from holodeck.cli.chat import Chat
from holodeck.cli.lines import PipedLines
from holodeck.cli.paint import Paint
from holodeck.cli.safe_stream import MAX_HELD, SafeStream
from holodeck.cli.story import Story, call_text
from holodeck.core import events as e
from holodeck.core.text import terminal_safe
from holodeck.core.tools import Approval
from holodeck.models.scripted import ScriptedModel, calls, says
from holodeck.tools.functions import FunctionTool, FunctionToolset
from holodeck.tools.selection import SelectedToolset
from tests.cli.process import environment

SEQUENCES = [
    "\x1b]0;title\x07",
    "\x1b]8;;http://x\x1b\\",
    "\x1b]52;c;AAAA\x07",
    "\x9d52;c;A\x9c",
    "\x1b[2J",
    "\x1b[31;1m",
    "\x9b31m",
    "\x1b[31é",
    "\x1bP$q\x1b\\",
    "\x1b_apc\x9c",
    "\x1bc",
    "\x1b(B",
    "\x1b\x1b[A",
    "\x1b]a\x1b[31mb\x07",
    "\x1b",
    "\x1b]never ends",
]
HOSTILE = st.text(alphabet="a\n\t\x1b[]P\\;m1\x07\x9b\x9c\x9d\x90\x00\r\u202e\u200bé", max_size=40)


@pytest.mark.req("T24", "CHT-08")
@pytest.mark.parametrize("sequence", SEQUENCES)
def test_a_sequence_split_at_any_place_does_not_pass(sequence):
    whole = f"before{sequence}after"
    for cut in range(len(whole) + 1):
        stream = SafeStream()
        assert stream.feed(whole[:cut]) + stream.feed(whole[cut:]) + stream.flush() == terminal_safe(whole)


@pytest.mark.req("T24", "CHT-08")
@given(st.lists(HOSTILE, max_size=6))
def test_pieces_come_out_as_the_whole_would(pieces):
    stream = SafeStream()
    shown = "".join(stream.feed(piece) for piece in pieces) + stream.flush()
    assert shown == terminal_safe("".join(pieces))


def test_ordinary_text_is_not_held_back():
    stream = SafeStream()
    assert [stream.feed(piece) for piece in ("Hello", ", ", "wörld\n")] == ["Hello", ", ", "wörld\n"]


def test_a_sequence_without_an_end_does_not_swallow_the_reply():
    stream = SafeStream()
    shown = stream.feed("\x1b]") + "".join(stream.feed("x" * 100) for _ in range(MAX_HELD // 100 + 2)) + stream.flush()
    assert "\x1b" not in shown
    assert shown.count("x") > MAX_HELD


def told(*events: e.Event, verbose: bool = False, quiet: bool = False) -> str:
    out = io.StringIO()
    story = Story(out, Paint(enabled=False), verbose=verbose, quiet=quiet)
    for event in events:
        story.emit(event)
    return out.getvalue()


CALL = e.ToolCallEnded("c1", "look", '{"what": "the \\u001b[31mred\\u001b[0m one", "n": 3}')
RESULT = e.ToolFinished("c1", "look", "m2", "fo\x1b[2Jund", seconds=0.034)


@pytest.mark.req("CHT-02", "CHT-08")
def test_a_story_in_lines():
    text = [
        e.TextStarted("m1"),
        e.TextAdded("m1", "I l"),
        e.TextAdded("m1", "ook.\x1b]0;"),
        e.TextAdded("m1", "x\x07"),
        e.TextEnded("m1"),
    ]
    assert told(*text, CALL, RESULT) == 'I look.\n→ look(what="the \\u001b[31mred\\u001b[0m one", n=3) … ✓ 0.03 s\n'
    assert told(*text, CALL, RESULT, quiet=True) == "I look.\n"
    assert told(CALL, RESULT, verbose=True).endswith("✓ 0.03 s\n  found\n")


@pytest.mark.req("CHT-02")
def test_calls_that_overlap_are_told_apart():
    other = e.ToolCallEnded("c2", "find", "{}")
    lines = told(CALL, other, RESULT, e.ToolFinished("c2", "find", "m3", "gone", failed=True, seconds=1)).splitlines()
    assert lines[1:] == ["→ find() … ", "✓ look 0.03 s", "✗ find 1.00 s", "  gone"]


@pytest.mark.parametrize(
    ("events", "line"),
    [
        ([e.RunFailed("r", "s", "model-error", "No\x1b[31m luck")], "✗ No luck\n"),
        ([e.RunFinished("r", "s", outcome=e.Outcome.CANCELLED)], "(stopped)\n"),
        ([e.RunFinished("r", "s", warning="15 iterations")], "! 15 iterations\n"),
        ([e.WarningRaised("x", "careful")], "! careful\n"),
        ([e.RunFinished("r", "s")], ""),
    ],
)
def test_notes_and_endings(events, line):
    assert told(*events) == line


def test_arguments_that_are_no_json_are_shown_as_they_are():
    assert call_text("f", "{oops", short=True) == "f({oops)"
    assert call_text("f", "", short=True) == "f()"
    assert len(call_text("f", f'{{"a": "{"x" * 500}"}}', short=True)) < 60


class FixedLines:
    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.prompts: list[str] = []

    async def read(self, prompt: str) -> str | None:
        self.prompts.append(prompt)
        return self.lines.pop(0) if self.lines else None


@pytest.mark.parametrize(("answer", "carried_out"), [("y", ["all"]), ("no", []), ("", [])])
async def test_a_tool_that_needs_approval_asks_in_the_terminal(capsys, answer, carried_out):
    done: list[str] = []

    def wipe(what: str) -> str:
        """Deletes."""
        done.append(what)
        return "gone"

    tools = SelectedToolset(FunctionToolset([FunctionTool.of(wipe)]), approval={"wipe": Approval.ALWAYS})
    model = ScriptedModel([calls(("wipe", '{"what": "all"}')), says("All right.")])
    lines = FixedLines("wipe it", answer)
    async with Agent(name="a", model=model, tools=tools) as agent:
        assert await Chat(agent, lines, verbose=False, quiet=False).go() == 0
    assert done == carried_out
    shown = capsys.readouterr().out
    assert '? wipe(what="all")' in shown
    assert shown.endswith("All right.\n")


@pytest.mark.req("CHT-07")
async def test_blank_lines_are_skipped_long_ones_refused_controls_stripped(capsys):
    model = ScriptedModel([says("Yes.")])
    async with Agent(name="a", model=model, tools=FunctionToolset([])) as agent:
        await Chat(agent, FixedLines("   ", "x" * 10_001, "he\x1b\x00llo", "QUIT"), verbose=False, quiet=False).go()
    assert [message.content for prompt in model.prompts for message in prompt.messages] == ["hello"]
    assert "at most 10000" in capsys.readouterr().err


async def test_lines_of_a_pipe_come_whole_whatever_the_pieces():
    read, write = os.pipe()
    lines = PipedLines(read)
    for piece in (b"on", b"e\ntw\xc3", b"\xb6\n", b"end"):
        os.write(write, piece)
    os.close(write)
    async with asyncio.timeout(5):
        assert [await lines.read("") for _ in range(5)] == ["one", "twö", "end", None, None]
    os.close(read)


PROMPT = "\x1b[?2004h"  # bracketed paste on: the line editor is ready


@dataclass
class Screen:
    process: "subprocess.Popen[bytes]"
    master: int
    shown: str = ""

    def wait_for(self, text: str, seconds: float = 15) -> None:
        until = time.monotonic() + seconds
        while text not in self.shown:
            left = until - time.monotonic()
            assert left > 0, f"{text!r} did not come; the screen shows {self.shown!r}"
            if select.select([self.master], [], [], left)[0]:
                self.shown += os.read(self.master, 65_536).decode(errors="replace")

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def forget(self) -> None:
        self.shown = ""


@contextmanager
def terminal(folder: Path) -> Iterator[Screen]:
    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holodeck", "chat", "--demo"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env=environment(folder, TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1"),
    )
    os.close(slave)
    try:
        yield Screen(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


@pytest.mark.req("CHT-10")
def test_ctrl_c_stops_a_reply_and_ctrl_d_leaves_with_0(tmp_path):
    with terminal(tmp_path) as screen:
        screen.wait_for(PROMPT)
        assert "todo-assistant" in screen.shown
        screen.forget()
        screen.type("hello\r")
        screen.wait_for("not a")  # in the middle of a long reply
        screen.process.send_signal(signal.SIGINT)
        screen.wait_for("(stopped)")
        screen.wait_for(PROMPT)
        screen.type("\x04")
        assert screen.process.wait(10) == 0


@pytest.mark.req("CHT-10")
def test_ctrl_c_twice_at_the_prompt_leaves_with_130(tmp_path):
    with terminal(tmp_path) as screen:
        screen.wait_for(PROMPT)
        screen.forget()
        screen.type("\x03")
        screen.wait_for("again leaves")
        screen.wait_for(PROMPT)
        screen.type("\x03")
        assert screen.process.wait(10) == 130
