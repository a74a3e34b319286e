"""Documentation pages that need no internet (SRV-19)."""

from functools import cache
from importlib.resources import files
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holodeck.access.route_access import PUBLIC, signed_in
from holodeck.errors import NotFound
from holodeck.server.routing import Routes

routes = Routes(before_ready=True)

STRICT = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
TYPES = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
FILES = frozenset({"docs.html", "docs.js", "docs.css"})


@routes.get("/openapi.json", access=signed_in(open_as="openapi"))
async def openapi(request: Request) -> Response:
    return JSONResponse(request.app.openapi())


@routes.get("/docs", access=PUBLIC)
async def docs(request: Request) -> Response:
    return _page("docs.html", request.scope.get("root_path", ""))


@routes.get("/docs/{name}", access=PUBLIC)
async def docs_file(request: Request) -> Response:
    return _page(request.path_params["name"])


def _page(name: str, root: str = "") -> Response:
    if name not in FILES:
        raise NotFound(f"There is no such page in the documentation; see {'/docs'}.")
    content = _content(name)
    if root:
        address = quote(root).encode()  # a mount's path may contain a parameter, which the client chooses
        content = content.replace(b'="/', b'="%b/' % address)
        content = content.replace(b'data-root=""', b'data-root="%b"' % address)
    return Response(content, headers={**STRICT, "Content-Type": TYPES[name.rpartition(".")[2]]})


@cache
def _content(name: str) -> bytes:
    return (files("holodeck.server") / "docs_page" / name).read_bytes()
