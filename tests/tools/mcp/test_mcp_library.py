"""Prompts and resources of a server of the official SDK, over its standard streams."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holodeck.cli.conversation.commands import (
    filled_prompt,
    listed_prompts,
    listed_resources,
    read_resource,
)
from holodeck.errors import InvalidRequest
from holodeck.models.scripted import ScriptedModel, says
from holodeck.tools.catalogue import Catalogue, Source
from holodeck.tools.mcp_settings import McpSettings
from holodeck.tools.mcp_toolset import McpToolset
from tests.cli.chat_fixture import ChatFixture

SERVER = '''
from mcp.server.mcpserver import MCPServer

server = MCPServer("shelf")

@server.tool()
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b

@server.prompt()
def review(file: str, focus: str = "bugs") -> str:
    """Review a file."""
    return f"Review {file} for {focus}."

@server.resource("shelf://notes", mime_type="text/markdown")
def notes() -> str:
    """The harbour's notes."""
    return "# Notes\\nThe boat is blue."

@server.resource("shelf://picture.bin", mime_type="application/octet-stream")
def picture() -> bytes:
    return b"\\x00\\x01"

server.run()
'''


def shelf(folder: Path) -> Catalogue:
    (folder / "shelf.py").write_text(SERVER)
    settings = McpSettings(name="shelf", command=sys.executable, args=(str(folder / "shelf.py"),), required=True)
    return Catalogue([Source(toolset=McpToolset(settings), name="shelf")])


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[Catalogue]:
    catalogue = shelf(folder)
    await catalogue.start()
    try:
        yield catalogue
    finally:
        await catalogue.close()


async def test_prompts_are_listed_and_filled_in(tmp_path):
    async with started(tmp_path) as catalogue:
        libraries = catalogue.libraries
        assert await listed_prompts(libraries) == [("review file= [focus=]", "Review a file.")]
        assert await filled_prompt(libraries, "review file='a b.py'") == "Review a b.py for bugs."
        for line, words in (
            ("revew file=x", "did you mean review"),
            ("review", "needs file: /prompts review file="),
            ("review x", "is not ARGUMENT=VALUE"),
            ("review 'x", "quotes"),
        ):
            with pytest.raises(InvalidRequest, match=words):
                await filled_prompt(libraries, line)


async def test_resources_are_listed_and_read(tmp_path):
    async with started(tmp_path) as catalogue:
        libraries = catalogue.libraries
        assert ("shelf://notes", "The harbour's notes.") in await listed_resources(libraries)
        (document,) = await read_resource(libraries, "shelf://notes")
        assert (document.name, document.mime_type) == ("notes", "text/markdown")
        assert document.data == b"# Notes\nThe boat is blue."
        (blob,) = await read_resource(libraries, "shelf://picture.bin")
        assert blob.data == b"\x00\x01"
        with pytest.raises(InvalidRequest, match="the resource shelf://none"):
            await read_resource(libraries, "shelf://none")


async def test_a_user_of_the_terminal_sends_prompts_and_resources(tmp_path):
    fixture = ChatFixture(tmp_path, ScriptedModel([says("Yes.")]), shelf(tmp_path))
    await fixture.converse(
        "/prompts", "/resources", "/prompts review file=x.py", "/attach shelf://notes", "what colour?", "/attach a://b"
    )
    assert any(line.startswith("review file= [focus=]") for line in fixture.printed)
    assert any(line.startswith("shelf://notes") for line in fixture.printed)
    assert str(fixture.model.prompts[0].messages[-1].content) == "Review x.py for bugs."
    assert "The boat is blue." in str(fixture.model.prompts[1].messages[-1].content)
    assert "asked for the resource a://b" in fixture.output


async def test_without_servers_there_is_a_sentence(tmp_path):
    fixture = ChatFixture(tmp_path, ScriptedModel([says("Yes.")]))
    await fixture.converse("/prompts", "/resources", "/attach a://b")
    assert "The tool servers have no prompts." in fixture.printed
    assert "The tool servers have no resources." in fixture.printed
    assert "No tool server has a://b" in fixture.output
