"""The ASGI application: routes behind the layers that every request passes. FastAPI routes and describes; it carries no tokens."""

from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware

from holodeck._version import __version__
from holodeck.server import copilotkit
from holodeck.server.agent_server import AgentServer
from holodeck.server.chat_schemas import CHAT_SCHEMAS
from holodeck.server.chat_streams import ChatStreams
from holodeck.server.guard import CorsHeaders, HostGuard, OriginGuard, Readiness
from holodeck.server.limits import BodyLimits
from holodeck.server.options import ProtocolType
from holodeck.server.places import PlaceKeeping
from holodeck.server.problems import HANDLERS, Problems
from holodeck.server.readers import NamedEventReaders
from holodeck.server.routes import agui, chat_stream, health, metrics, pages, playground, rest, runs, sessions
from holodeck.server.routes.agui import AguiReaders
from holodeck.server.schemas import Problem
from holodeck.server.trace import RequestTrace

ROUTES = {
    ProtocolType.AG_UI: (agui, copilotkit),
    ProtocolType.REST: (rest,),
    ProtocolType.CHAT_STREAM: (chat_stream,),
}


def create_app(server: AgentServer) -> FastAPI:
    settings = server.settings
    app = FastAPI(
        title=server.agent.name,
        description=server.agent.description or "An agent, served by HoloDeck.",
        version=__version__,
        docs_url=None,  # FastAPI's page loads scripts from elsewhere
        redoc_url=None,
        exception_handlers=HANDLERS,
        middleware=[  # the outermost first
            Middleware(RequestTrace, metrics=server.metrics),
            Middleware(CorsHeaders, access=settings.access),
            Middleware(Problems),
            Middleware(HostGuard, access=settings.access),
            Middleware(OriginGuard, access=settings.access),
            Middleware(Readiness, server=server),
            Middleware(BodyLimits, limits=settings.limits),
            Middleware(PlaceKeeping, places=server.places),
        ],
    )
    app.state.server = server
    app.state.agui = AguiReaders(server)
    app.state.named_events = NamedEventReaders(server)
    app.state.chat_streams = ChatStreams(server)
    wires = [module for protocol in settings.protocols for module in ROUTES[protocol]]
    for module in (*wires, runs, sessions, health, metrics, pages, playground):
        app.include_router(module.router)
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """OpenAPI with our problems instead of FastAPI's validation errors."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schemas = generate().setdefault("components", {}).setdefault("schemas", {})
            schemas["Problem"] = Problem.model_json_schema()
            schemas |= CHAT_SCHEMAS
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
        return generate()

    app.openapi = openapi  # type: ignore[method-assign]  # the way that FastAPI's documentation shows
