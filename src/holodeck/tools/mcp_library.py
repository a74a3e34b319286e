"""The prompts and resources of an MCP server: users fill in and send prompts, and attach resources.

The model sees neither unless a user asks for it. Every fault of the server is a ToolUnavailable with a sentence.
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec import ValidationError

from holodeck.core.text import clean, one_line, shorten
from holodeck.errors import ToolUnavailable
from holodeck.tools.mcp_server import McpServer, McpSession
from holodeck.tools.mcp_settings import McpSettings
from holodeck.tools.mcp_wire import ListedPrompt, ListedResource, McpError, Resource, UnsendableMessage, text_of_block
from holodeck.tools.port import ServerDocument

MAX_PROMPT = 100_000  # characters
MAX_RESOURCE = 50_000_000  # bytes
MAX_ERROR = 500

T = TypeVar("T")


class McpLibrary:
    """The prompts and resources of one server. `server` is its name in the agent file."""

    def __init__(self, settings: McpSettings, server: McpServer) -> None:
        self.server = settings.name
        self._settings = settings
        self._server = server

    async def prompts(self) -> Sequence[ListedPrompt]:
        """The prompts; an empty list if the server has none or is not available."""
        return await self._listed("prompts", McpSession.list_prompts)

    async def resources(self) -> Sequence[ListedResource]:
        return await self._listed("resources", McpSession.list_resources)

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        """The text of a prompt with its arguments filled in. Raises ToolUnavailable."""
        filled = await self._asked(f"the prompt {name}", lambda session: session.get_prompt(name, arguments))
        lines = [
            f"{'' if message.role == 'user' else f'{one_line(message.role, 20)}: '}{text_of_block(message.content)}"
            for message in filled.messages
        ]
        return shorten(clean("\n\n".join(lines)), MAX_PROMPT)

    async def resource(self, uri: str) -> list[ServerDocument]:
        """The documents at an address of the server. Raises ToolUnavailable."""
        contents = await self._asked(f"the resource {uri}", lambda session: session.read_resource(uri))
        return [_document(content) for content in contents]

    async def _listed(self, kind: str, ask: Callable[[McpSession], Awaitable[list[T]]]) -> Sequence[T]:
        if not self._server.ready:
            return []
        session, _ = await self._server.until_ready()
        if kind not in session.capabilities:
            return []
        return await self._asked(f"its {kind}", ask)

    async def _asked(self, what: str, ask: Callable[[McpSession], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._settings.timeout):
                session, _ = await self._server.until_ready()
                return await ask(session)
        except TimeoutError:
            why = f"did not answer in {self._settings.timeout:g} s"
        except McpError as error:
            why = f"failed: {error.message}"
        except (ValidationError, UnsendableMessage, binascii.Error, ValueError):
            why = "sent something that breaks the MCP schema"
        sentence = f"The tool server '{self.server}', asked for {what}, {why}."
        raise ToolUnavailable(one_line(self._settings.masked(sentence), MAX_ERROR))


def _document(content: Resource) -> ServerDocument:
    name = content.uri.rstrip("/").rpartition("/")[2] or content.uri
    if content.text is not None:
        return ServerDocument(name, clean(content.text).encode(), content.mime_type)
    data = base64.b64decode(content.blob or "", validate=True)
    if len(data) > MAX_RESOURCE:
        raise ToolUnavailable(f"{one_line(name, 100)} is larger than {MAX_RESOURCE // 1_000_000} MB.")
    return ServerDocument(name, data, content.mime_type)
