"""One conversation in the terminal as values: its options, its messages, its state (seed 002).

This module knows neither screen nor files; `chat_store` stores a session, `chat` holds it.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from holodeck.core.ids import MAX_ID_LENGTH, is_valid_id, new_ulid
from holodeck.core.messages import INTERRUPTED, AssistantMessage, Message, UserMessage, now
from holodeck.core.owner import ANONYMOUS
from holodeck.core.text import one_line
from holodeck.core.usage import TokenUsage, total
from holodeck.errors import ShuttingDown
from holodeck.sessions.transcript import Transcript, title_of

NO_ANSWER = "(no answer was stored; /retry asks again)"
UNKNOWN_OUTCOME = "({tools}: no result was stored, and whether it took effect is not known; send a message to continue)"
NEW_ID = "(there is no conversation with this id, or it has expired; your first message begins it)"
_HOW_CUT = {
    INTERRUPTED: "was cut by a crash",
    ShuttingDown.code: "was cut when the server stopped",
}
MAX_MESSAGES = 50


class SessionState(StrEnum):
    INITIALIZING = "initializing"
    ACTIVE = "active"
    TERMINATED = "terminated"


_IN_ORDER = list(SessionState)


class ChatConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    verbose: bool = False
    quiet: bool = False
    enable_observability: bool = False
    max_messages: int = MAX_MESSAGES
    as_json: bool = False
    resume: str | None = None
    session_id: str | None = None  # continue this conversation, or begin it
    save: bool = True
    question: str | None = None  # answer this and leave
    each_line: bool = False  # each line of a pipe is a message
    attach: tuple[str, ...] = ()
    user_id: str = ANONYMOUS

    def __post_init__(self) -> None:
        if self.session_id is not None and not is_valid_id(self.session_id):
            raise ValueError(f"a session id has 1 to {MAX_ID_LENGTH} printable characters")


@dataclass(kw_only=True)
class ChatSession:
    agent_name: str
    session_id: str = field(default_factory=new_ulid)
    started_at: datetime = field(default_factory=now)
    state: SessionState = SessionState.INITIALIZING
    metadata: dict[str, Any] = field(default_factory=dict)
    transcript: Transcript = field(default_factory=Transcript)

    def __post_init__(self) -> None:
        if self.started_at.tzinfo is None:
            raise ValueError("started_at needs a time zone")
        if self.started_at > now():
            raise ValueError("started_at cannot be in the future")

    def become(self, state: SessionState) -> None:
        if _IN_ORDER.index(state) <= _IN_ORDER.index(self.state):
            raise ValueError(f"a session that is {self.state} cannot become {state}")
        self.state = state

    @property
    def message_count(self) -> int:
        return len(self.transcript.messages)

    @property
    def known_usage(self) -> tuple[TokenUsage | None, bool]:
        """Returns the reported usage, and whether it is complete: a stopped answer reports none."""
        reported = [each.tokens_used for each in self.transcript.messages if isinstance(each, AssistantMessage)]
        known = [usage for usage in reported if usage is not None]
        return total([*known]), len(known) == len(reported)

    @property
    def title(self) -> str:
        return title_of(self.transcript.messages)

    @property
    def last_question(self) -> UserMessage | None:
        return next((each for each in reversed(self.transcript.messages) if isinstance(each, UserMessage)), None)

    @property
    def is_unanswered(self) -> bool:
        """Whether the last question has no answer, and none is under way: the process that wrote it was killed."""
        last = self.transcript.messages[-1] if self.transcript.messages else None
        return last is not None and not isinstance(last, AssistantMessage) and self.transcript.pending is None

    def until(self, message: UserMessage) -> list[Message]:
        messages = list(self.transcript.messages)
        return messages[: messages.index(message) + 1]


def about_cut(cut: str) -> str:
    """The line about an answer at the end of a conversation that was cut off for this reason."""
    how = _HOW_CUT.get(cut)
    if how is None:
        return f"({one_line(cut)}; /retry asks again)"
    return f"(the last answer {how}; /retry asks again, or send a message to continue)"


def counted(messages: int) -> str:
    return f"{messages} message{'s' * (messages != 1)}"
