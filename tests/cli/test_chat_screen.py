"""`holodeck chat` on a real terminal, read by an emulator: streaming, tools, resume, resize, narrow windows."""

import re
import sys

import psutil
import pytest

from tests.cli.chatting import chat, fake_model_with_tools

LATER = (
    "mcp.",
    "mcp_types.",
    "httpx2.",
    "starlette.",
    "opentelemetry.",
    "holodeck.server.",
    "holodeck.stores.",
    "sqlmodel.",
)


@pytest.fixture
async def fake_model(tmp_path):
    async with fake_model_with_tools(tmp_path) as model:
        yield model


@pytest.mark.req("CHT-01")
async def test_the_prompt_is_there_before_what_it_does_not_need_is_loaded(tmp_path, capsys):
    """Its CPU is printed, not asserted: seconds depend on the machine, the modules that are loaded do not."""
    async with chat(tmp_path, "--demo", cold=True) as terminal:
        await terminal.prompt()
        times = psutil.Process(terminal.process.pid).cpu_times()
        assert terminal.lines[0] == "todo-assistant (demo); /help"
    with capsys.disabled():
        sys.stdout.write(f"\nholodeck chat: start to prompt {times.user + times.system:.2f} s of CPU\n")
    async with chat(tmp_path, "--demo", cold=True, PYTHONPROFILEIMPORTTIME="1") as terminal:
        await terminal.wait_for(lambda: b"/help" in terminal.raw)
        before = terminal.raw.partition(b"/help")[0].decode()
    loaded = set(re.findall(r"import time: .*\|\s+(\S+)\r", before))
    assert {"holodeck.cli.terminal.screen", "holodeck.agent.loop"} <= loaded
    assert not [name for name in loaded if f"{name}.".startswith(LATER)]


@pytest.mark.req("CHT-02")
async def test_text_streams_as_markdown_and_no_word_is_written_twice(tmp_path, fake_model):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.enter("go")
        fake_model.say("# Fruit\n\nSome **app")
        await terminal.wait_for("Some **app")  # an open end is shown as it is
        fake_model.say("les** and\npears\n\n")
        await terminal.wait_for("Some apples and")
        fake_model.say("- kiwi\n- lemon\n\n1. one\n2. two\n\n```python\nprint('mango')\n```\n", "The e")
        await terminal.wait_for("The e")
        fake_model.say("nd.")
        fake_model.end(tokens=(1200, 34))
        await terminal.wait_for("2/50 messages · 1,234 tokens")
        await terminal.prompt()
        shown = [line for line in terminal.lines if line]
        assert shown[1:] == [
            "> go",
            "Fruit",
            "Some apples and",
            "pears",
            " • kiwi",
            " • lemon",
            " 1. one",
            " 2. two",
            "print('mango')",
            "The end.",
            next(line for line in shown if "tokens" in line),
            ">",
        ]
        for word in (b"Fruit", b"pears", b"kiwi", b"lemon", b"mango"):
            assert terminal.raw.count(word) == 1, word


@pytest.mark.req("CHT-02")
async def test_a_long_answer_scrolls_and_loses_nothing(tmp_path, fake_model):
    async with chat(tmp_path, rows=10) as terminal:
        await terminal.prompt()
        terminal.enter("go")
        fake_model.say("```text\n", *(f"line {number}\n" for number in range(60)), "```\n")
        fake_model.end()
        await terminal.wait_for("2/50 messages")
        text = terminal.text
        assert [text.count(f"line {number}\n") for number in range(60)] == [1] * 60


@pytest.mark.req("CHT-02", "CHT-08")
async def test_a_tool_call_is_one_live_line(tmp_path, fake_model):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.enter("go")
        fake_model.call("slow", {"what": "x" * 300})
        fake_model.end("tool_calls")
        await terminal.wait_for("slow(what=")
        running = next(line for line in terminal.lines if "slow(" in line)
        assert running[0] in "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
        fake_model.say("Ready.")
        fake_model.end()
        (tmp_path / "go").touch()
        await terminal.wait_for("messages")
        lines = [line for line in terminal.lines if "slow(" in line]
        assert len(lines) == 1
        assert lines[0].startswith('✓ slow(what="xxx')
        assert lines[0].endswith(" s")
        assert terminal.screen.title == ""
        assert "evil" not in terminal.text


