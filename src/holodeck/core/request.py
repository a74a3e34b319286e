"""A client's request, independent of the wire. Wires decode into it; nothing behind them sees their JSON."""

from collections.abc import Mapping
from typing import Any

import msgspec

from holodeck.core.ids import new_ulid
from holodeck.core.messages import Message
from holodeck.core.owner import ANONYMOUS_OWNER, Owner
from holodeck.core.tools import ToolSchema

APPROVAL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "arguments": {"type": "object"}, "reason": {"type": "string"}},
    "required": ["approved"],
}
"""The schema of an answer to an interrupt, as clients get it."""
REFUSED = "The user refused this call. Do not try it again unless they ask for it."
"""The result of a refused call begins with it."""


def is_approval(answer: Any) -> bool | None:
    """Whether an answer to an interrupt is a yes. None if it is neither a yes nor a no.

    Approvals fail closed: if it is neither, a caller must refuse the request and decide nothing (ACC-07). It also
    accepts a bare boolean, which some clients send instead of the object.
    """
    if not isinstance(answer, dict):
        return answer if isinstance(answer, bool) else None
    approved, arguments = answer.get("approved"), answer.get("arguments", {})
    return approved if isinstance(approved, bool) and isinstance(arguments, dict) else None


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer to an interrupt.

    `payload` may hold edited arguments; the model reads the `reason` of a refusal.
    """

    interrupt_id: str
    approved: bool
    payload: Any = None
    reason: str | None = None


class RunOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Options that a client may set for the model calls of one run, within the limits of the agent file."""

    tool_choice: str | None = None  # auto, none, required, or the name of a tool
    max_output_tokens: int | None = None  # per reply; can only lower the agent file's limit
    one_call_at_a_time: bool = False  # each reply asks for at most one tool, if the provider has such a setting


class FileNote(msgspec.Struct, frozen=True, kw_only=True):
    """A note on what the model received of one file that the user sent: nothing is dropped silently."""

    name: str
    mime_type: str  # detected from its bytes, not claimed by the client
    read_as: str  # text, pdf, docx, xlsx, pptx, ocr, image; native: the model reads the file itself
    characters: int = 0  # characters of text that the model is shown
    truncated: bool = False


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One run to start.

    `messages` is the conversation according to the client, newest last. The session decides which of them are new.
    """

    session_id: str | None = None
    run_id: str = msgspec.field(default_factory=new_ulid)
    parent_run_id: str | None = None
    owner: Owner = ANONYMOUS_OWNER  # the server sets it from the request's credential; a wire never does
    api_key_id: str | None = None  # also set by the server; not the key itself. Revoking the key ends the run
    messages: tuple[Message, ...] = ()
    client_tools: tuple[ToolSchema, ...] = ()
    context: tuple[tuple[str, str], ...] = ()  # (description, value) pairs that the model is shown
    state: Any = None
    properties: Mapping[str, Any] = {}
    resume: tuple[Resume, ...] = ()
    files: tuple[FileNote, ...] = ()  # what the model received of each file in `messages`
    warnings: tuple[str, ...] = ()  # parts of the newest messages that cannot be used; clients are shown each
    detached: bool = False  # it continues without readers: no grace timer
    time_limit: float | None = None  # in seconds, including the time in the queue
    throw_away: bool = False  # it has no session: its client has the messages, and the store never does
    wire: str = ""  # the protocol of the request; readers of the run get it in this protocol, even after a restart
    encoding: Mapping[str, Any] = {}  # what that wire has to know to encode the run again: JSON, each member optional
    rewind_to: str | None = None  # the user message to answer again: the stored messages after it are dropped
    only_adds: bool = False  # its ids are not ours: a message that the client lacks does not mean that it went back
    options: RunOptions = RunOptions()
    follows: str | None = None  # the run whose answer the client continues: it must be the session's last one
    keeps_history: bool = False  # the client shows the whole conversation and must be notified when ours differs
    shortened: bool = False  # in storage: the parts for the model were too long and were left out
    handovers: int = 0  # in storage: how often a stopping server has left the run to another process
    compared: bool = False  # in storage: `messages` are those that the run adds to its session
    acted: bool = False  # in storage, of a run without a session: it was about to call tools
    new_session: bool = False  # in storage: the session that the client named has expired, or is unknown
    answered: tuple[bytes, ...] = ()  # in storage: fingerprints of the resumes that continued it under its own id
    agent_version: str = ""  # in storage: `AgentDefinition.version` of the agent that began the run
