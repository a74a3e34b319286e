"""Makes tokens, good and hostile ones. It signs with `cryptography` directly: no JWT library would write most of these."""

import base64
import hmac
import json
from functools import cache

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

ISSUER, AUDIENCE = "https://id.example.com/realms/corp", "holodeck"
NOW = 1_800_000_000


def b64(data: bytes | str) -> str:
    data = data.encode() if isinstance(data, str) else data
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@cache
def rsa_key(name="main", bits=2048):
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ec_key(name="main"):
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key(name="main"):
    return ed25519.Ed25519PrivateKey.generate()


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def jwk(key=None, kid="main", **more):
    key = key or rsa_key()
    public = key.public_key()
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = public.public_numbers()
        members = {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        numbers = public.public_numbers()
        members = {
            "kty": "EC", "crv": "P-256", "x": b64(numbers.x.to_bytes(32, "big")), "y": b64(numbers.y.to_bytes(32, "big")),
        }  # fmt: skip
    else:
        raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        members = {"kty": "OKP", "crv": "Ed25519", "x": b64(raw)}
    return {**members, **({"kid": kid} if kid else {}), **more}


def jwks(*keys) -> bytes:
    return json.dumps({"keys": list(keys) or [jwk()]}).encode()


def pem(key=None) -> bytes:
    return (
        (key or rsa_key())
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def der(key=None) -> bytes:
    return (
        (key or rsa_key())
        .public_key()
        .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def claims(**more):
    made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": NOW - 10, "exp": NOW + 600, **more}
    return {name: value for name, value in made.items() if value is not ...}


def header(**more):
    made = {"alg": "RS256", "typ": "JWT", "kid": "main", **more}
    return {name: value for name, value in made.items() if value is not ...}


def signature(signed: bytes, alg: str, key) -> bytes:
    if isinstance(key, bytes):
        return hmac.new(key, signed, alg.replace("HS", "sha")).digest()
    if isinstance(key, rsa.RSAPrivateKey):
        digests: dict[str, hashes.HashAlgorithm]
        digests = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
        digest = digests[alg[2:]]
        if alg.startswith("PS"):
            return key.sign(signed, padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
        return key.sign(signed, padding.PKCS1v15(), digest)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = utils.decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return key.sign(signed)


def token(payload=None, head=None, *, key=None, sign_as=None) -> str:
    """`payload` and `head` may be raw text. `sign_as` signs with another algorithm than the header says."""
    head = header() if head is None else head
    payload = claims() if payload is None else payload
    alg = str(sign_as or (head.get("alg") if isinstance(head, dict) else "RS256"))
    first = b64(head if isinstance(head, str | bytes) else json.dumps(head))
    second = b64(payload if isinstance(payload, str | bytes) else json.dumps(payload))
    signed = f"{first}.{second}".encode()
    return f"{first}.{second}.{b64(signature(signed, alg, key or rsa_key()))}"


def unsigned(payload=None, head=None) -> str:
    return f"{b64(json.dumps(head or header(alg='none', kid=...)))}.{b64(json.dumps(payload or claims()))}."
