"""What one run is given: who asks, what is new, and the conversation it goes on with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holodeck.core.ids import new_ulid
from holodeck.core.messages import Message, ToolMessage
from holodeck.core.owner import ANONYMOUS, DEFAULT_TENANT, is_owner_name
from holodeck.core.request import FileNote, Resume, RunOptions
from holodeck.core.tools import ToolSchema
from holodeck.core.zones import local_zone
from holodeck.errors import HoloDeckError, InvalidRequest
from holodeck.sessions.port import Conversation
from holodeck.sessions.transcript import Transcript


def _stopped_by_the_user() -> HoloDeckError | None:
    return None


@dataclass(frozen=True, kw_only=True)
class AgentContext:
    """Inputs of one run. Raises InvalidRequest for a user id that a tool or a store might read as another one."""

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
    options: RunOptions = field(default_factory=RunOptions)
    timezone: str = field(default_factory=local_zone)  # the user's, as an IANA name
    client_ids: frozenset[str] | None = None  # messages that the client has; None if it keeps no history
    steps_before: int | None = None  # of a run that goes on after a crash: so many steps were shown before
    # After a cancellation: None for a user's stop, else the error that forced it and becomes the ending.
    why_stopped: Callable[[], HoloDeckError | None] = _stopped_by_the_user

    def __post_init__(self) -> None:
        if not is_owner_name(self.user_id):
            raise InvalidRequest(
                "user_id has to be 1 to 255 printable characters without a space at either end.", field="user_id"
            )
