"""Makes the tool calls of one step, all at the same time, and gives each exactly one result.

Nothing that a tool does ends the run: bad arguments, unknown names, failures and timeouts become text that the model
reads.

The model sees the beginning of a long result, and reads the rest with the tool `read_result`. Such results live in
memory, for one run. When there is no room, the oldest is evicted; `read_result` then answers that it is gone.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import msgspec

from holodeck.agent.budget import NOT_PAID_FOR, Spending
from holodeck.agent.definition import AgentDefinition
from holodeck.agent.emitter import RunEmitter
from holodeck.agent.pending import NOT_MADE, OUTCOME_UNKNOWN
from holodeck.core.cancellations import noticing_cancellation
from holodeck.core.messages import (
    AssistantMessage,
    MediaPart,
    Message,
    PendingStep,
    TextPart,
    ToolCall,
    ToolExecution,
    ToolMessage,
    ToolStatus,
    parts_of,
    text_of,
)
from holodeck.core.text import clean, terminal_safe
from holodeck.core.text import shorten as cut
from holodeck.core.tools import Approval, ToolResult, ToolSchema, arguments_shown
from holodeck.tools.arguments import BadArguments, read_arguments
from holodeck.tools.catalogue import Catalogue, ToolEntry, entry_of
from holodeck.tools.names import unknown_tool
from holodeck.tools.port import ToolContext
from holodeck.tools.shared_state import UPDATE_STATE, SharedState

MAX_KEPT = 5_000_000  # characters, of all results together
LARGEST_PIECE = 20_000
_ROOM_FOR_THE_LABEL = 100

READ_RESULT = ToolSchema(
    name="read_result",
    description="Reads more of a tool result that was too long to be shown whole.",
    parameters={
        "type": "object",
        "properties": {
            "call_id": {"type": "string", "description": "From the note at the end of the shortened result"},
            "offset": {"type": "integer", "minimum": 0, "description": "The first character to read; default 0"},
            "length": {"type": "integer", "minimum": 1, "description": "How many characters to read"},
        },
        "required": ["call_id"],
        "additionalProperties": False,
    },
)

log = logging.getLogger(__name__)

_Ready: TypeAlias = tuple[ToolCall, dict[str, Any], ToolEntry]


def server_tools(agent: AgentDefinition) -> set[str]:
    """The names that a client's tool cannot have: those of the agent's tools, and of the tools that the loop adds."""
    own = (READ_RESULT.name,) if agent.state is None else (READ_RESULT.name, UPDATE_STATE.name)
    return {*own, *agent.tools.names()}


class KeptResults:
    """The long results of a run, and the tool `read_result`, which is offered as soon as a result was shortened."""

    def __init__(self, max_shown: int) -> None:
        self._piece = max(1, min(LARGEST_PIECE, max_shown - _ROOM_FOR_THE_LABEL))
        self.texts: dict[str, str] = {}

    def shorten(self, call_id: str, text: str, limit: int) -> str:
        """Shortens a text for the model. The rest can be read until the run ends."""
        text = clean(text)
        if len(text) <= limit:
            return text
        if len(text) > MAX_KEPT or not call_id:
            return cut(text, limit)
        self.texts[call_id] = text
        while sum(map(len, self.texts.values())) > MAX_KEPT:
            del self.texts[next(iter(self.texts))]
        shown_id = call_id.replace("{", "{{").replace("}", "}}")  # the note is a format string
        note = "… [{cut} of {length} characters left out; read_result shows them: "
        return cut(text, limit, note=note + f'call_id "{shown_id}", offset {limit}]')

    async def call(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:  # noqa: ARG002  the port's
        call_id = arguments["call_id"]
        text = self.texts.get(call_id)
        if text is None:
            return ToolResult.failure(f"No result is stored for {call_id!r}; known ids: {', '.join(self.texts)}.")
        start = arguments.get("offset", 0)
        if start >= len(text):
            return ToolResult.failure(f"That result has {len(text)} characters; offset {start} is past its end.")
        end = min(len(text), start + min(arguments.get("length", self._piece), self._piece))
        return ToolResult(content=f"[characters {start} to {end} of {len(text)}]\n{text[start:end]}")


@dataclass
class Batch:
    """The calls of one step. `results` fills up; `waiting` are the calls that wait for a person or for the client."""

    assistant: AssistantMessage
    results: dict[str, ToolMessage] = field(default_factory=dict)
    approvals: list[ToolCall] = field(default_factory=list)
    on_client: list[ToolCall] = field(default_factory=list)
    all_unusable: bool = False  # every call was refused because of its arguments
    begun: dict[str, float] = field(default_factory=dict)  # call id → when it was made, on the monotonic clock

    @property
    def waits(self) -> bool:
        return bool(self.approvals or self.on_client)

    def messages(self) -> list[Message]:
        """The step as it is stored in the history: the reply, then its results in the order of the calls.

        Empty for an empty reply, which would break the next turn.
        """
        reply = self.assistant
        if not (reply.content or reply.tool_calls or reply.extra):
            return []
        return [reply, *[self.results[call.id] for call in reply.tool_calls]]


@dataclass(kw_only=True)
class ToolRunner:
    """Runs calls for one run of an agent.

    `state` is the run's own tool. It keeps its name even if a server offers a tool of the same name.
    """

    catalogue: Catalogue
    emitter: RunEmitter
    context: ToolContext
    spending: Spending
    kept: KeptResults
    begin_calls: Callable[[PendingStep], Awaitable[None]]  # stores the calls that are about to be made
    state: SharedState | None = None
    attempts: int = 1
    max_characters: int
    executions: list[ToolExecution] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._state = {} if self.state is None else {UPDATE_STATE.name: entry_of(self.state, UPDATE_STATE)}

    async def run(
        self, batch: Batch, client_tools: Sequence[ToolSchema] = (), *, approved: Sequence[ToolCall] | None = None
    ) -> None:
        """Makes the calls that need neither a person nor the client. The batch keeps those that wait.

        With `approved`, makes these calls only: a person has approved them.
        """
        entries, on_client = self.with_own(self.catalogue.rows()), {schema.name: schema for schema in client_tools}
        calls = batch.assistant.tool_calls if approved is None else approved
        ready: list[_Ready] = []
        refused = 0
        for call in calls:
            entry = entries.get(call.name)
            arguments = self._checked(call, entry, on_client.get(call.name))
            if isinstance(arguments, BadArguments):
                refused += 1
                self.answer(batch, call, ToolResult.failure(arguments.text))
            elif isinstance(arguments, ToolResult):
                self.answer(batch, call, arguments)
            elif entry is None:
                batch.on_client.append(call)
            elif entry.schema.approval is Approval.ALWAYS and approved is None:
                batch.approvals.append(call)
            else:
                ready.append((call, arguments, entry))
        batch.all_unusable = refused > 0 and refused == len(calls)
        await self._run_ready(batch, ready)

    def with_own(self, entries: Mapping[str, ToolEntry]) -> Mapping[str, ToolEntry]:
        """Returns `entries` plus the run's own tools."""
        if not self.kept.texts and not self._state:
            return entries
        reader = {READ_RESULT.name: entry_of(self.kept, READ_RESULT)} if self.kept.texts else {}
        return {**reader, **entries, **self._state}

    def _checked(
        self, call: ToolCall, entry: ToolEntry | None, on_client: ToolSchema | None
    ) -> dict[str, Any] | BadArguments | ToolResult:
        """The arguments of a call. If it cannot be made, the reason, as a mistake of the model or of the tool."""
        if entry is None:
            if on_client is not None:
                return read_arguments(call.arguments, on_client)
            return BadArguments(unknown_tool(call.name, self.with_own(self.catalogue.offered())).text)
        if entry.withdrawn:
            return entry.unavailable()
        return read_arguments(call.arguments, entry.schema, entry.bound)

    def answer(self, batch: Batch, call: ToolCall, result: ToolResult) -> None:
        """Records a result for a call that was not made, or was stopped."""
        begun = batch.begun.get(call.id)
        self._finish(batch, call, {}, result, 0.0 if begun is None else time.monotonic() - begun)

    def take(self, batch: Batch, result: ToolMessage) -> None:
        """Takes a result from the client.

        Its texts together are shortened like any other result; its media follow them.
        """
        parts = parts_of(result.content)
        media = tuple(part for part in parts if isinstance(part, MediaPart))
        words = text_of(tuple(part for part in parts if isinstance(part, TextPart)))
        text = self.kept.shorten(result.call_id, words, self.max_characters)
        content = (TextPart(text), *media) if media and text else media or text
        batch.results[result.call_id] = msgspec.structs.replace(result, content=content)

    def abandon(self, batch: Batch) -> None:
        """Gives every call without a result one with the reason. A history must not hold an unanswered call.

        The client may have carried out its own calls. Of all others, only those that were made may have had an effect.
        """
        made = {*batch.begun, *(call.id for call in batch.on_client)}
        for call in batch.assistant.tool_calls:
            if call.id not in batch.results:
                self.answer(batch, call, ToolResult.failure(OUTCOME_UNKNOWN if call.id in made else NOT_MADE))

    async def _run_ready(self, batch: Batch, ready: Sequence[_Ready]) -> None:
        """Stores which calls are about to be made, then makes them: a crash never leaves an effect without a trace."""
        paid = []
        for each in ready:
            if self.spending.pays_for_call():
                paid.append(each)
            else:
                self.answer(batch, each[0], ToolResult.failure(NOT_PAID_FOR))
        if not paid:
            return
        begun = tuple([call.id for call, _, _ in paid])
        await self.begin_calls(self._cut_from_here(batch, begun))
        if len(paid) == 1:  # most steps: needs no task of its own
            await noticing_cancellation(self._run_one(batch, *paid[0], begun))  # as a task group does
            return
        try:
            async with asyncio.TaskGroup() as group:
                for call, arguments, entry in paid:
                    group.create_task(self._run_one(batch, call, arguments, entry, begun))
        except ExceptionGroup as failed:  # tools never raise: the store could not save a result
            raise failed.exceptions[0] from failed

    def _cut_from_here(self, batch: Batch, begun: tuple[str, ...]) -> PendingStep:
        """The step as a crash would leave it from now on."""
        run_id = self.context.run_id
        assistant = msgspec.structs.replace(batch.assistant, run_id=batch.assistant.run_id or run_id)
        return PendingStep(assistant=assistant, results=tuple(batch.results.values()), begun=begun, run_id=run_id)

    async def _run_one(
        self, batch: Batch, call: ToolCall, arguments: dict[str, Any], entry: ToolEntry, begun: tuple[str, ...]
    ) -> None:
        shorten = partial(self.kept.shorten, call.id)
        context = msgspec.structs.replace(self.context, call_id=call.id, tool=call.name, shorten=shorten)
        started = batch.begun[call.id] = time.monotonic()
        result = await _call(entry, arguments, context)
        for _repeat in range(self.attempts - 1):
            if not _may_repeat(result, entry.schema):
                break
            result = await _call(entry, arguments, context)
        self._finish(batch, call, arguments, result, time.monotonic() - started)
        if not batch.results.keys() >= set(begun):  # otherwise the whole step is stored next
            await self.begin_calls(self._cut_from_here(batch, begun))

    def _finish(
        self, batch: Batch, call: ToolCall, arguments: dict[str, Any], result: ToolResult, seconds: float
    ) -> None:
        content = result.content
        if isinstance(content, str) and call.id not in self.kept.texts:  # otherwise its toolset has shortened it
            content = self.kept.shorten(call.id, content, self.max_characters)
        message = ToolMessage(call_id=call.id, name=call.name, content=content, failed=result.failed)
        batch.results[call.id] = message
        shown = terminal_safe(text_of(content))  # programs print it
        self.executions.append(
            ToolExecution(
                call_id=call.id,
                tool_name=call.name,
                parameters=arguments or arguments_shown(call.arguments),
                status=ToolStatus.FAILED if result.failed else ToolStatus.SUCCESS,
                result=None if result.failed else shown,
                execution_time=seconds,
                error_message=(shown or "failed") if result.failed else None,
            )
        )
        self.emitter.tool_finished(message, seconds, cached=result.cached)


async def _call(entry: ToolEntry, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    name = entry.schema.name
    try:
        return await entry.call(arguments, context)
    except Exception:  # a toolset must not raise; if it does, the run continues and the operator reads why
        log.exception("tool %s failed with an unexpected error", name)
        return ToolResult.failure(f"{name} failed because of an internal error; it may work if tried again.")


def _may_repeat(result: ToolResult, schema: ToolSchema) -> bool:
    """Whether a call may be repeated: only if it cannot have taken effect, or if a second one does no harm."""
    return result.failed and result.retryable and (result.unsent or schema.repeatable)
