"""The port for credentials that change: what proves, for each request anew, who asks.

An API key is a header that never changes and needs none of this. Signatures (AWS) and short-lived tokens (Google) do.
"""

from collections.abc import Mapping
from typing import Protocol


class RequestSigner(Protocol):
    """Makes the headers of one request. Never blocks the event loop."""

    async def headers(self, url: str, body: bytes | None) -> Mapping[str, str]:
        """The headers to add; a request without a body is a GET. Raises a ModelError if there are no credentials."""

    def refused(self, headers: Mapping[str, str], status: int, text: str) -> bool:
        """Takes note that the endpoint refused such headers. Returns whether the next ones are made of other credentials."""
