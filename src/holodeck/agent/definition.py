"""An agent (a model, instructions and tools, ready to run) and the inputs of one run.

Built by `holodeck.config`, or by a program.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, Self
from zoneinfo import ZoneInfo

import msgspec

from holodeck.agent.settings import AgentLoopConfig, StateSettings
from holodeck.agent.structured_output import OutputType
from holodeck.core.events import Ending
from holodeck.core.ids import new_ulid
from holodeck.core.messages import Message, ToolMessage
from holodeck.core.owner import ANONYMOUS, DEFAULT_TENANT, is_owner_name
from holodeck.core.request import FileNote, Resume, RunOptions
from holodeck.core.tools import ToolSchema
from holodeck.core.zones import local_zone
from holodeck.errors import HoloDeckError, InvalidRequest
from holodeck.models.port import ContextWindow, Model, Prompt
from holodeck.resilience.breakers import Breakers
from holodeck.sessions.port import Conversation
from holodeck.sessions.transcript import Transcript
from holodeck.tools.catalogue import Catalogue

MAX_RESULT_CHARACTERS = 50_000
APPROVAL_SECONDS = 24 * 3600


def now_in(timezone: str) -> datetime:
    return datetime.now(ZoneInfo(timezone))


class Instructions(Protocol):
    """Builds the system prompt of one run."""

    def render(self, *, user_id: str, timezone: str) -> str: ...


@dataclass(frozen=True)
class TextInstructions:
    """A text with the placeholders {user_id}, {now} and {timezone}.

    Plain replacement: user data is never a template.
    """

    text: str
    clock: Callable[[str], datetime] = now_in

    def render(self, *, user_id: str, timezone: str) -> str:
        if "{" not in self.text:
            return self.text
        filled = self.text
        if "{now}" in filled:
            filled = filled.replace("{now}", self.clock(timezone).isoformat(timespec="minutes"))
        filled = filled.replace("{timezone}", timezone)
        return filled.replace("{user_id}", user_id)


@dataclass(frozen=True, kw_only=True)
class AgentDefinition:
    name: str
    model: Model
    tools: Catalogue
    instructions: Instructions = TextInstructions("")
    description: str = ""
    loop: AgentLoopConfig = field(default_factory=AgentLoopConfig)
    state: StateSettings | None = None
    output: OutputType | None = None  # the form of the final answer; None: any text
    max_messages: int = 200  # how many messages of the history the model is shown
    max_tokens: int | None = None  # the same limit in estimated tokens
    window: ContextWindow | None = None  # where to ask for the limit in long conversations, if `max_tokens` is None
    summarize: bool = False  # the model summarizes the turns that do not fit, instead of dropping them
    max_result_characters: int = MAX_RESULT_CHARACTERS
    approval_seconds: float = APPROVAL_SECONDS  # how long a person has to decide
    breakers: Breakers = field(default_factory=Breakers)  # one per model and tool server, for health checks and metrics
    version: str = ""  # hash of its description: only the same version continues a run after a crash; empty: unknown

    @property
    def history_tokens(self) -> int | None:
        """How many tokens of the history the model is shown at most. None if that is not known."""
        return self.max_tokens if self.max_tokens is not None or self.window is None else self.window.tokens

    async def start(self) -> None:
        await self.tools.start()

    async def close(self) -> None:
        try:
            await self.tools.close()
        finally:
            await self.model.close()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:  # nothing half-started stays behind, whatever stopped the start
            await self.close()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()


class AgentContext(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of one run. Raises InvalidRequest for a user id that a tool or a store might read as another one."""

    conversation: Conversation = msgspec.field(default_factory=Transcript)
    input: Sequence[Message] = ()  # the messages that this run adds to the conversation
    # Counts of the changes to the client's history.
    history_note: Mapping[str, int] = msgspec.field(default_factory=dict)
    is_new_session: bool = False  # the client named a session that is unknown, or has expired
    client_results: Sequence[ToolMessage] = ()  # results of frontend tools that the previous run asked for
    resume: Sequence[Resume] = ()
    client_tools: Sequence[ToolSchema] = ()
    notes: Sequence[tuple[str, str]] = ()  # (description, value) from the application
    warnings: Sequence[str] = ()  # parts of the input that cannot be used
    files: Sequence[FileNote] = ()  # what the model received of each file in `input`
    state: Any = None  # the shared state as the client has it
    run_id: str = msgspec.field(default_factory=new_ulid)
    session_id: str = msgspec.field(default_factory=new_ulid)
    parent_run_id: str | None = None
    user_id: str = ANONYMOUS
    tenant: str = DEFAULT_TENANT
    options: RunOptions = msgspec.field(default_factory=RunOptions)
    timezone: str = msgspec.field(default_factory=local_zone)  # the user's, as an IANA name
    client_ids: frozenset[str] | None = None  # messages that the client has; None if it keeps no history
    steps_before: int | None = None  # how many steps were shown before a crash, if the run continues after one
    # After a cancellation: None for a user's stop, else the error that forced it and becomes the ending.
    why_stopped: Callable[[], HoloDeckError | None] = lambda: None
    # After a cancellation: whether readers see nothing more of the run, because another process continues it or the
    # server could not wait for its ending. Then nothing more of it is stored, either.
    is_over: Callable[[], bool] = lambda: False
    # Called with an ending that is shown although the store has not taken it.
    not_stored: Callable[[Ending], None] = lambda _ending: None
    # Awaited before each model call: reserves what the call may cost, or raises. None if nothing is counted.
    reserve: Callable[[Prompt], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        if self.user_id != ANONYMOUS and not is_owner_name(self.user_id):
            raise InvalidRequest(
                "user_id must be 1 to 255 printable characters without a space at either end.", field="user_id"
            )
