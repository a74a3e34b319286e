"""A model that plays scripted replies, for tests. The trivial second implementation of the port."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import msgspec

from holodeck.core.messages import ToolCall
from holodeck.core.usage import TokenUsage
from holodeck.errors import ModelError
from holodeck.models.port import Listener, ModelReply, Prompt


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One reply. `pause` is awaited after each piece; `error` is raised at the end instead of replying."""

    text: Sequence[str] = ()
    reasoning: Sequence[str] = ()
    calls: Sequence[ToolCall] = ()
    usage: TokenUsage | None = None
    finish_reason: str | None = None
    error: ModelError | None = None
    pause: Callable[[], "asyncio.Future[None]"] | None = None


def says(text: str, **fields: object) -> Turn:
    words = [word if i == 0 else f" {word}" for i, word in enumerate(text.split(" "))]
    return msgspec.structs.replace(Turn(text=words), **fields)


def calls(*asked: tuple[str, str], **fields: object) -> Turn:
    """A reply that asks for tools: (name, arguments as JSON text) each; ids are c1, c2 and so on."""
    made = [ToolCall(id=f"c{i}", name=name, arguments=arguments) for i, (name, arguments) in enumerate(asked, 1)]
    return msgspec.structs.replace(Turn(calls=made), **fields)


class ScriptedModel:
    """Plays its turns in order, then repeats the last one. Keeps every prompt it was shown."""

    name = "scripted"

    def __init__(self, turns: Iterable[Turn]) -> None:
        self.turns = list(turns)
        self.prompts: list[Prompt] = []

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        turn = self.turns[min(len(self.prompts), len(self.turns) - 1)]
        self.prompts.append(prompt)
        for delta in turn.reasoning:
            listener.reasoning(delta)
            await self._breathe(turn)
        for delta in turn.text:
            listener.text(delta)
            await self._breathe(turn)
        for call in turn.calls:
            listener.call_started(call.id, call.name)
            listener.call_arguments(call.id, call.arguments)
            await self._breathe(turn)
            listener.call_ended(call)
        if turn.error is not None:
            raise turn.error
        return ModelReply(
            text="".join(turn.text),
            reasoning="".join(turn.reasoning),
            tool_calls=tuple(turn.calls),
            finish_reason=turn.finish_reason or ("tool_calls" if turn.calls else "stop"),
            usage=turn.usage,
        )

    async def _breathe(self, turn: Turn) -> None:
        if turn.pause is not None:
            await turn.pause()
        else:
            await asyncio.sleep(0)

    async def check(self) -> None:
        return None

    async def close(self) -> None:
        return None
