"""Plain lines: what is safe, how a run reads in a pipe, how lines come out of one."""

import asyncio
import io
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.cli.lines import PipedLines
from holodeck.cli.paint import Paint
from holodeck.cli.plain_display import MAX_HELD, PlainDisplay, SafeStream, call_text
from holodeck.cli.terminal.screen import Screen
from holodeck.core import events as e
from holodeck.core.text import terminal_safe

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


def printed(*events: e.Event, verbose: bool = False, quiet: bool = False) -> str:
    out = io.StringIO()
    display = PlainDisplay(out, Paint(enabled=False), verbose=verbose, quiet=quiet)
    for event in events:
        display.emit(event)
    return out.getvalue()


CALL = e.ToolCallEnded("c1", "look", '{"what": "the \\u001b[31mred\\u001b[0m one", "n": 3}')
RESULT = e.ToolFinished("c1", "look", "m2", "fo\x1b[2Jund", seconds=0.034)


@pytest.mark.req("CHT-02", "CHT-08")
def test_a_run_in_lines():
    text = [
        e.TextStarted("m1"),
        e.TextAdded("m1", "I l"),
        e.TextAdded("m1", "ook.\x1b]0;"),
        e.TextAdded("m1", "x\x07"),
        e.TextEnded("m1"),
    ]
    assert printed(*text, CALL, RESULT) == 'I look.\n→ look(what="the \\u001b[31mred\\u001b[0m one", n=3) … ✓ 0.03 s\n'
    assert printed(*text, CALL, RESULT, quiet=True) == "I look.\n"
    assert printed(CALL, RESULT, verbose=True).endswith("✓ 0.03 s\n  found\n")


@pytest.mark.req("CHT-02")
def test_calls_that_overlap_are_kept_apart():
    other = e.ToolCallEnded("c2", "find", "{}")
    lines = printed(
        CALL, other, RESULT, e.ToolFinished("c2", "find", "m3", "gone", failed=True, seconds=1)
    ).splitlines()
    assert lines[1:] == ["→ find() … ", "✓ look 0.03 s", "✗ find 1.00 s", "  gone"]


@pytest.mark.parametrize(
    ("events", "line"),
    [
        ([e.RunFailed("r", "s", "model-error", "No\x1b[31m luck")], "✗ No luck\n"),
        ([e.RunFinished("r", "s", outcome=e.Outcome.CANCELLED)], "(stopped)\n"),
        ([e.RunFinished("r", "s", warning="15 iterations")], "! 15 iterations\n"),
        ([e.WarningRaised("x", "careful")], "! careful\n"),
        ([e.RunFinished("r", "s")], ""),
        (
            [e.WarningRaised("x", "Cut off."), e.RunFinished("r", "s", warning="Cut off. Empty.")],
            "! Cut off.\n! Empty.\n",
        ),
        ([e.WarningRaised("x", "Cut off."), e.RunFinished("r", "s", warning="Cut off.")], "! Cut off.\n"),
    ],
)
def test_notes_and_endings(events, line):
    assert printed(*events) == line


def test_a_failure_on_a_screen_has_one_full_stop():
    out = io.StringIO()
    screen = Screen(out, colours=False, size=lambda: os.terminal_size((80, 24)))
    screen.emit(e.RunFailed("r", "s", "model-error", "The connection broke.", retryable=True))
    assert "✗ The connection broke; /retry asks again." in out.getvalue()


def test_arguments_that_are_not_json_are_shown_as_they_are():
    assert call_text("f", "{oops", short=True) == "f({oops)"
    assert call_text("f", "", short=True) == "f()"
    assert len(call_text("f", f'{{"a": "{"x" * 500}"}}', short=True)) < 60


@pytest.mark.parametrize("depth", [*range(900, 1000, 7), 100_000])
def test_arguments_that_are_nested_too_deeply_are_shown_as_they_are(depth):
    shown = call_text("f", f'{{"a": {"[" * depth}{"]" * depth}}}', short=True)
    assert shown.startswith(("f(a=[[[", 'f({"a": [[['))


async def test_lines_of_a_pipe_come_whole_whatever_the_pieces():
    read, write = os.pipe()
    lines = PipedLines(read)
    for piece in (b"on", b"e\ntw\xc3", b"\xb6\n", b"end"):
        os.write(write, piece)
    os.close(write)
    async with asyncio.timeout(20):
        assert [await lines.read("") for _ in range(5)] == ["one", "twö", "end", None, None]
    os.close(read)


def test_a_reader_that_has_enough_gets_no_traceback(tmp_path):
    """`holodeck chat | head -1`."""
    command = f"echo hello | {sys.executable} -m holodeck chat --demo | head -c 5"
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.stdout == b"Hello"
    assert done.stderr == b""
