"""Finds the principal of a request from its head.

The form of the credential decides how it is checked, and no other check is tried when that one fails:

- `hdk_…`, and text without dots, is an API key;
- `hdp_…` is the playground's own token;
- three dotted parts are a JWT;
- identity headers come from the proxy.

A credential is read from headers only, never from a URL, a cookie or a body.
"""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import msgspec

from holodeck.access.api_key import PREFIX
from holodeck.access.attempts import Attempts, network_of
from holodeck.access.failure import IN_QUERY, NO_CREDENTIAL, NOT_BEARER, TWO_CREDENTIALS, Failure
from holodeck.access.hook import Hook
from holodeck.access.key_file import KeyLimits
from holodeck.access.key_ring import KeyRing
from holodeck.access.page_session import TOKEN_PREFIX, PageSession
from holodeck.access.principal import ANONYMOUS_PRINCIPAL, Principal, RequestHead
from holodeck.access.proxy import TrustedProxy

if TYPE_CHECKING:  # both import joserfc, which only mode jwt needs
    from holodeck.access.jwks import KeySource
    from holodeck.access.tokens import Tokens

log = logging.getLogger(__name__)

AUTHORIZATION, API_KEY = b"authorization", b"x-api-key"
_IN_QUERY = frozenset({"api_key", "apikey", "api-key", "x-api-key", "key", "token", "access_token", "authorization"})
_BEARER = re.compile(r"bearer +(?P<credential>.*)", re.IGNORECASE)
_REFRESH_SECONDS = 1.0
_COUNTED = frozenset({"invalid", "expired"})


