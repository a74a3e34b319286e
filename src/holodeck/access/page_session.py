"""Sign-in by `serve --open`: the page exchanges a code in its address, once, for its own token.

The code is in the fragment of the address, which browsers never send. It is valid for a minute. The token is valid for
twelve hours and stands for a user that no other credential can name. Both are signed with the secret of the store, so
every process that shares the store accepts them, even after a restart. The store records which codes were used.
"""

import secrets
import time
from collections.abc import Awaitable, Callable

import msgspec

from holodeck.access.failure import Failure
from holodeck.access.principal import OF_ONE_USER, Principal
from holodeck.access.tickets import Seal
from holodeck.core.owner import DEFAULT_TENANT

TOKEN_PREFIX = "hdp_"  # noqa: S105  how a token begins, not one
PAGE_USER = "system:playground"
CODE_SECONDS = 60.0
TOKEN_SECONDS = 12 * 3600.0
_INVALID = Failure(
    kind="invalid", reason="unknown", message="This sign-in has ended; open the page again or use a key."
)


class _SignIn(msgspec.Struct, frozen=True, array_like=True):
    name: str
    expires: float


_decode = msgspec.json.Decoder(_SignIn).decode


class PageSession:
    """Issues and checks codes and tokens. `spend` marks a code as used, and returns whether this was the first time."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._codes, self._tokens = Seal("page code"), Seal("page token")
        self._spent: dict[str, None] = {}
        self.spend: Callable[[str], Awaitable[bool]] = self._spend_here

    def use(self, secret: bytes) -> None:
        self._codes.use(secret)
        self._tokens.use(secret)

    def new_code(self) -> str:
        return self._new(self._codes, CODE_SECONDS)

    async def exchange(self, code: str) -> str | None:
        """Exchanges a code for a token. Returns None for a code that is wrong, used or too old."""
        claims = self._read(self._codes, code)
        if claims is None or not await self.spend(claims.name):
            return None
        return TOKEN_PREFIX + self._new(self._tokens, TOKEN_SECONDS)

    def check(self, token: str) -> Principal | Failure:
        claims = self._read(self._tokens, token.removeprefix(TOKEN_PREFIX))
        if claims is None:
            return _INVALID
        return Principal(
            tenant=DEFAULT_TENANT, user=PAGE_USER, scopes=OF_ONE_USER, via="ticket", expires=claims.expires
        )

    def _new(self, seal: Seal, seconds: float) -> str:
        return seal.sealed(msgspec.json.encode(_SignIn(secrets.token_urlsafe(32), self._clock() + seconds)))

    def _read(self, seal: Seal, text: str) -> _SignIn | None:
        """Returns the claims of a text that we signed, unless it has expired."""
        body = seal.opened(text)
        claims = None if body is None else _decode(body)
        return None if claims is None or claims.expires <= self._clock() else claims

    async def _spend_here(self, name: str) -> bool:
        is_first = name not in self._spent
        self._spent[name] = None
        return is_first
