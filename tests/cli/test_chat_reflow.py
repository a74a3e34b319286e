"""`holodeck chat` in a window whose width changes, on a terminal that breaks its lines anew."""

import re

import pytest

from tests.cli.fake_model import FakeModel
from tests.cli.tmux import Tmux

WORDS = [f"word{number:02}" for number in range(60)]


@pytest.fixture
async def fake_model(tmp_path):
    async with FakeModel() as model:
        model.agent(tmp_path)
        yield model


@pytest.mark.req("CHT-02")
@pytest.mark.parametrize("widths", [(30,), (120,), (50, 30, 90), (90, 40, 41, 39)])
async def test_a_resize_in_an_answer_neither_repeats_nor_loses_a_word(tmp_path, fake_model, widths):
    async with Tmux("chat", folder=tmp_path, columns=70) as terminal:
        await terminal.wait_for(">")
        await terminal.enter("go")
        fake_model.say("It is **" + " ".join(WORDS[:20]))
        await terminal.wait_for("word19")
        for number, columns in enumerate(widths):
            await terminal.resize(columns)
            part = WORDS[20 + 5 * number : 25 + 5 * number]
            fake_model.say(" " + " ".join(part))
            await terminal.wait_for(part[-1])
        fake_model.say("** " + " ".join(WORDS[20 + 5 * len(widths) :]))
        fake_model.end()
        await terminal.wait_for("2/50 messages")
        shown = "".join(await terminal.lines())  # a word may have been broken by the terminal
        assert re.findall(r"word\d\d", shown.replace(" ", "")) == WORDS


@pytest.mark.req("CHT-02")
async def test_a_window_that_becomes_lower_repeats_nothing(tmp_path, fake_model):
    async with Tmux("chat", folder=tmp_path, columns=70, rows=30) as terminal:
        await terminal.wait_for(">")
        await terminal.enter("go")
        fake_model.say("```text\n", *(f"row {number:02}\n" for number in range(20)))
        await terminal.wait_for("row 19")
        await terminal.resize(70, 8)
        fake_model.say(*(f"row {number:02}\n" for number in range(20, 30)), "```\n")
        fake_model.end()
        await terminal.wait_for("2/50 messages")
        rows = [line for line in await terminal.lines() if line.startswith("row")]
        assert rows == [f"row {number:02}" for number in range(30)]
