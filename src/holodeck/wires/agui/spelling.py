"""Keys as AG-UI spells them, also where a client wrote `thread_id`.

The official Python SDK takes both spellings, so clients in Python send either; Microsoft's sends the second.
"""

from typing import Any

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
    """The same members; the wire's own spelling wins where both are there."""
    if raw.keys().isdisjoint(_CAMEL_CASE):
        return raw
    return {_CAMEL_CASE.get(key, key): value for key, value in raw.items()} | {
        key: raw[key] for key in _CAMEL_CASE.values() if key in raw
    }
