import json

import pytest

from holodeck.access.jwk import BadKey, key_set_of, key_set_of_pem, key_set_of_secret, one_family
from tests.access.signing import ec_key, ed_key, jwk, jwks, pem, rsa_key


def test_good_keys_survive_their_strange_neighbours():
    """A36: joserfc drops the whole set for an unknown curve or a broken modulus."""
    strange = [
        7,
        None,
        {},
        {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA", "kid": "curve"},
        {"kty": "RSA", "n": "!!!", "e": "AQAB", "kid": "modulus"},
        {"kty": "RSA", "kid": "empty"},
        {"kty": ["RSA"]},
        {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "shared"},
        jwk(kid="private", d="AAAA"),
        jwk(kid="encryption", use="enc"),
        jwk(kid="signing only", key_ops=["sign"]),
        jwk(rsa_key("small", 1024), kid="small"),
        jwk(kid=7),
        jwk(kid="x" * 300),
        jwk(kid="wrong alg", alg="ES256"),
        jwk(ed_key(), kid="448", crv="Ed448"),
    ]
    good = [
        jwk(kid="a", alg="RS256", use="sig", x5c=["junk"]),
        jwk(ec_key(), kid="b"),
        jwk(ed_key(), kid="c", alg="EdDSA"),
    ]
    found = key_set_of(jwks(*strange, *good))
    assert [key.kid for key in found.keys] == ["a", "b", "c"]
    assert len(found.skipped) == len(strange)
    assert [sorted(key.algorithms) for key in found.keys] == [["RS256"], ["ES256"], ["Ed25519", "EdDSA"]]


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys":[{"kty":"oct"}]}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_documents_without_keys(document):
    with pytest.raises(BadKey):
        key_set_of(document)


def test_only_the_first_64_keys_are_imported():
    many = jwks(*(jwk(kid=str(number)) for number in range(100)))
    found = key_set_of(many)
    assert len(found.keys) == 64
    assert "36 keys" in found.skipped[-1]


def test_a_public_key_in_pem_form():
    assert key_set_of_pem(pem()).keys[0].algorithms >= {"RS256", "PS512"}
    assert key_set_of_pem(pem(ec_key())).keys[0].algorithms == {"ES256"}
    assert key_set_of_pem(pem(ed_key())).keys[0].algorithms == {"Ed25519", "EdDSA"}


def test_pem_files_that_are_refused():
    from cryptography.hazmat.primitives import serialization as s

    private = rsa_key().private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    for bad, words in ((private, "private"), (b"junk", "PEM"), (pem(rsa_key("small", 1024)), "1024 bits")):
        with pytest.raises(BadKey, match=words):
            key_set_of_pem(bad)


def test_a_short_secret_is_refused():
    with pytest.raises(BadKey, match="32 bytes"):
        key_set_of_secret("s" * 31)


@pytest.mark.parametrize(
    ("algorithms", "one"),
    [
        (["RS256"], True),
        (["RS256", "PS512"], True),
        (["HS256", "HS512"], True),
        (["Ed25519", "EdDSA"], True),
        (["RS256", "HS256"], False),
        (["ES256", "RS256"], False),
        (["none"], False),
    ],
)
def test_families(algorithms, one):
    assert one_family(algorithms) is one


def test_a_kid_chooses_and_without_one_there_must_be_one_key():
    several = key_set_of(jwks(jwk(kid="a"), jwk(ec_key(), kid="b")))
    assert [key.kid for key in several.candidates("a", "RS256")] == ["a"]
    assert several.candidates("a", "ES256") == []
    assert several.candidates(None, "RS256") == []
    assert several.candidates("c", "RS256") == []
    unnamed = key_set_of(jwks(jwk(kid=None)))
    assert len(unnamed.candidates("anything", "RS256")) == 1
    assert json.dumps(sorted(several.thumbprints)) != json.dumps(sorted(unnamed.thumbprints))
