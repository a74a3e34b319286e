"""Carries out the tool calls of one step, all at once, and brings each to exactly one result.

Nothing a tool does ends the run: bad arguments, unknown names, failures and time-outs become text that the model reads.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from holodeck.agent.budget import NOT_PAID_FOR, Spending
from holodeck.agent.emitter import RunEmitter
from holodeck.agent.kept_results import KeptResults
from holodeck.core.messages import (
    AssistantMessage,
    MediaPart,
    Message,
    TextPart,
    ToolCall,
    ToolMessage,
    text_of,
)
from holodeck.core.tools import Approval, ToolExecution, ToolResult, ToolSchema, ToolStatus, arguments_shown
from holodeck.tools.arguments import BadArguments, read_arguments
from holodeck.tools.names import unknown_tool
from holodeck.tools.port import ToolContext, Toolset

log = logging.getLogger(__name__)

ABANDONED = "Stopped before it finished; whether it took effect is not known."


@dataclass
class Batch:
    """The calls of one step. `results` fills up; `waiting` are for a person or for the client."""

    assistant: AssistantMessage
    results: dict[str, ToolMessage] = field(default_factory=dict)
    approvals: list[ToolCall] = field(default_factory=list)
    on_client: list[ToolCall] = field(default_factory=list)
    all_unusable: bool = False  # every call was refused because of its arguments

    @property
    def waits(self) -> bool:
        return bool(self.approvals or self.on_client)

    def messages(self) -> list[Message]:
        """The step as it enters the history: the reply, then its results in the order of the calls."""
        return [self.assistant, *(self.results[call.id] for call in self.assistant.tool_calls)]


@dataclass(kw_only=True)
class ToolRunner:
    """Runs calls for one run of an agent."""

    toolsets: Sequence[Toolset]
    emitter: RunEmitter
    context: ToolContext
    spending: Spending
    kept: KeptResults
    attempts: int = 1
    max_characters: int
    executions: list[ToolExecution] = field(default_factory=list)

    def offered(self) -> dict[str, tuple[ToolSchema, Toolset]]:
        """The tools that can be called now, with who carries them out."""
        return {schema.name: (schema, toolset) for toolset in self.toolsets for schema in toolset.schemas()}

    async def run(self, batch: Batch, client_tools: Sequence[ToolSchema]) -> None:
        """Carries out what can be carried out; what needs somebody else is put aside in the batch."""
        offered, on_client = self.offered(), {schema.name: schema for schema in client_tools}
        ready: list[tuple[ToolCall, dict[str, Any], Toolset]] = []
        refused = 0
        for call in batch.assistant.tool_calls:
            schema, toolset = offered.get(call.name, (on_client.get(call.name), None))
            arguments = _arguments_of(call, schema, offered)
            if isinstance(arguments, BadArguments):
                refused += 1
                self.answer(batch, call, ToolResult.failure(arguments.text))
            elif toolset is None:
                batch.on_client.append(call)
            elif schema is not None and schema.approval is Approval.ALWAYS:
                batch.approvals.append(call)
            else:
                ready.append((call, arguments, toolset))
        batch.all_unusable = refused > 0 and refused == len(batch.assistant.tool_calls)
        await self._run_ready(batch, ready)

    async def run_approved(self, batch: Batch, calls: Sequence[ToolCall]) -> None:
        """Carries out calls that a person has agreed to."""
        offered = self.offered()
        ready: list[tuple[ToolCall, dict[str, Any], Toolset]] = []
        for call in calls:
            schema, toolset = offered.get(call.name, (None, None))
            arguments = _arguments_of(call, schema, offered)
            if isinstance(arguments, BadArguments):
                self.answer(batch, call, ToolResult.failure(arguments.text))
            elif toolset is not None:
                ready.append((call, arguments, toolset))
        await self._run_ready(batch, ready)

    def answer(self, batch: Batch, call: ToolCall, result: ToolResult) -> None:
        """Gives a call a result without carrying it out."""
        self._finish(batch, call, {}, result, 0.0)

    def take(self, batch: Batch, result: ToolMessage) -> None:
        """A result that the client brought: its words together as long as any other's may be, then its media."""
        parts = (TextPart(result.content),) if isinstance(result.content, str) else result.content
        media = tuple(part for part in parts if isinstance(part, MediaPart))
        words = text_of(tuple(part for part in parts if isinstance(part, TextPart)))
        text = self.kept.shorten(result.call_id, words, self.max_characters)
        content = (TextPart(text), *media) if media and text else media or text
        batch.results[result.call_id] = msgspec.structs.replace(result, content=content)

    def abandon(self, batch: Batch, text: str = ABANDONED) -> None:
        """Gives every call that has no result one that says why. A history must not hold an unanswered call."""
        for call in batch.assistant.tool_calls:
            if call.id not in batch.results:
                self.answer(batch, call, ToolResult.failure(text))

    async def _run_ready(self, batch: Batch, ready: Sequence[tuple[ToolCall, dict[str, Any], Toolset]]) -> None:
        async with asyncio.TaskGroup() as group:
            for call, arguments, toolset in ready:
                if self.spending.pays_for_call():
                    group.create_task(self._run_one(batch, call, arguments, toolset))
                else:
                    self.answer(batch, call, ToolResult.failure(NOT_PAID_FOR))

    async def _run_one(self, batch: Batch, call: ToolCall, arguments: dict[str, Any], toolset: Toolset) -> None:
        context = replace(self.context, call_id=call.id, shorten=partial(self.kept.shorten, call.id))
        started = time.monotonic()
        result = ToolResult.failure("not tried")
        for _attempt in range(self.attempts):
            result = await _call(toolset, call.name, arguments, context)
            if not (result.failed and result.retryable):
                break
        self._finish(batch, call, arguments, result, time.monotonic() - started)

    def _finish(
        self, batch: Batch, call: ToolCall, arguments: dict[str, Any], result: ToolResult, seconds: float
    ) -> None:
        content = result.content
        if isinstance(content, str) and call.id not in self.kept:  # else its toolset has shortened it
            content = self.kept.shorten(call.id, content, self.max_characters)
        message = ToolMessage(call_id=call.id, name=call.name, content=content, failed=result.failed)
        batch.results[call.id] = message
        self.executions.append(
            ToolExecution(
                tool_name=call.name,
                parameters=arguments or arguments_shown(call.arguments),
                status=ToolStatus.FAILED if result.failed else ToolStatus.SUCCESS,
                result=None if result.failed else result.text,
                execution_time=seconds,
                error_message=(result.text or "failed") if result.failed else None,
            )
        )
        self.emitter.tool_finished(message, seconds)


async def _call(toolset: Toolset, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    try:
        return await toolset.call(name, arguments, context)
    except Exception:  # a toolset must not raise; if it does, the run goes on and the operator reads why
        log.exception("tool %s broke", name)
        return ToolResult.failure(f"{name} failed because of an internal error; it may work if tried again.")


def _arguments_of(
    call: ToolCall, schema: ToolSchema | None, offered: Mapping[str, object]
) -> dict[str, Any] | BadArguments:
    if schema is None:
        return BadArguments(unknown_tool(call.name, offered).text)
    return read_arguments(call.arguments, schema)
