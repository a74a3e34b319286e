"""A fake model that numbers its tokens and follows a script that stands in the user's message.

`r7 say=20 act=2 how=slowly ms=5` calls the tool `act` twice, then says "0 1 2 … 19 end:r7", 5 ms between two tokens. It
refuses a history in which a call has no result, as strict providers do.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from tests.models.endpoint import Wire, chunk, frame, text_frames, tool_call_frames

MAY_BE_CALLED_AGAIN = "it may be called again"
TOOLS = '''\
import os, signal, time
from holodeck.tools.port import ToolContext

def _write(name: str) -> None:
    with open("acts", "a") as file:
        file.write(f"{name}\\n")
        file.flush()

def act(how: str, context: ToolContext) -> str:
    """Acts, and dies before or after it if it is asked to."""
    if how == "die-before":
        os.kill(os.getpid(), signal.SIGKILL)
    _write(context.call_id)
    if how == "die-after":
        os.kill(os.getpid(), signal.SIGKILL)
    while how == "slowly" and not os.path.exists("go"):
        time.sleep(0.01)
    return "acted"

def pay(how: str, context: ToolContext) -> str:
    """Acts; asks for approval before."""
    return act(how, context)

def look(how: str, context: ToolContext) -> str:
    """Only looks, so it may be called again. Dies the first time if it is asked to."""
    _write(f"look:{context.call_id}")
    if how == "die-after" and not os.path.exists("looked"):
        open("looked", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "looked"
'''


@dataclass(frozen=True)
class Script:
    """What one message asks of the model."""

    run: str
    say: int = 3
    act: int = 0
    tool: str = "act"
    how: str = "quickly"
    ms: float = 0.0

    def __str__(self) -> str:
        return f"{self.run} say={self.say} act={self.act} tool={self.tool} how={self.how} ms={self.ms:g}"

    @property
    def last_word(self) -> str:
        return f"end:{self.run}"

    @property
    def answer(self) -> str:
        """The whole text of the model's answer."""
        return "".join(f"{number} " for number in range(self.say)) + self.last_word

    @classmethod
    def read(cls, text: str) -> "Script":
        run, *pairs = text.split()
        given = dict(pair.split("=") for pair in pairs if "=" in pair)
        kinds: dict[str, Any] = {"say": int, "act": int, "tool": str, "how": str, "ms": float}
        return cls(run, **{name: kinds[name](value) for name, value in given.items() if name in kinds})


class NumberedModel:
    def __init__(self) -> None:
        self.asked: list[str] = []  # the runs that asked, in their order
        self.open = 0  # answers that are being given
        self.offences: list[str] = []

    async def __call__(self, wire: Wire) -> None:
        if wire.request.method == "GET":  # `holodeck check` asks for the list of models
            await _answer(wire, 200, b'{"data": [{"id": "m"}]}')
            return
        messages = wire.request.json["messages"]
        calls = {call["id"] for message in messages for call in message.get("tool_calls") or ()}
        results = {message["tool_call_id"]: message for message in messages if message["role"] == "tool"}
        if calls != set(results):
            self.offences.append(f"calls {sorted(calls)}, results {sorted(results)}")
            await _answer(wire, 400, b"{}")
            return
        place = max(number for number, message in enumerate(messages) if message["role"] == "user")
        script = Script.read(_text_of(messages[place]["content"]))
        self.asked.append(script.run)
        self.open += 1
        try:
            await wire.head()
            after = [message for message in messages[place:] if message["role"] == "tool"]
            again = bool(after) and MAY_BE_CALLED_AGAIN in str(after[-1]["content"])
            if script.act and (not after or again):
                number = len(after)
                names = [f"call_{script.run}_{number + each}" for each in range(script.act)]
                arguments = json.dumps({"how": script.how})
                await wire.send(*tool_call_frames(*((name, script.tool, arguments) for name in names)))
                await wire.end()
            else:
                await self._say(wire, script)
        finally:
            self.open -= 1

    async def _say(self, wire: Wire, script: Script) -> None:
        for number in range(script.say):
            if wire.gone.is_set():
                return
            await wire.send(frame(chunk({"content": f"{number} "})))
            if script.ms:
                await asyncio.sleep(script.ms / 1000)
        await wire.send(*text_frames(script.last_word))
        await wire.end()


def _text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


async def _answer(wire: Wire, status: int, body: bytes) -> None:
    await wire.head(status, Content_Type="application/json", chunked=False, Content_Length=str(len(body)))
    await wire.raw(body)
