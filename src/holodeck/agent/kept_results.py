"""Long tool results: the model sees the beginning, and reads the rest with the tool `read_result`.

Results live in memory, for one run. When there is no room, the oldest is evicted; `read_result` then answers that it is gone.
"""

from collections.abc import Sequence
from typing import Any

from holodeck.core.text import clean
from holodeck.core.text import shorten as cut
from holodeck.core.tools import ToolResult, ToolSchema
from holodeck.tools.port import ToolContext, ToolsetHealth

MAX_KEPT = 5_000_000  # characters, of all results together
LARGEST_PIECE = 20_000
_ROOM_FOR_THE_LABEL = 100

READ_RESULT = ToolSchema(
    name="read_result",
    description="Reads more of a tool result that was too long to be shown whole.",
    parameters={
        "type": "object",
        "properties": {
            "call_id": {"type": "string", "description": "As the note at the end of the shortened result has it"},
            "offset": {"type": "integer", "minimum": 0, "description": "The first character to read; default 0"},
            "length": {"type": "integer", "minimum": 1, "description": "How many characters to read"},
        },
        "required": ["call_id"],
        "additionalProperties": False,
    },
)


class KeptResults:
    """A toolset with one tool, offered as soon as there is something to read."""

    def __init__(self, max_shown: int) -> None:
        self._piece = max(1, min(LARGEST_PIECE, max_shown - _ROOM_FOR_THE_LABEL))
        self._kept: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._kept

    def shorten(self, call_id: str, text: str, limit: int) -> str:
        """The text as the model is shown it. What is left out can be read until the run ends."""
        text = clean(text)
        if len(text) <= limit or len(text) > MAX_KEPT or not call_id:
            return cut(text, limit)
        self._kept[call_id] = text
        while sum(map(len, self._kept.values())) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        note = "… [{cut} of {length} characters left out; read_result shows them: "
        return cut(text, limit, note=note + f'call_id "{_literal(call_id)}", offset {limit}]')

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        self._kept.clear()

    def schemas(self) -> Sequence[ToolSchema]:
        return [READ_RESULT] if self._kept else []

    def health(self) -> Sequence[ToolsetHealth]:
        return []

    async def call(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:  # noqa: ARG002  the port's
        call_id = arguments["call_id"]
        text = self._kept.get(call_id)
        if text is None:
            return ToolResult.failure(f"No result is kept for {call_id!r}; there are {', '.join(self._kept)}.")
        start = arguments.get("offset", 0)
        if start >= len(text):
            return ToolResult.failure(f"That result has {len(text)} characters; offset {start} is behind its end.")
        end = min(len(text), start + min(arguments.get("length", self._piece), self._piece))
        return ToolResult(content=f"[characters {start} to {end} of {len(text)}]\n{text[start:end]}")


def _literal(text: str) -> str:
    """For use inside a format string."""
    return text.replace("{", "{{").replace("}", "}}")
