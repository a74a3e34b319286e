"""Signing in by `serve --open`: the page's address carries a code that is exchanged, once, for a token of the page's own.

The code is in the fragment of the address, which browsers never send. It is valid for a minute. The token is valid for
twelve hours, in this process only, and stands for a user that no other credential can name.
"""

import hmac
import secrets
import time
from collections.abc import Callable

from holodeck.access.failure import Failure
from holodeck.access.principal import OF_ONE_USER, Principal
from holodeck.core.owner import DEFAULT_TENANT

TOKEN_PREFIX = "hdp_"  # noqa: S105  how a token begins, not one
PAGE_USER = "system:playground"
CODE_SECONDS = 60.0
TOKEN_SECONDS = 12 * 3600.0
_INVALID = Failure(
    kind="invalid", reason="unknown", message="This sign-in has ended; open the page again or use a key."
)


class PageSession:
    """One code and one token at a time: the person who started the server has one browser open for it."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._code, self._code_expires = "", 0.0
        self._token, self._token_expires = "", 0.0

    def new_code(self) -> str:
        self._code, self._code_expires = secrets.token_urlsafe(32), self._clock() + CODE_SECONDS
        return self._code

    def exchange(self, code: str) -> str | None:
        """A token for the code, which is spent by it; None for a code that is wrong, spent or too old."""
        is_valid = bool(self._code) and self._clock() < self._code_expires and _same(code, self._code)
        if not is_valid:
            return None
        self._code = ""
        self._token, self._token_expires = TOKEN_PREFIX + secrets.token_urlsafe(32), self._clock() + TOKEN_SECONDS
        return self._token

    def check(self, token: str) -> Principal | Failure:
        if not self._token or not _same(token, self._token) or self._clock() >= self._token_expires:
            return _INVALID
        return Principal(
            tenant=DEFAULT_TENANT,
            user=PAGE_USER,
            scopes=OF_ONE_USER,
            via="ticket",
            expires=self._token_expires,
        )


def _same(given: str, ours: str) -> bool:
    return hmac.compare_digest(given.encode(), ours.encode())
