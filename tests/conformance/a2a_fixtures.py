"""An agent that does what the A2A suite asks for by the prefix of a message's id, in a process of its own.

    python -m tests.conformance.a2a_fixtures        prints its address, and serves until stdin closes

Each behaviour is a run of the real loop: text, files that a tool returns, an approval that waits.
"""

import asyncio
import sys
from base64 import b64encode
from typing import Any

from holodeck.core.messages import MediaPart, UserMessage
from holodeck.core.tools import ToolResult
from holodeck.models.port import Listener, ModelReply, Prompt
from holodeck.models.scripted import ScriptedModel, Turn, calls, says
from holodeck.server.options import PushSettings, ServerSettings
from tests.agent.agent_fixture import PlainTools
from tests.server.serving import served, server_block

LONG_SECONDS = 4.0
FILES = {
    "tck-artifact-data": MediaPart(
        mime_type="application/json", data=b64encode(b'{"key": "value", "count": 42}').decode()
    ),
    "tck-artifact-file-url": MediaPart(
        mime_type="text/plain", url="https://example.com/output.txt", filename="output.txt"
    ),
    "tck-artifact-file": MediaPart(mime_type="text/plain", data="T3V0cHV0", filename="output.txt"),
    "tck-stream-artifact-file": MediaPart(mime_type="text/plain", data="T3V0cHV0", filename="output.txt"),
}
TEXTS = {
    "tck-artifact-text": "Generated text content",
    "tck-stream-001": "Stream hello from TCK",
    "tck-stream-003": "Stream task lifecycle",
    "tck-stream-ordering-001": "Ordered output",
    "tck-stream-artifact-text": "Streamed text content",
    "tck-stream-artifact-chunked": "chunk-1 chunk-2",
}


class SuiteModel(ScriptedModel):
    def __init__(self) -> None:
        super().__init__([])

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        last = prompt.messages[-1]
        self.turns, self.prompts = [await self._turn(last)], []
        return await super().reply(prompt, listener)

    async def _turn(self, last: object) -> Turn:
        if not isinstance(last, UserMessage):
            return says("Done")
        wish = last.id
        if wish.startswith("tck-input-required"):
            return calls(("confirm", "{}"))
        if wish.startswith("test-resubscribe-message-id"):
            await asyncio.sleep(LONG_SECONDS)
        for prefix in FILES:
            if wish.startswith(prefix):
                return calls(("make_file", f'{{"prefix": "{prefix}"}}'))
        return says(next((text for prefix, text in TEXTS.items() if wish.startswith(prefix)), "Hello from TCK"))


async def confirm(_arguments: dict[str, Any], _context: object) -> ToolResult:
    return ToolResult(content="confirmed")


async def make_file(arguments: dict[str, Any], _context: object) -> ToolResult:
    return ToolResult(content=(FILES[arguments["prefix"]],))


async def main() -> None:
    tools = PlainTools(frozenset({"confirm"}), confirm=confirm, make_file=make_file)
    push = PushSettings(permit=lambda _address: True, wait=0.1)
    settings = ServerSettings(protocols=("a2a",), block=server_block(push_to=["*"]), push=push)
    async with served(model=SuiteModel(), tools=tools, settings=settings) as s:
        sys.stdout.write(f"{s.url}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
