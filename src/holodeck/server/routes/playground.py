"""The playground at `/`: the files of `holodeck.server.playground`, from memory, under a policy that lets in nothing else.

The page is a client like any other: it has no route of its own beyond its files, and speaks AG-UI with the server.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holodeck._version import __version__
from holodeck.errors import NotFound
from holodeck.server.routes.asking import server_of
from holodeck.server.routes.pages import STRICT, TYPES

router = APIRouter(include_in_schema=False)

PAGE = "index.html"
HEADERS = {
    **STRICT,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "X-DNS-Prefetch-Control": "off",  # a host name in an answer must not even be looked up
}
_TYPES = {**TYPES, "svg": "image/svg+xml"}
_LINKS = {"playground": "/", "docs": "/docs", "openapi": "/openapi.json", "health": "/health", "ag-ui": "/awp"}


@dataclass(frozen=True)
class Asset:
    body: bytes
    media_type: str
    etag: str


@router.get("/")
async def start(request: Request) -> Response:
    """The page for people; for programs, what this is and where to go."""
    if "text/html" in request.headers.get("accept", ""):
        return _answer(request, PAGE)
    agent = server_of(request).agent
    told = {"agent": agent.name, "description": agent.description, "version": __version__, "links": _LINKS}
    return JSONResponse(told, headers={"Vary": "Accept"})


@router.get("/playground/{name}")
async def asset(request: Request, name: str) -> Response:
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    found = assets().get(name)
    if found is None:
        raise NotFound("There is no such file in the playground.")
    headers = {**HEADERS, "ETag": found.etag, "Vary": "Accept"}
    if found.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers={**headers, "Content-Type": found.media_type})


@cache
def assets() -> dict[str, Asset]:
    """Every file of the page, read once. A browser keeps them and asks each time whether they are still the same."""
    found = {}
    for file in (files("holodeck.server") / "playground").iterdir():
        media_type = _TYPES.get(file.name.rpartition(".")[2])
        if media_type is not None:
            body = file.read_bytes()
            found[file.name] = Asset(body, media_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return found
