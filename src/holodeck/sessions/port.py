"""The ports: a conversation as the loop sees it, and the store that keeps sessions.

Neither knows models, wires or who is connected. A session is data: whatever runs on it lives elsewhere.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from holodeck.core.events import Ending
from holodeck.core.messages import Message, PendingStep, Summary
from holodeck.core.owner import Owner
from holodeck.sessions.values import ValueStore


class _Keep(Enum):
    KEEP = "keep"


KEEP: Final = _Keep.KEEP
"""Leaves a part of a session as it is."""

Keep: TypeAlias = Literal[_Keep.KEEP]


class Conversation(Protocol):
    """What one run reads and writes. The session neither expires nor makes room for another one until `close`."""

    @property
    def messages(self) -> Sequence[Message]:
        """The end of the history, oldest first; no tool call in it is unanswered."""

    @property
    def earlier(self) -> int:
        """How many stored messages come before `messages`."""

    @property
    def pending(self) -> PendingStep | None:
        """A step that waits for an approval or for the client's tools, or whose tool calls were cut by a crash."""

    @property
    def state(self) -> Any:
        """The state that agent and user interface share (JSON), None if there is none."""

    @property
    def summary(self) -> Summary | None:
        """The text that the model is shown in place of the oldest messages."""

    async def history(self) -> Sequence[Message]:
        """All messages as they are now, oldest first; a `History` if the run has not read them all."""

    def accept(self, messages: Sequence[Message], *, state: Any = KEEP) -> "asyncio.Future[Any] | None":
        """Begins to store messages before the model is asked about them. They are part of the conversation at once.

        They are durable when the future is done, or, if it is None, already. Until then the run may ask its model, but
        shows nothing more. A store may wait a few milliseconds for a commit that it can write them with. Raises as
        `commit` does, at once or in the future.
        """

    async def commit(
        self,
        messages: Sequence[Message],
        pending: PendingStep | Keep | None = None,
        *,
        state: Any = KEEP,
        summary: Summary | Keep | None = KEEP,
        ending: Ending | None = None,
    ) -> None:
        """Adds the messages of one step and replaces the rest, all of it or nothing. Durable when it returns.

        What was accepted before it is stored before it, or with it: if that fails, this fails.

        `ending` is the last event of the run, stored before any reader sees it. A caller that is cancelled meanwhile
        does not cut the commit: a store that has to wait shields itself. Raises SessionFull for user messages that
        do not fit, LostClaim if another process has taken the session over.
        """

    async def rewind(self, before: str) -> None:
        """Ends the history before this message of the user, without the step that waits; InvalidRequest if there is none.

        The store cuts its own with the next commit of messages or of a step, in one transaction: a run that fails before
        has changed nothing.
        """

    async def begin_calls(self, step: PendingStep) -> None:
        """Stores a step whose tool calls are about to be made. Durable when it returns: no call is made before."""

    def close(self) -> None:
        """The run is over. Idempotent."""


class ServerSession(msgspec.Struct, frozen=True, kw_only=True):
    """One session, without its messages: small enough to list thousands."""

    session_id: str
    owner: Owner
    created_at: datetime
    last_activity: datetime
    message_count: int = 0
    size: int = 0  # bytes of its messages as JSON
    title: str = ""  # the beginning of the user's first text; in lists only


class StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """A whole session as data: what is shown, exported, and carried from one store to another."""

    session: ServerSession
    messages: tuple[Message, ...] = ()
    pending: PendingStep | None = None
    state: Any = None
    summary: Summary | None = None


class SessionStore(Protocol):
    """Keeps sessions for their time to live, which starts anew with every commit.

    Every call names the owner: another owner's session answers exactly as one that does not exist.
    """

    @property
    def values(self) -> ValueStore:
        """Small values that are kept beside the sessions."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def create(self, session_id: str | None = None, *, owner: Owner) -> ServerSession:
        """A new, empty session; with a ULID unless an id is given. A session that exists is returned as it is."""

    async def get(self, session_id: str, *, owner: Owner) -> ServerSession | None:
        """The session, unless it is unknown, expired or another owner's."""

    async def read(self, session_id: str, *, owner: Owner, last: int | None = None) -> StoredSession | None:
        """All of it as it is now, for a reader: it does not count as use. With `last`, of its messages what `open` reads."""

    async def open(
        self, session_id: str, *, owner: Owner, run_id: str = "", last: int | None = None, create: bool = False
    ) -> Conversation:
        """The conversation, for one run to work on; SessionNotFound if there is none and none is to be created.

        With `last`, only about so many messages of its end are read, from a user's message on, so that the cost of a
        run does not grow with a history that the model is not shown.
        """

    async def delete(self, session_id: str, *, owner: Owner) -> bool:
        """Whether there was something to delete."""

    async def rewind(self, session_id: str, before: str, *, owner: Owner) -> None:
        """Cuts the history before this message of the user; a step that waits, and a summary of more, are dropped.

        Atomic. Raises SessionNotFound, SessionBusy while a run has it, InvalidRequest if there is no such message.
        """

    async def fork(self, session_id: str, at: str | None = None, *, owner: Owner) -> str:
        """Copies the history before this message of the user, or all of it, into a new session; returns its id."""

    async def restore(self, stored: StoredSession) -> None:
        """Stores a whole session, as `read` returned it from this store or another; InvalidRequest if the id is taken."""

    async def sessions_of(
        self, *, owner: Owner, limit: int = 100, after: ServerSession | None = None
    ) -> Sequence[ServerSession]:
        """The owner's sessions, the one used last first; with `after`, those that come after it in this order.

        The order is by `last_activity` in microseconds and then by id, both descending, so that a session that was
        deleted since still names a place in it.
        """

    async def cleanup_expired(self) -> int:
        """Deletes what is past its time to live; returns how many sessions."""

    async def count(self) -> int: ...

    async def tenant_bytes(self, tenant: str) -> int:
        """The size of all sessions of a tenant's users."""
