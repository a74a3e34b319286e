"""Signed texts, which a server issues and later recognises without storing them."""

import base64
import binascii
import hashlib
import hmac
import os

MAX_LENGTH = 4096


class Seal:
    """Signs bytes for one purpose. Until `use` sets the secret of all replicas, it uses a secret of this process."""

    def __init__(self, purpose: str, secret: bytes | None = None) -> None:
        self._purpose, self._key = purpose.encode(), b""
        self.use(secret or os.urandom(32))

    def use(self, secret: bytes) -> None:
        """Signs with a key derived from this secret from now on. Texts signed with another key become invalid."""
        self._key = hmac.digest(secret, self._purpose, hashlib.sha256)

    def sealed(self, body: bytes) -> str:
        return f"{_text(body)}.{_text(self._sign(body))}"

    def opened(self, text: str) -> bytes | None:
        """Returns the bytes that were sealed, or None for any other text."""
        body, dot, signature = text.partition(".")
        if not dot or len(text) > MAX_LENGTH:
            return None
        try:
            data, given = bytes_of(body), bytes_of(signature)
        except (binascii.Error, ValueError):
            return None
        return data if hmac.compare_digest(given, self._sign(data)) else None

    def _sign(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def bytes_of(text: str) -> bytes:
    """Decodes base64url without padding. Raises ValueError."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
