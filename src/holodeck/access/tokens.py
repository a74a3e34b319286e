"""JSON web tokens: our own checks around joserfc, which verifies the signature with one key and one algorithm.

`tests/access/hostile_tokens.py` has 103 good and hostile tokens; joserfc alone accepts several of the hostile ones.
This module never reads what a token's header says about keys (`jku`, `x5u`, `x5c`, `jwk`).
"""

import hashlib
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry, deserialize_compact

from holodeck.access.failure import BAD_TOKEN, Failure, Reason
from holodeck.access.issuer import Issuer
from holodeck.access.jwk import MAX_KID, KeySet, NotStrict, VerifyingKey, decode_segment, object_of
from holodeck.access.jwks import KeySource
from holodeck.access.principal import ACT_AS, ADMIN, OF_ONE_USER, SCOPES, Defaults, Principal, is_user_name
from holodeck.core.owner import is_owner_name

MAX_TOKEN = 8192
MAX_HEADER = 1024
MAX_TRIED = 4  # keys that share one kid
REMEMBERED = 10_000
FAILURE_SECONDS = 60.0
_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_REFUSED_MEMBERS = ("crit", "b64", "zip", "cty", "enc")  # each changes what the signature or the content means


class TrustedIssuer(msgspec.Struct, frozen=True):
    """An issuer whose tokens are accepted, and the keys that it signs them with."""

    settings: Issuer
    keys: KeySource


class _Refused(Exception):
    def __init__(
        self, reason: Reason, *, lasting: bool = True, source: KeySource | None = None, keys: KeySet | None = None
    ) -> None:
        self.reason = reason
        self.lasting = lasting  # whether the same token will be refused for the next minute, too
        self.source, self.keys = source, keys  # the keys that were tried, if none has signed the token


class _Remembered(msgspec.Struct, frozen=True):
    principal: Principal | Failure
    until: float
    source: KeySource | None = None
    thumbprint: str = ""  # the accepted token's key
    keys: KeySet | None = None  # the keys that were tried on a refused token


class _OneAlgorithm(JWSRegistry):
    """joserfc's registry, reduced to the chosen algorithm. Our checks replace its header checks."""

    max_header_length = 2 * MAX_HEADER

    def get_alg(self, name: str) -> Any:
        if not self.allowed or name not in self.allowed:
            raise JoseError(f"the algorithm {name!r} is not allowed")
        return self.algorithms[name]


