"""A chat on a conversation of the agent's session store: what the server has, the terminal goes on with, and back.

Every step is stored where the server stores it, tool calls before they are made. A server that works on the same
conversation at the same time takes it over, or loses it: the later one of the two to begin writes.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from holodeck.cli.conversation.session import ChatSession
from holodeck.config.build_stores import build_sqlite, sessions_path
from holodeck.config.load import LoadedConfig
from holodeck.core.events import Ending
from holodeck.core.messages import Message, PendingStep, Summary
from holodeck.core.owner import ANONYMOUS_OWNER
from holodeck.sessions.port import KEEP, Conversation, Keep, SessionStore, StoredSession
from holodeck.sessions.transcript import Transcript

LAST = "last"


async def stored_chat(config: LoadedConfig, wanted: str, stack: AsyncExitStack) -> ChatSession | None:
    """The conversation of this id in the agent's store, None if there is none; `stack` closes the store."""
    if config.agent.sessions.store == "memory" or not sessions_path(config).exists():
        return None
    store = build_sqlite(config).sessions
    await store.start()
    stack.push_async_callback(store.close)
    if wanted == LAST:
        newest = await store.sessions_of(owner=ANONYMOUS_OWNER, limit=1)
        wanted = newest[0].session_id if newest else wanted
    stored = await store.read(wanted, owner=ANONYMOUS_OWNER)
    if stored is None:
        return None
    conversation = await store.open(wanted, owner=ANONYMOUS_OWNER)
    stack.callback(conversation.close)
    session = stored.session
    return ChatSession(
        agent_name=config.agent.name,
        session_id=wanted,
        started_at=session.created_at,
        transcript=StoredTranscript(store, conversation, stored),
    )


class StoredTranscript(Transcript):
    """A transcript that stores every commit before it applies it in memory."""

    def __init__(self, store: SessionStore, conversation: Conversation, stored: StoredSession) -> None:
        super().__init__(stored.messages, state=stored.state, summary=stored.summary)
        self._pending = stored.pending
        self._store, self._conversation, self._session_id = store, conversation, stored.session.session_id
        self._cut_before: str | None = None

    async def commit(
        self,
        messages: Sequence[Message],
        pending: PendingStep | Keep | None = None,
        *,
        state: Any = KEEP,
        summary: Summary | Keep | None = KEEP,
        ending: Ending | None = None,
    ) -> None:
        await self._rewind()
        await self._conversation.commit(messages, pending, state=state, summary=summary, ending=ending)
        await super().commit(messages, pending, state=state, summary=summary, ending=ending)

    async def begin_calls(self, step: PendingStep) -> None:
        await self._conversation.begin_calls(step)
        await super().begin_calls(step)

    def cut(self, at: int) -> None:
        self._cut_before = self._messages[at].id
        super().cut(at)

    async def _rewind(self) -> None:
        """Cuts what was taken back in the store, too, together with the next thing that is stored."""
        if self._cut_before is None:
            return
        before, self._cut_before = self._cut_before, None
        self._conversation.close()
        await self._store.rewind(self._session_id, before, owner=ANONYMOUS_OWNER)
        self._conversation = await self._store.open(self._session_id, owner=ANONYMOUS_OWNER)
