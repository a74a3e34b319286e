"""Checks of `Host` and `Origin`: which names the server answers to, and which web pages may use it.

A web page can make its visitor's browser send requests to a server on the visitor's machine. Three checks stop it:

- The server answers only to its own names, and a rebound DNS name is not one of them (T07).
- Only pages of allowed origins may change anything (T08). By default these are pages of this machine.
- A request that a browser marks as cross-site has to come from an allowed origin, whatever it asks for.

Programs send neither `Origin` nor `Sec-Fetch-Site`, so the checks do not affect them.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Scope

from holodeck.core.text import one_line
from holodeck.errors import Forbidden, InvalidRequest, MethodNotAllowed
from holodeck.server.options import Access

RawHeaders: TypeAlias = list[tuple[bytes, bytes]]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
ANYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  compared with, not bound to
ANY = "*"
LOOPBACK_PAGES = "loopback"  # stands for an origin: pages that this machine serves, on any port
FORM = "multipart/form-data"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
METHODS = "GET, POST, DELETE"
REQUEST_HEADERS = (  # headers that clients of every wire may send; AI SDKs set User-Agent where the browser lets them
    "Authorization",
    "Content-Type",
    "X-Api-Key",
    "Idempotency-Key",
    "Last-Event-ID",
    "Accept",
    "X-Request-ID",
    "X-HoloDeck-User",
    "User-Agent",
)
RESPONSE_HEADERS = ("X-Request-ID", "Retry-After", "WWW-Authenticate", "RateLimit", "RateLimit-Policy")
PREFLIGHT_SECONDS = "600"
# Only this machine can serve pages of these origins (`localhost`: RFC 6761, 6.3).
_LOOPBACK_PAGE = re.compile(r"https?://(?:(?:[a-z0-9-]+\.)*localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?")
_NAME = re.compile(r"[a-z0-9-]{1,100}")  # a header's name
_HOST = re.compile(r"[A-Za-z0-9._-]+(?::\d*)?|\[[0-9A-Fa-f:.]+\](?::\d*)?")


class HostCheck:
    """Refuses a foreign `Host` with 400. A server on all addresses accepts any IP: DNS rebinding needs a name."""

    def __init__(self, access: Access) -> None:
        everywhere = access.bind_host in ANYWHERE
        names = {*LOOPBACK, *map(str.lower, access.allowed_hosts)}
        names.add(socket.gethostname().lower() if everywhere else access.bind_host.lower())
        self._names = frozenset(names)
        self._any_address = access.bind_host not in LOOPBACK

    def __call__(self, scope: Scope) -> None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if not hosts and scope["http_version"] != "1.1":
            return  # HTTP/1.0 has no Host: monitors use it, browsers do not
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
    """Returns the name in a Host header without the port, or None if the header is malformed."""
    try:
        parts = urlsplit(f"//{host}")
        name, _port = parts.hostname, parts.port
    except ValueError:
        return None
    return name.rstrip(".") if name and _HOST.fullmatch(host) else None


class OriginCheck:
    """Refuses changes from other origins, and anything cross-site, with 403. Answers preflights.

    Pages of allowed origins may read answers, including errors. Cookies and other credentials are never allowed across
    origins, so `*` gives no page what its visitor has.
    """

    def __init__(
        self,
        access: Access,
        *,
        request_headers: Iterable[str] = (),
        response_headers: Iterable[str] = (),
        secured: bool = False,
        behind_proxy: bool = False,
    ) -> None:
        """`request_headers` and `response_headers` are those of the wires, as in `Wire`.

        `secured`: the server requires credentials, and pages may send only the headers of its own interface.

        `behind_proxy`: a proxy identifies the user, perhaps by a cookie, which a browser sends from any page. So a link
        on a page of another site may lead to static pages only.
        """
        self._behind_proxy = behind_proxy
        self._origins = frozenset(origin.rstrip("/").lower() for origin in access.cors_origins)
        self._headers = [*REQUEST_HEADERS, *request_headers] if secured else None
        self._exposed = ", ".join(_once([*RESPONSE_HEADERS, *response_headers]))

    def __call__(self, scope: Scope, origin: str | None, *, is_static: bool = False) -> Response | None:
        """Answers a preflight; returns None for any other allowed request. `is_static`: a page without data."""
        self._check_site(scope, origin, is_static=is_static)
        if origin is None:
            return None
        headers = Headers(scope=scope)
        preflight = scope["method"] == "OPTIONS" and "access-control-request-method" in headers
        if preflight or scope["method"] not in SAFE_METHODS:
            self._check(origin, headers)
        return _preflight(headers, self._headers) if preflight else None

    def lets_read(self, origin: str, headers: RawHeaders) -> RawHeaders:
        """Returns the headers of an answer, including those that let a page of an allowed origin read it."""
        if not _allowed(origin, self._origins):
            return headers
        answer = MutableHeaders(raw=headers)
        answer["Access-Control-Allow-Origin"] = ANY if ANY in self._origins else origin
        answer["Access-Control-Expose-Headers"] = self._exposed
        answer.add_vary_header("Origin")
        return answer.raw

    def _check_site(self, scope: Scope, origin: str | None, *, is_static: bool) -> None:
        """Refuses a request that the browser marks as cross-site. A page cannot change that mark.

        Following a link is not a request of the page that has the link, and that page cannot read the answer.
        """
        if ANY in self._origins:
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])  # programs do not send these
        if headers.get(b"sec-fetch-site", b"").lower() != b"cross-site":
            return
        mode, target = headers.get(b"sec-fetch-mode", b"").lower(), headers.get(b"sec-fetch-dest", b"").lower()
        followed_link = mode == b"navigate" and target == b"document" and scope["method"] in SAFE_METHODS
        followed_link = followed_link and (is_static or not self._behind_proxy)
        if not followed_link and (origin is None or not _allowed(origin, self._origins)):
            raise _forbidden(origin)

    def _check(self, origin: str, headers: Headers) -> None:
        """`*` does not cover forms: a browser sends them without a preflight, from any page (T07)."""
        is_form = headers.get("content-type", "").lower().startswith(FORM)
        origins = self._origins - {ANY} if is_form else self._origins
        if not _allowed(origin, origins) and not _same_origin(origin, headers.get("host", "")):
            raise _forbidden(origin)


def allowed_headers(names: Sequence[str], wanted: str) -> str:
    """Returns the value of Access-Control-Allow-Headers. `wanted` are the names in a preflight.

    A name that ends with `*` stands for all that begin like it.
    """
    prefixes = tuple(name.removesuffix(ANY).lower() for name in names if name.endswith(ANY))
    asked = (name.strip().lower() for name in wanted.split(","))
    more = [name for name in asked if name.startswith(prefixes) and _NAME.fullmatch(name)]
    return ", ".join(_once([*(name for name in names if not name.endswith(ANY)), *more]))


def _once(names: Iterable[str]) -> list[str]:
    """Each name once, as it is written first: header names are not case-sensitive."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name.lower(), name)
    return list(found.values())


