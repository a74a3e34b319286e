"""A conversation with the demo model through its port, the way the loop conducts it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holodeck.core.messages import AssistantMessage, Content, Message, ToolCall, ToolMessage, UserMessage
from holodeck.core.tools import ToolSchema
from holodeck.models.demo.model import DemoModel
from holodeck.models.port import ModelReply, Prompt

MOST_STEPS = 6


@dataclass
class Ear:
    """A listener that records what the model emits."""

    words: list[str] = field(default_factory=list)
    pieces: dict[str, list[str]] = field(default_factory=dict)
    ended: list[ToolCall] = field(default_factory=list)

    def reasoning(self, delta: str) -> None:
        raise AssertionError("the demo model does not reason")

    def text(self, delta: str) -> None:
        self.words.append(delta)

    def call_started(self, call_id: str, name: str) -> None:
        assert call_id not in self.pieces
        self.pieces[call_id] = []

    def call_arguments(self, call_id: str, delta: str) -> None:
        self.pieces[call_id].append(delta)

    def call_ended(self, call: ToolCall) -> None:
        assert "".join(self.pieces[call.id]) == call.arguments
        self.ended.append(call)

    def timed_out_without_output(self) -> bool:
        return False

    def call_answered(self, call_id: str, content: Any, *, failed: bool = False) -> None:
        raise AssertionError((call_id, content, failed))

    def warning(self, code: str, message: str) -> None:
        raise AssertionError(message)

    def raw(self, event: Any) -> None:
        raise AssertionError(event)


@dataclass
class Conversation:
    answer: Callable[[ToolCall], ToolMessage]
    tools: Sequence[ToolSchema]
    now: datetime
    zone: str | None = "Europe/Berlin"
    messages: list[Message] = field(default_factory=list)

    async def say(self, words: Content) -> tuple[list[tuple[str, dict[str, Any]]], str]:
        """The calls that a sentence led to, and the text of the reply. A new model for every reply: it may keep nothing."""
        self.messages.append(UserMessage(content=words))
        calls: list[tuple[str, dict[str, Any]]] = []
        for _ in range(MOST_STEPS):
            reply = await self.reply()
            self.messages.append(AssistantMessage(content=reply.text, tool_calls=reply.tool_calls))
            if not reply.tool_calls:
                return calls, reply.text
            calls += [(call.name, json.loads(call.arguments)) for call in reply.tool_calls]
            self.messages += [self.answer(call) for call in reply.tool_calls]
        raise AssertionError(f"no end after {MOST_STEPS} steps: {calls}")

    async def reply(self) -> ModelReply:
        ear = Ear()
        model = DemoModel(clock=lambda: self.now)
        reply = await model.reply(Prompt(messages=self.messages, tools=self.tools, timezone=self.zone), ear)
        assert "".join(ear.words) == reply.text
        assert tuple(ear.ended) == reply.tool_calls
        assert reply.usage is None
        assert reply.finish_reason == ("tool_calls" if reply.tool_calls else "stop")
        return reply
