"""Addresses of files: none are fetched unless a host is named, and then never from our own network."""

import asyncio
import contextlib
import itertools
import socket

import pytest
from aiohttp import web

from holodeck.errors import ConfigError, InvalidRequest, PayloadTooLarge, RequestError
from holodeck.files.fetch import AllowedHost, Fetcher, is_public, known_addresses
from holodeck.http.address import address_of

ADDRESSES = {
    "8.8.8.8": True,
    "2606:4700::1111": True,
    "64:ff9b::808:808": True,  # NAT64 of a public address
    "::ffff:8.8.8.8": True,
    "127.0.0.1": False,
    "0.0.0.0": False,
    "10.1.2.3": False,
    "172.16.0.1": False,
    "192.168.1.1": False,
    "100.64.0.1": False,
    "169.254.169.254": False,
    "192.0.2.1": False,
    "198.18.0.1": False,
    "224.0.0.1": False,
    "240.0.0.1": False,
    "255.255.255.255": False,
    "::": False,
    "::1": False,
    "::ffff:127.0.0.1": False,
    "::ffff:169.254.169.254": False,
    "::127.0.0.1": False,
    "64:ff9b::7f00:1": False,
    "64:ff9b::a9fe:a9fe": False,
    "64:ff9b:1::1": False,
    "2002:7f00:1::": False,
    "2002:a9fe:a9fe::": False,
    "2001:0:7f00:1::": False,
    "2001:db8::1": False,
    "fe80::1": False,
    "fe80::1%eth0": False,
    "fc00::1": False,
    "fec0::1": False,
    "ff02::1": False,
    "100::1": False,
    "5f00::1": False,
    "": False,
    "localhost": False,
    "127.1": False,
    "0x7f000001": False,
}


@pytest.mark.req("T14")
@pytest.mark.parametrize("address", ADDRESSES)
def test_which_addresses_are_public(address):
    assert is_public(address) is ADDRESSES[address]


