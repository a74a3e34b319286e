"""What a run returns to the one who awaited it. The story went to `emit`; this is the sum."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from holodeck.core.events import Outcome
from holodeck.core.messages import Message
from holodeck.core.tools import ToolExecution
from holodeck.core.usage import TokenUsage
from holodeck.models.chat_format import message_to_chat

Status = Literal["completed", "max_iterations_reached", "error"]


class AgentResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a run (AGT-01)."""

    status: Status
    final_response: str | None = None
    history: Sequence[Message] = ()  # filled by `run_agent`; a server's run keeps none
    iterations: int = 0
    finish_reason: str = "completed"
    error: str | None = None
    error_code: str | None = None
    warning: str | None = None
    outcome: Outcome = Outcome.COMPLETED
    usage: TokenUsage | None = None
    output: Any = None  # the final answer as a value, if the agent has an output type
    executions: Sequence[ToolExecution] = ()

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The whole conversation in the chat-completions format, tool calls included."""
        return [message_to_chat(message) for message in self.history]
