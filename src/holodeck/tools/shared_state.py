"""The tool with which a model changes the state that it shares with a user interface.

One per run; the loop stores the value afterwards. Changes are emitted as patches, and as a snapshot when a patch does
not apply, so that clients have the right state again.
"""

from typing import Any

import msgspec

from holodeck.core.events import Emit, StatePatched, StateReplaced
from holodeck.core.json_patch import PatchError, apply_patch
from holodeck.core.json_schema import array, object_of, string
from holodeck.core.json_values import MAX_DEPTH, depth_exceeds
from holodeck.core.tools import ToolResult, ToolSchema
from holodeck.tools.port import ToolContext

MAX_STATE_BYTES = 256 * 1024
MAX_OPERATIONS = 100

_OPERATION = object_of(
    {
        "op": {"enum": ["add", "remove", "replace", "move", "copy", "test"]},
        "path": string("JSON Pointer, for example /steps/0/status"),
        "from": string(),
        "value": {},
    },
    required=["op", "path"],
)
_PATCH = array(_OPERATION, minItems=1, maxItems=MAX_OPERATIONS)
UPDATE_STATE = ToolSchema(
    name="update_state",
    description="Changes the state that you share with the user interface, by JSON Patch operations (RFC 6902).",
    parameters={**object_of({"patch": _PATCH}, required=["patch"]), "additionalProperties": False},
)


class SharedState:
    """The state of one run, and the tool `update_state`."""

    def __init__(self, value: Any, emit: Emit) -> None:
        self.value = value
        self._emit = emit

    def emit_snapshot(self) -> None:
        self._emit(StateReplaced(self.value))

    def as_json(self) -> str:
        return msgspec.json.encode(self.value).decode()

    async def call(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:  # noqa: ARG002  the port's
        if len(arguments["patch"]) > MAX_OPERATIONS:  # the check of arguments gives up on a very long list
            return ToolResult.failure(f"The state is unchanged: a patch has at most {MAX_OPERATIONS} operations.")
        try:
            changed = apply_patch(self.value, arguments["patch"])
        except PatchError as problem:
            self.emit_snapshot()
            return ToolResult.failure(f"The state is unchanged: {problem}. It is {self.as_json()}")
        if depth_exceeds(changed, MAX_DEPTH):
            return ToolResult.failure(f"The state is unchanged: it would nest deeper than {MAX_DEPTH} levels.")
        if len(msgspec.json.encode(changed)) > MAX_STATE_BYTES:
            return ToolResult.failure(f"The state is unchanged: it would be larger than {MAX_STATE_BYTES} bytes.")
        self.value = changed
        self._emit(StatePatched(arguments["patch"]))
        return ToolResult(content="The state is changed.")
