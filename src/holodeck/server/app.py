"""The ASGI application: routes behind the layers that every request passes.

Each layer is an ASGI application around the next one. There is no framework between them: what a request costs before
its first token is what is written here.
"""

from typing import Any

from starlette.datastructures import State
from starlette.types import ASGIApp, Receive, Scope, Send

from holodeck._version import __version__
from holodeck.errors import InternalError
from holodeck.server import copilotkit
from holodeck.server.agent_server import AgentServer
from holodeck.server.chat_streams import ChatStreams
from holodeck.server.connection import RAW_SEND
from holodeck.server.guard import CorsHeaders, HostGuard, OriginGuard, Readiness
from holodeck.server.limits import BodyLimits
from holodeck.server.openapi import document
from holodeck.server.options import ProtocolType
from holodeck.server.problems import Problems
from holodeck.server.readers import NamedEventReaders
from holodeck.server.routes import agui, chat_stream, health, me, metrics, pages, playground, rest, runs, sessions
from holodeck.server.routes.agui import AguiReaders
from holodeck.server.routing import Operation, Router
from holodeck.server.slots import SlotMiddleware
from holodeck.server.trace import RequestTrace

ROUTES = {
    ProtocolType.AG_UI: (agui.routes, copilotkit.routes),
    ProtocolType.REST: (rest.routes,),
    ProtocolType.CHAT_STREAM: (chat_stream.routes,),
}
ALWAYS = tuple(module.routes for module in (runs, sessions, me, health, metrics, pages, playground))


class Application:
    """What uvicorn serves. Routes find it as `request.app`, and what they share as its `state`."""

    def __init__(self, server: AgentServer) -> None:
        self.state = State()
        self.state.server = server
        self.state.agui = AguiReaders(server)
        self.state.named_events = NamedEventReaders(server)
        self.state.chat_streams = ChatStreams(server)
        self._operations = operations_of(server)
        self._layers = layered(Router(self._operations, server.gate), server)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise InternalError(f"Only HTTP is served here, not {scope['type']}.")  # uvicorn is told to offer no more
        scope["app"], scope[RAW_SEND] = self, send
        try:
            await self._layers(scope, receive, send)
        finally:
            del scope[RAW_SEND]  # `send` knows the scope: a cycle would wait for the collector, which comes seldom

    def openapi(self) -> dict[str, Any]:
        agent = self.state.server.agent
        return document(
            title=agent.name,
            description=agent.description or "An agent, served by HoloDeck.",
            version=__version__,
            operations=self._operations,
            secured=self.state.server.gate.enabled,
        )


def operations_of(server: AgentServer) -> list[Operation]:
    wires = [routes for protocol in server.settings.protocols for routes in ROUTES[protocol]]
    return [operation for routes in (*wires, *ALWAYS) for operation in routes.operations]


def layered(app: ASGIApp, server: AgentServer) -> ASGIApp:
    """The innermost first."""
    settings = server.settings
    app = SlotMiddleware(app, server.slots)
    app = BodyLimits(app, settings.limits)
    app = Readiness(app, server)
    app = OriginGuard(app, settings.access)
    app = HostGuard(app, settings.access)
    app = Problems(app)
    app = CorsHeaders(app, settings.access)
    return RequestTrace(app, server.metrics, quiet=server.gate.is_flooding)


def create_app(server: AgentServer) -> Application:
    return Application(server)
