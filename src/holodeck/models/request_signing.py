"""The port for credentials that change with each request.

An API key is a constant header and needs none of this. Signatures (AWS) and short-lived tokens (Google) do.
"""

from collections.abc import Mapping
from typing import Protocol


class RequestSigner(Protocol):
    """Makes the headers of one request. Never blocks the event loop."""

    async def headers(self, url: str, body: bytes | None) -> Mapping[str, str]:
        """The headers to add; a request without a body is a GET. Raises a ModelError if there are no credentials."""

    def refused(self, headers: Mapping[str, str], status: int, text: str) -> bool:
        """Reports a refusal of these headers. Returns whether the next call of `headers` uses other credentials."""