@pytest.mark.req("CHT-02")
async def test_verbose_shows_arguments_results_thoughts_and_tokens(tmp_path, fake_model):
    (tmp_path / "go").touch()
    async with chat(tmp_path, "--verbose") as terminal:
        await terminal.prompt()
        terminal.enter("go")
        fake_model.think("Let me see.\nWell.")
        fake_model.call("slow", {"what": "a", "why": None})
        fake_model.end("tool_calls")
        fake_model.call("slow", {"what": "a"}, "c2")
        fake_model.end("tool_calls")
        fake_model.say("Ready.")
        fake_model.end()
        await terminal.wait_for("6/50 messages")
        for part in ("Let me see.\nWell.\n", '  {\n    "what": "a"\n  }', "  done with a", "7 + 3 tokens"):
            assert part in terminal.text


async def test_what_a_conversation_costs(tmp_path, fake_model):
    fake_model.agent(tmp_path, model=", price: {input: 0.5, output: 2, cached: 0.05}")
    async with chat(tmp_path, "--verbose") as terminal:
        await terminal.prompt()
        for number in (1, 2):
            terminal.enter("go")
            fake_model.say("Yes.")
            fake_model.end(tokens=(1_000, 500))
            await terminal.wait_for(f"{2 * number}/50 messages")
            await terminal.prompt()
        assert terminal.text.count("1,000 + 500 tokens · cost 0.0015") == 2
        assert "4/50 messages · 3,000 tokens · cost 0.0030 · " in terminal.text
        terminal.enter("/model")
        await terminal.wait_for("openai_compatible/m · 0.5 in, 2 out, 0.05 cached per million tokens")


async def test_thoughts_are_folded_unless_asked_for(tmp_path, fake_model):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.enter("go")
        fake_model.think("First this, then that.")
        fake_model.say("Yes.")
        fake_model.end()
        await terminal.wait_for("messages")
        assert "✻ thought for" in terminal.text
        assert "First this" not in terminal.text
        terminal.enter("/reasoning")
        await terminal.wait_for("First this, then that.")


@pytest.mark.parametrize(
    ("keys", "wiped"), [(["y"], "all"), (["n"], None), (["e", '\x05\x7f\x7f\x7f\x7f\x7fless"}'], "less")]
)
async def test_an_approval_is_asked_inline(tmp_path, fake_model, keys, wiped):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.enter("wipe it")
        fake_model.call("wipe", {"what": "all"})
        fake_model.end("tool_calls")
        await terminal.wait_for('? wipe(what="all")')
        for key, question in zip(keys, ("allow? [y/n/e = edit/a = always]", "arguments:"), strict=False):
            await terminal.wait_for(question)
            terminal.enter(key)
        fake_model.say("As you like.")
        fake_model.end()
        await terminal.wait_for("As you like.")
        written = tmp_path / "wiped"
        assert (written.read_text() if written.exists() else None) == wiped


@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["Ctrl+C", "Ctrl+D"])
async def test_a_question_that_is_left_open_says_what_becomes_of_the_call(tmp_path, fake_model, key):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.enter("wipe it")
        fake_model.call("wipe", {"what": "all"})
        fake_model.end("tool_calls")
        await terminal.wait_for("allow?")
        terminal.type(key)
        await terminal.wait_for("(wipe was not run; your next message continues without it)")
        await terminal.prompt()
        assert not (tmp_path / "wiped").exists()


@pytest.mark.req("CHT-01", "CHT-03", "CHT-04")
async def test_a_chat_can_be_resumed(tmp_path, fake_model):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.enter("my name is Ann")
        fake_model.say("Hello Ann.")
        fake_model.end()
        await terminal.wait_for("messages")
        await terminal.prompt()
        terminal.type("\x04")
        assert await terminal.exit_code() == 0
    async with chat(tmp_path, "--list") as terminal:
        await terminal.exit_code()
        await terminal.wait_for("my name is Ann")
        session_id = terminal.lines[0].split()[0]
    async with chat(tmp_path, "--resume", session_id) as terminal:
        await terminal.wait_for("2 messages: my name is Ann")
        await terminal.prompt()
        terminal.type("\x1b[A")  # the history of the session before
        await terminal.wait_for("> my name is Ann")
        terminal.enter(", or not?")
        fake_model.say("You said so.")
        fake_model.end()
        await terminal.wait_for("4/50 messages")
        assert [each["content"] for each in fake_model.prompts[-1]][:2] == ["my name is Ann", "Hello Ann."]


