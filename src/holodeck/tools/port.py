"""The port: a set of tools that can be listed and called.

A toolset knows nothing of models or runs. Every failure of a tool is returned as a ToolResult with a text that the model
can act on. Only cancellation is an exception.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from holodeck.core.events import Emit, Event
from holodeck.core.owner import DEFAULT_TENANT
from holodeck.core.text import shorten
from holodeck.core.tools import ToolResult, ToolSchema

# Unless the settings of a tool say otherwise:
MAX_RESULT_CHARS = 50_000  # characters of one result that the model gets
CALL_SECONDS = 25  # for one call; less than a step may take (`loop.iteration_timeout`)


def _ignore(_event: Event) -> None:
    return None


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a tool. Bound arguments are filled from here, never from the model's output."""

    user_id: str
    tenant: str = DEFAULT_TENANT
    session_id: str = ""
    run_id: str = ""
    call_id: str = ""
    tool: str = ""  # the name under which the model called it; the toolset's own name may lack a prefix
    timezone: str = "UTC"
    emit: Emit = _ignore  # for activity and custom events of long-running tools
    shorten: Callable[[str, int], str] = shorten  # in a run, it keeps the part that is cut off, for `read_result`


@dataclass(frozen=True, kw_only=True)
class ToolsetHealth:
    """The state of one tool server, for /health and `holodeck check`."""

    name: str
    ready: bool
    required: bool = False
    detail: str = ""
    withdrawn: tuple[str, ...] = ()  # tools that are not offered because they keep failing


class ServerDocument(NamedTuple):
    """A resource of a tool server as bytes, read like a file."""

    name: str
    data: bytes
    mime_type: str | None


class ToolCaller(Protocol):
    async def call(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Makes one call whose arguments fit the schema."""


class Toolset(ToolCaller, Protocol):
    async def start(self) -> None:
        """Makes the tools callable. Raises StartError when a required one is not available."""

    async def close(self) -> None:
        """Releases everything: no process, task or socket remains. May be called at any time. Idempotent."""

    def schemas(self) -> Sequence[ToolSchema]:
        """The tools that can be called now. Cheap: read before every model call."""

    def health(self) -> Sequence[ToolsetHealth]: ...
