"""Who may talk to the server: names, origins, content types."""

import ipaddress
import json
from itertools import product

import pytest
from click.testing import CliRunner

from holodeck.access.authenticator import Authenticator
from holodeck.access.principal import OF_ONE_USER, Defaults
from holodeck.access.proxy import ProxySettings, TrustedProxy
from holodeck.cli.serve import command
from holodeck.server.guard import name_of
from holodeck.server.options import Access, ServerSettings
from holodeck.server.wires import WIRES
from tests.server.serving import ask, served

HOSTS = {
    "127.0.0.1:{port}": True,
    "localhost:{port}": True,
    "LOCALHOST": True,
    "localhost:": True,  # RFC 3986: the port may be empty
    "[::1]:{port}": True,
    "agent.example": True,  # configured
    "evil.example": False,
    "127.0.0.1.evil.example": False,
    "localhost@evil.example": False,
    "evil.example#localhost": False,
    "a/?x=localhost": False,
    "192.168.1.5": False,
    "": False,
}
ORIGINS = {
    None: True,
    "http://same": True,  # replaced by the address that is asked
    "https://app.example": True,  # configured
    "HTTPS://APP.EXAMPLE": True,
    "https://evil.example": False,
    "https://app.example.evil.example": False,
    "http://app.example": False,
    "https://app.example:444": False,
    "null": False,
    "": False,
    "file://": False,
    "http://localhost:1": False,  # another port is another origin
    "http://[": False,
    "http://[::1": False,
}
CONTENT_TYPES = {
    "application/json": True,
    "text/plain": False,
    "application/x-www-form-urlencoded": False,
    "text/plain; x=application/json": False,
}
ACCESS = Access(allowed_hosts=("agent.example",), cors_origins=("https://app.example",))


@pytest.mark.req("T07", "T08", "SRV-19")
async def test_only_what_is_allowed_in_all_three_ways_is_served():
    async with served(settings=ServerSettings(access=ACCESS)) as s:
        for (host, a), (origin, b), (kind, c) in product(HOSTS.items(), ORIGINS.items(), CONTENT_TYPES.items()):
            named = host.format(port=s.port)
            headers = {"Host": named, "Content-Type": kind}
            if origin is not None:
                headers["Origin"] = f"http://{named}" if origin == "http://same" else origin
            async with s.client.post(s.url + "/awp", data=json.dumps(ask()).encode(), headers=headers) as answer:
                await answer.read()
                assert (answer.status == 200) is (a and b and c), (headers, answer.status)
                allowed = origin is not None and origin.lower() == "https://app.example"
                assert answer.headers.get("Access-Control-Allow-Origin") == (headers["Origin"] if allowed else None)
                assert "Access-Control-Allow-Credentials" not in answer.headers


OPEN = ServerSettings(access=Access(cors_origins=("*",)), protocols=("ag-ui", "openai"))


@pytest.mark.req("T08")
async def test_any_origin_is_allowed_where_it_was_asked_for_but_never_with_credentials():
    async with served(settings=OPEN) as s:
        page = {"Origin": "https://page.example", "Cookie": "a=b"}
        async with s.post(None, "/awp", **page) as answer:
            await answer.read()
            assert answer.headers["Access-Control-Allow-Origin"] == "*"
            assert "Access-Control-Allow-Credentials" not in answer.headers
            exposed = answer.headers["Access-Control-Expose-Headers"]
            assert "X-Request-ID" in exposed
            assert "X-Should-Retry" in exposed, "OpenAI's SDK in a page repeats a POST unless it can read this header"
            assert "X-Session-Id" in exposed
        wish = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        async with s.client.options(s.url + "/awp", headers={**page, **wish}) as answer:
            assert answer.status == 204
            assert "POST" in answer.headers["Access-Control-Allow-Methods"]
            assert answer.headers["Access-Control-Allow-Headers"] == "content-type"
            assert "Access-Control-Allow-Credentials" not in answer.headers
        wish["Access-Control-Request-Method"] = "PUT"
        async with s.client.options(s.url + "/awp", headers={**page, **wish}) as answer:
            assert (answer.status, answer.headers["Content-Type"]) == (405, "application/problem+json")


