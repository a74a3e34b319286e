"""The end of a run → ChatResponse (SRV-08). The message's id is the run's id, which stops the run.

A failure never becomes a ChatResponse: callers check `holodeck.wires.reply.failure_of` first.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from holodeck.core.events import Interrupt, RunFinished
from holodeck.core.messages import ToolExecution, ToolStatus
from holodeck.core.request import FileNote
from holodeck.core.tools import arguments_shown
from holodeck.core.usage import TokenUsage

CallStatus = Literal["success", "error", "pending"]


class ToolCallInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that was used. `pending`: a person has to approve it first."""

    name: str
    arguments: dict[str, Any]
    status: CallStatus


class TokenCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of all model calls of a run."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class InterruptInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for a person's approval."""

    id: str
    tool: str
    arguments: dict[str, Any]
    message: str
    expires_at: str | None


class ChatResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. A `status` other than `completed` says why it may not be the last."""

    message_id: Annotated[str, Meta(description="A ULID; also the id of the run")]
    content: Annotated[str, Meta(examples=["Buying eggs is due tomorrow."])]
    session_id: Annotated[str, Meta(description="Send it with the next message")]
    tool_calls: list[ToolCallInfo]
    tokens_used: Annotated[TokenCounts | None, Meta(description="null if the model did not report them")]
    execution_time_ms: int
    status: Literal["completed", "max_iterations", "interrupted", "client_tools"] = "completed"
    files: Annotated[Sequence[FileNote], Meta(description="What the model received of each file")] = ()
    interrupts: list[InterruptInfo] | UnsetType = UNSET
    warning: str | UnsetType = UNSET
    session_is_new: Annotated[
        bool | UnsetType, Meta(description="true if the session that was asked for has expired, or is unknown")
    ] = UNSET
    model: Annotated[str | UnsetType, Meta(description="The model that answered; it may be a fallback")] = UNSET
    output: Annotated[Any, Meta(description="The answer as a value, if the agent has a response_format")] = UNSET


def chat_response(
    ending: RunFinished,
    *,
    content: str,
    executions: Sequence[ToolExecution],
    files: Sequence[FileNote],
    milliseconds: int,
    is_new_session: bool = False,
) -> ChatResponse:
    """`executions` are the tool calls of the run in the order in which they ended. Pending ones come last."""
    return ChatResponse(
        message_id=ending.run_id,
        content=content,
        session_id=ending.session_id,
        tool_calls=[*map(_used, executions), *map(_waiting, ending.interrupts)],
        tokens_used=token_counts(ending.usage),
        execution_time_ms=milliseconds,
        files=files,
        session_is_new=True if is_new_session else UNSET,
        **how_it_ended(ending),
    )


def how_it_ended(ending: RunFinished) -> dict[str, Any]:
    """Returns the members that a response and the end of a stream share."""
    members: dict[str, Any] = {"status": ending.outcome.value}
    if ending.interrupts:
        members["interrupts"] = [_interrupt(each) for each in ending.interrupts]
    if ending.warning:
        members["warning"] = ending.warning
    if ending.model is not None:
        members["model"] = ending.model
    if ending.output is not None:
        members["output"] = ending.output
    return members


def token_counts(usage: TokenUsage | None) -> TokenCounts | None:
    return None if usage is None else msgspec.convert(usage, TokenCounts, from_attributes=True)


def _used(execution: ToolExecution) -> ToolCallInfo:
    status: CallStatus = "error" if execution.status is ToolStatus.FAILED else "success"
    return ToolCallInfo(name=execution.tool_name, arguments=execution.parameters, status=status)


def _waiting(interrupt: Interrupt) -> ToolCallInfo:
    return ToolCallInfo(name=interrupt.tool, arguments=arguments_shown(interrupt.arguments), status="pending")


def _interrupt(interrupt: Interrupt) -> InterruptInfo:
    return InterruptInfo(
        id=interrupt.id,
        tool=interrupt.tool,
        arguments=arguments_shown(interrupt.arguments),
        message=interrupt.message,
        expires_at=None if interrupt.expires_at is None else interrupt.expires_at.isoformat(),
    )
