"""103 tokens, ten of them valid, for an issuer with one RSA key, RS256, and a leeway of 60 seconds.

Each row is made when it is asked for; `ACCEPTED` names the rows that have to be accepted. All others are refused.
"""

import json

from tests.access.signing import (
    AUDIENCE,
    ISSUER,
    NOW,
    b64,
    claims,
    der,
    ec_key,
    ed_key,
    header,
    jwk,
    pem,
    rsa_key,
    token,
    unsigned,
)

YEAR = 365 * 86_400


def _good():
    return {
        "valid": token,
        "valid, long lifetime": lambda: token(claims(exp=NOW - 10 + 86_400)),
        "valid, access token type": lambda: token(head=header(typ="application/AT+JWT")),
        "list of audiences": lambda: token(claims(aud=["other", AUDIENCE])),
        "exp as a float": lambda: token(claims(exp=NOW + 600.5)),
        "expired 30 s ago, within the leeway": lambda: token(claims(exp=NOW - 30)),
        "no kid, one key": lambda: token(head=header(kid=...)),
        "jku is ignored": lambda: token(head=header(jku="https://evil.example/jwks")),
        "x5u is ignored": lambda: token(head=header(x5u="https://evil.example/cert")),
        "x5c is ignored": lambda: token(head=header(x5c=["AAAA"])),
    }


def _algorithms():
    public = rsa_key().public_key().public_numbers()
    as_secret = {
        "PEM": pem(),
        "DER": der(),
        "modulus": public.n.to_bytes(256, "big"),
        "JWK text": json.dumps(jwk()).encode(),
    }
    return {
        "alg none": unsigned,
        "alg None": lambda: unsigned(head=header(alg="None")),
        "alg nOnE with a signature": lambda: token(head=header(alg="nOnE"), sign_as="RS256"),
        "alg missing": lambda: token(head=header(alg=...), sign_as="RS256"),
        "alg null": lambda: token(head=header(alg=None), sign_as="RS256"),
        "alg list": lambda: token(head=header(alg=["RS256"]), sign_as="RS256"),
        "alg empty": lambda: token(head=header(alg=""), sign_as="RS256"),
        "alg rs256": lambda: token(head=header(alg="rs256"), sign_as="RS256"),
        "alg RS512, not in the list": lambda: token(head=header(alg="RS512")),
        "alg PS256, not in the list": lambda: token(head=header(alg="PS256")),
        "alg ES256 with a key of its own": lambda: token(head=header(alg="ES256"), key=ec_key()),
        "alg Ed25519 with a key of its own": lambda: token(head=header(alg="Ed25519"), key=ed_key()),
        "alg HS256, empty secret": lambda: token(head=header(alg="HS256"), key=b"\0" * 0 or bytes(1)),
        **{
            f"HS256 with our public key as {name}": lambda secret=secret: token(head=header(alg="HS256"), key=secret)
            for name, secret in as_secret.items()
        },
        "says RS256, signed RS512": lambda: token(head=header(), sign_as="RS512"),
    }


def _keys():
    return {
        "signed by another key": lambda: token(key=rsa_key("other")),
        "kid unknown": lambda: token(head=header(kid="other")),
        "kid unknown, other key": lambda: token(head=header(kid="other"), key=rsa_key("other")),
        "kid number": lambda: token(head=header(kid=1)),
        "kid null": lambda: token(head=header(kid=None)),
        "kid a path": lambda: token(head=header(kid="../../../../dev/null"), key=rsa_key("other")),
        "kid SQL": lambda: token(head=header(kid="x' UNION SELECT 'k"), key=rsa_key("other")),
        "kid NUL": lambda: token(head=header(kid="main\0")),
        "kid of 257 characters": lambda: token(head=header(kid="k" * 257)),
        "kid of 100 kB": lambda: token(head=header(kid="k" * 100_000)),
        "jwk of the attacker": lambda: token(head=header(jwk=jwk(rsa_key("other"))), key=rsa_key("other")),
        "jku of the attacker": lambda: token(head=header(jku="https://evil.example/j"), key=rsa_key("other")),
        "RSA with 1,024 bits": lambda: token(key=rsa_key("small", 1024)),
    }


