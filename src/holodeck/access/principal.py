"""The principal: on whose behalf a request is made, what it may do, and which credential proves it.

Also the head of a request, from which the principal is found.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from holodeck.core.owner import ANONYMOUS, DEFAULT_TENANT, Owner, is_owner_name

Via: TypeAlias = Literal["none", "api_key", "jwt", "proxy", "hook", "ticket"]

CHAT = "chat"
APPROVE = "approve"
RUNS_READ, RUNS_STOP = "runs:read", "runs:stop"
SESSIONS_READ, SESSIONS_DELETE = "sessions:read", "sessions:delete"
METRICS = "metrics"
ADMIN = "admin"
ACT_AS = "act-as"

OF_ONE_USER = frozenset({CHAT, APPROVE, RUNS_READ, RUNS_STOP, SESSIONS_READ, SESSIONS_DELETE})
"""Scopes of a credential that names none. `admin` has them for every user of its tenant."""

SCOPES = OF_ONE_USER | {METRICS, ADMIN, ACT_AS}
"""Every scope. A scope is a word and is matched whole; there are no wildcards."""

_RESERVED_PREFIXES = ("key:", "system:")
_OWN_KEYS = frozenset({"api_key", "hook", "ticket"})  # a credential id of these names one client, a token's its issuer


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking a credential."""

    tenant: str
    user: str
    scopes: frozenset[str]
    via: Via
    credential_id: str | None = None  # for logs and limits: the id part of a key, never a secret
    expires: float | None = None  # from when on the credential is refused, in seconds since 1970

    @property
    def owner(self) -> Owner:
        return Owner(self.tenant, self.user)

    @property
    def key_id(self) -> str | None:
        """The credential's id if the credential is one client's own: `server.limits.key` counts by it."""
        return self.credential_id if self.via in _OWN_KEYS else None

    @property
    def is_authenticated(self) -> bool:
        """Whether a credential names the user. Without one, a client can name any user."""
        return self.via != "none"

    def may(self, scope: str) -> bool:
        """Returns whether a scope was granted.

        `admin` implies what a user may do, but neither `metrics`, which spans tenants, nor `act-as`.
        """
        return scope in self.scopes or (ADMIN in self.scopes and scope in OF_ONE_USER)


class Defaults(msgspec.Struct, frozen=True):
    """Values for a credential that names no tenant or no scopes."""

    tenant: str
    scopes: frozenset[str]


ANONYMOUS_PRINCIPAL = Principal(tenant=DEFAULT_TENANT, user=ANONYMOUS, scopes=SCOPES, via="none")
"""The principal of every request while `server.auth.mode` is none. It may name any user of the default tenant."""


def is_user_name(text: str) -> bool:
    """Returns whether a credential may name this user: the name is well-formed, and HoloDeck does not use it itself."""
    return is_owner_name(text) and text != ANONYMOUS and not text.startswith(_RESERVED_PREFIXES)


class RequestHead(msgspec.Struct, frozen=True):
    """The part of a request that holds credentials.

    Header names are in lower case, as in ASGI. `address=None` is a unix socket.
    """

    headers: Sequence[tuple[bytes, bytes]]
    query: bytes = b""
    address: str | None = None

    def values(self, name: bytes) -> list[str]:
        """Returns every value of a header, decoded as Latin-1, since any byte may occur."""
        return [value.decode("latin-1").strip(" \t") for each, value in self.headers if each == name]
