"""Prompts and resources of the agent's tool servers, for users of the terminal."""

import asyncio
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holodeck.core.text import one_line
from holodeck.errors import InvalidRequest, ToolUnavailable
from holodeck.tools.names import suggestion
from holodeck.tools.port import ServerDocument

if TYPE_CHECKING:  # the chat starts without importing MCP
    from holodeck.tools.mcp_library import McpLibrary
    from holodeck.tools.mcp_wire import ListedPrompt


async def listed_prompts(libraries: Sequence["McpLibrary"]) -> list[tuple[str, str]]:
    """Returns name with arguments, and description, of every prompt."""
    return [(_signature(prompt), prompt.description or "") for _, prompt in await _all_prompts(libraries)]


async def listed_resources(libraries: Sequence["McpLibrary"]) -> list[tuple[str, str]]:
    found = await asyncio.gather(*(library.resources() for library in libraries))
    return [(each.uri, each.description or each.name) for resources in found for each in resources]


async def filled_prompt(libraries: Sequence["McpLibrary"], line: str) -> str:
    """Returns the text of `NAME argument=value …`. Raises HoloDeckError with a sentence."""
    try:
        name, *words = shlex.split(line)
    except ValueError as error:
        raise InvalidRequest(f"The quotes in it do not match: {error}.") from error
    known = await _all_prompts(libraries)
    found = next(((library, prompt) for library, prompt in known if prompt.name == name), None)
    if found is None:
        near = suggestion(name, [prompt.name for _, prompt in known]) or "; /prompts lists them."
        raise InvalidRequest(f"There is no prompt {one_line(name, 60)}{near}")
    library, prompt = found
    arguments = dict(_pair(word) for word in words)
    wanted = [each.name for each in prompt.arguments or () if each.required and each.name not in arguments]
    if wanted:
        raise InvalidRequest(f"{_signature(prompt)} needs {', '.join(wanted)}: /prompts {prompt.name} {wanted[0]}=…")
    return await library.prompt(name, arguments)


async def read_resource(libraries: Sequence["McpLibrary"], uri: str) -> list[ServerDocument]:
    """Reads from the server that lists it, else from the first that knows it, since templates are not listed."""
    listing = await asyncio.gather(*(library.resources() for library in libraries))
    owners = [
        library
        for library, resources in zip(libraries, listing, strict=True)
        if any(each.uri == uri for each in resources)
    ]
    problem = f"No tool server has {one_line(uri, 200)}; /resources lists what they have."
    for library in owners or libraries:
        try:
            return await library.resource(uri)
        except ToolUnavailable as error:
            problem = error.message
    raise InvalidRequest(problem)


async def _all_prompts(libraries: Sequence["McpLibrary"]) -> list[tuple["McpLibrary", "ListedPrompt"]]:
    found = await asyncio.gather(*(library.prompts() for library in libraries))
    return [(library, prompt) for library, prompts in zip(libraries, found, strict=True) for prompt in prompts]


def _signature(prompt: "ListedPrompt") -> str:
    """Formats `review file= [focus=]`: brackets around optional arguments."""
    blanks = [f"{each.name}=" if each.required else f"[{each.name}=]" for each in prompt.arguments or ()]
    return " ".join([prompt.name, *blanks])


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise InvalidRequest(f"'{one_line(word, 60)}' is not ARGUMENT=VALUE; put values with spaces into quotes.")
    return name, value
