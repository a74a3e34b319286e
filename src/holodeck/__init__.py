"""HoloDeck: one YAML file describes an agent; this runs it.

The public names are loaded when they are first used: the todo server and `holodeck --help` live in this package too and
must not pay for the rest of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holodeck._version import __version__

if TYPE_CHECKING:
    from holodeck import errors, testing
    from holodeck.agent.agent_response import AgentResponse
    from holodeck.agent.definition import AgentContext
    from holodeck.agent.loop import run
    from holodeck.agent.settings import AgentLoopConfig, SystemPrompt
    from holodeck.api import Agent, Reply, load
    from holodeck.asgi import create_app
    from holodeck.config.build import load_agent
    from holodeck.config.service import AgentConfiguration, get_default_config, run_agent
    from holodeck.core import events
    from holodeck.core.tools import ToolResult, ToolSchema
    from holodeck.models.port import Listener, Model, ModelReply, Prompt
    from holodeck.sessions.port import Conversation, SessionStore
    from holodeck.tools.binding import ToolBinding
    from holodeck.tools.port import ToolContext, Toolset

_HOMES = {
    "Agent": "holodeck.api",
    "AgentConfiguration": "holodeck.config.service",
    "AgentContext": "holodeck.agent.definition",
    "AgentLoopConfig": "holodeck.agent.settings",
    "AgentResponse": "holodeck.agent.agent_response",
    "Conversation": "holodeck.sessions.port",
    "Listener": "holodeck.models.port",
    "Model": "holodeck.models.port",
    "ModelReply": "holodeck.models.port",
    "Prompt": "holodeck.models.port",
    "Reply": "holodeck.api",
    "SessionStore": "holodeck.sessions.port",
    "SystemPrompt": "holodeck.agent.settings",
    "ToolBinding": "holodeck.tools.binding",
    "ToolContext": "holodeck.tools.port",
    "ToolResult": "holodeck.core.tools",
    "ToolSchema": "holodeck.core.tools",
    "Toolset": "holodeck.tools.port",
    "create_app": "holodeck.asgi",
    "get_default_config": "holodeck.config.service",
    "load": "holodeck.api",
    "load_agent": "holodeck.config.build",
    "run": "holodeck.agent.loop",
    "run_agent": "holodeck.config.service",
}
_MODULES = {"errors": "holodeck.errors", "events": "holodeck.core.events", "testing": "holodeck.testing"}

__all__ = [
    "Agent",
    "AgentConfiguration",
    "AgentContext",
    "AgentLoopConfig",
    "AgentResponse",
    "Conversation",
    "Listener",
    "Model",
    "ModelReply",
    "Prompt",
    "Reply",
    "SessionStore",
    "SystemPrompt",
    "ToolBinding",
    "ToolContext",
    "ToolResult",
    "ToolSchema",
    "Toolset",
    "__version__",
    "create_app",
    "errors",
    "events",
    "get_default_config",
    "load",
    "load_agent",
    "run",
    "run_agent",
    "testing",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"holodeck has no {name!r}")