async def test_a_preflight_of_another_origin_is_refused_as_a_problem():
    async with served(settings=ServerSettings(access=ACCESS)) as s:
        headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        async with s.client.options(s.url + "/awp", headers=headers) as answer:
            problem = await answer.json(content_type=None)
            assert (answer.status, problem["type"][-9:], problem["reason"]) == (403, "forbidden", "foreign-page")
            assert problem["detail"].startswith("Pages of https://evil.example may not use this server; --cors-origins")
            assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.req("T07")
async def test_an_error_answer_can_be_read_by_the_page_that_caused_it():
    async with served(settings=OPEN) as s, s.post(b"{", "/awp", Origin="https://page.example") as answer:
        assert answer.status == 400
        assert answer.headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize(
    ("bind_host", "host", "fine"),
    [
        ("0.0.0.0", "192.168.1.5:8000", True),
        ("0.0.0.0", "[2001:db8::1]:8000", True),
        ("0.0.0.0", "rebound.example", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("127.0.0.1", "10.0.0.1", False),
    ],
)
async def test_addresses_are_ours_when_we_listen_beyond_this_machine(bind_host, host, fine):
    settings = ServerSettings(access=Access(bind_host=bind_host))
    async with served(settings=settings) as s, s.get("/health", Host=host) as answer:
        assert answer.status == (200 if fine else 400)


@pytest.mark.req("T04", "T07")
async def test_strange_heads_are_refused():
    async with served() as s:
        for head in (
            b"GET /health HTTP/1.1\r\n\r\n",
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
            b"GET /health HTTP/1.1\r\nHost: localhost:99999\r\n\r\n",
            b"GET /health HTTP/1.1\r\nHost: localhost:x\r\n\r\n",
            b"GET /health HTTP/1.1\r\nHost: local host\r\n\r\n",
            b"GET /health HTTP/1.1\r\nHost: x/docs?localhost\r\n\r\n",
            b"GET /health HTTP/1.1\r\nHost: \xff\r\n\r\n",
            b"GET http://evil.example/health HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            b"OPTIONS * HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            b"CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            b"GET /\xc3\xa9 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"nonsense\r\n\r\n",
        ):
            reader, writer = await s.connect()
            writer.write(head)
            answer = await reader.readuntil(b"\r\n")
            assert answer.startswith(b"HTTP/1.1 400"), (head, answer)
            writer.close()
            await writer.wait_closed()


async def test_spaces_around_a_host_are_no_part_of_it():
    async with served() as s:
        reader, writer = await s.connect()
        writer.write(b"GET /health HTTP/1.1\r\nHost:  localhost \t\r\n\r\n")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        writer.close()


def test_names_are_taken_from_hosts_and_nothing_else():
    assert name_of("LocalHost:80") == "localhost"
    assert name_of("[::1]:80") == "::1"
    assert name_of("a:") == "a"
    assert name_of("a.b.") == "a.b"
    for bad in ("", "a b", "a/b", "a?b", "a#b", "a@b", "[::1", "a:b", "a:99999", "a\tb", "//a"):
        assert name_of(bad) is None, bad


@pytest.mark.req("T07")
@pytest.mark.parametrize(("origin", "status"), [("https://evil.example", 403), ("http://{host}", 404), (None, 404)])
async def test_any_origin_does_not_cover_forms_which_browsers_send_unasked(origin, status):
    async with served(settings=OPEN) as s:
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        if origin:
            headers["Origin"] = origin.format(host=f"127.0.0.1:{s.port}")
        async with s.client.post(s.url + "/agent/nobody/chat", data=b"--x--", headers=headers) as answer:
            assert answer.status == status


PAGES = {
    "http://localhost:3000": True,
    "https://localhost": True,
    "HTTP://LOCALHOST:5173": True,
    "http://app.localhost:3000": True,
    "http://127.0.0.1:8080": True,
    "http://127.1.2.3": True,
    "http://[::1]:3000": True,
    "https://evil.example": False,
    "http://localhost.evil.example": False,
    "http://127.0.0.1.evil.example": False,
    "http://evil-localhost": False,
    "http://localhost:3000@evil.example": False,
    "http://localhost:3000/": False,
    "http://192.168.1.5:3000": False,
    "http://[::2]": False,
    "ftp://localhost": False,
    "null": False,
    "file://": False,
    "": False,
}
ROUTES = (
    ("POST", "/awp"),
    ("POST", "/agent/tester/chat"),
    ("POST", "/agent/tester/chat/stream"),
    ("POST", "/chat/stream"),
    ("POST", "/copilotkit"),
    ("POST", "/copilotkit/agent/default/run"),
    ("POST", "/copilotkit/agent/default/stop/t1"),
    ("POST", "/runs/r1/stop"),
    ("DELETE", "/sessions/t1"),
)
ALL = tuple(WIRES)


@pytest.mark.req("T07", "T08")
@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_by_default_only_pages_of_this_machine_may_change_anything(method, path):
    async with served(settings=ServerSettings(protocols=ALL)) as s:
        for origin, fine in PAGES.items():
            async with s.client.request(method, s.url + path, headers={"Origin": origin}) as answer:
                assert (answer.status != 403) is fine, (origin, answer.status)
                assert answer.headers.get("Access-Control-Allow-Origin") == (origin if fine else None)
            preflight = {"Origin": origin, "Access-Control-Request-Method": method}
            async with s.client.options(s.url + path, headers=preflight) as answer:
                assert answer.status == (204 if fine else 403), origin


@pytest.mark.req("T08")
async def test_a_page_of_another_site_can_neither_run_the_agent_nor_read_anything():
    """What an open server gave away on the machine that it runs on: runs, approvals, conversations."""
    async with served(settings=ServerSettings(protocols=ALL)) as s:
        page = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
        for path in ("/health/agent", "/sessions/t1", "/runs/r1/events", "/metrics", "/awp/capabilities", "/", "/docs"):
            for origin in ({}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
                async with s.get(path, **page, **origin) as answer:
                    assert answer.status == 403, (path, origin)
                    assert "Access-Control-Allow-Origin" not in answer.headers
        async with s.post(None, "/awp", **page) as answer:
            assert answer.status == 403
        assert s.model.prompts == []


@pytest.mark.req("T08")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:3000"}, 200),  # served by this machine
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),  # typed into the address bar
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),  # a link
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403),
    ],
)
async def test_what_a_browser_says_about_a_request_decides(headers, status):
    async with served() as s, s.get("/health", **headers) as answer:
        assert answer.status == status


