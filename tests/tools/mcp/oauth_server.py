"""An MCP server of the official SDK that only answers with a token, and the authorization server that gives them out."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlencode

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send


@dataclass
class Authority:
    """Both servers on one port. `expires_in` is how long an access token is good for, in seconds."""

    url: str = ""
    expires_in: int = 3_600
    denies: bool = False  # the person at the browser says no
    registered: list[dict[str, object]] = field(default_factory=list)
    codes: dict[str, str] = field(default_factory=dict)  # code → challenge
    tokens: dict[str, float] = field(default_factory=dict)  # access token → end
    grants: list[str] = field(default_factory=list)
    number: int = 0

    def routes(self) -> list[Route]:
        return [
            Route("/.well-known/oauth-protected-resource/mcp", self._resource),
            Route("/.well-known/oauth-authorization-server", self._metadata),
            Route("/register", self._register, methods=["POST"]),
            Route("/authorize", self._authorize),
            Route("/token", self._token, methods=["POST"]),
        ]

    async def _resource(self, _request: Request) -> Response:
        return JSONResponse({"resource": f"{self.url}/mcp", "authorization_servers": [self.url]})

    async def _metadata(self, _request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "registration_endpoint": f"{self.url}/register",
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
            }
        )

    async def _register(self, request: Request) -> Response:
        body = await request.json()
        self.registered.append(body)
        return JSONResponse({**body, "client_id": f"client-{len(self.registered)}"}, status_code=201)

    async def _authorize(self, request: Request) -> Response:
        asked = request.query_params
        answer = {"state": asked["state"]}
        if self.denies:
            answer |= {"error": "access_denied", "error_description": "Ann said no"}
        else:
            self.number += 1
            answer["code"] = f"code-{self.number}"
            self.codes[answer["code"]] = asked["code_challenge"]
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(answer)}", status_code=302)

    async def _token(self, request: Request) -> Response:
        asked = await request.form()
        kind = str(asked["grant_type"])
        self.grants.append(kind)
        if kind == "authorization_code" and self.codes.pop(str(asked["code"]), None) is None:
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        if kind == "refresh_token" and asked["refresh_token"] != "refresh-me":
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        self.number += 1
        token = f"token-{self.number}"
        self.tokens[token] = time.time() + self.expires_in
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": self.expires_in}
        return JSONResponse({**answer, "refresh_token": "refresh-me"})

    def guarded(self, app: ASGIApp) -> ASGIApp:
        async def guard(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["path"].startswith("/mcp"):
                header = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
                if self.tokens.get(header, 0.0) < time.time():
                    challenge = f'Bearer resource_metadata="{self.url}/.well-known/oauth-protected-resource/mcp"'
                    await Response(status_code=401, headers={"www-authenticate": challenge})(scope, receive, send)
                    return
            await app(scope, receive, send)

        return guard


@asynccontextmanager
async def guarded_server(authority: Authority) -> AsyncIterator[str]:
    """Gives the URL of the MCP server."""
    server = MCPServer("guarded")

    @server.tool()
    def whoami() -> str:
        """Says who asks."""
        return "you are signed in"

    app = server.streamable_http_app()
    both = Starlette(routes=[*authority.routes(), *app.routes], lifespan=app.router.lifespan_context)
    listener = socket.create_server(("127.0.0.1", 0))
    authority.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(authority.guarded(both), log_config=None, access_log=False, timeout_graceful_shutdown=1)
    web = uvicorn.Server(config)
    task = asyncio.create_task(web.serve([listener]))
    try:
        yield f"{authority.url}/mcp"
    finally:
        web.should_exit = True
        await task
