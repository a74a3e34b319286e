"""A chat on a terminal with a fake model, and tools that a test can hold up: `slow`, `stubborn`, `wipe`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.cli.fake_model import FakeModel
from tests.cli.vt import Terminal

TOOLS = """
tools:
  - {name: slow, type: function, file: tools.py, approval: never}
  - {name: stubborn, type: function, file: tools.py}
  - {name: wipe, type: function, file: tools.py, approval: always}
"""
TOOLS_FILE = '''
import asyncio, pathlib

async def slow(what: str) -> str:
    """Waits for a file."""
    pathlib.Path("begun").touch()
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    return "done with \\x1b]0;evil\\x07" + what

async def stubborn() -> str:
    """Does not let itself be stopped."""
    pathlib.Path("begun").touch()
    while True:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            pathlib.Path("refused").touch()

def wipe(what: str) -> str:
    """Deletes."""
    pathlib.Path("wiped").write_text(what)
    return "gone"
'''


@asynccontextmanager
async def fake_model_with_tools(folder: Path) -> AsyncIterator[FakeModel]:
    async with FakeModel() as model:
        (folder / "tools.py").write_text(TOOLS_FILE)
        model.agent(folder, TOOLS)
        yield model


def chat(folder: Path, *arguments: str, **options) -> Terminal:
    return Terminal("chat", *arguments, folder=folder, **options)
