"""Draws docs/chat.svg: a conversation with the demo agent, as the terminal shows it.

    python -m docs.chat_picture

The screen's own reader writes to a terminal emulator; the picture is what the emulator shows at the end. So that the
same code draws the same picture, the model's clock stands still and durations are left out.
"""
# ruff: noqa: INP001  a folder of pages, no package

import asyncio
import io
import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pyte
from docs.picture import NOW, PROMPT, context, drawn

from holodeck.agent.loop import run
from holodeck.cli.agent_choice import DATABASE_VARIABLE, load_demo
from holodeck.cli.terminal.screen import Screen
from holodeck.config.build import build_agent
from holodeck.models.demo.model import DemoModel
from holodeck.sessions.transcript import Transcript

PICTURE = Path(__file__).with_name("chat.svg")
SIZE = os.terminal_size((96, 40))
QUESTIONS = (
    "Remind me to buy eggs tomorrow at 3pm, urgent #home",
    "Add call mum on Friday",
    "What's on my list?",
)
LABEL = "A terminal: the demo agent adds two todos and lists them, with its tool calls, in colours"
COLOURS = {"red": "31", "green": "32", "brown": "33", "cyan": "36"}  # pyte calls yellow brown
_DURATION = re.compile(r" \d+\.\d\d s$")


async def conversation() -> str:
    out, transcript = io.StringIO(), Transcript()
    out.write(f"{PROMPT}holodeck chat --demo\n\x1b[1mtodo-assistant\x1b[0m (demo); /help\n")
    with tempfile.TemporaryDirectory() as folder:
        place = {"XDG_DATA_HOME": folder, DATABASE_VARIABLE: f"{folder}/demo.sqlite3"}
        async with replace(build_agent(load_demo(place)), model=DemoModel(clock=lambda: NOW)) as agent:
            for words in QUESTIONS:
                out.write(f"\x1b[36m>\x1b[0m \x1b[1m{words}\x1b[0m\n")
                screen = Screen(out, size=lambda: SIZE)
                await run(agent, context(words, transcript), screen.emit)
                out.write(f"{len(transcript.messages)}/50 messages\n")
    out.write("\x1b[36m>\x1b[0m ")
    return out.getvalue()


def shown(text: str) -> list[str]:
    """The emulator's screen as lines with one colour code before each change of style."""
    screen = pyte.Screen(*SIZE)
    screen.set_mode(pyte.modes.LNM)  # what a terminal driver does with a line feed
    pyte.Stream(screen).feed(text)
    lines = [_line(screen.buffer[row]) for row in range(screen.cursor.y + 1)]
    return [_DURATION.sub("", line) for line in lines]


def _line(row: "dict[int, pyte.screens.Char]") -> str:
    text, before = "", ""
    for column in range(SIZE.columns):
        cell = row[column]
        style = COLOURS.get(cell.fg) or ("1" if cell.bold else "0")
        text += cell.data if style == before else f"\x1b[{style}m{cell.data}"
        before = style
    return text.rstrip()


def main() -> None:
    picture = drawn(shown(asyncio.run(conversation())))
    PICTURE.write_text(re.sub(r'aria-label="[^"]*"', f'aria-label="{LABEL}"', picture), encoding="utf-8")


if __name__ == "__main__":
    main()
