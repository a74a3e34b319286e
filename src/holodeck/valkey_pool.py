"""Connections to a Valkey or Redis: at its address, or at the primary that Sentinels name.

`valkey+sentinel://user:password@host:26379,host:26379/name` gives the addresses of the Sentinels and their name for the
primary. The number of the database may follow the name. The query may have `sentinel_username` and `sentinel_password`.
Every scheme may begin with `redis` instead; `valkeys` and `rediss` are with TLS.
"""

from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool

SCHEMES = {"redis+sentinel": False, "rediss+sentinel": True}  # with TLS?
PORT = 26379


class PrimaryPool(SentinelConnectionPool, BlockingConnectionPool):
    """Waits for a free connection, like the other pool.

    Closes the connections to the Sentinels together with its own.
    """

    async def aclose(self) -> None:
        await super().aclose()
        for each in self.sentinel_manager.sentinels:
            await each.aclose()


def pool_of(
    url: str, *, seconds: float, answer_seconds: float, wait_seconds: float | None = None, **settings: Any
) -> BlockingConnectionPool:
    """Makes a pool. Raises ValueError for an invalid address.

    `seconds` to connect, `answer_seconds` for an answer, `wait_seconds` for a free connection (default: `seconds`).
    """
    url, wait_seconds = _redis_url(url), seconds if wait_seconds is None else wait_seconds
    limits = {"socket_connect_timeout": seconds, "socket_timeout": answer_seconds, "protocol": 2}
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        return BlockingConnectionPool.from_url(url, timeout=wait_seconds, **limits, **settings)
    login, _, places = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    name, _, database = parts.path.strip("/").partition("/")
    if not name:
        raise ValueError("the name of the primary is missing")
    tls = {"ssl": SCHEMES[parts.scheme]}
    sentinels = Sentinel(  # type: ignore[no-untyped-call]
        [_address_of(place) for place in places.split(",")],
        sentinel_kwargs={**limits, **tls, "socket_timeout": seconds, **_login_of(parts)},
    )
    pool: BlockingConnectionPool = PrimaryPool(  # type: ignore[no-untyped-call]
        unquote(name),
        sentinels,
        timeout=wait_seconds,
        db=int(database or 0),
        username=unquote(user) or None,
        password=unquote(password) or None,
        **tls,
        **limits,
        **settings,
    )
    return pool


def _redis_url(url: str) -> str:
    """Renames `valkey://` and `valkeys://` to Redis's schemes. Any other address stays unchanged."""
    scheme, separator, rest = url.partition("://")
    name, plus, kind = scheme.partition("+")  # +sentinel
    return {"valkey": "redis", "valkeys": "rediss"}.get(name, name) + plus + kind + separator + rest


def _address_of(place: str) -> tuple[str, int]:
    host, port = (place, "") if place.endswith("]") or ":" not in place else place.rsplit(":", 1)
    if not host:
        raise ValueError("the host of a Sentinel is missing")
    return host.strip("[]"), int(port or PORT)


def _login_of(parts: SplitResult) -> dict[str, str]:
    given = dict(parse_qsl(parts.query))
    return {name: given[f"sentinel_{name}"] for name in ("username", "password") if f"sentinel_{name}" in given}
