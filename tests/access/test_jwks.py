"""Keys of a real issuer process: rotation, slowness, nonsense, absence."""

import asyncio
import os
import time
from functools import partial

import pytest

from holodeck.access.issuer import Issuer
from holodeck.access.jwks import FileKeys, RemoteKeys, Times, is_safe_url
from holodeck.access.principal import Defaults, Principal
from holodeck.access.private_file import NotPrivate
from holodeck.access.tokens import Tokens, TrustedIssuer
from tests.access.issuer import running
from tests.access.signing import AUDIENCE, claims, header, jwk, jwks, pem, rsa_key, token

QUICK = Times(refresh=0.2, retry=0.1, retry_without_keys=0.1, ask_again=3600.0, fetch=20.0)
STILL = Times(refresh=3600.0, retry=3600.0, retry_without_keys=3600.0, fetch=20.0)


@pytest.fixture(scope="module")
def process():
    with running() as made:
        yield made


@pytest.fixture
def issuer(process):
    process.serve(jwks())
    process.behave("well")
    process.claim(issuer="", jwks_uri="")
    return process


@pytest.fixture
async def started():
    made = []

    async def start(source):
        made.append(source)
        await source.start()
        return source

    yield start
    for source in made:
        await source.close()


async def eventually(condition):
    async with asyncio.timeout(40):
        while not condition():
            await asyncio.sleep(0.02)


def tokens(source, issuer):
    one = TrustedIssuer(Issuer(issuer=issuer.url, audience=AUDIENCE), source)
    return Tokens([one], Defaults("default", frozenset()))


def fresh(issuer, kid="main", key=None, **more):
    now = int(time.time())
    return token(claims(iss=issuer.url, iat=now, exp=now + 600, **more), header(kid=kid), key=key)


async def test_keys_at_a_url(issuer, started):
    source = await started(RemoteKeys(issuer.url, issuer.certs, times=STILL))
    assert isinstance(await tokens(source, issuer).check(fresh(issuer)), Principal)
    assert source.age < 60


async def test_keys_by_discovery(issuer, started):
    source = await started(RemoteKeys(issuer.url, times=STILL))
    assert isinstance(await tokens(source, issuer).check(fresh(issuer)), Principal)


@pytest.mark.parametrize("claim", [{"issuer": "https://evil.example"}, {"jwks_uri": "http://evil.example/certs"}])
async def test_a_discovery_document_that_is_not_believed(issuer, started, claim):
    issuer.claim(**claim)
    source = await started(RemoteKeys(issuer.url, times=STILL))
    assert source.current is None


async def test_a_redirect_within_the_origin_is_followed(issuer, started):
    issuer.behave("redirect-here")
    source = await started(RemoteKeys(issuer.url, issuer.certs, times=STILL))
    assert source.current is not None


@pytest.mark.parametrize("behaviour", ["huge", "html", "error", "redirect-away", "hangs-up"])
async def test_bad_answers_leave_the_old_keys(issuer, started, behaviour, caplog):
    """A36."""
    caplog.set_level("INFO")
    source = await started(RemoteKeys(issuer.url, issuer.certs, times=QUICK))
    before = source.current
    issuer.behave(behaviour)
    asked = issuer.fetches
    await eventually(lambda: issuer.fetches > asked + 2)
    assert source.current is before
    issuer.behave("well")
    issuer.serve(jwks(jwk(kid="next")))
    await eventually(lambda: source.current.keys[0].kid == "next")
    lines = [record.message for record in caplog.records]
    assert {"jwks_refreshed", "jwks_failed"} <= set(lines)


async def test_a_slow_issuer_is_given_up_after_a_while(issuer, started):
    """A36: the document would take more than a minute."""
    issuer.behave("slow")
    source = await started(RemoteKeys(issuer.url, issuer.certs, times=Times(fetch=0.5, retry_without_keys=3600)))
    assert source.current is None


async def test_rotation_loses_no_request(issuer, started):
    """A37: the new key is fetched when it is first met, and its token waits for that."""
    source = await started(RemoteKeys(issuer.url, issuer.certs, times=STILL))
    checker = tokens(source, issuer)
    old, new = fresh(issuer), partial(fresh, issuer, "next", rsa_key("next"))
    assert isinstance(await checker.check(old), Principal)
    issuer.serve(jwks(jwk(), jwk(rsa_key("next"), kid="next")))
    asked = issuer.fetches
    found = await asyncio.gather(*(checker.check(new(sub=f"user{number}")) for number in range(50)), checker.check(old))
    assert all(isinstance(each, Principal) for each in found)
    assert issuer.fetches == asked + 1


@pytest.mark.parametrize("named", [..., "next"])
async def test_rotation_of_a_key_without_a_name_loses_no_request(issuer, started, named):
    """The set names no key, so a bad signature is the first sign of a new one. Fetches are limited as for unknown names."""
    issuer.serve(jwks(jwk(kid=None)))
    source = await started(RemoteKeys(issuer.url, issuer.certs, times=STILL))
    checker = tokens(source, issuer)
    assert isinstance(await checker.check(fresh(issuer, named)), Principal)
    issuer.serve(jwks(jwk(rsa_key("next"), kid=None)))
    asked = issuer.fetches
    assert isinstance(await checker.check(fresh(issuer, named, rsa_key("next"))), Principal)
    for number in range(20):
        assert not isinstance(await checker.check(fresh(issuer, named, rsa_key("other"), sub=f"u{number}")), Principal)
    assert issuer.fetches == asked + 1


