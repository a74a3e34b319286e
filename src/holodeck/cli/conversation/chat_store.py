"""Stores chats in the agent's session store, so that the terminal and the server show the same conversations.

A chat that is not to be saved stays in memory while the program runs. Resuming a file that `/save FILE` wrote copies it
into the store.
"""

import math
import os
from collections.abc import Callable, Sequence

from holodeck.cli.conversation.archive import ChatFileError, load_chat, typed_path
from holodeck.cli.conversation.session import ChatSession
from holodeck.config.build_stores import DurableSessions, build_durable, build_memory, sessions_path
from holodeck.config.load import LoadedConfig
from holodeck.core.ids import new_ulid
from holodeck.core.messages import now
from holodeck.core.owner import DEFAULT_TENANT, Owner
from holodeck.core.text import one_line
from holodeck.errors import InvalidRequest, StartError
from holodeck.sessions.port import ServerSession, SessionStore, StoredSession
from holodeck.sessions.transcript import Transcript

LAST = "last"
MAX_LISTED = 100
MAX_SEARCHED = 10_000  # sessions that are searched for a part of an id
_SHORTEST_PART_OF_AN_ID = 4


def _is_path(wanted: str) -> bool:
    return os.sep in wanted or wanted.endswith(".json")


class ChatStore:
    """The chats of one user with one agent."""

    def __init__(self, config: LoadedConfig, *, user_id: str, keeps: bool, complain: Callable[[str], None]) -> None:
        """`keeps`: chats outlive the program. `complain` is called once if they cannot."""
        self.owner, self.agent_name = Owner(DEFAULT_TENANT, user_id), config.agent.name
        self._config, self._complain = config, complain
        self._has_file = config.agent.sessions.store != "memory"
        self.keeps = keeps and self._has_file
        self._file: DurableSessions | None = None
        self._memory: SessionStore | None = None

    async def opened(self) -> SessionStore:
        """Returns the store for new turns. If the file cannot be used, uses memory instead, so that the user can still chat."""
        if self.keeps:
            try:
                return await self._opened_file()
            except StartError as error:
                self.keeps = False
                self._complain(f"! this chat is not saved: {error.message}")
        if self._memory is None:
            self._memory = build_memory(self._config, ttl_seconds=math.inf)
            await self._memory.start()
        return self._memory

    async def close(self) -> None:
        for store in (self._file, self._memory):
            if store is not None:
                await store.close()

    async def refresh(self, session: ChatSession) -> None:
        """Brings the chat's copy of the conversation up to date with the store."""
        stored = await (await self.opened()).read(session.session_id, owner=self.owner)
        if stored is not None:
            session.transcript = _transcript_of(stored)

    async def keep(self, session: ChatSession) -> None:
        """Saves a chat that was only in memory, and every turn from now on. Raises HoloDeckError."""
        if self.keeps:
            return
        if not self._has_file:
            raise InvalidRequest("sessions.store is memory, so no chat is saved; /save FILE writes a copy of this one.")
        await self._put(await self._opened_file(), session)
        self.keeps = True

    async def find(self, wanted: str) -> ChatSession:
        """Finds a chat by id, by a unique part of it, by `last`, or by the path of a saved file.

        Raises ChatFileError.
        """
        stored = await self._stored(wanted)
        if stored is not None:
            session = ChatSession(
                agent_name=self.agent_name,
                session_id=stored.session.session_id,
                started_at=stored.session.created_at,
                transcript=_transcript_of(stored),
            )
        elif _is_path(wanted):
            session = load_chat(typed_path(wanted))
        else:
            raise ChatFileError(await self._missing(wanted))
        store = await self.opened()
        is_there = await store.get(session.session_id, owner=self.owner) is not None
        if is_there and stored is None:
            session.session_id, is_there = new_ulid(), False  # a copy of a chat that has continued without it
        if not is_there:
            await self._put(store, session)
        return session

    async def _missing(self, wanted: str) -> str:
        """Says that there is no such chat; and whose it is, if it is a session of another user."""
        others = await self._file.named(wanted) if self._file is not None else ()
        if others:
            owner = others[0].owner
            way = f"--user {owner.user}" if owner.tenant == DEFAULT_TENANT else "a chat over --url with that user's key"
            whose = f"{one_line(owner.tenant)}/{one_line(owner.user)}"
            return f"{wanted!r} is a conversation of {whose}, not of {self.owner.user}; {one_line(way)} continues it"
        is_short = len(wanted) < _SHORTEST_PART_OF_AN_ID
        short = f" (write at least {_SHORTEST_PART_OF_AN_ID} characters)" if is_short else ""
        return f"there is no saved chat {wanted!r}{short}; `holodeck chat --list` shows them"

    async def begun(self, session_id: str) -> ChatSession:
        """Returns the conversation with exactly this id, or a new one under it.

        Raises StartError if the store cannot be used: an answer without the earlier messages would be wrong.
        """
        session = ChatSession(agent_name=self.agent_name, session_id=session_id)
        if self.keeps:
            await self._opened_file()
        await self.refresh(session)
        return session

    async def entries(self) -> Sequence[ServerSession]:
        """Lists the user's chats, newest first."""
        store = await self._existing_file()
        return () if store is None else await store.sessions_of(owner=self.owner, limit=MAX_LISTED)

    # the agent's session file

    async def _opened_file(self) -> DurableSessions:
        if self._file is None:
            store = build_durable(self._config)
            await store.start()
            self._file = store
        return self._file

    async def _existing_file(self) -> "DurableSessions | None":
        """Returns the store's file if it exists: looking for a chat does not create it."""
        in_database = self._config.agent.sessions.store == "postgres"
        if not self._has_file or (not in_database and self._file is None and not sessions_path(self._config).exists()):
            return None
        return await self._opened_file()

    async def _stored(self, wanted: str) -> StoredSession | None:
        store = await self._existing_file()
        if store is None:
            return None
        if wanted == LAST:
            newest = await store.sessions_of(owner=self.owner, limit=1)
            wanted = newest[0].session_id if newest else LAST
        found = await store.read(wanted, owner=self.owner)
        if found is None and len(wanted) >= _SHORTEST_PART_OF_AN_ID and not _is_path(wanted):
            ids = [each.session_id for each in await store.sessions_of(owner=self.owner, limit=MAX_SEARCHED)]
            part = wanted.upper()
            like = [each for each in ids if each.upper().startswith(part) or each.upper().endswith(part)]
            if len(like) > 1:
                shown = ", ".join(one_line(each) for each in sorted(like)[:3])
                raise ChatFileError(f"{wanted} could be {shown}; write more of it")
            found = await store.read(like[0], owner=self.owner) if like else None
        return found

    async def _put(self, store: SessionStore, session: ChatSession) -> None:
        transcript = session.transcript
        if not transcript.messages:
            return
        await store.restore(
            StoredSession(
                session=ServerSession(
                    session_id=session.session_id,
                    owner=self.owner,
                    created_at=session.started_at,
                    last_activity=now(),
                ),
                messages=tuple(transcript.messages),
                pending=transcript.pending,
                state=transcript.state,
                summary=transcript.summary,
            )
        )


def _transcript_of(stored: StoredSession) -> Transcript:
    return Transcript(stored.messages, state=stored.state, summary=stored.summary, pending=stored.pending)