class Tokens:
    """Checks tokens. Caches verified ones by the SHA-256 of the whole token."""

    def __init__(
        self, issuers: Sequence[TrustedIssuer], defaults: Defaults, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._issuers = {each.settings.issuer: each for each in issuers}
        self._several = len(issuers) > 1
        self._defaults, self._clock = defaults, clock
        self._accepted: dict[bytes, _Remembered] = {}
        self._refused: dict[bytes, _Remembered] = {}

    @property
    def issuers(self) -> list[str]:
        return list(self._issuers)

    @property
    def words(self) -> list[str]:
        """The scopes that clients may request from the issuers: issuers' names where `grant` maps them, else ours."""
        ours = SCOPES - {ACT_AS}
        settings = [each.settings for each in self._issuers.values()]
        found = (word for each in settings for word in (*each.required, *(each.grant or ours)))
        return sorted(set(found))

    def words_for(self, scope: str | None) -> list[str]:
        """Returns the scopes that clients request to get this scope of ours. None: to get access at all."""
        found: set[str] = set()
        for issuer in self._issuers.values():
            found.update(issuer.settings.required)
            if scope is not None:
                found.update(_words_that_grant(issuer.settings.grant, scope))
        return sorted(found)

    async def check(self, token: str) -> Principal | Failure:
        if len(token) > MAX_TOKEN or not _TOKEN.fullmatch(token):
            return _failure("malformed")
        name = hashlib.sha256(token.encode()).digest()
        known = self._recalled(name)
        if known is not None:
            return known
        try:
            return await self._verified(token, name)
        except _Refused as refused:
            failure = _failure(refused.reason)
            if refused.lasting:
                until = self._clock() + FAILURE_SECONDS
                _keep(self._refused, name, _Remembered(failure, until, refused.source, keys=refused.keys))
            return failure

    def _recalled(self, name: bytes) -> Principal | Failure | None:
        now = self._clock()
        refused = self._refused.get(name)
        if refused is not None:
            if refused.until > now and (refused.source is None or refused.source.current is refused.keys):
                return refused.principal
            del self._refused[name]
        accepted = self._accepted.get(name)
        if accepted is None or accepted.source is None:
            return None
        keys = accepted.source.current
        if accepted.until > now and keys is not None and accepted.thumbprint in keys.thumbprints:
            return accepted.principal
        del self._accepted[name]
        return None

    async def _verified(self, token: str, name: bytes) -> Principal | Failure:
        header, claims = _split(token)
        trusted = self._issuers.get(_text(claims.get("iss"), "issuer"))
        if trusted is None:
            raise _Refused("issuer")
        issuer, source = trusted.settings, trusted.keys
        algorithm, kid = _checked_header(header, issuer)
        key = await _found_signer(token, source, kid, algorithm)
        if key is None:
            message = "The keys of the token's issuer are not available at the moment."
            return Failure(kind="unavailable", reason="unavailable", message=message, retry_after=5.0)
        now = self._clock()
        expires = _checked_times(claims, issuer, now)
        _check_audience(claims, issuer)
        words = _words(claims, issuer)
        if not set(issuer.required) <= set(words or ()):
            missing = next(word for word in issuer.required if word not in (words or ()))
            message = f"The token lacks the scope {missing!r}."
            return Failure(kind="forbidden", reason="scope", message=message, scope=missing)
        principal = self._principal(claims, issuer, words, expires)
        _keep(self._accepted, name, _Remembered(principal, expires, source, key.thumbprint))
        return principal

    def _principal(self, claims: dict[str, Any], issuer: Issuer, words: list[str] | None, expires: float) -> Principal:
        subject = _text(_at(claims, issuer.claims.user_id), "claims")
        user = f"{issuer.name}|{subject}" if self._several else subject
        if not is_user_name(subject) or not is_user_name(user):
            raise _Refused("claims")
        tenant = self._defaults.tenant
        if issuer.claims.tenant is not None:
            tenant = _text(_at(claims, issuer.claims.tenant), "claims")
            if not is_owner_name(tenant):
                raise _Refused("claims")
        return Principal(
            tenant=tenant,
            user=user,
            scopes=self._scopes(issuer, words),
            via="jwt",
            credential_id=issuer.name or "jwt",
            expires=expires,
        )

    def _scopes(self, issuer: Issuer, words: list[str] | None) -> frozenset[str]:
        if issuer.grant is not None:
            return frozenset(scope for word in words or () for scope in issuer.grant.get(word, ()))
        if words is None:
            return self._defaults.scopes if issuer.claims.scopes is None else frozenset()
        return (frozenset(words) & SCOPES) - {ACT_AS}


def _words_that_grant(grant: Mapping[str, Sequence[str]] | None, scope: str) -> list[str]:
    if grant is None:
        return [scope]
    found = [word for word, scopes in grant.items() if scope in scopes]
    return found or [word for word, scopes in grant.items() if ADMIN in scopes and scope in OF_ONE_USER]


def _split(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the header and the claims. Checks the form of the signature."""
    first, second, third = token.split(".")
    try:
        head = decode_segment(first)
        if len(head) > MAX_HEADER:
            raise _Refused("malformed", lasting=False)
        decode_segment(third)
        return object_of(head), object_of(decode_segment(second))
    except NotStrict as error:
        raise _Refused("malformed", lasting=False) from error


def _checked_header(header: dict[str, Any], issuer: Issuer) -> tuple[str, str | None]:
    """Returns the algorithm, and the name of the key if there is one."""
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
        raise _Refused("malformed", lasting=False)
    if any(member in header for member in _REFUSED_MEMBERS):
        raise _Refused("malformed", lasting=False)
    if not isinstance(kind, str) or not issuer.accepts_type(kind):
        raise _Refused("type", lasting=False)
    if "kid" in header and not (isinstance(kid, str) and len(kid) <= MAX_KID):
        raise _Refused("malformed", lasting=False)
    return algorithm, kid


async def _found_signer(
    token: str, source: KeySource, kid: str | None, algorithm: str, *, looks: bool = True
) -> VerifyingKey | None:
    """Returns the key that signed the token, or None if no keys are available.

    Looks for newer keys if none has the token's kid. A key without a kid may be new if the signature is wrong.
    """
    keys = source.current
    if keys is None:
        return None
    candidates = keys.candidates(kid, algorithm)
    if (signer := _signer(token, candidates, algorithm)) is not None:
        return signer
    if looks and (kid is None or all(key.kid != kid for key in candidates)):
        await source.look_again()
        if source.current is not keys:
            return await _found_signer(token, source, kid, algorithm, looks=False)
    raise _Refused("signature", source=source, keys=keys) if candidates else _Refused("unknown", lasting=False)


def _signer(token: str, candidates: Sequence[VerifyingKey], algorithm: str) -> VerifyingKey | None:
    """Returns the key that signed the token."""
    registry = _OneAlgorithm(algorithms=[algorithm], strict_check_header=False)
    for candidate in candidates[:MAX_TRIED]:
        try:
            deserialize_compact(token, candidate.key, algorithms=[algorithm], registry=registry)
        except (JoseError, ValueError):
            continue
        return candidate
    return None


def _checked_times(claims: dict[str, Any], issuer: Issuer, now: float) -> float:
    """Checks the token's times. Returns from when on it is refused: its clock may differ from ours."""
    expires = _number(claims, "exp", required=True)
    issued, begins = _number(claims, "iat"), _number(claims, "nbf")
    if any(time is not None and time > now + issuer.leeway for time in (issued, begins)):
        raise _Refused("early", lasting=False)
    if expires is None or expires <= now - issuer.leeway:
        raise _Refused("expired")
    if expires - (now if issued is None else issued) > issuer.max_lifetime:
        raise _Refused("claims")
    return expires + issuer.leeway


def _check_audience(claims: dict[str, Any], issuer: Issuer) -> None:
    stated = claims.get("aud")
    audiences = stated if isinstance(stated, list) else [stated]
    if not all(isinstance(audience, str) for audience in audiences) or not set(issuer.audiences).intersection(
        audiences
    ):
        raise _Refused("audience")


def _words(claims: dict[str, Any], issuer: Issuer) -> list[str] | None:
    """Returns the scopes in the issuer's own words, or None if the token has no such claim."""
    found = _at(claims, issuer.claims.scopes or "scope")
    if found is None:
        return None
    words = found.split() if isinstance(found, str) else found
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise _Refused("claims")
    return words


def _at(claims: dict[str, Any], path: str) -> Any:
    """Returns a claim by its name, else by its dotted path: names may contain dots (`https://example.com/roles`)."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _number(claims: dict[str, Any], name: str, *, required: bool = False) -> float | None:
    if name not in claims and not required:
        return None
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Refused("claims")
    try:
        number = float(value)
    except OverflowError as error:
        raise _Refused("claims") from error
    if not math.isfinite(number) or number < 0:
        raise _Refused("claims")
    return number


def _text(value: Any, reason: Reason) -> str:
    if not isinstance(value, str):
        raise _Refused(reason)
    return value


def _failure(reason: Reason) -> Failure:
    if reason == "expired":
        return Failure(kind="expired", reason=reason, message="This token has expired.")
    return Failure(kind="invalid", reason=reason, message=BAD_TOKEN)


def _keep(table: dict[bytes, _Remembered], name: bytes, entry: _Remembered) -> None:
    table[name] = entry
    if len(table) > REMEMBERED:
        del table[next(iter(table))]
