"""HoloDeck: one YAML file describes an agent; this runs it.

The public names are loaded when they are first used: the todo server and `holodeck --help` live in this package too and
must not pay for the rest of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holodeck._version import __version__

if TYPE_CHECKING:
    from holodeck import errors
    from holodeck.agent.agent import Agent
    from holodeck.agent.context import AgentContext
    from holodeck.agent.loop import run
    from holodeck.agent.response import AgentResponse
    from holodeck.agent.settings import AgentLoopConfig, SystemPrompt
    from holodeck.config.build import load_agent
    from holodeck.config.service import AgentConfiguration, run_agent
    from holodeck.core import events
    from holodeck.tools.binding import ToolBinding

_HOMES = {
    "Agent": "holodeck.agent.agent",
    "AgentConfiguration": "holodeck.config.service",
    "AgentContext": "holodeck.agent.context",
    "AgentLoopConfig": "holodeck.agent.settings",
    "AgentResponse": "holodeck.agent.response",
    "SystemPrompt": "holodeck.agent.settings",
    "ToolBinding": "holodeck.tools.binding",
    "load_agent": "holodeck.config.build",
    "run": "holodeck.agent.loop",
    "run_agent": "holodeck.config.service",
}

__all__ = [
    "Agent",
    "AgentConfiguration",
    "AgentContext",
    "AgentLoopConfig",
    "AgentResponse",
    "SystemPrompt",
    "ToolBinding",
    "__version__",
    "errors",
    "events",
    "load_agent",
    "run",
    "run_agent",
]


def __getattr__(name: str) -> Any:
    if name == "events":
        return import_module("holodeck.core.events")
    if name == "errors":
        return import_module("holodeck.errors")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"holodeck has no {name!r}")
