"""More connections than the server takes: which are answered, which are served, and what monitors see of it."""

import asyncio
import json
import resource
from contextlib import suppress

import aiohttp
import pytest

from holodeck.config.limit_schema import AddressLimits, RequestLimits, ServerLimits
from holodeck.models.scripted import says
from holodeck.server import connection
from holodeck.server.connection import (
    ANSWERED_OVER_CLIENT_LIMIT,
    ANSWERED_OVER_LIMIT,
    FILES_EACH,
    OWN_FILES,
    PER_CLIENT,
    ConnectionLimit,
    ConnectionVerdict,
    room_for,
)
from holodeck.server.options import ServerSettings
from tests.server.serving import PATIENCE, Gate, ask, read_to, served, server_block, types, until

HEAD = b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
FEW = ServerSettings(block=server_block(limits=ServerLimits(request=RequestLimits(head_seconds=5)), max_connections=3))


async def many_connections(s, size):
    return [await s.connect() for _ in range(size)]


async def leave(connection_limit):
    for _, writer in connection_limit:
        writer.close()
    for _, writer in connection_limit:
        with suppress(ConnectionError):
            await writer.wait_closed()


async def asked(s, path="/awp", body=None):
    """One request on a connection of its own."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as client:
        method = "GET" if body is None else "POST"
        async with client.request(method, s.url + path, json=body) as answer:
            return answer.status, answer.headers, await answer.json(content_type=None) if body else await answer.text()


@pytest.mark.req("C13", "SRV-17")
async def test_beyond_the_limit_a_request_is_a_503_that_says_when_to_come_back():
    async with served(settings=FEW) as s:
        connection_limit = await many_connections(s, 3)
        await until(lambda: s.server.connection_limit.present == 3)
        status, headers, received = await asked(s, body=ask())
        assert (status, received["status"], received["reason"]) == (503, 503, "connections")
        assert received["type"].endswith("/overloaded")
        assert headers["Content-Type"] == "application/problem+json"
        assert headers["Retry-After"] == "2"
        assert headers["Connection"] == "close"
        assert s.model.prompts == []
        await leave(connection_limit)
        await until(lambda: s.server.connection_limit.present == 0)
        async with s.post() as answer:
            assert types(await answer.read())[-1] == "RUN_FINISHED"


@pytest.mark.req("C13")
async def test_a_large_body_over_the_limit_does_not_cost_the_answer():
    async with served(settings=FEW) as s:
        connection_limit = await many_connections(s, 3)
        await until(lambda: s.server.connection_limit.present == 3)
        status, _, received = await asked(s, body=ask("x" * 900_000))
        assert (status, received["reason"]) == (503, "connections")
        await leave(connection_limit)


@pytest.mark.req("C13")
@pytest.mark.parametrize("path", ["/health", "/ready", "/health/agent", "/metrics", "/health?a=b"])
async def test_monitors_are_answered_beyond_the_limit(path):
    async with served(settings=FEW) as s:
        connection_limit = await many_connections(s, 3)
        await until(lambda: s.server.connection_limit.present == 3)
        assert (await asked(s, path))[0] == 200
        await leave(connection_limit)


@pytest.mark.req("C13")
async def test_a_connection_over_the_limit_stays_so():
    async with served(settings=FEW) as s:
        connection_limit = await many_connections(s, 4)
        await until(lambda: s.server.connection_limit.present == 4)
        reader, writer = connection_limit[3]
        wanted = (b"/health", b"200"), (b"http://localhost/health", b"200"), (b"/docs", b"503"), (b"", b"")
        for path, status in wanted:
            writer.write(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
            line = await reader.readline()
            assert line.split(b" ")[1:2] == ([status] if status else [])
            if status == b"200":
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                await reader.readexactly(length)
            else:
                await reader.read()
        await leave(connection_limit)


@pytest.mark.req("C13")
async def test_far_beyond_the_limit_connections_are_closed_at_once_and_streams_continue():
    gate = Gate()
    async with served(says("a b", pause=gate), settings=FEW) as s:
        answer = await s.post()
        begun = await read_to(answer, "TEXT_MESSAGE_CONTENT")
        connection_limit = await many_connections(s, 2 + ANSWERED_OVER_LIMIT)
        await until(lambda: s.server.connection_limit.present == 3 + ANSWERED_OVER_LIMIT)
        reader, writer = await s.connect()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        writer.close()
        await until(lambda: s.server.connection_limit.present == 3 + ANSWERED_OVER_LIMIT)
        gate.open.set()
        assert types(begun + await answer.read())[-1] == "RUN_FINISHED"
        await leave(connection_limit)
        await until(lambda: s.server.connection_limit.present <= 1)
        page = (await asked(s, "/metrics"))[2]
        assert 'holodeck_connections_total{entry="closed"} 1' in page
        assert f'holodeck_connections_total{{entry="over_limit"}} {ANSWERED_OVER_LIMIT}' in page


@pytest.mark.req("C13")
async def test_at_most_as_many_connections_as_allowed_are_served_at_once():
    gate = Gate()
    async with served(says("a b", pause=gate), settings=ServerSettings(block=server_block(max_connections=100))) as s:

        async def one(n):
            body = json.dumps(ask(thread=f"t{n}")).encode()
            try:
                reader, writer = await s.connect()
                writer.write(HEAD % len(body) + body)
                answer = await reader.read()
            except ConnectionError:
                return None
            writer.close()
            return answer.partition(b"\r\n")[0].decode(), b"RUN_FINISHED" in answer

        everybody = [asyncio.create_task(one(n)) for n in range(600)]
        await until(lambda: sum(task.done() for task in everybody) == 500, 20)
        gate.open.set()
        answers = await asyncio.gather(*everybody)
        assert answers.count(("HTTP/1.1 200 OK", True)) == 100
        assert answers.count(("HTTP/1.1 503 Service Unavailable", False)) >= ANSWERED_OVER_LIMIT
        assert len(s.model.prompts) == 100


def test_too_many_connections_are_logged_once_in_a_while(caplog):
    now = [0.0]
    connection_limit = ConnectionLimit(1, lambda _: None, clock=lambda: now[0])
    assert connection_limit.enter("127.0.0.1") is ConnectionVerdict.SERVED
    assert not caplog.records
    for _ in range(5):
        assert connection_limit.enter("127.0.0.1") is ConnectionVerdict.OVER_LIMIT
        connection_limit.leave("127.0.0.1")
    assert [record.details["beyond"] for record in caplog.records] == [1]
    now[0] = 11
    connection_limit.enter("127.0.0.1")
    assert [record.details["beyond"] for record in caplog.records] == [1, 5]


@pytest.mark.req("T17")
@pytest.mark.parametrize(("limit", "address"), [(None, "203.0.113.7"), (3, "203.0.113.7"), (3, "127.0.0.1")])
def test_one_address_cannot_have_all_connections(limit, address):
    connection_limit = ConnectionLimit(10_000, lambda _: None, per_client=limit)
    allowed = limit or PER_CLIENT
    assert allowed < 10_000
    verdicts = [connection_limit.enter(address) for _ in range(allowed + ANSWERED_OVER_CLIENT_LIMIT + 1)]
    assert set(verdicts[:allowed]) == {ConnectionVerdict.SERVED}
    assert set(verdicts[allowed:-1]) == {ConnectionVerdict.OVER_LIMIT}
    assert verdicts[-1] is ConnectionVerdict.CLOSED
    assert connection_limit.enter("203.0.113.8") is ConnectionVerdict.SERVED  # another client
    for _ in range(ANSWERED_OVER_CLIENT_LIMIT + 2):
        connection_limit.leave(address)
    assert connection_limit.enter(address) is ConnectionVerdict.SERVED


@pytest.mark.req("T17")
def test_an_ipv6_network_is_one_client_and_a_proxy_on_this_machine_is_none():
    connection_limit = ConnectionLimit(10_000, lambda _: None)
    for n in range(PER_CLIENT):
        connection_limit.enter(f"2001:db8::{n:x}")
        assert connection_limit.enter("127.0.0.1") is ConnectionVerdict.SERVED
        assert connection_limit.enter("::1") is ConnectionVerdict.SERVED
    assert connection_limit.enter("2001:db8::ffff:1") is ConnectionVerdict.OVER_LIMIT
    assert connection_limit.enter("127.0.0.1") is ConnectionVerdict.SERVED


@pytest.mark.req("T17")
async def test_an_address_with_as_many_connections_as_it_may_have_gets_a_503():
    settings = ServerSettings(block=server_block(limits=ServerLimits(address=AddressLimits(connections=2))))
    async with served(settings=settings) as s:
        others = await many_connections(s, 2)
        await until(lambda: s.server.connection_limit.present == 2)
        status, headers, body = await asked(s, body=ask())
        assert (status, body["reason"], headers["Retry-After"]) == (503, "connections", "2")
        await leave(others)
        await until(lambda: s.server.connection_limit.present == 0)
        assert s.server.connection_limit._by_client == {}
        async with s.post() as answer:
            assert types(await answer.read())[-1] == "RUN_FINISHED"


LIMITS = [
    ((1024, 524_288), 10_000, 10_000, OWN_FILES + ANSWERED_OVER_LIMIT + FILES_EACH * 10_000),
    ((1024, 1024), 10_000, 448, 1024),
    ((64, 64), 10_000, 4, 64),
    ((65_536, 65_536), 100, 100, 65_536),
    ((1024, resource.RLIM_INFINITY), 10_000, 10_000, OWN_FILES + ANSWERED_OVER_LIMIT + FILES_EACH * 10_000),
    ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 10_000, 10_000, resource.RLIM_INFINITY),
]


@pytest.mark.req("C13", "C14")
@pytest.mark.parametrize(("limits", "wanted", "given", "soft"), LIMITS)
def test_there_are_descriptors_for_every_connection_that_is_served(monkeypatch, limits, wanted, given, soft):
    now = [limits]
    monkeypatch.setattr(connection.resource, "getrlimit", lambda _: now[0])
    monkeypatch.setattr(connection.resource, "setrlimit", lambda _, pair: now.__setitem__(0, pair))
    assert room_for(wanted) == given
    assert now[0] == (soft, limits[1])


def test_a_system_that_gives_no_more_descriptors_is_taken_as_it_is(monkeypatch):
    def refuse(*_):
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(connection.resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
    monkeypatch.setattr(connection.resource, "setrlimit", refuse)
    assert room_for(10_000) == 448