async def test_a_server_that_was_opened_to_all_pages_answers_all():
    async with served(settings=OPEN) as s:
        page = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Origin": "https://page.example"}
        async with s.post(None, "/awp", **page) as answer:
            assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, "*")
            await answer.read()


async def test_two_origins_are_none_that_is_allowed():
    async with served() as s:
        reader, writer = await s.connect()
        origins = b"Origin: http://localhost\r\nOrigin: https://evil.example\r\n"
        writer.write(b"POST /runs/r1/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n" + origins + b"\r\n")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 403")
        writer.close()


@pytest.mark.req("T08")
def test_help_says_which_pages_may_use_the_server():
    shown = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert "loopback: pages of this machine, *: any page. [default: loopback]" in shown


@pytest.mark.req("T08")
@pytest.mark.parametrize(
    ("path", "status"), [("/sessions/t1", 403), ("/health", 403), ("/runs/r1/events", 403), ("/docs", 200), ("/", 200)]
)
async def test_behind_a_proxy_links_of_other_sites_lead_to_static_pages_only(path, status):
    """A54: the proxy's cookie goes along with a link, and the proxy says who the user is."""
    networks = (ipaddress.ip_network("127.0.0.1/32"),)
    proxy = TrustedProxy(ProxySettings(networks=networks, secret="s" * 32), Defaults("default", OF_ONE_USER))
    user = {"X-HoloDeck-Proxy": "s" * 32, "X-Auth-Request-User": "ann"}
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    async with served(settings=ServerSettings(protocols=ALL), access=Authenticator(proxy=proxy)) as s:
        async with s.get(path, **user, **link) as answer:
            assert answer.status == status
        async with s.get(path, **user, **(link | {"Sec-Fetch-Site": "same-origin"})) as answer:
            assert answer.status != 403
        for origin in ("https://evil.example", "null"):
            async with s.post(None, "/awp", Origin=origin, **user) as answer:
                assert answer.status == 403
        assert s.model.prompts == []
