"""Converts Valkey's URLs for the client library, which knows only Redis's names."""


def redis_url(url: str) -> str:
    """Renames `valkey://` and `valkeys://` to Redis's schemes. Any other address stays unchanged."""
    scheme, separator, rest = url.partition("://")
    name, plus, kind = scheme.partition("+")  # +sentinel
    return {"valkey": "redis", "valkeys": "rediss"}.get(name, name) + plus + kind + separator + rest