class Authenticator:
    """Checks credentials in the configured modes. Without any, every request is anonymous and may do everything."""

    def __init__(
        self,
        *,
        keys: KeyRing | None = None,
        tokens: "Tokens | None" = None,
        sources: "tuple[KeySource, ...]" = (),
        proxy: TrustedProxy | None = None,
        hook: Hook | None = None,
        attempts: Attempts | None = None,
    ) -> None:
        self.keys, self.proxy = keys, proxy
        self.page = PageSession()
        self._tokens, self._sources, self._hook = tokens, sources, hook
        self.enabled = any(each is not None for each in (keys, tokens, proxy, hook))
        self._attempts = attempts or Attempts(None)
        self._refreshing: asyncio.Task[None] | None = None
        self.on_revoked: Callable[[frozenset[str]], None] = lambda _ids: None

    @property
    def takes_tokens(self) -> bool:
        return self._tokens is not None

    @property
    def issuers(self) -> list[str]:
        return [] if self._tokens is None else self._tokens.issuers

    @property
    def scopes_supported(self) -> list[str]:
        return [] if self._tokens is None else self._tokens.words

    def scopes_for(self, scope: str | None) -> list[str]:
        """Returns the scopes that clients request from an issuer to be granted this scope."""
        return [] if self._tokens is None else self._tokens.words_for(scope)

    @property
    def ready(self) -> bool:
        return all(source.current is not None for source in self._sources)

    @property
    def key_ages(self) -> list[float]:
        """Seconds since each issuer was last reached."""
        return [age for age in (source.age for source in self._sources) if age is not None]

    async def start(self) -> None:
        """Fetches the keys of issuers, for at most five seconds, and keeps keys and files fresh from then on."""
        await asyncio.gather(*(source.start() for source in self._sources))
        if self.keys is not None or self._sources:
            self._refreshing = asyncio.create_task(self._refresh_for_ever(), name="access")

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._refreshing
        for source in self._sources:
            await source.close()

    async def refresh(self) -> None:
        """Reloads the key file and the files with public keys if they changed."""
        for source in self._sources:
            await source.refresh()
        if self.keys is not None:
            ended = await self.keys.refresh()
            if ended:
                self.on_revoked(ended)

    async def _refresh_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            try:
                await self.refresh()
            except Exception:  # a bug must not end this task: revoked keys would stay valid
                log.exception("the keys could not be refreshed")

    def has_credential(self, head: RequestHead) -> bool:
        """Returns whether a header carries a credential, valid or not."""
        sent, by_proxy = self._sent(head)
        return bool(sent) or by_proxy

    def in_force(self, key_id: str) -> bool:
        """Returns whether runs that this API key started may continue."""
        return self.keys is not None and self.keys.in_force(key_id)

    def has_expired(self, principal: Principal) -> bool:
        """Returns whether a credential has expired by now. `holodeck keys rotate --grace` shortens the life of its key."""
        by_file = None
        if self.keys is not None and principal.via == "api_key" and principal.credential_id is not None:
            by_file = self.keys.expires(principal.credential_id)
        return any(each is not None and each <= time.time() for each in (principal.expires, by_file))

    def limits_of_key(self, key_id: str) -> KeyLimits | None:
        return None if self.keys is None else self.keys.limits_of(key_id)

    def client_address(self, head: RequestHead) -> str | None:
        """Returns the client's address, or None on a unix socket."""
        return head.address if self.proxy is None else self.proxy.client_address(head)

    def is_exhausted(self, head: RequestHead) -> bool:
        return not self._attempts.empty and self._attempts.wait(network_of(self.client_address(head))) > 0

    async def identify(self, head: RequestHead) -> Principal | Failure:
        """A valid credential passes also from an address with too many failures: other clients may share the address.

        Verifying a signature takes 40 to 120 µs (ES384 and ES512: 500 µs), the rest of a refused request about 220 µs.
        """
        if not self.enabled:
            return ANONYMOUS_PRINCIPAL
        wait = 0.0 if self._attempts.empty else self._attempts.wait(network_of(self.client_address(head)))
        found = await self._checked(head)
        if isinstance(found, Principal):
            return found
        if wait > 0 and found.kind in _COUNTED:
            return msgspec.structs.replace(
                found,
                kind="limited",
                reason="limited",
                message="Too many invalid credentials came from this address.",
                retry_after=wait,
            )
        if found.kind in _COUNTED:
            self._attempts.failed(network_of(self.client_address(head)))
        return found

    async def _checked(self, head: RequestHead) -> Principal | Failure:
        if head.query and _has_credential(head.query):
            return IN_QUERY
        sent, by_proxy = self._sent(head)
        ours = [credential for credential in sent if self._is_ours(credential)]
        if len(sent) > 1 or any("," in credential for credential in sent) or (by_proxy and ours):
            return TWO_CREDENTIALS
        if ours:
            return await self._check_bearer(ours[0])
        return await self._check_otherwise(head, sent=bool(sent), by_proxy=by_proxy)

    def _sent(self, head: RequestHead) -> tuple[list[str], bool]:
        """Returns the credentials in headers, and whether headers of the proxy exist."""
        sent: list[str] = []
        by_proxy = False
        theirs = self.proxy.headers if self.proxy is not None else frozenset[bytes]()
        for name, value in head.headers:
            if name in (AUTHORIZATION, API_KEY):
                sent.append(_credential(name, value))
            elif name in theirs:
                by_proxy = True
            elif b"_" in name and name.replace(b"_", b"-") in theirs:
                return ["", ""], True  # some proxies treat it as the same header: refused like a header sent twice
        return sent, by_proxy

    async def _check_otherwise(self, head: RequestHead, *, sent: bool, by_proxy: bool) -> Principal | Failure:
        """Checks a request whose credential is neither a key nor our own token."""
        if by_proxy and self.proxy is not None:
            return self.proxy.check(head)
        if self._hook is not None:
            return await self._hook.check(head)
        if sent and (self.keys is not None or self._tokens is not None):
            return NOT_BEARER
        return NO_CREDENTIAL

    def _is_ours(self, credential: str) -> bool:
        """Returns whether a mode that is on checks credentials of this form. The hook sees all others."""
        if not credential or credential.isspace():
            return False
        if credential.startswith(TOKEN_PREFIX):
            return True
        if _is_token(credential):
            return self._tokens is not None
        return self.keys is not None and (self._hook is None or credential.startswith(PREFIX))

    async def _check_bearer(self, credential: str) -> Principal | Failure:
        if credential.startswith(TOKEN_PREFIX):
            return self.page.check(credential)
        if _is_token(credential) and self._tokens is not None:
            return await self._tokens.check(credential)
        if self.keys is not None:
            return self.keys.check(credential)
        return NO_CREDENTIAL


def _credential(name: bytes, value: bytes) -> str:
    """Returns the text after `Bearer`, or the whole X-Api-Key. Empty for other schemes."""
    text = value.decode("latin-1").strip(" ")
    if name == API_KEY:
        return text
    found = _BEARER.fullmatch(text)
    return found["credential"] if found else ""


def _is_token(credential: str) -> bool:
    return not credential.startswith(PREFIX) and "." in credential


def _has_credential(query: bytes) -> bool:
    lowered = query.lower()
    if b"hdk_" in lowered or b"hdp_" in lowered:  # one of our credentials, whatever its parameter is called
        return True
    if b"key" not in lowered and b"token" not in lowered and b"authorization" not in lowered:
        return False
    names = (name.lower() for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    return any(name in _IN_QUERY for name in names)
