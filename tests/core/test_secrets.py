"""Known secrets and what looks like one, in logs and in the words of strangers."""

import base64
import json
import time
from urllib.parse import quote

import pytest

from holodeck.core.secrets import MASK, Redactor


@pytest.mark.req("T28")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sk-abcdefghijklmnopqrstuvwx", "***"),
        ("key AIzaSyA1234567890abcdefghijklmnop end", "key *** end"),
        ("of the page hdp_WyJhYmMiLDEyMzRd.q1-_abcdefghijklmnop end", "of the page *** end"),
        ("xhdk_7Q2M9KXD_abcdefghijklmnopqrstuvwxyz0123456789", "x***"),
        (f"/sessions/{base64.b64encode(b'hdk_7Q2M9KXD_' + b'a' * 49).decode()}", "/sessions/***"),
        ("Authorization: Bearer abc.def.ghi", "Authorization: Bearer ***"),
        ('{"api_key": "abc123", "a": 1}', '{"api_key": "***", "a": 1}'),
        ("password=hunter2&x=1", "password=***&x=1"),
        ('"text": "{\\"password\\": \\"hunter2\\"}"', '"text": "{\\"password\\": \\"***\\"}"'),
        ('{"APIKEY": null, "cookie": 1, "note": "secret="}', '{"APIKEY": null, "cookie": 1, "note": "secret="}'),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123", "***"),
        ("the secret of life", "the secret of life"),
        ("task-abcdefghijklmnop", "task-abcdefghijklmnop"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text, shown):
    assert Redactor()(text) == shown


def test_short_values_are_no_secrets():
    assert Redactor(["demo", ""])("a demo of it") == "a demo of it"


@pytest.mark.parametrize(
    "text",
    ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "/srv/agents/todo-assistant/tools/conversion/units.py"],
)
def test_only_the_wary_mask_whatever_is_long(text):
    assert Redactor()(text) == text
    assert MASK in Redactor(wary=True)(text)


def test_half_a_character_in_a_secret_is_no_failure():
    assert Redactor(["secret\ud800value"])("a secret\ud800value") == "a ***"


SECRET = "correct/horse+battery=staple"


@pytest.mark.req("T28")
@pytest.mark.parametrize(
    "text",
    [
        f"key {SECRET}!",
        f"key {base64.b64encode(SECRET.encode()).decode()}",
        f"key {quote(SECRET, safe='')}",
        "Authorization: Bearer abc.def",
        "sk-proj-abcdefgh12345678",
        "Incorrect API key provided: sk-abc***************wxyz",
        "AIzaSyA1234567890abcdefghijklmnop",
        "gsk_abcdefgh12345678",
        "password: abcdef",
        "Authorization: Basic abc",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
        "token 0123456789abcdef0123456789abcdef01234567",
    ],
)
def test_text_from_outside_is_masked_more_widely(text):
    masked = Redactor([SECRET, None, ""], wary=True)(text)
    assert MASK in masked
    assert not any(word in masked for word in ("horse", "abc", "AIza", "0123", "Y29ycmVjdC9o"))


@pytest.mark.parametrize(
    "text", ["The model `gpt-4o` does not exist", "maximum context length is 8192 tokens", "a x none"]
)
def test_ordinary_words_stay(text):
    assert Redactor(["x", "none"], wary=True)(text) == text


def part_of(text, **more):
    return base64.urlsafe_b64encode(json.dumps({**more, "x": text}).encode()).decode().rstrip("=")


@pytest.mark.req("T28")
@pytest.mark.parametrize("header", [1, 400, 600, 50_000])
@pytest.mark.parametrize("payload", [1, 20_000])
@pytest.mark.parametrize("before", ["", "got ", "t=", '{"token":"', "a.b ", "("])
def test_a_json_web_token_of_any_length_is_masked(header, payload, before):
    """A chain of certificates (`x5c`) makes a header of many kilobytes."""
    token = f"{part_of('h' * header, alg='RS256')}.{part_of('p' * payload)}.c2lnbmF0dXJl"
    assert Redactor()(f"{before}{token} was refused") == f"{before}{MASK} was refused"


def test_a_json_web_token_after_a_hyphen_is_masked():
    assert Redactor()(f"a-{part_of('h', alg='HS256')}.{part_of('p')}.c2ln") == f"a-{MASK}"


@pytest.mark.req("T28")
@pytest.mark.parametrize("unit", ["eyJaaaaaaaaa.", "eyJaaaaaaaaa ", "-eyJaaaaaaaaa", "authorization_", "password=", "password = ", "eyJ-", "bearer ", "cookie", "secret"])  # fmt: skip
def test_a_text_of_beginnings_is_masked_in_one_pass(unit):
    """60 kB of the word "secret" took 45 s."""
    begun = time.monotonic()
    Redactor()("password=" + unit * (200_000 // len(unit)))
    Redactor(wary=True)("password=" + unit * (50_000 // len(unit)))
    assert time.monotonic() - begun < 30
