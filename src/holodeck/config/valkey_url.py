"""Addresses of a Valkey, as its own tools write them, for the client library, which knows Redis's names only."""


def redis_url(url: str) -> str:
    """`valkey://` and `valkeys://` under the names that mean the same; any other address as it is."""
    scheme, separator, rest = url.partition("://")
    name, plus, kind = scheme.partition("+")  # +sentinel
    return {"valkey": "redis", "valkeys": "rediss"}.get(name, name) + plus + kind + separator + rest
