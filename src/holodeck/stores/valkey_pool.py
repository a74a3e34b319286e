"""Connections to a Valkey: at its address, or at the primary that Sentinels name.

`redis+sentinel://user:password@host:26379,host:26379/name` gives the addresses of the Sentinels and their name for the
primary. The number of the database may follow the name. The query may have `sentinel_username` and `sentinel_password`.
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


def pool_of(url: str, *, seconds: float, answer_seconds: float, **settings: Any) -> BlockingConnectionPool:
    """Makes a pool. `seconds` to connect, `answer_seconds` for an answer. Raises ValueError for an invalid address."""
    limits = {"socket_connect_timeout": seconds, "socket_timeout": answer_seconds, "protocol": 2}
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        return BlockingConnectionPool.from_url(url, timeout=seconds, **limits, **settings)
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
        timeout=seconds,
        db=int(database or 0),
        username=unquote(user) or None,
        password=unquote(password) or None,
        **tls,
        **limits,
        **settings,
    )
    return pool


def _address_of(place: str) -> tuple[str, int]:
    host, port = (place, "") if place.endswith("]") or ":" not in place else place.rsplit(":", 1)
    if not host:
        raise ValueError("the host of a Sentinel is missing")
    return host.strip("[]"), int(port or PORT)


def _login_of(parts: SplitResult) -> dict[str, str]:
    given = dict(parse_qsl(parts.query))
    return {name: given[f"sentinel_{name}"] for name in ("username", "password") if f"sentinel_{name}" in given}
