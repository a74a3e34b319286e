import asyncio
import ipaddress

import pytest

from holodeck.access.api_key import new_key
from holodeck.access.attempts import Attempts, network_of
from holodeck.access.authenticator import Authenticator
from holodeck.access.failure import Failure
from holodeck.access.hook import Hook
from holodeck.access.key_ring import KeyRing
from holodeck.access.principal import ANONYMOUS_PRINCIPAL, Defaults, Principal, RequestHead
from holodeck.access.proxy import ProxySettings, TrustedProxy
from holodeck.access.tokens import Tokens
from tests.access.signing import NOW, claims, rsa_key, token
from tests.access.test_tokens import issuer

KEY = "k" * 40
SECRET = "s" * 32
DEFAULTS = Defaults("default", frozenset({"chat"}))
NETWORKS = (ipaddress.ip_network("10.0.0.0/24"), ipaddress.ip_network("fd00::/64"))


def keys():
    return KeyRing(path=None, environment_key=KEY, defaults=DEFAULTS)


def tokens():
    return Tokens([issuer()], DEFAULTS, clock=lambda: NOW)


def proxy(**more):
    made = {"networks": NETWORKS, "secret": SECRET, "tenant_header": b"x-tenant", "scopes_header": b"x-scopes"}
    return TrustedProxy(ProxySettings(**{**made, "address_header": b"x-forwarded-for", **more}), DEFAULTS)


def head(*headers, query=b"", address="192.0.2.1"):
    return RequestHead([(name.encode(), value.encode("latin-1")) for name, value in headers], query, address)


def bearer(credential):
    return head(("authorization", f"Bearer {credential}"))


async def test_without_modes_every_request_is_anonymous():
    assert await Authenticator().identify(bearer("nonsense")) is ANONYMOUS_PRINCIPAL


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ([], "missing"),
        ([("authorization", f"Bearer {KEY}")], None),
        ([("authorization", f"bearer {KEY}")], None),
        ([("authorization", f"BEARER   {KEY}")], None),
        ([("x-api-key", KEY)], None),
        ([("authorization", f"Bearer\t{KEY}")], "invalid"),
        ([("authorization", "Bearer")], "invalid"),
        ([("authorization", "Bearer ")], "invalid"),
        ([("authorization", f"Basic {KEY}")], "invalid"),
        ([("authorization", KEY)], "invalid"),
        ([("authorization", f"Bearer {KEY}x")], "invalid"),
        ([("authorization", f"Bearer {KEY} {KEY}")], "invalid"),
        ([("authorization", "Bearer \xff\xfe")], "invalid"),
        ([("authorization", f"Bearer {KEY}, Bearer {KEY}")], "two-credentials"),
        ([("authorization", f"Bearer {KEY}"), ("authorization", f"Bearer {KEY}")], "two-credentials"),
        ([("authorization", f"Bearer {KEY}"), ("x-api-key", KEY)], "two-credentials"),
        ([("x-api-key", KEY), ("x-api-key", KEY)], "two-credentials"),
        ([("x-api-key", "")], "invalid"),
        ([("cookie", f"authorization=Bearer {KEY}")], "missing"),
    ],
)
async def test_forms_of_credentials(headers, kind):
    """A11, A12."""
    found = await Authenticator(keys=keys()).identify(head(*headers))
    assert (found.kind if isinstance(found, Failure) else None) == kind


@pytest.mark.parametrize("query", ["api_key=x", "key=x", "token=x", "a=1&access_token=x", "API_KEY=x", "token"])
async def test_a_credential_in_the_url_is_refused(query):
    """A12: also beside a good one, and its value is not repeated."""
    found = await Authenticator(keys=keys()).identify(
        head(("authorization", f"Bearer {KEY}"), query=query.replace("=x", f"={KEY}").encode())
    )
    assert found.kind == "two-credentials"
    assert KEY not in repr(found)


