"""ChatRequest → RunRequest (SRV-12).

This module checks JSON and forms, field by field. It does not look at the bytes of files: `holodeck.files` checks
base64 and types, and returns what the model is shown.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from holodeck.core.ids import MAX_ID_LENGTH
from holodeck.core.messages import Part, TextPart, UserMessage
from holodeck.core.request import FileNote, Resume, RunRequest
from holodeck.errors import InvalidRequest
from holodeck.wires import body as read
from holodeck.wires.client_values import base64_text

MAX_MESSAGE = 10_000
MAX_FILES = 10
MAX_DECISIONS = 128
MAX_TYPE = 255


class FileContent(msgspec.Struct, frozen=True, kw_only=True):
    """A file inside JSON."""

    content: Annotated[str, Meta(max_length=read.MAX_LONG_STRING, description="The bytes, in base64")]
    mime_type: Annotated[str, Meta(max_length=MAX_TYPE, examples=["text/csv"])]
    filename: Annotated[str, Meta(max_length=read.MAX_NAME)] | None = None


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A decision on one interrupt of an earlier response."""

    interrupt_id: Annotated[str, Meta(max_length=read.MAX_NAME)]
    approved: bool
    reason: Annotated[
        Annotated[str, Meta(max_length=read.MAX_REASON)] | None,
        Meta(description="The reason of a refusal, for the model"),
    ] = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A user's message, or decisions on approvals. Without `session_id`, a new session begins."""

    message: Annotated[
        Annotated[str, Meta(min_length=1, max_length=MAX_MESSAGE, pattern=r"\S")] | None,
        Meta(description="May be left out where `resume` is given", examples=["What is due tomorrow?"]),
    ] = None
    session_id: Annotated[
        Annotated[str, Meta(min_length=1, max_length=MAX_ID_LENGTH)] | None,
        Meta(
            description="From an earlier answer, or your own: an unknown id starts a session. All protocols share the ids",
            examples=["01K9ZQ4W3V8N2R5T7Y9A1C3E5G"],
        ),
    ] = None
    files: Annotated[tuple[FileContent, ...], Meta(max_length=MAX_FILES)] = ()
    resume: Annotated[tuple[ApprovalAnswer, ...], Meta(max_length=MAX_DECISIONS)] = ()


def decode(body: bytes, max_files: int = MAX_FILES) -> ChatRequest:
    """Reads a JSON body. Raises InvalidRequest (400: not JSON, 422: not a ChatRequest)."""
    raw = read.parse(body)
    if raw.get("resume"):
        read.refuse_repeated_names(body)
    files = tuple(_file(file, path) for path, file in read.tables(raw.get("files"), "files", max_files))
    message = raw.get("message")
    if message is None and not raw.get("resume") and (near := _near_message(raw)):
        raise InvalidRequest(f"message is missing; {near[0]!r} is unknown, did you mean message?", field="message")
    return chat_request(message, raw.get("session_id"), raw.get("resume"), files)


def _near_message(raw: dict[str, Any]) -> list[str]:
    """Returns the member that is most likely a misspelt `message`. Compares few and short ones: clients choose them."""
    names = [member for member in islice(raw, 20) if member != "message" and len(member) <= 2 * len("message")]
    return get_close_matches("message", names, n=1, cutoff=0.75)


def chat_request(message: Any, session_id: Any, resume: Any, files: tuple[FileContent, ...] = ()) -> ChatRequest:
    """Makes the checks that every form of a request has to pass."""
    decisions = tuple(_decision(raw, path) for path, raw in read.tables(resume, "resume", MAX_DECISIONS))
    text = None if message is None and decisions else _message(message)
    return ChatRequest(
        message=text, session_id=read.optional(read.valid_id, session_id, "session_id"), files=files, resume=decisions
    )


def _message(value: Any) -> str:
    if value is None:
        raise InvalidRequest("message is missing", field="message")
    text = read.short_text(value, "message", MAX_MESSAGE)
    if not text.strip():
        raise InvalidRequest("message is empty", field="message")
    return text


def _file(raw: dict[str, Any], path: str) -> FileContent:
    return FileContent(
        content=base64_text(raw.get("content"), f"{path}.content"),
        mime_type=_mime_type(raw.get("mime_type"), f"{path}.mime_type"),
        filename=read.optional(read.text, raw.get("filename"), f"{path}.filename"),
    )


def _decision(raw: dict[str, Any], path: str) -> ApprovalAnswer:
    return ApprovalAnswer(
        interrupt_id=read.name(raw.get("interrupt_id"), f"{path}.interrupt_id"),
        approved=read.decided(raw.get("approved"), f"{path}.approved"),
        reason=read.refusal_reason(raw.get("reason"), f"{path}.reason"),
    )


def _mime_type(value: Any, path: str) -> str:
    mime_type = read.text(value, path)
    if not 0 < len(mime_type) <= MAX_TYPE:
        raise InvalidRequest(f"{path} must name a type, such as text/csv", field=path)
    return mime_type


def run_request(chat: ChatRequest, files: Sequence[tuple[Part, FileNote]] = ()) -> RunRequest:
    """Makes the run that this request asks for. `files` are its files after reading, in their order."""
    return RunRequest(
        session_id=chat.session_id,
        messages=_turn(chat.message, tuple(part for part, _ in files)),
        files=tuple(note for _, note in files),
        resume=tuple(
            Resume(interrupt_id=each.interrupt_id, approved=each.approved, reason=each.reason) for each in chat.resume
        ),
    )


def _turn(message: str | None, files: tuple[Part, ...]) -> tuple[UserMessage, ...]:
    """Returns the user's new message, or nothing if the request only answers approvals."""
    if not files:
        return () if message is None else (UserMessage(content=message),)
    text = () if message is None else (TextPart(message),)
    return (UserMessage(content=(*text, *files)),)
