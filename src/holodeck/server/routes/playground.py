"""The playground at `/`: serves the files of `holodeck.server.playground` from memory, under a strict content policy.

The page is a client like any other. Only its files have their own routes; it speaks AG-UI with the server.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from holodeck._version import __version__
from holodeck.access.page_session import PAGE_USER
from holodeck.access.route_access import OPEN, PUBLIC
from holodeck.core.owner import DEFAULT_TENANT, Owner
from holodeck.errors import NotFound, Unauthorized
from holodeck.server.audit import decided
from holodeck.server.connection import is_loopback
from holodeck.server.identity import PRINCIPAL, head_of
from holodeck.server.intake import json_body, server_of
from holodeck.server.routes.pages import STRICT, TYPES
from holodeck.server.routing import Routes
from holodeck.server.wires import wires_of
from holodeck.wires.body import parse, short_text

routes = Routes(before_ready=True)

PAGE, MAIN_MODULE = "index.html", "app.js"
PRELOADS = b"  <!-- modulepreload links of all modules -->\n"  # a line of the page
FOLDER = "playground/"  # relative to the page: it works under any path
BASE = "{base}"  # replaced by the server's address, which only the client knows
HEADERS = {
    **STRICT,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "X-DNS-Prefetch-Control": "off",  # the browser must not even resolve a host name from an answer
}
MAX_CODE = 1000  # characters; ours have about 150
FOREVER = "public, max-age=31536000, immutable"
_TYPES = {**TYPES, "svg": "image/svg+xml"}
_LINKS = {"playground": "/", "docs": "/docs", "openapi": "/openapi.json", "health": "/health"}


@dataclass(frozen=True)
class Playground:
    """The page and the files that it loads. Their addresses contain `version`, so browsers may cache them for ever."""

    version: str
    page: bytes
    assets: dict[str, tuple[str, bytes]]  # name → type, content


@routes.get("/", access=OPEN)
async def start(request: Request) -> Response:
    """The page for people; for programs, what this is and where to go."""
    server, root = server_of(request), request.scope.get("root_path", "")
    wires = wires_of(server.settings.protocols)
    if "text/html" in request.headers.get("accept", ""):
        if not any(wire.has_playground for wire in wires):
            return RedirectResponse(f"{root}/docs")
        if root and request.scope["path"] == root:
            return RedirectResponse(f"{root}/")  # the files that the page loads have relative addresses
        return _page(request.headers.get("if-none-match", ""))
    links = _LINKS | {wire.name: wire.path_of(server.agent.name) for wire in wires}
    about: dict[str, object] = {"version": __version__, "links": {name: root + path for name, path in links.items()}}
    if request.scope[PRINCIPAL] is not None:
        tries = [
            {"protocol": wire.name, "title": wire.title, "curl": wire.curl(BASE, server.agent.name)} for wire in wires
        ]
        about = {"agent": server.agent.name, "description": server.agent.description, **about, "try": tries}
    return JSONResponse(about, headers={"Vary": "Accept"})


@routes.get(f"/{FOLDER}{{version}}/{{name}}", access=PUBLIC)
async def asset(request: Request) -> Response:
    kept, version, name = playground(), request.path_params["version"], request.path_params["name"]
    if version != kept.version or name not in kept.assets:
        raise NotFound("There is no such file in the playground; load the page again.")
    media_type, body = kept.assets[name]
    return Response(body, headers={**HEADERS, "Cache-Control": FOREVER, "Content-Type": media_type})


@routes.post(f"/{FOLDER}session", access=PUBLIC)
async def sign_in(request: Request) -> Response:
    """Exchanges the code in the address that `serve --open` opened for a token of the page's own."""
    code = short_text(parse(await json_body(request)).get("code"), "code", MAX_CODE)
    if not _is_from_this_machine(request):
        raise Unauthorized("A sign-in code is for a browser on the server's own machine. Sign in with a key or token.")
    token = await server_of(request).access.page.exchange(code)
    if token is None:
        raise Unauthorized("This sign-in code was used before or is older than a minute. Sign in with a key or token.")
    decided("playground_signed_in", Owner(DEFAULT_TENANT, PAGE_USER))
    return JSONResponse({"token": token}, headers={"Cache-Control": "no-store"})


def _is_from_this_machine(request: Request) -> bool:
    """Returns whether a client connects from where `serve --open` opened a browser: loopback, or this very address."""
    address = server_of(request).access.client_address(head_of(request.scope))
    ours = (request.scope.get("server") or ("",))[0]
    return address is not None and (address == ours or is_loopback(address))


def _page(known: str) -> Response:
    kept = playground()
    headers = {**HEADERS, "ETag": f'"{kept.version}"', "Vary": "Accept"}
    if headers["ETag"] in known:
        return Response(status_code=304, headers=headers)
    return Response(kept.page, headers={**headers, "Content-Type": _TYPES["html"]})


@cache
def playground() -> Playground:
    """Reads the files once, on the first request."""
    found, digest = {}, hashlib.sha256()
    for file in sorted((files("holodeck.server") / "playground").iterdir(), key=lambda each: each.name):
        media_type = _TYPES.get(file.name.rpartition(".")[2])
        if media_type is not None:
            found[file.name] = media_type, file.read_bytes()
            digest.update(file.name.encode() + b"\0" + found[file.name][1] + b"\0")
    version, (_, page) = digest.hexdigest()[:16], found.pop(PAGE)
    modules = [name for name in found if name.endswith(".js") and name != MAIN_MODULE]
    links = "".join(f'  <link rel="modulepreload" href="{FOLDER}{name}">\n' for name in modules)
    page = page.replace(PRELOADS, links.encode())
    return Playground(version, page.replace(f'"{FOLDER}'.encode(), f'"{FOLDER}{version}/'.encode()), found)