@pytest.mark.req("CHT-03")
async def test_several_lines_and_completion(tmp_path, fake_model):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.type("one\x1b\rtwo")
        await terminal.wait_for("two")
        terminal.type("\r")
        fake_model.say("Three.")
        fake_model.end()
        await terminal.wait_for("messages")
        assert fake_model.prompts[-1][-1]["content"] == "one\ntwo"
        await terminal.prompt()
        terminal.type("/exp")
        await terminal.wait_for("write the conversation as Markdown")
        terminal.type("\t")
        await terminal.wait_for("> /export")


@pytest.mark.parametrize("columns", [40, 20])
async def test_narrow_windows_and_wide_characters_do_not_break_lines(tmp_path, fake_model, columns):
    async with chat(tmp_path, columns=columns) as terminal:
        await terminal.prompt()
        terminal.enter("go")
        (tmp_path / "go").touch()
        fake_model.call("slow", {"what": "日本語" * 30})
        fake_model.end("tool_calls")
        fake_model.say("日本語の文章 " * 12, "\n\n| a | 列 |\n|---|---|\n| 1 | 二 |\n\n**end**")
        fake_model.end()
        await terminal.wait_for("4/50 messages")
        assert sum("slow" in line for line in terminal.text.splitlines()) == 1
        assert terminal.text.count("日本語の文章") == 12
        assert "end" in terminal.lines


@pytest.mark.parametrize("columns", [30, 120])
async def test_a_resize_in_the_middle_of_a_paragraph_repeats_no_word(tmp_path, fake_model, columns):
    words = [f"word{number:02}" for number in range(40)]
    async with chat(tmp_path, columns=70) as terminal:
        await terminal.prompt()
        terminal.enter("go")
        fake_model.say(" ".join(words[:25]) + " ")
        await terminal.wait_for("word24")
        terminal.resize(columns, 24)
        fake_model.say(" ".join(words[25:]))
        fake_model.end()
        await terminal.wait_for("messages")
        # An emulator that does not reflow cuts what stood beyond the new edge; what came after the resize is whole.
        counts = [terminal.text.count(word) for word in words]
        assert max(counts) == 1
        assert counts[25:] == [1] * 15
        assert columns < 70 or counts == [1] * 40


async def test_what_the_chat_says_itself_breaks_between_words(tmp_path, fake_model):
    async with chat(tmp_path, "-m", "2", columns=40) as terminal:
        await terminal.prompt()
        terminal.enter("go")
        fake_model.say("Yes.")
        fake_model.end()
        await terminal.wait_for("\none.\n")
        warning = terminal.lines[terminal.lines.index("! 2 of 2 messages (--max-messages): the") :][:4]
        assert " ".join(warning) == (
            "! 2 of 2 messages (--max-messages): the oldest will soon be left out. "
            "/save keeps this chat, /clear starts a new one."
        )


async def test_no_colour_means_no_colour(tmp_path, fake_model):
    async with chat(tmp_path, NO_COLOR="1") as terminal:
        await terminal.prompt()
        terminal.enter("go")
        fake_model.say("# Head\n\n`code` and **bold**")
        fake_model.end()
        await terminal.wait_for("messages")
        codes = {code for style in re.findall(rb"\x1b\[([\d;]*)m", terminal.raw) for code in style.split(b";")}
        assert codes <= {b"", b"0"}


async def test_a_start_that_fails_while_the_user_types_ends_the_chat(tmp_path, fake_model):
    fake_model.agent(tmp_path, "tools: [{name: gone, type: mcp, command: no-such-server}]\n")
    async with chat(tmp_path) as terminal:
        assert await terminal.exit_code() == 2
        await terminal.wait_for("no-such-server")
        assert terminal.echoes()


