"""What comes into the middle of a chat on a real terminal: Ctrl+C, signals, and keys pressed while an answer streams."""

import asyncio
import json
import signal

import pytest

from tests.cli.chatting import chat, fake_model_with_tools
from tests.cli.process import holodeck


@pytest.fixture
async def fake_model(tmp_path):
    async with fake_model_with_tools(tmp_path) as model:
        yield model


@pytest.mark.req("CHT-10", "D02")
async def test_ctrl_c_stops_model_and_tools_and_keeps_the_partial_answer(tmp_path, fake_model):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.enter("talk")
        fake_model.say("Once upon a")
        await terminal.wait_for("Once upon a")
        terminal.interrupt()
        await terminal.wait_for("(stopped)")
        await asyncio.wait_for(fake_model.left.wait(), 20)
        await terminal.prompt()
        terminal.enter("work")
        fake_model.call("slow", {"what": "a"})
        fake_model.end("tool_calls")
        await terminal.wait_for("slow(what=")
        terminal.interrupt()
        await terminal.wait_for(lambda: terminal.text.count("(stopped)") == 2)
        await terminal.prompt()
        terminal.enter("/history")
        await terminal.wait_for("  Once upon a [stopped]")
        terminal.enter("go on")
        fake_model.say("Of course.")
        fake_model.end()
        await terminal.wait_for("Of course.")
        assert "Once upon a" in json.dumps(fake_model.prompts[-1])
        terminal.type("\x04")
        assert await terminal.exit_code() == 0
        assert terminal.echoes()


@pytest.mark.req("CHT-10", "D02")
async def test_ctrl_c_twice_at_the_prompt_leaves_with_130(tmp_path, fake_model):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.interrupt()
        await terminal.wait_for("again exits")
        await terminal.prompt()
        terminal.interrupt()
        assert await terminal.exit_code() == 130
        assert terminal.echoes()


@pytest.mark.req("CHT-10")
async def test_ctrl_c_clears_a_half_typed_line_and_never_leaves_from_one(tmp_path, fake_model):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.interrupt()
        await terminal.wait_for("again exits")
        for text in ("half a line", "another half"):
            await terminal.prompt()
            terminal.type(text)
            await terminal.wait_for(f"> {text}")
            terminal.interrupt()
            await terminal.prompt()
        terminal.interrupt()  # the line is empty, but something was typed since the last time
        await terminal.wait_for(lambda: terminal.text.count("again exits") == 2)
        await terminal.prompt()
        terminal.interrupt()
        assert await terminal.exit_code() == 130
    assert fake_model.prompts == []


@pytest.mark.req("CHT-10", "D02")
@pytest.mark.parametrize(("way", "code"), [("Ctrl+C", 130), ("SIGTERM", 143)])
async def test_a_tool_that_will_not_stop_blocks_no_exit(tmp_path, fake_model, way, code):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.enter("work")
        fake_model.call("stubborn", {})
        fake_model.end("tool_calls")
        await terminal.wait_for((tmp_path / "begun").exists)  # its call is on the screen before it is complete
        if way == "Ctrl+C":
            terminal.interrupt()
            await terminal.wait_for((tmp_path / "refused").exists)
            terminal.interrupt()
        else:
            terminal.signal(signal.SIGTERM)
        assert await terminal.exit_code() == code
        assert terminal.echoes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("where", ["at the prompt", "in an answer"])
async def test_a_signal_restores_the_terminal_and_keeps_the_chat(tmp_path, fake_model, number, where):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        if where == "in an answer":
            terminal.enter("talk")
            fake_model.say("Once upon a")
            await terminal.wait_for("Once upon a")
        terminal.signal(number)
        assert await terminal.exit_code() == 128 + number
        assert terminal.echoes()
    exported = holodeck("sessions", "export", folder=tmp_path)
    if where == "in an answer":
        assert json.loads(exported.out)["messages"][-1]["cut"] == "stopped"
        async with chat(tmp_path, "--resume", "last") as terminal:
            await terminal.prompt()
            assert "(stopped; /retry asks again)" in terminal.lines
    else:
        assert "there are no stored sessions" in exported.err


async def test_a_question_whose_answer_a_crash_cut_is_not_shown_with_an_earlier_answer(tmp_path, fake_model):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.enter("first")
        fake_model.say("One.")
        fake_model.end()
        await terminal.wait_for("One.")
        await terminal.prompt()
        terminal.enter("second")
        fake_model.say("Half")
        await terminal.wait_for("Half")
        terminal.signal(signal.SIGKILL)
        await terminal.exit_code()
    async with chat(tmp_path, "--resume", "last") as terminal:
        await terminal.prompt()
        shown = [line for line in terminal.lines if line]
    assert shown[1:] == ["3 messages: first", "> second", "(no answer was stored; /retry asks again)", ">"]


async def test_keys_pressed_during_an_answer_wait_for_the_prompt(tmp_path, fake_model):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.enter("go")
        fake_model.say("Half")
        await terminal.wait_for("Half")
        terminal.enter("next")
        fake_model.say(" and half.")
        fake_model.end()
        fake_model.say("Second.")
        fake_model.end()
        await terminal.wait_for("Second.")
        assert "Half and half." in terminal.lines
        assert [prompt[-1]["content"] for prompt in fake_model.prompts] == ["go", "next"]
