"""What one run is given: who asks, what is new, and the conversation it goes on with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holodeck.core.ids import new_ulid
from holodeck.core.messages import Message, ToolMessage
from holodeck.core.owner import ANONYMOUS, DEFAULT_TENANT
from holodeck.core.request import FileNote, Resume
from holodeck.core.tools import ToolSchema
from holodeck.core.zones import local_zone
from holodeck.errors import HoloDeckError
from holodeck.sessions.port import Conversation
from holodeck.sessions.transcript import Transcript


def _nobody_said() -> HoloDeckError | None:
    return None


@dataclass(frozen=True, kw_only=True)
class AgentContext:
    """The whole world of one run."""

    conversation: Conversation = field(default_factory=Transcript)
    input: Sequence[Message] = ()  # what this run adds to the conversation
    history_note: Mapping[str, int] = field(default_factory=dict)  # what became of the client's history, in counts
    client_results: Sequence[ToolMessage] = ()  # answers to frontend tools of the run before
    resume: Sequence[Resume] = ()
    client_tools: Sequence[ToolSchema] = ()
    notes: Sequence[tuple[str, str]] = ()  # (description, value) from the application
    warnings: Sequence[str] = ()  # what of the input cannot be used
    files: Sequence[FileNote] = ()  # what became of the files in `input`
    state: Any = None  # the shared state as the client has it
    run_id: str = field(default_factory=new_ulid)
    session_id: str = field(default_factory=new_ulid)
    parent_run_id: str | None = None
    user_id: str = ANONYMOUS
    tenant: str = DEFAULT_TENANT
    timezone: str = field(default_factory=local_zone)  # the user's, as an IANA name
    client_ids: frozenset[str] | None = None  # messages that the client has; None if it keeps no history
    # After a cancellation: None if somebody wanted it, else the error that forced it and becomes the ending.
    why_stopped: Callable[[], HoloDeckError | None] = _nobody_said