async def test_long_code_is_left_to_the_terminal_to_wrap(tmp_path, fake_model):
    """Selected with the mouse, it is one line: the program writes no line break of its own."""
    code = "value = compute(" + ", ".join(f"argument_{number}" for number in range(12)) + ")"
    async with chat(tmp_path, columns=40) as terminal:
        await terminal.prompt()
        terminal.enter("go")
        fake_model.say(f"Look:\n\n```python\n{code[:100]}")
        await terminal.wait_for("argument_3")
        fake_model.say(f"{code[100:]}\n```\n\nThe end.")
        fake_model.end()
        await terminal.wait_for("messages")
        last = terminal.raw.rindex(b"argument_11")
        written = re.sub(rb"\x1b\[[\d;]*m", b"", terminal.raw[: last + 20])
        assert code.encode() in written
        assert "The end." in terminal.lines


async def test_words_in_narrow_tables_are_not_cut_off(tmp_path, fake_model):
    async with chat(tmp_path, columns=24) as terminal:
        await terminal.prompt()
        terminal.enter("go")
        fake_model.say("| Region | Responsible |\n| --- | --- |\n| Northumberland | Schwarzenegger-Smith |\n")
        fake_model.end()
        await terminal.wait_for("messages")
        assert "…" not in terminal.text


@pytest.mark.req("CHT-05")
async def test_a_resumed_chat_shows_where_it_stands(tmp_path, fake_model):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.enter("What is a lantern?")
        fake_model.say("A **lamp** with a case.")
        fake_model.end()
        await terminal.wait_for("2/50 messages")
        terminal.type("\x04")
        assert await terminal.exit_code() == 0
    async with chat(tmp_path, "--resume", "last") as terminal:
        await terminal.prompt()
        shown = [line for line in terminal.lines if line]
        assert shown[2:] == ["> What is a lantern?", "A lamp with a case.", ">"]


async def test_the_editor_opens_what_is_typed(tmp_path, fake_model):
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\nprintf "from the editor" > "$1"\n')
    editor.chmod(0o755)
    async with chat(tmp_path, VISUAL=str(editor)) as terminal:
        await terminal.prompt()
        terminal.type("half\x18\x05")
        await terminal.wait_for("> from the editor")
        terminal.type("\r")
        fake_model.say("Read.")
        fake_model.end()
        await terminal.wait_for("Read.")
    assert fake_model.prompts[0][-1]["content"] == "from the editor"


async def test_copy_writes_to_the_clipboard_of_the_terminal(tmp_path, fake_model):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.enter("go")
        fake_model.say("Run it:\n\n```sh\nmake demo\n```\n")
        fake_model.end()
        await terminal.wait_for("messages")
        terminal.enter("/copy code")
        await terminal.wait_for("Copied 10 characters")
        assert b"\x1b]52;c;bWFrZSBkZW1vCg==\x07" in terminal.raw


REPORTING = '''
import asyncio, pathlib
from holodeck.core.events import ActivityPatched, ActivityShown
from holodeck.tools.port import ToolContext


async def copy(context: ToolContext) -> str:
    """Copies pages."""
    content = {"tool": "copy", "progress": 3, "total": 12, "message": "pages"}
    context.emit(ActivityShown(message_id="m1", kind="tool_progress", content=content))
    while not pathlib.Path("more").exists():
        await asyncio.sleep(0.01)
    patch = [{"op": "replace", "path": "/progress", "value": 9}]
    context.emit(ActivityPatched(message_id="m1", kind="tool_progress", patch=patch))
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    return "done"
'''


async def test_progress_of_a_tool_is_shown_while_it_runs(tmp_path, fake_model):
    (tmp_path / "tools.py").write_text(REPORTING)
    fake_model.agent(tmp_path, "tools: [{name: copy, type: function, file: tools.py}]\n")
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.enter("go")
        fake_model.call("copy", {})
        fake_model.end("tool_calls")
        await terminal.wait_for("copy() · 3/12 pages")
        (tmp_path / "more").touch()
        await terminal.wait_for("copy() · 9/12 pages")
        (tmp_path / "go").touch()
        fake_model.say("Copied.")
        fake_model.end()
        await terminal.wait_for("messages")
        assert "✓ copy() " in terminal.text
        assert "/12 pages" not in terminal.text