@pytest.mark.parametrize("query", ["from=3", "keyword=x", "tokens=5", "x=token"])
async def test_other_queries_pass(query):
    assert isinstance(
        await Authenticator(keys=keys()).identify(head(("x-api-key", KEY), query=query.encode())), Principal
    )


async def test_the_form_decides_and_nothing_else_is_tried():
    both = Authenticator(keys=keys(), tokens=tokens())
    assert (await both.identify(bearer(KEY))).via == "api_key"
    assert (await both.identify(bearer(token()))).via == "jwt"
    assert (await both.identify(bearer(token()[:-4] + "AAAA"))).message == "This token is not valid."
    assert (await both.identify(bearer(new_key()))).message == "This key is not valid."
    assert isinstance(await Authenticator(keys=keys()).identify(bearer(token())), Failure)
    assert isinstance(await Authenticator(tokens=tokens()).identify(bearer(KEY)), Failure)


GOOD_PROXY = (("x-holodeck-proxy", SECRET), ("x-auth-request-user", "ann"), ("x-tenant", "acme"), ("x-scopes", "chat"))


def replaced(name, *values):
    return [pair for pair in GOOD_PROXY if pair[0] != name] + [(name, value) for value in values]


async def test_a_proxy_makes_the_principal():
    found = await Authenticator(proxy=proxy()).identify(head(*GOOD_PROXY, address="10.0.0.7"))
    assert found == Principal(tenant="acme", user="ann", scopes=frozenset({"chat"}), via="proxy", credential_id="proxy")
    assert isinstance(await Authenticator(proxy=proxy()).identify(head(*GOOD_PROXY, address="fd00::7")), Principal)
    assert isinstance(
        await Authenticator(proxy=proxy()).identify(head(*GOOD_PROXY, address="::ffff:10.0.0.7")), Principal
    )


@pytest.mark.parametrize(
    ("headers", "address", "kind"),
    [
        (GOOD_PROXY, "192.0.2.1", "invalid"),
        (GOOD_PROXY, None, "invalid"),
        (replaced("x-holodeck-proxy"), "10.0.0.7", "invalid"),
        (replaced("x-holodeck-proxy", "wrong"), "10.0.0.7", "invalid"),
        (replaced("x-holodeck-proxy", SECRET, SECRET), "10.0.0.7", "invalid"),
        (replaced("x-auth-request-user"), "10.0.0.7", "invalid"),
        (replaced("x-auth-request-user", "ann", "bob"), "10.0.0.7", "invalid"),
        (replaced("x-auth-request-user", ""), "10.0.0.7", "invalid"),
        (replaced("x-auth-request-user", "x" * 300), "10.0.0.7", "invalid"),
        (replaced("x-auth-request-user", "anonymous"), "10.0.0.7", "invalid"),
        (replaced("x-auth-request-user", "a\x01b"), "10.0.0.7", "invalid"),
        (replaced("x-auth-request-user", "\xff"), "10.0.0.7", "invalid"),
        (replaced("x-tenant"), "10.0.0.7", "invalid"),
        (replaced("x-tenant", "a", "b"), "10.0.0.7", "invalid"),
        (replaced("x-scopes"), "10.0.0.7", "invalid"),
        ((*GOOD_PROXY, ("x_auth_request_user", "root")), "10.0.0.7", "two-credentials"),
        ((("x-auth-request-user", "ann"),), "192.0.2.1", "invalid"),
        ((), "10.0.0.7", "missing"),
    ],
)
async def test_identity_headers_that_are_not_believed(headers, address, kind):
    """A60: never anonymous."""
    found = await Authenticator(proxy=proxy()).identify(head(*headers, address=address))
    assert found.kind == kind


async def test_a_proxy_cannot_grant_act_as():
    """It names the user already. `act-as` comes from key files and `grant` only."""
    sent = replaced("x-scopes", "chat act-as admin")
    found = await Authenticator(proxy=proxy()).identify(head(*sent, address="10.0.0.7"))
    assert found.scopes == {"chat", "admin"}


