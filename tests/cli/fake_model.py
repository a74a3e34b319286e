"""A model endpoint whose answers a test sends piece by piece, while the program under test reads them."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.models.endpoint import DONE, ModelEndpoint, Wire, chunk, frame, status


class FakeModel(ModelEndpoint):
    """`say` and `call` send at once; `end` finishes the reply. Pieces sent early wait for the next request."""

    def __init__(self) -> None:
        super().__init__(self._reply)
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.left = asyncio.Event()  # a client disconnected in the middle of a reply

    def say(self, *pieces: str) -> None:
        for piece in pieces:
            self._put(chunk({"content": piece}))

    def think(self, text: str) -> None:
        self._put(chunk({"reasoning_content": text}))

    def call(self, name: str, arguments: Any, call_id: str = "c1", index: int = 0) -> None:
        function = {"name": name, "arguments": json.dumps(arguments)}
        self._put(chunk({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}))

    def end(self, finish: str = "stop", tokens: tuple[int, int] = (7, 3)) -> None:
        self._put(chunk(finish=finish))
        self._put({"choices": [], "usage": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}})
        self._frames.put_nowait(DONE)
        self._frames.put_nowait(None)

    @property
    def prompts(self) -> list[Any]:
        """The messages of each request, without the system prompt."""
        asked = [request.json["messages"] for request in self.requests if request.method == "POST"]
        return [[message for message in messages if message["role"] != "system"] for messages in asked]

    def agent(self, folder: Path, more: str = "", model: str = "") -> None:
        model = f"{{provider: openai_compatible, name: m, endpoint: '{self.url}'{model}}}"
        (folder / "agent.yaml").write_text(f"name: scripted\nmodel: {model}\n{more}")

    def _put(self, value: Any) -> None:
        self._frames.put_nowait(frame(value))

    async def _reply(self, wire: Wire) -> None:
        if wire.request.method == "GET":
            await status(200, {"data": [{"id": "m"}]})(wire)
            return
        await wire.head()
        while (piece := await self._next(wire)) is not None:
            await wire.send(piece)
        if not wire.gone.is_set():
            await wire.end()

    async def _next(self, wire: Wire) -> bytes | None:
        frame, gone = asyncio.ensure_future(self._frames.get()), asyncio.ensure_future(wire.gone.wait())
        await asyncio.wait({frame, gone}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if frame.done():
            return frame.result()
        frame.cancel()
        self.left.set()
        return None
