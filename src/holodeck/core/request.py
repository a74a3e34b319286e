"""What a client wants, whatever wire it came over. Wires decode into this; nothing behind them sees their JSON."""

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
"""The answer to an interrupt, as clients are asked for it."""


def is_approval(answer: Any) -> bool | None:
    """Whether an answer to an interrupt is a yes; None if it is neither a yes nor a no.

    Approvals fail closed: a caller must refuse a request whose answer is neither, and decide nothing (ACC-07). A bare
    boolean is taken too, which some clients send instead of the object.
    """
    if not isinstance(answer, dict):
        return answer if isinstance(answer, bool) else None
    approved, arguments = answer.get("approved"), answer.get("arguments", {})
    return approved if isinstance(approved, bool) and isinstance(arguments, dict) else None


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer to an interrupt. `payload` may carry edited arguments; the model reads the `reason` of a refusal."""

    interrupt_id: str
    approved: bool
    payload: Any = None
    reason: str | None = None


class RunOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a client may decide about the model calls of one run, within what the agent file allows."""

    tool_choice: str | None = None  # auto, none, required, or the name of a tool
    max_output_tokens: int | None = None  # of each reply; it can only lower the agent file's limit
    one_call_at_a_time: bool = False  # one reply asks for one tool at most, where the provider has such a setting


class FileNote(msgspec.Struct, frozen=True, kw_only=True):
    """What the model received of one file that the user sent: nothing is dropped without a word."""

    name: str
    mime_type: str  # by its bytes, not by what the client claims
    read_as: str  # text, pdf, docx, xlsx, pptx, ocr, image; native: the model reads the file itself
    characters: int = 0  # of text that the model is shown
    truncated: bool = False


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run to start.

    `messages` is what the client says the conversation is, newest last; the session decides what of it is new.
    """

    session_id: str | None = None
    run_id: str = msgspec.field(default_factory=new_ulid)
    parent_run_id: str | None = None
    owner: Owner = ANONYMOUS_OWNER  # filled in by the server from the request's credential, never by a wire
    api_key_id: str | None = None  # as `owner`; not the key itself. A key that is revoked ends the run
    messages: tuple[Message, ...] = ()
    client_tools: tuple[ToolSchema, ...] = ()
    context: tuple[tuple[str, str], ...] = ()  # (description, value) pairs that the model is shown
    state: Any = None
    properties: Mapping[str, Any] = {}
    resume: tuple[Resume, ...] = ()
    files: tuple[FileNote, ...] = ()  # what became of the files in `messages`
    warnings: tuple[str, ...] = ()  # what of the newest messages cannot be used; clients are shown each
    detached: bool = False  # it continues without readers: no grace timer
    time_limit: float | None = None  # seconds, those in the queue included
    throw_away: bool = False  # its session is deleted when it ends
    wire: str = ""  # the protocol that it came over, for readers that come back after a restart
    rewind_to: str | None = None  # the user message that is answered again: the stored messages after it are dropped
    only_adds: bool = False  # the client has other ids than ours: what its copy lacks does not mean that it went back
    options: RunOptions = RunOptions()
    follows: str | None = None  # the run whose answer the client continues: it has to be the session's last one
    keeps_history: bool = False  # the client shows the whole conversation and wants to know when ours differs
    shortened: bool = False  # as it is stored: without what the model is shown of it, which was too long to keep
    handovers: int = 0  # as it is stored: how often a server that stopped has left the run to another process
    agent_version: str = ""  # as it is stored: `AgentDefinition.version` of the agent that began the run
