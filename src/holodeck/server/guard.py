"""Who may talk to the server: the name in `Host`, the page in `Origin`, and whether there is an agent yet.

A web page can make its visitor's browser send requests to a server on the visitor's machine. Two checks stop it: we
answer only to our own names, which a rebound DNS name is not (T07), and only pages that were allowed may change
anything (T08). Programs send no `Origin`; for them nothing changes.
"""

import ipaddress
import re
import socket
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holodeck.core.text import one_line
from holodeck.errors import Forbidden, InvalidRequest, MethodNotAllowed
from holodeck.server.agent_server import AgentServer
from holodeck.server.options import Access

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
ANYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  compared with, not bound to
ANY = "*"
FORM = "multipart/form-data"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
METHODS = "GET, POST, DELETE"
EXPOSED = "X-Request-ID, Retry-After"
PREFLIGHT_SECONDS = "600"
_HOST = re.compile(r"[A-Za-z0-9._-]+(?::\d*)?|\[[0-9A-Fa-f:.]+\](?::\d*)?")
OPEN_BEFORE_READY = ("/health", "/ready", "/metrics", "/docs", "/openapi.json", "/playground/")
START_PAGE = "/"


class HostGuard:
    """400 for a `Host` that is not ours. An address is ours when we listen everywhere: rebinding needs a name."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        everywhere = access.bind_host in ANYWHERE
        names = {*LOOPBACK, *map(str.lower, access.allowed_hosts)}
        names.add(socket.gethostname().lower() if everywhere else access.bind_host.lower())
        self._names = frozenset(names)
        self._any_address = access.bind_host not in LOOPBACK

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            # HTTP/1.0 may do without; no browser speaks it, many a monitor does.
            if hosts or scope["http_version"] == "1.1":
                self._check(hosts)
        await self._app(scope, receive, send)

    def _check(self, hosts: list[bytes]) -> None:
        if len(hosts) != 1:
            raise InvalidRequest("A request needs exactly one Host header.", status=400, field="Host")
        host = hosts[0].decode("latin-1").strip(" \t")
        name = name_of(host)
        if name is None or not (ANY in self._names or name in self._names or self._is_our_address(name)):
            raise InvalidRequest(
                f"This server does not answer to the name {one_line(host)!r}; "
                "HOLODECK_ALLOWED_HOSTS lists further names.",
                status=400,
                field="Host",
            )

    def _is_our_address(self, name: str) -> bool:
        if not self._any_address:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


@lru_cache(maxsize=32)
def name_of(host: str) -> str | None:
    """The name in a Host header, without the port; None if it is no such header."""
    try:
        parts = urlsplit(f"//{host}")
        name, _port = parts.hostname, parts.port
    except ValueError:
        return None
    return name.rstrip(".") if name and _HOST.fullmatch(host) else None


class CorsHeaders:
    """Lets pages of allowed origins read answers, problems too.

    Cookies and other credentials are never allowed across origins, so `*` gives nobody what the user has.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._origins = origins_of(access)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = _origin(scope)
        if origin is None or not _allowed(origin, self._origins):
            await self._app(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(raw=list(message["headers"]))
                answer["Access-Control-Allow-Origin"] = ANY if ANY in self._origins else origin
                answer["Access-Control-Expose-Headers"] = EXPOSED
                answer.add_vary_header("Origin")
                message["headers"] = answer.raw
            await send(message)

        await self._app(scope, receive, marked)


class OriginGuard:
    """403 for pages of other origins that want to change something; answers to their preflights."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._origins = origins_of(access)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = _origin(scope)
        if origin is None:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        preflight = scope["method"] == "OPTIONS" and "access-control-request-method" in headers
        if preflight or scope["method"] not in SAFE_METHODS:
            self._check(origin, headers)
        await (_preflight(headers) if preflight else self._app)(scope, receive, send)

    def _check(self, origin: str, headers: Headers) -> None:
        """`*` does not cover forms: a browser sends them without asking first, whatever page they are on (T07)."""
        is_form = headers.get("content-type", "").lower().startswith(FORM)
        origins = self._origins - {ANY} if is_form else self._origins
        if not _allowed(origin, origins) and not _same_origin(origin, headers.get("host", "")):
            raise Forbidden("Pages of this origin may not use this server (--cors-origins; forms need its name there).")


def _preflight(headers: Headers) -> Response:
    if headers["access-control-request-method"] not in METHODS.split(", "):
        raise MethodNotAllowed(f"Allowed are {METHODS}.")
    answer = {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": PREFLIGHT_SECONDS}
    wanted = headers.get("access-control-request-headers")
    if wanted:
        answer["Access-Control-Allow-Headers"] = wanted
    return Response(status_code=204, headers=answer)


def origins_of(access: Access) -> frozenset[str]:
    return frozenset(origin.rstrip("/").lower() for origin in access.cors_origins)


def _allowed(origin: str, origins: frozenset[str]) -> bool:
    return ANY in origins or origin.lower() in origins


def _origin(scope: Scope) -> str | None:
    """The page that asks; None for programs."""
    if scope["type"] != "http":
        return None
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"), None)


def _same_origin(origin: str, host: str) -> bool:
    """As text: an origin is a scheme and what `Host` says, no more. Parsers may choke on what is none."""
    return host != "" and origin.lower() in (f"http://{host}".lower(), f"https://{host}".lower())


class Readiness:
    """503 until the agent is ready. Health tells the truth before that; pages do not need it, and can wait themselves."""

    def __init__(self, app: ASGIApp, server: AgentServer) -> None:
        self._app, self._server = app, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != START_PAGE and not scope["path"].startswith(OPEN_BEFORE_READY):
            self._server.check_ready()
        await self._app(scope, receive, send)
