"""The destination of a request: the parts of a URL, and the proxy in between."""

from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from holodeck.http.failures import Unsendable

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PORTS = {"http": 80, "https": 443}
_AS_IT_IS = "/?#[]@!$&'()*+,;=:%-._~"  # quoted already, or with a special meaning


class Address(msgspec.Struct, frozen=True):
    """The parts of a URL. `target` is for the request line; `user` is set for proxies only."""

    scheme: str
    host: str
    port: int
    target: str = "/"
    user: str | None = None

    @property
    def secure(self) -> bool:
        return self.scheme == "https"

    @property
    def place(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def authority(self) -> str:
        """The value of the Host header, with the port only if it is not the default."""
        return self.place.removesuffix(f":{_PORTS[self.scheme]}")


class Route(msgspec.Struct, frozen=True):
    """The route of a request. Requests with equal routes can share a connection."""

    scheme: str
    host: str
    port: int
    proxy: Address | None = None


@lru_cache(maxsize=64)  # an agent has a handful of URLs; clients may name any others
def address_of(url: str) -> Address:
    try:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise Unsendable("the URL must begin with http:// or https:// and a host")
        port = parts.port or _PORTS[parts.scheme]
        host = parts.hostname if parts.hostname.isascii() else _in_ascii(parts.hostname)
        target = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_AS_IT_IS)
    except ValueError as error:  # UnicodeError is one
        raise Unsendable("the URL contains characters that are not allowed") from error
    name, password = unquote(parts.username or ""), unquote(parts.password or "")
    return Address(parts.scheme, host, port, target, f"{name}:{password}" if name or password else None)


def _in_ascii(host: str) -> str:
    """Encodes a host name as browsers do. Python's older codec turns faß.de into fass.de, another owner's site."""
    import idna  # noqa: PLC0415  large tables, for names that are rare

    return idna.encode(host, uts46=True).decode()


def proxy_for(url: str) -> str | None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in _LOOPBACK or proxy_bypass(host):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")
