"""Chats as readable JSON files: the copies that `/save FILE` writes and `--resume FILE` reads.

A file is written beside its final path and moved there whole: after a crash, either the old or the new file exists.
Only the owner may read the files (mode 600), since chats contain private data.
"""

import errno
import os
import stat
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from holodeck.access.private_file import write_private
from holodeck.cli.conversation.session import ChatSession, SessionState
from holodeck.core.ids import is_ulid, new_ulid
from holodeck.core.messages import Message, Summary, now, unanswered
from holodeck.core.text import one_line
from holodeck.errors import StartError
from holodeck.sessions.transcript import Transcript

MAX_BYTES = 256 * 1024 * 1024


class ChatFileError(StartError):
    """A saved chat does not exist, or cannot be read or written."""


class SavedChat(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    agent_name: str
    saved_at: Annotated[datetime, msgspec.Meta(tz=True)]
    message_count: int = 0
    title: str = ""
    format: Literal["holodeck-chat/1"] = "holodeck-chat/1"
    started_at: datetime
    state: SessionState = SessionState.TERMINATED
    metadata: dict[str, Any] = {}
    shared_state: Any = None
    summary: Summary | None = None  # some files lack it
    messages: tuple[Message, ...] = ()

    def __post_init__(self) -> None:
        if not is_ulid(self.session_id):
            raise ValueError("its session_id is not a ULID")


def save_chat(session: ChatSession, path: Path) -> None:
    """Raises ChatFileError."""
    saved = SavedChat(
        session_id=session.session_id if is_ulid(session.session_id) else new_ulid(),
        agent_name=session.agent_name,
        saved_at=now(),
        started_at=session.started_at,
        message_count=session.message_count,
        title=session.title,
        state=session.state,
        metadata=session.metadata,
        shared_state=session.transcript.state,
        summary=session.transcript.summary,
        messages=tuple(session.transcript.messages),
    )
    data = msgspec.json.format(msgspec.json.encode(saved), indent=2)
    try:
        write_private(path, data + b"\n")
    except OSError as error:
        raise ChatFileError(f"{path} cannot be written: {error.strerror}") from error


def load_chat(path: Path) -> ChatSession:
    """Raises ChatFileError."""
    try:
        saved = msgspec.json.decode(_bytes_of(path), type=SavedChat)
    except FileNotFoundError:
        raise ChatFileError(f"there is no saved chat {str(path)!r}; `holodeck chat --list` shows them") from None
    except OSError as error:
        raise ChatFileError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ChatFileError(f"{path} is not a saved chat: {error}") from error
    if lost := unanswered(saved.messages):
        raise ChatFileError(f"{path} contains a call of {one_line(lost[0].name)} without its result")
    try:
        return ChatSession(
            agent_name=saved.agent_name,
            session_id=saved.session_id,
            started_at=saved.started_at,
            metadata=dict(saved.metadata),
            transcript=Transcript(saved.messages, state=saved.shared_state, summary=saved.summary),
        )
    except ValueError as error:
        raise ChatFileError(f"{path} is not a saved chat: {error}") from error


def typed_path(text: str) -> Path:
    """Expands `~` as a shell does. The home of an unknown user stays as typed."""
    return Path(os.path.expanduser(text.replace("\0", "")))  # noqa: PTH111  Path.expanduser raises for those


def _bytes_of(path: Path) -> bytes:
    """Reads a regular file: opening a pipe without a writer would wait for ever."""
    with open(path, "rb", opener=_at_once) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "It is not a file")
        return stream.read(MAX_BYTES)


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
