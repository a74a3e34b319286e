"""The agent's abilities as AG-UI's AgentCapabilities: the answer of `GET /awp/capabilities`.

The specification defines the object but not how to get it. The object claims only what is true; unknown members are
left out.
"""

from collections.abc import Iterable
from typing import Any

from holodeck.core.tools import Approval, ToolSchema

_FRAMEWORK = "holodeck"


def capabilities(
    *,
    name: str,
    description: str = "",
    version: str | None = None,
    tools: Iterable[ToolSchema] = (),
    max_iterations: int | None = None,
    timeout_seconds: float | None = None,
    state: bool = False,
) -> dict[str, Any]:
    """`state`: the agent shares state with its client.

    Images and documents reach the model as they are, or as the text in them. Reasoning is left out: nothing shows in
    advance whether the model will send any.
    """
    offered = [tool for tool in tools if not tool.on_client]
    approvals = any(tool.approval is Approval.ALWAYS for tool in offered)
    execution = {
        "codeExecution": False,
        "maxIterations": max_iterations,
        "maxExecutionTime": None if timeout_seconds is None else round(timeout_seconds * 1000),
    }
    return {
        "identity": _known({"name": name, "type": _FRAMEWORK, "description": description or None, "version": version}),
        "transport": {
            "streaming": True,
            "websocket": False,
            "httpBinary": True,
            "pushNotifications": False,
            "resumable": True,
        },
        "tools": {
            "supported": True,
            "items": [
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in offered
            ],
            "parallelCalls": True,
            "clientProvided": True,
        },
        "state": {"snapshots": state, "deltas": state, "memory": False, "persistentState": state},
        "multimodal": {
            "input": {"image": True, "audio": False, "video": False, "pdf": True, "file": True},
            "output": {"image": False, "audio": False},
        },
        "execution": _known(execution),
        "humanInTheLoop": {
            "supported": True,
            "approvals": approvals,
            "interrupts": approvals,
            "approveWithEdits": approvals,
        },
    }


def _known(members: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in members.items() if value is not None}