async def test_a_proxy_and_a_key_are_two_credentials():
    both = Authenticator(proxy=proxy(), keys=keys())
    found = await both.identify(head(*GOOD_PROXY, ("x-api-key", KEY), address="10.0.0.7"))
    assert found.kind == "two-credentials"
    assert (await both.identify(head(("x-api-key", KEY), address="10.0.0.7"))).via == "api_key"


async def test_a_unix_socket_needs_no_secret():
    unix = proxy(networks=(), unix=True, secret=None)
    assert isinstance(await Authenticator(proxy=unix).identify(head(*GOOD_PROXY[1:], address=None)), Principal)
    assert isinstance(await Authenticator(proxy=unix).identify(head(*GOOD_PROXY[1:], address="10.0.0.7")), Failure)


@pytest.mark.parametrize(
    ("forwarded", "address", "expected"),
    [
        (["198.51.100.7"], "10.0.0.7", "198.51.100.7"),
        (["1.1.1.1, 198.51.100.7"], "10.0.0.7", "198.51.100.7"),
        (["1.1.1.1, 198.51.100.7, 10.0.0.9"], "10.0.0.7", "198.51.100.7"),
        (["1.1.1.1", "198.51.100.7"], "10.0.0.7", "198.51.100.7"),
        (["198.51.100.7:4711"], "10.0.0.7", "198.51.100.7"),
        (["[2001:db8::1]:443"], "10.0.0.7", "2001:db8::1"),
        (["2001:db8::1"], "10.0.0.7", "2001:db8::1"),
        (["unknown"], "10.0.0.7", "10.0.0.7"),
        (["198.51.100.7, unknown"], "10.0.0.7", "10.0.0.7"),
        ([""], "10.0.0.7", "10.0.0.7"),
        ([], "10.0.0.7", "10.0.0.7"),
        ([", ".join(["10.0.0.8"] * 1000)], "10.0.0.7", "10.0.0.7"),
        (["198.51.100.7"], "192.0.2.1", "192.0.2.1"),
    ],
)
def test_the_address_in_front_of_a_proxy(forwarded, address, expected):
    """A61."""
    asked = head(*(("x-forwarded-for", value) for value in forwarded), address=address)
    assert Authenticator(proxy=proxy()).client_address(asked) == expected
    assert Authenticator(keys=keys()).client_address(asked) == address


async def test_a_hook_decides():
    async def who(headers, address):
        if headers.get("x-user") == "ann":
            return Principal(tenant="acme", user="ann", scopes=frozenset({"chat"}), via="jwt", credential_id=address)
        return None

    hooked = Authenticator(hook=Hook(who))
    found = await hooked.identify(head(("x-user", "ann")))
    assert (found.user, found.via, found.credential_id) == ("ann", "hook", "192.0.2.1")
    assert (await hooked.identify(head(("x-user", "bob")))).kind == "invalid"
    assert (await hooked.identify(head(("x-user", "ann"), ("x-user", "ann")))).kind == "invalid"
    assert (await hooked.identify(head())).kind == "invalid"
    beside = Authenticator(
        hook=Hook(who), keys=KeyRing(path=None, environment_key="hdk_" + "k" * 40, defaults=DEFAULTS)
    )
    assert (await beside.identify(bearer("hdk_" + "k" * 40))).via == "api_key"
    assert (await beside.identify(head(("authorization", "Bearer x"), ("x-user", "ann")))).via == "hook"


def returning(value):
    async def who(headers, address):
        return value

    return who


async def raising(headers, address):
    raise RuntimeError("the database is away")


async def sleeping(headers, address):
    await asyncio.Event().wait()


def principal(**more):
    return Principal(**{"tenant": "t", "user": "u", "scopes": frozenset({"chat"}), "via": "hook", **more})