def _forbidden(origin: str | None) -> Forbidden:
    page = "another site" if origin is None else one_line(origin, 200)
    message = f"Pages of {page} may not use this server; --cors-origins allows it by name."
    return Forbidden(message, reason="foreign-page")


def _preflight(headers: Headers, allowed: Sequence[str] | None) -> Response:
    """`allowed` is None if a page may send any header."""
    if headers["access-control-request-method"] not in METHODS.split(", "):
        raise MethodNotAllowed(f"Allowed methods: {METHODS}.")
    answer = {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": PREFLIGHT_SECONDS}
    wanted = headers.get("access-control-request-headers")
    if wanted:
        answer["Access-Control-Allow-Headers"] = wanted if allowed is None else allowed_headers(allowed, wanted)
    return Response(status_code=204, headers=answer)


def _allowed(origin: str, origins: frozenset[str]) -> bool:
    name = origin.lower()
    if ANY in origins or name in origins:
        return True
    return LOOPBACK_PAGES in origins and _LOOPBACK_PAGE.fullmatch(name) is not None


def origin_of(scope: Scope) -> str | None:
    """Returns the origin of the page that asks, None for programs. Two headers count as one that matches nothing."""
    found = [value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"]
    return ", ".join(found) if found else None


def _same_origin(origin: str, host: str) -> bool:
    """Compares texts: an origin is a scheme and the value of `Host`. Parsers raise on malformed origins."""
    return host != "" and origin.lower() in (f"http://{host}".lower(), f"https://{host}".lower())
