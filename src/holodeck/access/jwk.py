"""Keys that verify signatures: from a JWKS, a PEM file or a shared secret.

Every key of a JWKS is imported by itself, so that a strange one does not discard the good ones: joserfc raises KeyError
for an unknown curve and drops the whole set. Only this module and `tokens` import joserfc.
"""

import base64
import binascii
import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import msgspec
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

MAX_KEYS = 64
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 16_384
MIN_SECRET = 32
MAX_KID = 256
_PRIVATE_MEMBERS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}

RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
ELLIPTIC = frozenset(_CURVES.values())
EDWARDS = frozenset({"Ed25519", "EdDSA"})
SHARED = frozenset({"HS256", "HS384", "HS512"})
FAMILIES = (SHARED, RSA, ELLIPTIC, EDWARDS)

Key: TypeAlias = RSAKey | ECKey | OKPKey | OctKey


class BadKey(ValueError):
    """A key that cannot be used. The text says why, without any part of the key."""


class VerifyingKey(msgspec.Struct, frozen=True):
    kid: str | None
    algorithms: frozenset[str]
    key: Key
    thumbprint: str


@dataclass(frozen=True)
class KeySet:
    keys: tuple[VerifyingKey, ...] = ()
    skipped: tuple[str, ...] = ()  # why keys of the document are not used

    def candidates(self, kid: str | None, algorithm: str) -> list[VerifyingKey]:
        """Returns the keys that may have signed. Without a kid, or without kids in the set, only one key may exist."""
        named = [key for key in self.keys if key.kid is not None]
        if kid is not None and named:
            found = [key for key in named if key.kid == kid]
        else:
            found = list(self.keys) if len(self.keys) == 1 else []
        return [key for key in found if algorithm in key.algorithms]

    @cached_property
    def thumbprints(self) -> frozenset[str]:
        return frozenset(key.thumbprint for key in self.keys)


def key_set_of(document: bytes) -> KeySet:
    """Returns the usable keys of a JWKS document. Raises BadKey if there are none."""
    try:
        listed = object_of(document).get("keys")
    except NotStrict as error:
        raise BadKey(f"the JWKS is {error}") from error
    if not isinstance(listed, list):
        raise BadKey("the JWKS has no list of keys")
    keys, skipped = [], []
    for number, jwk in enumerate(listed[:MAX_KEYS]):
        try:
            keys.append(_imported(jwk))
        except BadKey as error:
            skipped.append(f"key {number}: {error}")
    if len(listed) > MAX_KEYS:
        skipped.append(f"{len(listed) - MAX_KEYS} keys beyond the first {MAX_KEYS}")
    if not keys:
        raise BadKey("the JWKS has no key that can be used" + (f" ({skipped[0]})" if skipped else ""))
    return KeySet(tuple(keys), tuple(skipped))


def key_set_of_pem(pem: bytes) -> KeySet:
    for kind in (RSAKey, ECKey, OKPKey):
        try:
            key = _quietly(kind, pem)
        except Exception:  # noqa: BLE001, S112  joserfc and cryptography raise many types for a key of another kind
            continue
        if key.is_private:
            raise BadKey("this is a private key; the server needs the public one (openssl pkey -pubout)")
        return KeySet((_checked(key, None, None),))
    raise BadKey("this is not a public key in PEM format (-----BEGIN PUBLIC KEY-----)")


def key_set_of_secret(secret: str) -> KeySet:
    if len(secret.encode()) < MIN_SECRET:
        raise BadKey(f"the secret must have at least {MIN_SECRET} bytes (openssl rand -hex 32)")
    return KeySet((VerifyingKey(None, SHARED, _quietly(OctKey, secret.encode()), "secret"),))


def _imported(jwk: Any) -> VerifyingKey:
    if not isinstance(jwk, Mapping):
        raise BadKey("not an object")
    kinds: dict[Any, type[RSAKey | ECKey | OKPKey]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
    kind = kinds.get(jwk.get("kty")) if isinstance(jwk.get("kty"), str) else None
    if kind is None:
        raise BadKey("its kty is not RSA, EC or OKP")
    if _PRIVATE_MEMBERS & jwk.keys():
        raise BadKey("it has private members")
    if jwk.get("use", "sig") != "sig":
        raise BadKey("its use is not sig")
    operations = jwk.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        raise BadKey("its key_ops do not include verify")
    kid, algorithm = jwk.get("kid"), jwk.get("alg")
    if kid is not None and not (isinstance(kid, str) and len(kid) <= MAX_KID):
        raise BadKey("its kid is not a short string")
    if algorithm is not None and not isinstance(algorithm, str):
        raise BadKey("its alg is not a string")
    wanted = {name: jwk[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in jwk}
    try:
        key = _quietly(kind, wanted)
    except Exception as error:  # joserfc raises various types: KeyError, binascii.Error, …
        raise BadKey("it cannot be read") from error
    return _checked(key, kid, algorithm)


def _checked(key: Key, kid: str | None, algorithm: str | None) -> VerifyingKey:
    possible = _algorithms_of(key)
    if algorithm is not None:
        possible &= EDWARDS if algorithm in EDWARDS else {algorithm}
    if not possible:
        raise BadKey("its alg does not match its key type")
    return VerifyingKey(kid, possible, key, key.thumbprint())


def _algorithms_of(key: Key) -> frozenset[str]:
    if isinstance(key, RSAKey):
        bits = key.raw_value.key_size
        if not MIN_RSA_BITS <= bits <= MAX_RSA_BITS:
            raise BadKey(f"it has {bits} bits; RSA keys need {MIN_RSA_BITS:,} or more")
        return RSA
    if isinstance(key, ECKey):
        return frozenset({_CURVES[key.curve_name]}) if key.curve_name in _CURVES else frozenset()
    if isinstance(key, OKPKey):
        return EDWARDS if key.curve_name == "Ed25519" else frozenset()
    return SHARED


def _quietly(kind: type[Key], data: Any) -> Key:
    """Imports a key without joserfc's warnings: we refuse such keys anyway."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)
        return kind.import_key(data)


def one_family(algorithms: Iterable[str]) -> bool:
    """Returns whether all algorithms use the same kind of key. Mixed families invite key confusion."""
    wanted = set(algorithms)
    return any(wanted <= family for family in FAMILIES)


class NotStrict(ValueError):
    """The text is not JSON, or it is ambiguous."""


def decode_segment(text: str) -> bytes:
    """Decodes one part of a token: base64url without padding, and with the unused bits of its last character zero.

    Otherwise several texts would stand for one signature, and a changed token could still be valid.
    """
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise NotStrict("not base64url") from error
    if base64.urlsafe_b64encode(data).rstrip(b"=") != text.encode():
        raise NotStrict("not the canonical base64url form")
    return data


def object_of(data: bytes) -> dict[str, Any]:
    """Parses the JSON of a token strictly, so that no other parser can understand it differently.

    It refuses duplicate names, NaN, infinite numbers and text that is not UTF-8.
    """
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_without_repetition, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise NotStrict("not a JSON object") from error
    if not isinstance(value, dict):
        raise NotStrict("not a JSON object")
    return value


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotStrict("a name occurs twice")
    return found


def _no_constant(name: str) -> Any:
    raise NotStrict(f"{name} is not JSON")
