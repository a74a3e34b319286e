"""The ports: a conversation as the loop sees it, and the store that keeps sessions.

Neither knows models, wires or who is connected. A session is data: whatever runs on it lives elsewhere.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from holodeck.core.messages import Message, PendingStep, Summary
from holodeck.core.owner import Owner


class Conversation(Protocol):
    """What one run reads and writes. Only one run at a time has it."""

    @property
    def messages(self) -> Sequence[Message]:
        """All that was said and done, oldest first; no tool call in it is unanswered."""

    @property
    def pending(self) -> PendingStep | None:
        """A step that waits for an approval or for the client's tools."""

    @property
    def state(self) -> Any:
        """The state that agent and user interface share (JSON), None if there is none."""

    @property
    def summary(self) -> Summary | None:
        """What stands for the oldest messages in what the model is shown."""

    async def commit(self, messages: Sequence[Message], pending: PendingStep | None = None) -> None:
        """Adds the messages of one step together, and replaces what is pending.

        Whole or not at all, also when the caller is cancelled meanwhile: a store that has to wait shields itself.
        """

    async def put_state(self, state: Any) -> None: ...

    async def put_summary(self, summary: Summary | None) -> None: ...


class ServerSession(msgspec.Struct, frozen=True, kw_only=True):
    """One session, without its messages: small enough to list thousands."""

    session_id: str
    owner: Owner
    created_at: datetime
    last_activity: datetime
    message_count: int = 0


class SessionStore(Protocol):
    """Keeps sessions for their time to live, which starts anew with every touch.

    Every call names the owner, which is part of a session's key: two owners may use the same id, and neither can
    observe that the other does.
    """

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def create(self, session_id: str | None = None, *, owner: Owner) -> ServerSession:
        """A new, empty session, with a ULID unless an id is given. If the owner has a session of that id, returns it."""

    async def get(self, session_id: str, *, owner: Owner) -> ServerSession | None:
        """The owner's session; None if there is none, or if it has expired."""

    async def touch(self, session_id: str, *, owner: Owner) -> None: ...

    async def delete(self, session_id: str, *, owner: Owner) -> bool:
        """Whether there was something to delete."""

    async def rewind(self, session_id: str, before: str, *, owner: Owner) -> None:
        """Cuts the history before this message of the user; a step that waits, and a summary of more, are dropped.

        Atomic. Raises SessionNotFound, InvalidRequest if there is no such message.
        """

    async def cleanup_expired(self) -> int:
        """Forgets what is past its time; returns how many."""

    async def count(self) -> int: ...

    async def open(self, session_id: str, *, owner: Owner) -> Conversation:
        """The conversation of a session, to run on; SessionNotFound if there is none."""