@pytest.mark.parametrize(
    "who",
    [
        raising,
        sleeping,
        returning(True),
        returning("ann"),
        returning({"user": "ann"}),
        returning(principal(user="anonymous")),
        returning(principal(user=7)),
        returning(principal(tenant="")),
        returning(principal(scopes=frozenset({"everything"}))),
        returning(principal(scopes="admin")),
        returning(principal(expires="tomorrow")),
    ],
)
async def test_a_hook_that_fails_lets_no_one_in(who):
    found = await Authenticator(hook=Hook(who, seconds=0.05)).identify(head())
    assert (found.kind, found.retry_after) == ("unavailable", 5.0)
    assert "database" not in found.message


async def test_a_hook_that_fails_again_and_again_is_a_few_lines(caplog):
    asked = Authenticator(hook=Hook(raising))
    for _ in range(100):
        await asked.identify(head())
    assert [record.message for record in caplog.records] == ["auth_hook_failed"]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


async def test_guessing_is_limited_by_address_and_good_credentials_still_pass():
    """A13."""
    clock = Clock()
    guarded = Authenticator(keys=keys(), tokens=tokens(), attempts=Attempts(30, clock))
    known = token()
    assert isinstance(await guarded.identify(bearer(known)), Principal)
    kinds = [(await guarded.identify(bearer(new_key()))).kind for _ in range(100)]
    assert kinds == ["invalid"] * 30 + ["limited"] * 70
    assert isinstance(await guarded.identify(bearer(KEY)), Principal)
    assert isinstance(await guarded.identify(bearer(known)), Principal)
    refused = await guarded.identify(bearer(token(key=rsa_key("other"))))
    assert (refused.kind, refused.retry_after) == ("limited", 60.0)
    assert (await guarded.identify(head())).kind == "missing"
    clock.now = 61.0
    assert (await guarded.identify(bearer(new_key()))).kind == "invalid"


async def test_bad_tokens_do_not_lock_out_new_valid_ones_of_the_same_address():
    """Behind a proxy that is not configured, all clients have one address."""
    guarded = Authenticator(tokens=tokens(), attempts=Attempts(30, Clock()))
    kinds = [(await guarded.identify(bearer("a.b.c"))).kind for _ in range(31)]
    assert kinds == ["invalid"] * 30 + ["limited"]
    assert isinstance(await guarded.identify(bearer(token(claims(sub="bob")))), Principal)


def test_the_table_of_addresses_is_bounded():
    """A14."""
    attempts = Attempts(30)
    for number in range(20_000):
        attempts.failed(str(ipaddress.ip_address(number)))
    assert len(attempts._failures) == 10_000


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        (None, "unix"),
        ("testclient", "testclient"),
    ],
)
def test_what_counts_as_one_client(address, network):
    assert network_of(address) == network


async def test_revocation_is_passed_on(tmp_path):
    from holodeck.access.key_file import change_key_file

    file = tmp_path / "keys.json"
    key, _ = change_key_file(file, lambda keys: keys.add(name="x"))
    ended = []
    access = Authenticator(keys=KeyRing(path=file, environment_key=None, defaults=DEFAULTS))
    access.on_revoked = ended.append
    await access.start()
    change_key_file(file, lambda keys: keys.revoke(key.id))
    async with asyncio.timeout(30):
        while not ended:
            await asyncio.sleep(0.02)
    await access.close()
    assert ended == [frozenset({key.id})]


async def test_keys_are_refreshed_again_after_a_defect(monkeypatch, caplog):
    monkeypatch.setattr("holodeck.access.authenticator._REFRESH_SECONDS", 0)
    revoked, again = [frozenset({"one"}), frozenset({"two"})], asyncio.Event()

    class Ring:
        async def refresh(self):
            return revoked.pop(0) if revoked else frozenset()

    def on_revoked(ids):
        if ids == {"one"}:
            raise KeyError("a defect")
        again.set()

    authenticator = Authenticator(keys=Ring())
    authenticator.on_revoked = on_revoked
    await authenticator.start()
    await asyncio.wait_for(again.wait(), 30)
    await authenticator.close()
    assert "the keys could not be refreshed" in caplog.text
