"""Messages of a conversation, as they are stored and as models are shown them.

The system prompt is not among them: it belongs to the agent, not to the conversation. This module knows no provider's
JSON; `holodeck.models.chat_format` does. Values hold no live objects, so the garbage collector can skip them
(`gc=False`): a server keeps thousands of messages, and each collection would visit them all.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias

import msgspec

from holodeck.core.ids import new_message_id
from holodeck.core.usage import TokenUsage

INTERRUPTED = "interrupted"
"""The reason why a message is incomplete, or a run has ended: its process died."""


now: Callable[[], datetime] = partial(datetime.now, UTC)


class TextPart(msgspec.Struct, frozen=True, tag="text", gc=False):
    text: str


class MediaPart(msgspec.Struct, frozen=True, tag="media", kw_only=True, omit_defaults=True, gc=False):
    """An image or document. Its bytes are in `data` (base64) or at `url`."""

    mime_type: str
    data: str | None = None
    url: str | None = None
    filename: str | None = None


Part: TypeAlias = TextPart | MediaPart
Content: TypeAlias = str | tuple[Part, ...]


def text_of(content: Content) -> str:
    """The text of a content. Media are named in brackets, so that nothing is dropped without a trace."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, TextPart) else _named(part) for part in content)


def _named(part: MediaPart) -> str:
    return f"[{part.mime_type}: {part.filename}]" if part.filename else f"[{part.mime_type}]"


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One call as the model asked for it.

    `arguments` is the model's own text, JSON or not. `extra` holds every member that we do not understand (Gemini's
    thought signatures): it goes back to the provider unchanged, or the next turn fails with 400.
    """

    id: str
    name: str
    arguments: str
    extra: dict[str, Any] = {}


class UserMessage(
    msgspec.Struct, frozen=True, tag_field="role", tag="user", kw_only=True, omit_defaults=True, gc=False
):
    content: Content
    id: str = msgspec.field(default_factory=new_message_id)
    timestamp: datetime = msgspec.field(default_factory=now)
    run_id: str = ""  # the run that stored it


class AssistantMessage(
    msgspec.Struct, frozen=True, tag_field="role", tag="assistant", kw_only=True, omit_defaults=True, gc=False
):
    """One reply of the model. `cut` is the reason why it is incomplete: a broken stream, a limit, a stop."""

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    tokens_used: TokenUsage | None = None
    cut: str | None = None
    from_client: bool = False  # adopted from a client's history; no model of ours wrote it
    extra: dict[str, Any] = {}
    id: str = msgspec.field(default_factory=new_message_id)
    timestamp: datetime = msgspec.field(default_factory=now)
    run_id: str = ""  # the run that stored it


class ToolMessage(
    msgspec.Struct, frozen=True, tag_field="role", tag="tool", kw_only=True, omit_defaults=True, gc=False
):
    """The result of one tool call."""

    call_id: str
    name: str
    content: Content
    failed: bool = False
    from_client: bool = False  # adopted from a client's history
    id: str = msgspec.field(default_factory=new_message_id)
    timestamp: datetime = msgspec.field(default_factory=now)
    run_id: str = ""  # the run that stored it


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


def unanswered(messages: Iterable[Message]) -> list[ToolCall]:
    """Calls without a result. Providers refuse a history that has one, so a stored history never does."""
    open_calls: dict[str, ToolCall] = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            open_calls.update((call.id, call) for call in message.tool_calls)
        elif isinstance(message, ToolMessage):
            open_calls.pop(message.call_id, None)
    return list(open_calls.values())


def has_stray_results(messages: Iterable[Message]) -> bool:
    """Whether a result has no call before it. Providers refuse such a history too."""
    calls: set[str] = set()
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls.update(call.id for call in message.tool_calls)
        elif isinstance(message, ToolMessage) and message.call_id not in calls:
            return True
    return False


def can_be_answered(messages: Sequence[Message]) -> bool:
    """Whether a model may be asked with this history: it does not end with an answer, or only with an incomplete one.

    A model that finds its own complete answer last repeats it, or its provider refuses the request.
    """
    last = messages[-1] if messages else None
    return last is not None and not (isinstance(last, AssistantMessage) and last.cut is None)


class Summary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A summary that the model is shown instead of the beginning of a conversation. Only the model can write it.

    It is stored beside the history, which does not change. `until` is the id of the last message that it covers. If
    that message no longer exists, the summary covers nothing.
    """

    content: str
    until: str
    messages: int  # how many messages it covers
    tokens_used: TokenUsage | None = None
    timestamp: datetime = msgspec.field(default_factory=now)

    def rest_of(self, messages: Sequence[Message]) -> Sequence[Message] | None:
        """The messages after the summary. None if it is not a summary of these messages."""
        ends = next((place for place, message in enumerate(messages) if message.id == self.until), None)
        return None if ends is None else messages[ends + 1 :]


class KeptAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's answer to one of several interrupts, kept until the others are answered too."""

    approved: bool
    payload: Any = None
    reason: str | None = None


class PendingStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An incomplete step: it waits for a person's approval or for a tool of the client, or its tools are running.

    It is stored beside the history, not in it, until every call has its result; then it enters the history as a whole.
    After a crash `begun` names the calls that may have taken effect: they are never made again.
    """

    assistant: AssistantMessage
    results: tuple[ToolMessage, ...] = ()
    approvals: dict[str, str] = {}  # interrupt id → call id
    client_calls: tuple[str, ...] = ()  # call ids
    expires_at: datetime | None = None
    begun: tuple[str, ...] = ()  # ids of calls that were passed to their tools
    run_id: str = ""
    answers: dict[str, KeptAnswer] = {}  # by interrupt id; they count when a client resumes with all of them

    @property
    def waiting(self) -> Sequence[ToolCall]:
        answered = {result.call_id for result in self.results}
        return [call for call in self.assistant.tool_calls if call.id not in answered]
