"""The ports: a conversation as the loop sees it, and the store that keeps sessions.

Neither knows models, wires or connections. A session is data; the objects that work on it live elsewhere.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypedDict

import msgspec

from holodeck.core.events import Ending
from holodeck.core.messages import Message, PendingStep, Summary
from holodeck.core.owner import Owner
from holodeck.sessions.values import ValueStore


class _Keep(Enum):
    KEEP = "keep"


KEEP: Final = _Keep.KEEP
"""Leaves a part of a session unchanged."""

Keep: TypeAlias = Literal[_Keep.KEEP]


class Conversation(Protocol):
    """The part of a session that one run reads and writes.

    It neither expires nor makes room for another until `close`.
    """

    @property
    def messages(self) -> Sequence[Message]:
        """The end of the history, oldest first; no tool call in it is unanswered."""

    @property
    def earlier(self) -> int:
        """How many stored messages come before `messages`."""

    @property
    def pending(self) -> PendingStep | None:
        """An incomplete step: it waits for an approval or for the client's tools, or a crash interrupted its calls."""

    @property
    def state(self) -> Any:
        """The state that agent and user interface share (JSON). None if there is none."""

    @property
    def summary(self) -> Summary | None:
        """The text that the model is shown in place of the oldest messages."""

    async def history(self) -> Sequence[Message]:
        """All current messages, oldest first. A `History` if the run has not read them all."""

    async def stored(self) -> Sequence[Message]:
        """All messages as the store has them now, whichever process has stored them."""

    def accept(self, messages: Sequence[Message], *, state: Any = KEEP) -> "asyncio.Future[Any] | None":
        """Starts to store messages before the model is asked about them. They are part of the conversation immediately.

        They are durable when the future is done or, if it is None, already. Until then the run may ask its model, but
        shows nothing more. A store may wait a few milliseconds for a commit to write them with. Raises as `commit`
        does, either directly or in the future.
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
        """Adds the messages of one step and replaces the rest, as a whole or not at all. Durable when it returns.

        Accepted messages are stored before it, or with it. If that fails, this fails.

        `ending` ends a run that is not in progress: `end` is for one that is. Cancelling the caller does not interrupt
        the commit: a store that has to wait shields itself.

        Raises SessionFull for user messages that do not fit, LostClaim if another process has taken the session over,
        SessionDeleted if it was deleted. Then nothing of the commit is stored.
        """

    def end(
        self, messages: Sequence[Message], pending: PendingStep | Keep | None, *, state: Any, ending: Ending
    ) -> "asyncio.Future[Any] | None":
        """Starts a commit of the run's last step together with the run's last event.

        Durable when the future is done or, if it is None, already. Only then may a reader see the ending. Raises as
        `commit` does, either directly or in the future.
        """

    async def rewind(self, before: str) -> None:
        """Ends the history before this user message and drops the pending step.

        InvalidRequest if there is no such message.

        The store rewinds its own copy in the transaction of the next commit of messages or of a step. A run that fails
        before that has changed nothing.
        """

    async def begin_calls(self, step: PendingStep, *, state: Any = KEEP) -> None:
        """Stores a step before its tool calls are made, or with the results that it has. Durable when it returns."""

    def close(self) -> None:
        """Releases the session at the end of the run. Idempotent."""


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
    """A whole session as data, to be shown, exported, or moved from one store to another."""

    session: ServerSession
    messages: tuple[Message, ...] = ()
    pending: PendingStep | None = None
    state: Any = None
    summary: Summary | None = None


class Durability(NamedTuple):
    """What a store promises, in a sentence, and whether a setting outside the agent file weakens it."""

    sentence: str
    is_doubtful: bool = False


class StoreLimits(TypedDict, total=False):
    """Limits that every session store takes."""

    max_per_user: int | None
    spares_anonymous: bool  # clients without a credential share one owner
    max_bytes: int
    max_owner_bytes: int | None


class SessionStore(Protocol):
    """Keeps sessions for their time to live, which restarts with every commit.

    Every call names the owner: another owner's session looks exactly like one that does not exist.
    """

    @property
    def values(self) -> ValueStore:
        """Small values that are stored beside the sessions."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def create(self, session_id: str | None = None, *, owner: Owner) -> ServerSession:
        """Returns a new, empty session, with a ULID unless an id is given.

        If the session exists, returns it unchanged.
        """

    async def get(self, session_id: str, *, owner: Owner) -> ServerSession | None:
        """The session, unless it is unknown, expired or another owner's."""

    async def read(self, session_id: str, *, owner: Owner, last: int | None = None) -> StoredSession | None:
        """Reads a whole session. This does not count as use. With `last`, reads only the messages that `open` would."""

    async def open(
        self, session_id: str, *, owner: Owner, run_id: str = "", last: int | None = None, create: bool = False
    ) -> Conversation:
        """Opens the conversation for one run. Raises SessionNotFound if it does not exist and may not be created.

        With `last`, it reads only about that many messages from the end, starting at a user's message. So the cost of a
        run does not grow with the history that the model is not shown.
        """

    async def delete(self, session_id: str, *, owner: Owner) -> bool:
        """Deletes a session, and returns whether it existed."""

    async def rewind(self, session_id: str, before: str, *, owner: Owner) -> None:
        """Cuts the history before this user message. Drops a pending step, and a summary that covers more.

        Atomic. Raises SessionNotFound, SessionBusy while a run uses the session, InvalidRequest if there is no such
        message.
        """

    async def fork(self, session_id: str, at: str | None = None, *, owner: Owner) -> str:
        """Copies the history before this user message, or all of it, into a new session. Returns the new id."""

    async def restore(self, stored: StoredSession) -> None:
        """Stores a session that `read` of any store returned. Raises InvalidRequest if the id is taken."""

    async def sessions_of(
        self, *, owner: Owner, limit: int = 100, after: ServerSession | None = None
    ) -> Sequence[ServerSession]:
        """The owner's sessions, most recently used first. With `after`, only those that follow it in this order.

        The order is by `last_activity` in microseconds and then by id, both descending, so that a deleted session still
        marks a position in it.
        """

    async def cleanup_expired(self) -> int:
        """Deletes sessions that are past their time to live. Returns how many."""

    async def count(self) -> int: ...

    async def tenant_bytes(self, tenant: str) -> int:
        """The size of all sessions of a tenant's users."""