class Site:
    """A host with files, on loopback; the names below lead to it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.host.partition(':')[0]}{request.path_qs}")
        return await getattr(self, f"_{request.path.strip('/')}")(request)

    async def _file(self, _request: web.Request) -> web.Response:
        return web.Response(body=b"hello", content_type="text/plain")

    async def _hop(self, request: web.Request) -> web.Response:
        left = int(request.query["left"])
        target = f"/hop?left={left - 1}" if left else "/file"
        return web.Response(status=302, headers={"Location": target})

    async def _to(self, request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": request.query["url"]})

    async def _moved(self, request: web.Request) -> web.StreamResponse:
        """As many a server writes it: in UTF-8, as it is."""
        request.transport.write(b"HTTP/1.1 302 Found\r\nLocation: /a?x=\xc3\xbc\r\nContent-Length: 0\r\n\r\n")
        return await self._silent(request)

    async def _a(self, _request: web.Request) -> web.Response:
        return web.Response(body=b"umlaut")

    async def _big(self, _request: web.Request) -> web.Response:
        return web.Response(body=b"x" * 2_000)

    async def _drip(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 500)
            await asyncio.sleep(0)

    async def _silent(self, _request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def _packed(self, _request: web.Request) -> web.Response:
        return web.Response(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})


@pytest.fixture
async def site():
    served = Site()
    app = web.Application()
    app.router.add_get("/{name}", served.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    tcp = web.TCPSite(runner, "127.0.0.1", 0)
    await tcp.start()
    served.port = runner.addresses[0][1]
    yield served
    await runner.cleanup()


def fetcher(site: Site, names: dict[str, list[str]] | None = None, **settings) -> Fetcher:
    """A fetcher for which 127.0.0.1 is the internet, so that other addresses are what must not be asked."""
    known = names or {"files.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]}

    async def resolve(host: str) -> list[str]:
        return known[host]

    hosts = [f"http://{name}:{site.port}" for name in known]
    defaults = {
        "max_bytes": 1_000,
        "seconds": 5.0,
        "permit": lambda address: address == "127.0.0.1",
        "resolve": resolve,
    }
    return Fetcher(hosts, **{**defaults, **settings})


async def test_a_file_is_fetched_from_a_host_that_is_named(site):
    fetched = await fetcher(site).fetch(f"http://files.test:{site.port}/file", field="f")
    assert fetched.data == b"hello"
    assert (fetched.declared_type or "").startswith("text/plain")
    assert site.asked == ["files.test/file"]


async def test_a_redirect_may_hold_any_letters(site):
    assert (await fetcher(site).fetch(f"http://files.test:{site.port}/moved", field="f")).data == b"umlaut"
    assert site.asked == ["files.test/moved", "files.test/a?x=%C3%BC"]


@pytest.mark.req("T14")
@pytest.mark.parametrize(("redirects", "arrives"), [(0, True), (2, True), (3, False), (50, False)])
async def test_a_few_redirects_are_followed(site, redirects, arrives):
    url = f"http://files.test:{site.port}/hop?left={redirects}"
    if arrives:
        assert (await fetcher(site).fetch(url, field="f")).data == b"hello"
        return
    with pytest.raises(InvalidRequest, match="too many redirects"):
        await fetcher(site).fetch(url, field="f")
    assert len(site.asked) == 4


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("/big", PayloadTooLarge, "more than 1,000 bytes"),
        ("/drip", PayloadTooLarge, "more than 1,000 bytes"),
        ("/packed", InvalidRequest, "sent compressed"),
        ("/missing", InvalidRequest, "HTTP 500"),
        ("/silent", InvalidRequest, "could not be fetched"),
    ],
)
async def test_a_fetch_that_fails_is_explained(site, path, error, words, monkeypatch):
    monkeypatch.setattr(Site, "_missing", None, raising=False)
    with pytest.raises(error, match=words):
        await fetcher(site, seconds=0.5 if path == "/silent" else 5.0).fetch(
            f"http://files.test:{site.port}{path}", field="f"
        )


TARGETS = [
    "http://127.0.0.1:{port}/file",
    "http://[::1]:{port}/file",
    "http://[::ffff:127.0.0.1]:{port}/file",
    "http://[::ffff:7f00:1]:{port}/file",
    "http://[64:ff9b::7f00:1]:{port}/file",
    "http://[2002:7f00:1::]:{port}/file",
    "http://[::127.0.0.1]:{port}/file",
    "http://[::]:{port}/file",
    "http://0.0.0.0:{port}/file",
    "http://0:{port}/file",
    "http://127.1:{port}/file",
    "http://2130706433:{port}/file",
    "http://0x7f000001:{port}/file",
    "http://0x7f.1:{port}/file",
    "http://0177.0.0.1:{port}/file",
    "http://127.0.0.1.:{port}/file",
    "http://localhost:{port}/file",
    "http://LOCALHOST:{port}/file",
    "http://localhost.:{port}/file",
    "http://①②⑦.0.0.1:{port}/file",
    "http://127。0。0。1:{port}/file",
    "http://169.254.169.254/latest/meta-data",
    "http://metadata.google.internal/",
    "http://files.test:{port}@127.0.0.1:{port}/file",
    "http://files.test@localhost:{port}/file",
    "http://127.0.0.1:{port}#@files.test/file",
    "http://127.0.0.1:{port}\\@files.test/file",
    "http://files.test.evil.test:{port}/file",
    "http://evilfiles.test:{port}/file",
    "http://files.test./file",
    "http://files.test:1/file",
    "http://files.test/file",
    "https://files.test:{port}/file",
    "http://user:password@files.test:{port}/file",
    "http://user@files.test:{port}/file",
    "http:///file",
    "http://",
    "http:files.test:{port}/file",
    "//127.0.0.1:{port}/file",
    "file:///etc/passwd",
    "file://files.test/etc/passwd",
    "ftp://files.test:{port}/file",
    "gopher://127.0.0.1:{port}/_GET",
    "dict://127.0.0.1:{port}/",
    "ldap://127.0.0.1:{port}/",
    "jar:http://127.0.0.1:{port}/!/",
    "unix:///var/run/docker.sock",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/file",
    "ws://files.test:{port}/file",
    "javascript:alert(1)",
    "about:blank",
    "\x00http://127.0.0.1:{port}/file",
    " http://127.0.0.1:{port}/file",
    "http://127.0.0.1:{port}\r\nHost: files.test/file",
    "http://[::1",
    "http://[fe80::1%25lo]:{port}/file",
    "http://files.test:99999/file",
    "http://files.test:-1/file",
    "http://%31%32%37.0.0.1:{port}/file",
    "http://files.test%00.evil.test:{port}/file",
    "http://xn--/file",
    "",
    "x",
]  # fmt: skip


@pytest.mark.req("T14")
async def test_no_form_of_address_leads_into_our_network(site):
    """Straight, and by redirect from a host that is allowed: the canary on loopback is never asked for its file."""
    assert len(TARGETS) >= 60
    private = fetcher(site, {"files.test": ["127.0.0.1"]})
    for target in TARGETS:
        url = target.format(port=site.port)
        with pytest.raises(RequestError):
            await private.fetch(url, field="f")
    assert site.asked == []
    for target in TARGETS:
        redirect = f"http://files.test:{site.port}/to?url=" + _quoted(target.format(port=site.port))
        with contextlib.suppress(RequestError):  # some are relative: they lead back to the host that is allowed
            await private.fetch(redirect, field="f")
    assert {asked.partition("/")[0] for asked in site.asked} == {"files.test"}


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text.replace("\r\n", ""), safe="")


@pytest.mark.req("T14")
@pytest.mark.parametrize(
    "addresses",
    [["10.0.0.1"], ["127.0.0.1", "10.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::1"], ["64:ff9b::7f00:1"], []],
)
async def test_a_name_with_one_private_address_is_not_asked(site, addresses):
    with pytest.raises(InvalidRequest, match="could not be fetched") as caught:
        await fetcher(site, {"files.test": addresses}, permit=is_public).fetch(
            f"http://files.test:{site.port}/file", field="f"
        )
    assert site.asked == []
    assert not any(address and address in caught.value.message for address in addresses)


@pytest.mark.req("T14")
async def test_a_name_that_changes_its_mind_is_asked_at_the_checked_address(site):
    """Rebinding: the second answer is never used, because one connection asks once."""
    answers = itertools.chain([["127.0.0.1"]], itertools.repeat(["10.0.0.1"]))

    async def flips(_host: str) -> list[str]:
        return next(answers)

    fetching = fetcher(site, resolve=flips)
    assert (await fetching.fetch(f"http://files.test:{site.port}/file", field="f")).data == b"hello"
    with pytest.raises(InvalidRequest):
        await fetching.fetch(f"http://files.test:{site.port}/file", field="f")
    assert site.asked == ["files.test/file"]


@pytest.mark.req("T14")
async def test_a_redirect_resolves_its_name_again(site):
    answers = iter([["127.0.0.1"], ["169.254.169.254"]])

    async def flips(_host: str) -> list[str]:
        return next(answers)

    with pytest.raises(InvalidRequest, match="could not be fetched"):
        await fetcher(site, resolve=flips).fetch(f"http://files.test:{site.port}/hop?left=0", field="f")
    assert site.asked == ["files.test/hop?left=0"]


@pytest.mark.parametrize(
    ("allowed", "url", "covered"),
    [
        ("files.test", "https://files.test/a", True),
        ("files.test", "https://FILES.test/a", True),
        ("files.test", "https://files.test:443/a", True),
        ("files.test", "https://files.test:8443/a", False),
        ("files.test", "http://files.test/a", False),
        ("files.test", "https://a.files.test/a", False),
        ("files.test:8443", "https://files.test:8443/a", True),
        ("http://files.test", "http://files.test/a", True),
        ("*.files.test", "https://a.files.test/a", True),
        ("*.files.test", "https://files.test/a", False),
        ("*.files.test", "https://evilfiles.test/a", False),
    ],
)
def test_what_an_entry_of_allow_hosts_covers(allowed, url, covered):
    assert AllowedHost.of(allowed).covers(address_of(url)) is covered


@pytest.mark.parametrize("text", ["", "ftp://files.test", "https://", "*.", "files.test:x", "file:///etc"])
def test_an_entry_that_is_no_host_is_a_mistake_of_the_agent_file(text):
    with pytest.raises(ConfigError, match="allow_hosts"):
        AllowedHost.of(text)


async def test_names_are_resolved_by_the_system_by_default():
    assert "127.0.0.1" in await known_addresses("127.0.0.1")
    with pytest.raises(socket.gaierror):
        await known_addresses("no-such-host.invalid")
