"""What a credential is read from: the headers, the query and the address of a request, before any of its body."""

from collections.abc import Sequence

import msgspec


class RequestHead(msgspec.Struct, frozen=True):
    """Header names are in small letters, as ASGI has them. `address` None is a unix socket."""

    headers: Sequence[tuple[bytes, bytes]]
    query: bytes = b""
    address: str | None = None

    def values(self, name: bytes) -> list[str]:
        """Every value of a header. Any byte may occur in one, so it is read as Latin-1."""
        return [value.decode("latin-1").strip(" \t") for each, value in self.headers if each == name]
