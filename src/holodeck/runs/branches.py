"""Continues a conversation after one of its runs: in the same session if that run is the last one, else in a branch.

A client that names the run it continues (`previous_response_id`, a regenerated answer) means a position in a tree. A
session is one path of that tree. Every other path is a session of its own: a copy up to that position.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from holodeck.agent.pending import decide
from holodeck.core.messages import Message, PendingStep, UserMessage
from holodeck.core.owner import Owner
from holodeck.core.request import Resume
from holodeck.errors import InvalidRequest, RunNotFound, SessionBusy
from holodeck.sessions.port import Conversation, SessionStore, StoredSession


class Branch(NamedTuple):
    """The session to continue. `follows` is for the `RunRequest`: the run that must be the session's last one."""

    session_id: str
    follows: str | None = None


async def branch_after(
    run_id: str,
    session_id: str,
    store: SessionStore,
    *,
    owner: Owner,
    in_progress: Sequence[str] = (),
    resume: Sequence[Resume] = (),
) -> Branch:
    """Returns the session that continues the conversation after this run: its own, or a copy that ends with it.

    `in_progress` are the session's runs that have not ended, in their order. The next run comes after all of them.
    Raises RunNotFound if the session, or the messages of the run, no longer exist; InvalidRequest if the copy would not
    wait for these answers. Then nothing is copied.
    """
    if in_progress and in_progress[-1] == run_id:
        return Branch(session_id, run_id)
    end = None if in_progress else await store.read(session_id, owner=owner, last=1)
    if end is not None and head_of(end) == run_id:  # nearly always
        return Branch(session_id, run_id)
    stored = await store.read(session_id, owner=owner)
    if stored is None or not is_in(run_id, stored):
        raise RunNotFound(f"The messages of run {run_id!r} are no longer stored.")
    end_before = next_question(stored.messages, {run_id})
    decide(stored.pending if end_before is None else None, resume, ())
    return Branch(await store.fork(session_id, end_before, owner=owner))


def is_in(run_id: str, stored: StoredSession) -> bool:
    waits = stored.pending is not None and stored.pending.run_id == run_id
    return waits or any(message.run_id == run_id for message in stored.messages)


def head_of(stored: StoredSession | Conversation) -> str:
    """The last run of a conversation."""
    if stored.pending is not None and stored.pending.run_id:
        return stored.pending.run_id
    return stored.messages[-1].run_id if stored.messages else ""


def next_question(messages: Sequence[Message], runs: Collection[str]) -> str | None:
    """The id of the user's first message after all messages of these runs. None if no such message exists."""
    last = max((place for place, message in enumerate(messages) if message.run_id in runs), default=len(messages))
    return next((message.id for message in messages[last + 1 :] if isinstance(message, UserMessage)), None)


def check_head(follows: str, conversation: Conversation) -> None:
    """Refuses to add to a conversation that has continued since its client was given a branch."""
    if head_of(conversation) != follows:
        raise SessionBusy("Another request has continued the conversation in the meantime; try again.")


def check_waits_for_nothing(pending: PendingStep | None) -> None:
    """Refuses to continue without a message while the client has to answer: its question would be withdrawn."""
    if pending is not None and (pending.approvals or pending.client_calls):
        raise InvalidRequest("The conversation waits for an answer; send that answer, or a message.", field="run_id")