async def test_a_token_that_came_before_its_key_is_checked_again(issuer, started):
    issuer.serve(jwks(jwk(kid=None)))
    source = await started(RemoteKeys(issuer.url, issuer.certs, times=STILL))
    checker, new = tokens(source, issuer), fresh(issuer, ..., rsa_key("next"))
    assert not isinstance(await checker.check(new), Principal)  # the one early fetch of the next 30 seconds
    issuer.serve(jwks(jwk(rsa_key("next"), kid=None)))
    await asyncio.shield(source._fetch())
    assert isinstance(await checker.check(new), Principal)


async def test_a_key_that_left_ends_its_tokens(issuer, started):
    """A33, A37."""
    source = await started(RemoteKeys(issuer.url, issuer.certs, times=QUICK))
    checker, old = tokens(source, issuer), fresh(issuer)
    assert isinstance(await checker.check(old), Principal)
    issuer.serve(jwks(jwk(rsa_key("next"), kid="next")))
    await eventually(lambda: source.current.keys[0].kid == "next")
    assert not isinstance(await checker.check(old), Principal)


async def test_unknown_key_ids_cause_one_fetch(issuer, started):
    """A38: at most one in 30 seconds, and nothing that is there is lost."""
    source = await started(RemoteKeys(issuer.url, issuer.certs, times=STILL))
    checker, good = tokens(source, issuer), fresh(issuer)
    asked = issuer.fetches
    for number in range(200):
        assert not isinstance(await checker.check(fresh(issuer, f"random{number}", rsa_key("other"))), Principal)
    assert issuer.fetches == asked + 1
    assert isinstance(await checker.check(good), Principal)


async def test_an_issuer_that_comes_up_later(issuer, started):
    """A35: requests get 503 meanwhile, and it recovers by itself."""
    issuer.behave("hangs-up")
    source = await started(RemoteKeys(issuer.url, issuer.certs, times=QUICK))
    assert source.current is None
    assert (await tokens(source, issuer).check(fresh(issuer))).kind == "unavailable"
    issuer.behave("well")
    await eventually(lambda: source.current is not None)
    assert isinstance(await tokens(source, issuer).check(fresh(issuer)), Principal)


async def test_a_restart_without_the_issuer(started, tmp_path):
    """A35, with a cache on disk."""
    cache = tmp_path / "cache" / "jwks.json"
    with running() as issuer:
        issuer.serve(jwks())
        await started(RemoteKeys(issuer.url, issuer.certs, cache=cache, times=STILL))
    assert cache.stat().st_mode & 0o777 == 0o600
    source = await started(RemoteKeys(issuer.url, issuer.certs, cache=cache, times=STILL))
    assert isinstance(await tokens(source, issuer).check(fresh(issuer)), Principal)
    other = RemoteKeys(issuer.url, issuer.url + "/other", cache=cache)
    assert other.current is None
    old = RemoteKeys(issuer.url, issuer.certs, cache=cache, clock=lambda: time.time() + 86_401)
    assert old.current is None
    early = RemoteKeys(issuer.url, issuer.certs, cache=cache, clock=lambda: time.time() - 3600)
    assert early.current is None


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"url": 1}', b"\xff", b"null"])
def test_a_broken_cache_is_no_cache(tmp_path, content):
    cache = tmp_path / "jwks.json"
    cache.write_bytes(content)
    cache.chmod(0o600)
    assert RemoteKeys("https://id.example.com", "https://id.example.com/certs", cache=cache).current is None


def test_a_cache_that_others_may_read_is_refused(tmp_path):
    cache = tmp_path / "jwks.json"
    cache.write_bytes(b"{}")
    cache.chmod(0o644)
    with pytest.raises(NotPrivate, match="chmod 600"):
        RemoteKeys("https://id.example.com", "https://id.example.com/certs", cache=cache)


async def test_a_file_is_read_again_when_it_changes(tmp_path):
    file = tmp_path / "jwks.json"
    file.write_bytes(jwks())
    source = FileKeys(file, pem=False)
    assert source.current.keys[0].kid == "main"
    _replace(file, jwks(jwk(kid="next")))
    await source.refresh()
    assert source.current.keys[0].kid == "next"
    _replace(file, b"nonsense")
    await source.refresh()
    assert source.current.keys[0].kid == "next"
    file.unlink()
    await source.refresh()
    assert source.current.keys[0].kid == "next"


def test_a_pem_file(tmp_path):
    file = tmp_path / "public.pem"
    file.write_bytes(pem())
    assert FileKeys(file, pem=True).current.keys[0].kid is None


def _replace(file, data):
    fresh_file = file.with_name("fresh")
    fresh_file.write_bytes(data)
    os.utime(fresh_file, ns=(1, 1))
    fresh_file.rename(file)


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://id.example.com/x", True),
        ("http://127.0.0.1:5/x", True),
        ("http://localhost/x", True),
        ("http://id.example.com/x", False),
        ("http://127.0.0.1.evil.example/x", False),
        ("https://user:pw@id.example.com/x", False),
        ("file:///etc/passwd", False),
        ("", False),
    ],
)
def test_urls_that_keys_may_come_from(url, safe):
    assert is_safe_url(url) is safe
