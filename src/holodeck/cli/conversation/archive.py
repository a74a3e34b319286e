"""Chats as readable JSON files: copies that `/save FILE` writes, and chats of older versions in the user's data folder.

A file is written beside its final path and moved there whole: after a crash, either the old or the new file exists.
Only the owner may read the files (mode 600), since chats contain private data.
"""

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Mapping
from datetime import MAXYEAR, MINYEAR, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from holodeck.cli.conversation.session import ChatSession, SessionState
from holodeck.core.ids import is_ulid, new_ulid
from holodeck.core.messages import Message, Summary, now, unanswered
from holodeck.core.text import one_line
from holodeck.errors import StartError
from holodeck.sessions.transcript import Transcript

LAST = "last"
_NOT_OURS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # raised by msgspec for invalid data
MAX_BYTES = 256 * 1024 * 1024
_SHORTEST_PART_OF_AN_ID = 4
_YEARS = (MINYEAR, MAXYEAR)  # near these years a time has no local form in some zones


class ChatFileError(StartError):
    """A saved chat does not exist, or cannot be read or written."""


class ChatEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A chat as a list shows it."""

    session_id: str
    agent_name: str
    saved_at: datetime
    message_count: int = 0
    title: str = ""


class SavedEntry(ChatEntry, frozen=True, kw_only=True):
    """The head of a file. Decoding it skips the messages."""

    def __post_init__(self) -> None:
        """Checks that the id can be the name of a file, and that the time has a form in the user's zone."""
        if not is_ulid(self.session_id):
            raise ValueError("its session_id is not a ULID")
        if self.saved_at.tzinfo is None or not _YEARS[0] < self.saved_at.year < _YEARS[1]:
            raise ValueError("saved_at is not a time with a time zone")


class SavedChat(SavedEntry, frozen=True, kw_only=True):
    """The whole file."""

    format: Literal["holodeck-chat/1"] = "holodeck-chat/1"
    started_at: datetime
    state: SessionState = SessionState.TERMINATED
    metadata: dict[str, Any] = {}
    shared_state: Any = None
    summary: Summary | None = None  # some files lack it
    messages: tuple[Message, ...] = ()


def data_folder(environment: Mapping[str, str] = os.environ) -> Path:
    base = environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "holodeck"


class Archive:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, session: ChatSession, file: Path | None = None) -> Path:
        """Saves the chat and returns its path. Raises ChatFileError."""
        path = file or self._folder / f"{session.session_id}.json"
        data = msgspec.json.format(msgspec.json.encode(_record(session)), indent=2)
        try:
            if file is None:
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(path, data + b"\n")
        except OSError as error:
            raise ChatFileError(f"{path} cannot be written: {error.strerror}") from error
        return path

    def load(self, wanted: str) -> ChatSession:
        """Finds a chat by id, by a unique part of it, by `last`, or by the path of a file."""
        path = self._path_of(wanted)
        try:
            saved = msgspec.json.decode(_bytes_of(path), type=SavedChat)
        except FileNotFoundError:
            raise ChatFileError(f"there is no saved chat {wanted!r}; `holodeck chat --list` shows them") from None
        except OSError as error:
            raise ChatFileError(f"{path} cannot be read: {error.strerror}") from error
        except _NOT_OURS as error:
            raise ChatFileError(f"{path} is not a saved chat: {error}") from error
        return _session(saved, path)

    def summaries(self) -> list[SavedEntry]:
        """Lists the chats, newest first. Files that are not ours are left out."""
        found = []
        for path in self._folder.glob("*.json"):
            with contextlib.suppress(OSError, *_NOT_OURS):
                found.append(msgspec.json.decode(_bytes_of(path), type=SavedEntry))
        return sorted(found, key=lambda each: each.saved_at, reverse=True)

    def _path_of(self, wanted: str) -> Path:
        if names_file(wanted):
            return typed_path(wanted)
        if wanted == LAST:
            newest = next(iter(self.summaries()), None)
            wanted = newest.session_id if newest else LAST
        elif not is_ulid(wanted):
            wanted = self._only_one_like(wanted)
        return self._folder / f"{wanted}.json"

    def _only_one_like(self, part: str) -> str:
        if not is_part_of_id(part):
            return "-"  # a name that no file has
        upper = part.upper()
        ids = [path.stem for path in self._folder.glob("*.json")]
        like = [each for each in ids if each.startswith(upper) or each.endswith(upper)]
        if len(like) > 1:
            raise ChatFileError(f"{part} could be {', '.join(sorted(like)[:3])}; write more of it")
        return like[0] if like else "-"


def names_file(wanted: str) -> bool:
    """Returns whether a user means a file, and not a chat of the data folder."""
    return os.sep in wanted or wanted.endswith(".json")


def is_part_of_id(text: str) -> bool:
    """Returns whether a text is long enough to name a chat by the beginning or the end of its id."""
    return len(text) >= _SHORTEST_PART_OF_AN_ID and text.isalnum()


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


def write_whole(path: Path, data: bytes) -> None:
    """Writes all or nothing: an existing file is replaced in one step."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # created with mode 600
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _record(session: ChatSession) -> SavedChat:
    """Makes a copy of the chat, with a new id if the chat's cannot be the name of a file."""
    return SavedChat(
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


def _session(saved: SavedChat, path: Path) -> ChatSession:
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
