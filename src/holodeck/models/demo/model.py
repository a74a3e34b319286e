"""The demo model behind the port: streams the next step of `conversation.py`, word by word, as a real model would.

It costs nothing, so it reports no usage. It keeps nothing between two replies. The first reply loads the rules in a
thread: they compile many regular expressions, and a server should not wait for that at its start.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec

from holodeck.core.ids import new_call_id
from holodeck.core.messages import Message, ToolCall, text_of
from holodeck.core.text import one_line, shorten
from holodeck.core.tools import ToolSchema
from holodeck.core.zones import is_zone, local_zone
from holodeck.models.port import Listener, ModelReply, Prompt

if TYPE_CHECKING:
    from holodeck.models.demo.tools_by_name import Call

    ReplyRules = Callable[[Sequence[Message], Sequence[ToolSchema], str | None, datetime], str | tuple[Call, ...]]

_WORD = re.compile(r"\s*\S+\s*\Z|\s*\S+")
_ARGUMENT_PIECE = 24  # characters of the arguments' JSON in one delta
_LONGEST_LINE, _LONGEST_RECAP = 100, 2000


class DemoModel:
    """Replies by rules. It waits `delay` seconds after each word. Without a time zone in the prompt it uses this machine's."""

    name = "demo"

    def __init__(self, *, delay: float = 0.0, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._delay = delay
        self._clock = clock
        self._zone = ZoneInfo(local_zone())
        self._rules: ReplyRules | None = None

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        if prompt.sums_up:
            return await self._say(recap(prompt.messages), listener)
        zone = prompt.timezone or ""
        now = self._clock().astimezone(ZoneInfo(zone) if is_zone(zone) else self._zone)
        if self._rules is None:
            self._rules = await asyncio.to_thread(_load_rules)
        step = self._rules(prompt.messages, prompt.tools, prompt.timezone, now)
        if isinstance(step, str):
            return await self._say(step, listener)
        calls = [await self._ask(call, listener) for call in step]
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
        if done.done():  # the run was stopped when this was already due
            return
        piece = next(left, None)
        if piece is None:
            done.set_result(None)
            return
        try:
            take(piece)
        except Exception as error:  # noqa: BLE001  the caller of `reply` gets it, e.g. BrokenPipeError of `| head`
            done.set_exception(error)
            return
        timer = loop.call_later(delay, next_piece)

    next_piece()
    try:
        await done
    finally:
        if timer is not None:
            timer.cancel()


def _load_rules() -> "ReplyRules":
    from holodeck.models.demo.conversation import next_step  # noqa: PLC0415  see the module's docstring

    return next_step


class _HistoryLine(msgspec.Struct):
    role: str = ""
    text: str = ""


def recap(messages: Sequence[Message]) -> str:
    """A summary without understanding: the user's own words, shortened.

    The conversation comes as lines of JSON, one message a line.
    """
    lines = [line for message in messages for line in _lines(text_of(message.content))]
    texts = [
        line.text if line.role == "summary" else f"The user said: {one_line(line.text, _LONGEST_LINE)}"
        for line in lines
        if line.role in ("user", "summary")
    ]
    return shorten("\n".join(texts), _LONGEST_RECAP) if texts else "Nothing was said."


def _lines(text: str) -> Iterator[_HistoryLine]:
    for line in text.split("\n"):  # not splitlines(): JSON may hold other separators as they are
        try:
            yield msgspec.json.decode(line, type=_HistoryLine)
        except msgspec.DecodeError:
            continue  # no message of the conversation
