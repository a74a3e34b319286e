"""Draws docs/picture.svg: what a terminal shows when a user chats with the demo agent, and a client loses its connection.

    python docs/picture.py

Both scenes are real: the terminal's own reader prints a run of the demo agent with its MCP server; then a server is
started and curl is cut off in the middle of a run. So that the same code draws the same picture, the clock of the first
stands still, ids and long lines are shortened, and durations are left out.
"""
# ruff: noqa: INP001  a folder of pages, no package

import asyncio
import io
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from holodeck.agent.definition import AgentContext, AgentDefinition
from holodeck.agent.loop import run
from holodeck.cli.agent_choice import DATABASE_VARIABLE, load_demo
from holodeck.cli.paint import Paint
from holodeck.cli.plain_display import PlainDisplay
from holodeck.config.build import build_agent
from holodeck.core.messages import UserMessage
from holodeck.models.demo.model import DemoModel
from holodeck.sessions.transcript import Transcript

PICTURE = Path(__file__).with_name("picture.svg")
NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
QUESTIONS = ("Remind me to buy eggs tomorrow at 3pm, urgent #home", "What's on my list?")
HELLO = (
    '{"threadId":"t1","runId":"r1","protocolVersion":"1.0","messages":[{"id":"m1","role":"user","content":"Hello"}]}'
)
POST = "curl -sN localhost:8000/awp --json @hello.json | head -n 8"
READ_ON = "curl -sN localhost:8000/runs/r1/events -H 'Last-Event-ID: r1:2'"
PROMPT = "\x1b[36m$\x1b[0m "
COLUMNS = 104
WIDTH, LINE, LEFT, TOP = 8.0, 20, 24, 56
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
COLOURS = {"1": "#ffffff", "2": "#8b949e", "31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "36": "#79c0ff"}
PLAIN = "#d6dde6"
NO_BREAK = "\u00a0"  # browsers draw two ordinary spaces as one
_DURATION = re.compile(r" \x1b\[2m\d+\.\d\d s\x1b\[0m")
_ESCAPE = re.compile(r"\x1b\[(\d+)m")


async def terminal_lines() -> list[str]:
    """The lines of the picture, with the escape sequences that colour them."""
    with tempfile.TemporaryDirectory() as folder:
        place = {"XDG_DATA_HOME": folder, DATABASE_VARIABLE: f"{folder}/demo.sqlite3"}
        agent = replace(build_agent(load_demo(place)), model=DemoModel(clock=lambda: NOW))
        async with agent:
            chat_lines = await chat(agent)
        return [*chat_lines, "", *cut(Path(folder))]


async def chat(agent: AgentDefinition) -> list[str]:
    out, transcript = io.StringIO(), Transcript()
    out.write(f"{PROMPT}holodeck chat --demo\n")
    for words in QUESTIONS:
        out.write(f"\x1b[36m>\x1b[0m \x1b[1m{words}\x1b[0m\n")
        display = PlainDisplay(out, Paint(enabled=True))
        await run(agent, context(words, transcript), display.emit)
    return wrapped(_DURATION.sub("", out.getvalue()))


def cut(folder: Path) -> list[str]:
    (folder / "hello.json").write_text(HELLO, encoding="utf-8")
    with serving(folder) as port:
        first, rest = (typed(command, folder, port) for command in (POST, READ_ON))
    note = "\x1b[2m# the connection is cut here; the run continues\x1b[0m"
    return [PROMPT + POST, *first, note, PROMPT + READ_ON, *rest[:4], "\x1b[2m…\x1b[0m", *rest[-2:]]


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    command = [sys.executable, "-m", "holodeck", "serve", "--demo", "--banner", "--port", str(port)]
    place = {**os.environ, "XDG_DATA_HOME": str(folder)}
    with subprocess.Popen(command, env=place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:  # noqa: S603  our own command
        try:
            banner = iter(server.stderr or ())
            if not any("Ctrl+C" in line for line in banner):
                raise RuntimeError("the server did not come up")
            yield port
        finally:
            server.terminate()


def typed(command: str, folder: Path, port: int) -> list[str]:
    """The lines that a command prints."""
    here = command.replace(":8000", f":{port}")
    done = subprocess.run(here, shell=True, cwd=folder, capture_output=True, text=True, check=True)  # noqa: S602  our own command, with its pipe
    return [short(line) for line in done.stdout.splitlines() if line]


def context(words: str, transcript: Transcript) -> AgentContext:
    return AgentContext(
        conversation=transcript,
        input=[UserMessage(content=words)],
        run_id="r1",
        session_id="t1",
        user_id="ann",
        timezone="UTC",
    )


def short(line: str) -> str:
    """A frame's line that fits: ids of our own making are cut to three letters."""
    line = re.sub(r"\b[0-9A-Z]{26}\b|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "01M", line)
    if line.startswith("id:"):
        return f"\x1b[2m{line}\x1b[0m"
    return line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…"


def wrapped(text: str) -> list[str]:
    lines = []
    for line in text.rstrip("\n").split("\n"):
        while len(_ESCAPE.sub("", line)) > COLUMNS:
            at = line.rfind(" ", 0, COLUMNS)
            lines.append(f"{line[:at]}\x1b[0m")
            line = f"\x1b[2m  {line[at + 1 :]}"  # noqa: PLW2901  the rest of the same line
        lines.append(line)
    return lines


def drawn(lines: list[str]) -> str:
    width, height = COLUMNS * WIDTH + 2 * LEFT, len(lines) * LINE + TOP + 16
    dots = "".join(
        f'<circle cx="{LEFT + 18 * i}" cy="24" r="6" fill="{colour}"/>'
        for i, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))
    )
    rows = "\n".join(
        f'<text y="{TOP + LINE * n + 4}">{"".join(spans(line))}</text>' for n, line in enumerate(lines) if line
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        'aria-label="A terminal: the demo agent adds and lists a todo; a client reads on after its connection broke">\n'
        f'<rect width="100%" height="100%" rx="10" fill="#10151c"/>{dots}\n'
        f'<g font-family="{FONT}" font-size="13" fill="{PLAIN}">\n{rows}\n</g>\n</svg>\n'
    )


def spans(line: str) -> Iterator[str]:
    """Each run of characters at its column, so that any monospaced font fits."""
    column, code = 0, ""
    for n, piece in enumerate(_ESCAPE.split(line)):
        if n % 2:
            code = piece
        elif piece:
            style = f' fill="{COLOURS[code]}"' if code in COLOURS else ""
            bold = ' font-weight="bold"' if code == "1" else ""
            yield (
                f'<tspan x="{LEFT + column * WIDTH:g}" textLength="{len(piece) * WIDTH:g}"{style}{bold}>'
                f"{escape(piece, quote=False).replace('  ', NO_BREAK * 2)}</tspan>"
            )
            column += len(piece)


if __name__ == "__main__":
    PICTURE.write_text(drawn(asyncio.run(terminal_lines())), encoding="utf-8")
