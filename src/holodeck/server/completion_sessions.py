"""Finds the session of a Chat Completions request: most clients send the whole conversation and no id.

The server tries, in this order:

- the session that the request names;
- the session that a chat page hints at, if the messages match it;
- with `store`, the session in which the server gave the last answer among the messages.

Otherwise nothing is kept, and `messages` is the whole conversation. A wrong guess does no harm: the model is shown what
the client sent.
"""

import asyncio
import logging
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from holodeck.core.ids import new_ulid
from holodeck.core.messages import AssistantMessage, Message, ToolMessage, UserMessage, text_of
from holodeck.core.owner import Owner
from holodeck.core.request import RunRequest
from holodeck.errors import HoloDeckError, RunNotFound
from holodeck.runs.branches import Branch, branch_after
from holodeck.runs.client_history import first_of_use
from holodeck.runs.run import Run
from holodeck.server.agent_server import AgentServer
from holodeck.sessions.values import KeptValue, ValueStore

log = logging.getLogger(__name__)

KIND = "answered"
MAX_CONVERSATIONS = 10_000  # conversations per owner
KEPT_SECONDS = 30 * 24 * 3600.0
MAX_ANSWERS = 8  # runs that answered the same question, asked again and again
MAX_AT_ONCE = 500  # up to this many messages are compared without a thread
MAX_WORD = 1000  # characters that are normalized together: sorting combining marks takes quadratic time
_DETAILS = re.compile(r"<details\b|</details>", re.IGNORECASE)  # chat pages show tools and thoughts in these tags


@dataclass(frozen=True, kw_only=True)
class CompletionSession:
    """The session that a request continues. `after` is the run whose answer it follows, if it was recognised."""

    session_id: str | None = None
    is_kept: bool = False
    only_new: bool = False  # the session has the rest of the messages
    after: str | None = None


THROW_AWAY = CompletionSession()


async def note_answer(values: ValueStore, owner: Owner, messages: Sequence[Message], run: Run) -> None:
    """Records that a run answers these messages. If the write fails, the conversation is not recognised later.

    When an owner has too many entries, the oldest are dropped.
    """
    value = KeptValue(kind=KIND, topic=await _digest(messages), name=run.run_id, session_id=run.session_id)
    try:
        await values.put(value, owner=owner, seconds=KEPT_SECONDS, at_most=MAX_CONVERSATIONS)
    except HoloDeckError as error:
        log.warning("the conversation of run %s will not be recognised: %s", run.run_id, error.message)


async def runs_after(values: ValueStore, owner: Owner, messages: Sequence[Message]) -> list[str]:
    """The runs that answered a conversation with the same words, newest first."""
    found = await values.of_topic(KIND, await _digest(messages), owner=owner)
    return [each.name for each in found[: -MAX_ANSWERS - 1 : -1]]


async def hinted(
    server: AgentServer, owner: Owner, session_id: str, sent: Sequence[Message], *, streams: bool
) -> CompletionSession:
    """Uses the session that a chat page names, if its messages match.

    A page sends the name with every request, even for titles and searches. Only a stream starts a session:
    pages stream what a person reads, and ask for the rest in one piece, sometimes before the first answer.
    """
    stored = await server.store.read(session_id, owner=owner)
    if stored is None or not stored.messages:
        return CompletionSession(session_id=session_id, is_kept=True) if streams else THROW_AWAY
    if await _digest(sent[: first_of_use(sent)]) == await _digest(stored.messages):
        return CompletionSession(session_id=session_id, is_kept=True, only_new=True)
    return THROW_AWAY


async def recognised(server: AgentServer, owner: Owner, sent: Sequence[Message]) -> CompletionSession:
    """Returns the session of the last answer among the messages, or a new one if none matches."""
    first = first_of_use(sent)
    if first:
        answer = visible(sent[first - 1 : first])
        for run_id in await runs_after(server.store.values, owner, sent[: first - 1]):
            session_id = await server.stored_runs.session_of(run_id, owner=owner)
            if session_id is not None and await _gave(answer, run_id, server, session_id, owner):
                return CompletionSession(session_id=session_id, is_kept=True, only_new=True, after=run_id)
    return CompletionSession(session_id=new_ulid(), is_kept=True)


async def branch_of(server: AgentServer, owner: Owner, chat: CompletionSession) -> Branch:
    """Returns the session to continue, or a copy if it has messages after the answer that the client continues."""
    session_id = chat.session_id or new_ulid()
    if chat.after is None:
        return Branch(session_id)
    going = await server.stored_runs.active(session_id, owner=owner)
    try:
        return await branch_after(chat.after, session_id, server.store, owner=owner, in_progress=going)
    except RunNotFound:  # deleted since it was recognised
        return Branch(new_ulid())


def without_stored(wanted: RunRequest, branch: Branch) -> RunRequest:
    new = wanted.messages[first_of_use(wanted.messages) :]
    return msgspec.structs.replace(wanted, messages=new, only_adds=True, follows=branch.follows)


def visible(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """The visible text of messages: who wrote what, with spaces and letter forms normalized.

    Consecutive texts of one side count as one: a run may write several, and a client stores them as one answer.
    """
    texts: list[tuple[str, list[str]]] = []
    for message in messages:
        text = "" if isinstance(message, ToolMessage) else _normal(text_of(message.content))
        role = "user" if isinstance(message, UserMessage) else "assistant"
        if text and texts and texts[-1][0] == role:
            texts[-1][1].append(text)
        elif text:
            texts.append((role, [text]))
    return [(role, " ".join(parts)) for role, parts in texts]


async def _gave(answer: list[tuple[str, str]], run_id: str, server: AgentServer, session_id: str, owner: Owner) -> bool:
    """Returns whether this run gave this answer. It is usually the session's last run, so its end is read first."""
    for last in (1, None):
        history = await server.history(session_id, owner=owner, last=last)
        if answer == visible(
            [each for each in history if isinstance(each, AssistantMessage) and each.run_id == run_id]
        ):
            return True
    return False


async def _digest(messages: Sequence[Message]) -> str:
    """Hashes the visible text of the messages. A long conversation is hashed in a thread, not in the event loop."""
    return _hash(messages) if len(messages) <= MAX_AT_ONCE else await asyncio.to_thread(_hash, messages)


def _hash(messages: Sequence[Message]) -> str:
    return sha256(repr(visible(messages)).encode("utf-8", "surrogatepass")).hexdigest()


def _normal(text: str) -> str:
    words = _without_details(text).split()
    if text.isascii():
        return " ".join(words)
    return " ".join(unicodedata.normalize("NFC", word) if len(word) <= MAX_WORD else word for word in words)


def _without_details(text: str) -> str:
    """Removes what `<details>` encloses, in one pass: one regular expression for both tags would be quadratic."""
    kept: list[str] = []
    start, opened = 0, -1
    for tag in _DETAILS.finditer(text):
        is_end = tag[0].startswith("</")
        if not is_end and opened < 0:
            opened = tag.start()
        elif is_end and opened >= 0:
            kept.append(text[start:opened])
            start, opened = tag.end(), -1
    return "".join([*kept, text[start:]])
