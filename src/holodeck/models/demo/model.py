"""The demo model behind the port: streams what `conversation` decided, word by word, as a real model would.

It needs nothing and costs nothing, so it reports no usage. It keeps nothing between two replies.

The rules (two hundred regular expressions and a reader of dates: a seventh of a server's start) are loaded when somebody
says something, in a thread, so that nobody else waits for them.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from holodeck.core.ids import new_call_id
from holodeck.core.messages import Message, ToolCall
from holodeck.core.tools import ToolSchema
from holodeck.models.demo import zones
from holodeck.models.demo.recap import recap
from holodeck.models.port import Listener, ModelReply, Prompt

if TYPE_CHECKING:
    from holodeck.models.demo.scripts import Calls, Say
    from holodeck.models.demo.vocabulary import Call

    Rules = Callable[[Sequence[Message], Sequence[ToolSchema], str | None, datetime], Say | Calls]

_WORD = re.compile(r"\s*\S+\s*\Z|\s*\S+")
_ARGUMENT_PIECE = 24  # characters of the arguments' JSON that are said at once


class DemoModel:
    """Answers by rules. `delay` is waited after each word, for the show; `zone` is used when the prompt names none."""

    name = "demo"

    def __init__(
        self,
        *,
        delay: float = 0.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        zone: tzinfo | None = None,
    ) -> None:
        self._delay = delay
        self._clock = clock
        self._zone = zone or zones.system_zone()
        self._rules: Rules | None = None

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        if prompt.sums_up:
            return await self._say(recap(prompt.messages), listener)
        now = self._clock().astimezone(zones.zone_named(prompt.timezone) or self._zone)
        if self._rules is None:
            self._rules = await asyncio.to_thread(_load_rules)
        move = self._rules(prompt.messages, prompt.tools, prompt.timezone, now)
        if not isinstance(move, tuple):
            return await self._say(move.text, listener)
        calls = [await self._ask(call, listener) for call in move]
        return ModelReply(tool_calls=tuple(calls), finish_reason="tool_calls")

    async def _say(self, text: str, listener: Listener) -> ModelReply:
        await _paced(_WORD.findall(text), listener.text, self._delay)
        return ModelReply(text=text)

    async def _ask(self, wanted: "Call", listener: Listener) -> ToolCall:
        arguments = msgspec.json.encode(wanted.arguments).decode()
        call = ToolCall(id=new_call_id(), name=wanted.name, arguments=arguments)
        listener.call_started(call.id, call.name)
        pieces = [arguments[i : i + _ARGUMENT_PIECE] for i in range(0, len(arguments), _ARGUMENT_PIECE)]
        await _paced(pieces, partial(listener.call_arguments, call.id), self._delay)
        listener.call_ended(call)
        return call

    async def check(self) -> None:
        return None

    async def close(self) -> None:
        return None


async def _paced(pieces: Iterable[str], take: Callable[[str], None], delay: float) -> None:
    """Hands over the pieces one by one, `delay` seconds apart, from timers of the event loop.

    Pieces of a real endpoint's answer come from a socket in the same way: the task of the run sleeps meanwhile.
    """
    loop, left = asyncio.get_running_loop(), iter(pieces)
    done: asyncio.Future[None] = loop.create_future()
    timer: asyncio.Handle | None = None

    def next_piece() -> None:
        nonlocal timer
        piece = next(left, None)
        if piece is None:
            done.set_result(None)
            return
        take(piece)
        timer = loop.call_later(delay, next_piece)

    next_piece()
    try:
        await done
    finally:
        if timer is not None:
            timer.cancel()


def _load_rules() -> "Rules":
    from holodeck.models.demo.conversation import next_move  # noqa: PLC0415  see the module's docstring

    return next_move
