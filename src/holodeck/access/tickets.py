"""Tickets let a browser's EventSource read one run: it cannot send headers, and a key in a URL would end up in logs.

A ticket allows reading one run of one owner, for at most fifteen minutes. It may be used more than once, since
EventSource repeats its URL when it reconnects. Tickets are signed with the secret of the store: every replica accepts
them, even after a restart, and nothing about them is stored.
"""

import base64
import binascii
import hashlib
import hmac
import os
import time
from collections.abc import Callable

import msgspec

from holodeck.access.failure import Failure
from holodeck.access.principal import RUNS_READ, Principal
from holodeck.core.owner import Owner

MAX_LENGTH = 4096


class Seal:
    """Signs bytes for one purpose. Until `use` sets the secret of all replicas, it uses a secret of this process."""

    def __init__(self, purpose: str) -> None:
        self._purpose = purpose.encode()
        self.use(os.urandom(32))

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


LONGEST_SECONDS = 900.0
_INVALID = Failure(kind="invalid", reason="unknown", message="This ticket is not valid.")
_EXPIRED = Failure(kind="expired", reason="expired", message="This ticket has expired.")


class _TicketClaims(msgspec.Struct, frozen=True, array_like=True):
    run_id: str
    tenant: str
    user: str
    key_id: str | None  # the API key that requested it: revoking the key revokes the ticket
    expires: float


class Tickets:
    """Issues and checks tickets. `in_force` returns whether an API key is still valid."""

    def __init__(self, in_force: Callable[[str], bool], *, clock: Callable[[], float] = time.time) -> None:
        self._in_force, self._clock = in_force, clock
        self._seal = Seal("ticket")

    def use(self, secret: bytes) -> None:
        self._seal.use(secret)

    def issue(self, principal: Principal, owner: Owner, run_id: str) -> tuple[str, float]:
        """Returns a ticket and its expiry, which is never after that of the credential it is issued for."""
        expires = self._clock() + LONGEST_SECONDS
        if principal.expires is not None:
            expires = min(expires, principal.expires)
        key_id = principal.credential_id if principal.via == "api_key" else None
        body = msgspec.json.encode(_TicketClaims(run_id, owner.tenant, owner.user, key_id, expires))
        return self._seal.sealed(body), expires

    def check(self, ticket: str, run_id: str) -> Principal | Failure:
        """Returns the owner of the run as a principal that may only read it."""
        body = self._seal.opened(ticket)
        claims = None if body is None else msgspec.json.decode(body, type=_TicketClaims)
        if claims is None or claims.run_id != run_id:
            return _INVALID
        if claims.expires <= self._clock():
            return _EXPIRED
        if claims.key_id is not None and not self._in_force(claims.key_id):
            return _INVALID
        return Principal(
            tenant=claims.tenant,
            user=claims.user,
            scopes=frozenset({RUNS_READ}),
            via="ticket",
            credential_id=claims.key_id,
            expires=claims.expires,
        )
