"""Which AG-UI the client at the other end understands, and how it spells keys."""

import re
from enum import Enum, auto
from typing import Any

PROTOCOL_VERSION = "1.0"
_VERSION = re.compile(r"(\d{1,4})(\.\d{1,4})*")


class Profile(Enum):
    """Clients before 1.0 never send a version, and three shapes of 1.0 end their run.

    These are: a tool result as a list of parts, `pendingToolCallIds`, and the outcome `cancelled`.
    """

    FULL = auto()
    LEGACY = auto()


def profile_of(protocol_version: Any) -> Profile:
    match = _VERSION.fullmatch(protocol_version) if isinstance(protocol_version, str) else None
    return Profile.FULL if match and int(match[1]) >= 1 else Profile.LEGACY


_CAMEL_CASE = {
    "thread_id": "threadId",
    "run_id": "runId",
    "parent_run_id": "parentRunId",
    "protocol_version": "protocolVersion",
    "forwarded_props": "forwardedProps",
    "tool_calls": "toolCalls",
    "tool_call_id": "toolCallId",
    "interrupt_id": "interruptId",
    "mime_type": "mimeType",
}


def camel_case(raw: dict[str, Any]) -> dict[str, Any]:
    """The same members, spelled as AG-UI does; that spelling wins where both are there.

    The official Python SDK takes `thread_id` as well, so clients in Python send either; Microsoft's sends that.
    """
    if raw.keys().isdisjoint(_CAMEL_CASE):
        return raw
    return {_CAMEL_CASE.get(key, key): value for key, value in raw.items()} | {
        key: raw[key] for key in _CAMEL_CASE.values() if key in raw
    }
