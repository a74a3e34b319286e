"""What of a request is new: the client's history merged with ours by message id.

What the server has stored wins. From the client come only the user's new messages at the end, and results of tools
that were given to it: it cannot put words into the assistant's mouth (T27).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holodeck.agent.context import AgentContext
from holodeck.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from holodeck.core.request import RunRequest
from holodeck.core.zones import is_zone, local_zone
from holodeck.errors import HoloDeckError
from holodeck.sessions.port import Conversation


def context_of(
    request: RunRequest,
    conversation: Conversation,
    session_id: str,
    why_stopped: Callable[[], HoloDeckError | None],
) -> AgentContext:
    new = new_messages(request.messages, conversation.messages)
    return AgentContext(
        conversation=conversation,
        input=[message for message in new if isinstance(message, UserMessage)],
        client_results=[message for message in request.messages if isinstance(message, ToolMessage)],
        resume=request.resume,
        client_tools=request.client_tools,
        notes=request.context,
        files=request.files,
        state=request.state,
        client_ids=frozenset(message.id for message in request.messages) if request.keeps_history else None,
        run_id=request.run_id,
        session_id=session_id,
        parent_run_id=request.parent_run_id,
        user_id=request.owner.user,
        timezone=_timezone_of(request.properties),
        why_stopped=why_stopped,
    )


def first_of_use(sent: Sequence[Message]) -> int:
    """Where in a client's history that begins which may be taken from it; all before is told by our own."""
    return next((i + 1 for i in reversed(range(len(sent))) if isinstance(sent[i], AssistantMessage)), 0)


def new_messages(sent: Sequence[Message], stored: Sequence[Message]) -> Sequence[Message]:
    """The user's messages at the end of what was sent that are not stored yet."""
    known = {message.id for message in stored}
    start = len(sent)
    while start > 0 and isinstance(sent[start - 1], UserMessage) and sent[start - 1].id not in known:
        start -= 1
    return sent[start:]


def _timezone_of(properties: Mapping[str, Any]) -> str:
    """The zone that the client says its user is in, unless it is none."""
    value = properties.get("timezone")
    return value if isinstance(value, str) and is_zone(value) else local_zone()
