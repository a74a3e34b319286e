"""Talks to the demo agent for a long time and watches its memory (`make soak`).

    python -m tests.cli.chat_soak [--turns 200] [--minutes 30] [--growth 5]

The real program in a pseudo-terminal, its MCP server included. Turns are spread over the minutes; memory is compared
between the end of the first tenth, when everything is loaded, and the end. Exit code 1 if it grew by more than that.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.cli.vt import Terminal

SAYINGS = (
    "add buy milk {turn} tomorrow at 3pm, urgent #home",
    "what is on my list?",
    "hello",
    "mark buy milk {turn} as done",
    "delete buy milk {turn}",
    "/clear",
    "/tools",
)
WARM_UP = 0.1


@dataclass(frozen=True)
class Memory:
    """Of the program and of all that it started, in bytes."""

    before: int
    after: int

    @property
    def growth(self) -> float:
        return (self.after / self.before - 1) * 100


async def soak(turns: int, seconds: float, folder: Path) -> Memory:
    async with Terminal("chat", "--demo", folder=folder, cold=True) as terminal:
        await terminal.prompt()
        before, begun = 0, time.monotonic()
        warm = max(round(turns * WARM_UP), 1)
        for turn in range(turns):
            await _turn(terminal, SAYINGS[turn % len(SAYINGS)].format(turn=turn // len(SAYINGS)))
            if turn + 1 == warm:
                before = _memory(terminal.process.pid)
            await asyncio.sleep(max(0.0, begun + seconds * (turn + 1) / turns - time.monotonic()))
        after = _memory(terminal.process.pid)
        terminal.type("\x04")
        if await terminal.exit_code():
            raise RuntimeError(f"the chat ended badly:\n{terminal.text}")
        return Memory(before, after)


async def _turn(terminal: Terminal, line: str) -> None:
    terminal.screen.reset()
    terminal.screen.history.top.clear()
    terminal.raw = b""
    terminal.enter(line)
    await terminal.prompt()  # the next one: the reset has wiped this one off the emulator's screen


def _memory(pid: int) -> int:
    process = psutil.Process(pid)
    return sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--growth", type=float, default=5.0, help="per cent that are allowed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        memory = asyncio.run(soak(options.turns, options.minutes * 60, Path(folder)))
    sys.stdout.write(
        f"{options.turns} turns: {memory.before / 1e6:.1f} MB, then {memory.after / 1e6:.1f} MB ({memory.growth:+.1f} %)\n"
    )
    return int(memory.growth > options.growth)


if __name__ == "__main__":
    sys.exit(main())