def _headers():
    return {
        "crit unknown": lambda: token(head=header(crit=["x"], x=1)),
        "crit b64": lambda: token(head=header(crit=["b64"], b64=True)),
        "crit empty": lambda: token(head=header(crit=[])),
        "b64 false": lambda: token(head=header(b64=False)),
        "zip": lambda: token(head=header(zip="DEF")),
        "cty JWT": lambda: token(head=header(cty="JWT")),
        "typ logout+jwt": lambda: token(head=header(typ="logout+jwt")),
        "typ dpop+jwt": lambda: token(head=header(typ="dpop+jwt")),
        "typ number": lambda: token(head=header(typ=1)),
        "alg twice": lambda: token(head='{"alg":"none","alg":"RS256","kid":"main"}'),
        "header a list": lambda: token(head='["RS256"]'),
        "header no JSON": lambda: token(head="alg=RS256"),
        "header over 1 kB": lambda: token(head=header(x="y" * 1100)),
        "header not UTF-8": lambda: token(head=b'{"alg":"RS256","kid":"main","x":"\xff"}'),
    }


def _times():
    huge = json.dumps(claims()).replace(str(NOW + 600), "1e400")
    nan = json.dumps(claims()).replace(str(NOW + 600), "NaN")
    return {
        "exp missing": lambda: token(claims(exp=...)),
        "exp string": lambda: token(claims(exp=str(NOW + 600))),
        "exp bool": lambda: token(claims(exp=True)),
        "exp null": lambda: token(claims(exp=None)),
        "exp NaN": lambda: token(nan),
        "exp 1e400": lambda: token(huge),
        "exp 10^30": lambda: token(claims(exp=10**30)),
        "exp -1": lambda: token(claims(exp=-1)),
        "exp in ten years": lambda: token(claims(exp=NOW + 10 * YEAR)),
        "exp in ten years, no iat": lambda: token(claims(exp=NOW + 10 * YEAR, iat=...)),
        "expired 61 s ago": lambda: token(claims(exp=NOW - 61)),
        "nbf in the future": lambda: token(claims(nbf=NOW + 61)),
        "nbf string": lambda: token(claims(nbf=str(NOW))),
        "iat in the future": lambda: token(claims(iat=NOW + 61)),
        "iat string": lambda: token(claims(iat=str(NOW))),
    }


def _names():
    return {
        "aud wrong": lambda: token(claims(aud="other")),
        "aud prefix": lambda: token(claims(aud=AUDIENCE + "-2")),
        "aud other case": lambda: token(claims(aud=AUDIENCE.upper())),
        "aud dict": lambda: token(claims(aud={AUDIENCE: 1})),
        "aud empty list": lambda: token(claims(aud=[])),
        "aud missing": lambda: token(claims(aud=...)),
        "iss with a slash": lambda: token(claims(iss=ISSUER + "/")),
        "iss list": lambda: token(claims(iss=[ISSUER])),
        "iss missing": lambda: token(claims(iss=...)),
        "sub missing": lambda: token(claims(sub=...)),
        "sub empty": lambda: token(claims(sub="")),
        "sub a space": lambda: token(claims(sub=" ")),
        "sub number": lambda: token(claims(sub=7)),
        "sub dict": lambda: token(claims(sub={"a": 1})),
        "sub NUL": lambda: token(claims(sub="an\0n")),
        "sub newline": lambda: token(claims(sub="ann\nadmin")),
        "sub half a surrogate": lambda: token(json.dumps(claims()).replace('"ann"', '"\\ud800"')),
        "sub anonymous": lambda: token(claims(sub="anonymous")),
        "sub of a key": lambda: token(claims(sub="key:7Q2M9KXD")),
        "sub system": lambda: token(claims(sub="system:x")),
        "sub twice": lambda: token(json.dumps(claims())[:-1] + ',"sub":"bob"}'),
        "scope number": lambda: token(claims(scope=7)),
    }


def _forms():
    good = token()
    head, body, sign = good.split(".")
    jwe = b64(json.dumps({"alg": "RSA-OAEP", "enc": "A256GCM"}))
    return {
        "8,193 bytes": lambda: token(claims(x="y" * 8193)),
        "deep claims": lambda: token('{"x":' + "[" * 2500 + "]" * 2500 + "," + json.dumps(claims())[1:]),
        "two parts": lambda: f"{head}.{body}",
        "four parts": lambda: f"{good}.{sign}",
        "JWE to our key": lambda: f"{jwe}.AAAA.AAAA.AAAA.AAAA",
        "padding": lambda: good + "==",
        "a newline at the end": lambda: good + "\n",
        "not ASCII": lambda: f"{head}.{body}é.{sign}",
        "unused bits of the last character": lambda: good[:-1] + _sibling(good[-1]),
        "empty signature": lambda: f"{head}.{body}.",
        "claims are a list": lambda: token("[1]"),
    }


def _sibling(character: str) -> str:
    """Another character with the same two significant bits: the same signature to a careless decoder."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return alphabet[alphabet.index(character) ^ 1]


GOOD = _good()
TOKENS = {**GOOD, **_algorithms(), **_keys(), **_headers(), **_times(), **_names(), **_forms()}
ACCEPTED = frozenset(GOOD)
