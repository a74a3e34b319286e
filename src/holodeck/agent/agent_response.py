"""The result of a run for its caller: the sum of the events that it emitted.

`AgentResponse` is a pydantic model, as web handlers and queues expect it: `model_dump()`, `model_dump_json()`, a field of
another model. The server needs none of that: its runs end with a `LoopResult`.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema, computed_field

from holodeck.core.events import Ending, Outcome, RunFailed
from holodeck.core.messages import Message, ToolExecution
from holodeck.core.usage import TokenUsage
from holodeck.models.chat_format import message_to_chat

Status = Literal["completed", "max_iterations_reached", "error"]


def _usage_shown(usage: TokenUsage | None) -> dict[str, Any] | None:
    return None if usage is None else {**msgspec.to_builtins(usage), "total_tokens": usage.total_tokens}


def _executions_shown(executions: Sequence[ToolExecution]) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(each) for each in executions]


def _output_shown(value: Any) -> Any:
    return msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value


Output = Annotated[Any, PlainSerializer(_output_shown)]
Usage = Annotated[
    TokenUsage | None, PlainSerializer(_usage_shown), WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "null"}]})
]
Executions = Annotated[
    tuple[ToolExecution, ...],
    PlainSerializer(_executions_shown),
    WithJsonSchema({"type": "array", "items": {"type": "object"}}),
]


class LoopResult(msgspec.Struct, frozen=True):
    """The run's ending, and what the ending does not have."""

    ending: Ending
    final_response: str | None
    iterations: int
    warning: str | None
    output: Any
    executions: tuple[ToolExecution, ...]


class AgentResponse(BaseModel):
    """The result of a run (AGT-01)."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    status: Status
    final_response: str | None = None
    iterations: int = 0
    finish_reason: str = "completed"
    error: str | None = None
    error_code: str | None = None
    warning: str | None = None
    outcome: Outcome = Outcome.COMPLETED
    usage: Usage = None
    output: Output = None  # the final answer as a value, if the agent has an output type
    executions: Executions = ()
    # Filled by `run_agent`; a run of the server leaves it empty.
    history: Annotated[tuple[Message, ...], WithJsonSchema({"type": "array"})] = Field((), exclude=True, repr=False)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def messages(self) -> list[dict[str, Any]]:
        """The whole conversation in the chat-completions format, tool calls included."""
        return [message_to_chat(message) for message in self.history]


def response_of(result: LoopResult) -> AgentResponse:
    ending, values = result.ending, msgspec.structs.asdict(result)
    del values["ending"]
    if isinstance(ending, RunFailed):
        error, code = ending.message, ending.code
        return AgentResponse(
            status="error", finish_reason="error", error=error, error_code=code, usage=ending.usage, **values
        )
    is_cut = ending.outcome is Outcome.COMPLETED and ending.finish_reason == "length"
    return AgentResponse(
        status="max_iterations_reached" if ending.outcome is Outcome.MAX_ITERATIONS else "completed",
        finish_reason="length" if is_cut else ending.outcome.value,
        outcome=ending.outcome,
        usage=ending.usage,
        **values,
    )
