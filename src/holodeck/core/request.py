"""What a client wants, whatever wire it came over. Wires decode into this; nothing behind them sees their JSON."""

from collections.abc import Mapping
from typing import Any

import msgspec

from holodeck.core.ids import new_ulid
from holodeck.core.messages import Message
from holodeck.core.tools import ToolSchema


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer to an interrupt. `payload` may carry edited arguments."""

    interrupt_id: str
    approved: bool
    payload: Any = None


class FileNote(msgspec.Struct, frozen=True, kw_only=True):
    """What the model received of one file that the user sent: nothing is dropped without a word."""

    name: str
    mime_type: str  # by its bytes, not by what the client said
    read_as: str  # text, pdf, docx, xlsx, pptx, ocr, image
    characters: int = 0  # of text that the model is shown
    truncated: bool = False


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One run to start.

    `messages` is what the client says the conversation is, newest last; the session decides what of it is new.
    """

    session_id: str | None = None
    run_id: str = msgspec.field(default_factory=new_ulid)
    parent_run_id: str | None = None
    user_id: str | None = None
    messages: tuple[Message, ...] = ()
    client_tools: tuple[ToolSchema, ...] = ()
    context: tuple[tuple[str, str], ...] = ()  # (description, value) pairs that the model is shown
    state: Any = None
    properties: Mapping[str, Any] = {}
    resume: tuple[Resume, ...] = ()
    files: tuple[FileNote, ...] = ()  # what became of the files in `messages`
    keeps_history: bool = False  # the client shows the whole conversation and wants to know when ours differs
