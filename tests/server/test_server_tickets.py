"""Tickets: a browser's EventSource reads one run without a header."""

import asyncio
import time

import aiohttp
import pytest

from holodeck.access.failure import Failure
from holodeck.access.principal import Principal
from holodeck.access.tickets import LONGEST_SECONDS, Tickets, bytes_of
from holodeck.config.limit_schema import ServerLimits, SubjectLimits
from holodeck.core.owner import Owner
from holodeck.models.scripted import says
from holodeck.server.options import ServerSettings
from tests.server.keyed import KeyHolders, keyed
from tests.server.serving import Gate, ask, read_to, served, server_block, types, until

ANN = Principal(tenant="acme", user="ann", scopes=frozenset({"runs:read"}), via="api_key", credential_id="K")


async def ticket_for(s, run, headers):
    async with s.post(b"", f"/runs/{run}/ticket", **headers) as answer:
        assert answer.status == 200
        return (await answer.json())["ticket"]


async def test_a_ticket_reads_its_run_as_often_as_a_browser_reconnects(tmp_path):
    async with keyed(tmp_path, says("hello")) as (s, holders):
        ann = holders.headers(user="ann")
        await s.server.access.refresh()
        async with s.post(ask(run="r"), **ann) as answer:
            whole = await answer.read()
        ticket = await ticket_for(s, "r", ann)
        for _ in range(2):
            async with s.get(f"/runs/r/events?ticket={ticket}") as answer:
                assert (answer.status, types(await answer.read())) == (200, types(whole))
        async with s.get(f"/runs/r/events?ticket={ticket}", **{"Last-Event-ID": "r:2"}) as answer:
            assert types(await answer.read()) == types(whole)[3:]


async def test_a_ticket_opens_nothing_else(tmp_path):
    """A59."""
    async with keyed(tmp_path, says("one"), says("two"), says("three")) as (s, holders):
        ann, bob = holders.headers(user="ann"), holders.headers(user="bob")
        await s.server.access.refresh()
        for run, user in (("r", ann), ("other", ann), ("r", bob)):
            async with s.post(ask(thread=run, run=run), **user) as answer:
                await answer.read()
        ticket = await ticket_for(s, "r", ann)
        for path in ("/runs/other/events", "/runs/r", "/sessions/r", "/me", "/runs/unknown/events"):
            async with s.get(f"{path}?ticket={ticket}") as answer:
                assert answer.status == 401, path
        for path in ("/runs/r/stop", "/runs/r/ticket", "/runs/r/continue", "/awp"):
            async with s.post(ask(), f"{path}?ticket={ticket}") as answer:
                assert answer.status == 401, path
        for query in (
            f"ticket={ticket}&ticket={ticket}",
            f"ticket={ticket[:-2]}",
            "ticket=",
            "ticket=a.b",
            f"token={ticket}",
        ):
            async with s.get(f"/runs/r/events?{query}") as answer:
                assert answer.status in (400, 401), query
                assert ticket not in await answer.text()
        async with s.get(f"/runs/r/events?ticket={ticket}", **ann) as answer:
            assert answer.status == 400, "two credentials"
        async with s.post(b"", "/runs/nothing/ticket", **ann) as answer:
            assert answer.status == 404


async def test_a_revoked_key_takes_its_tickets_and_their_readers_with_it(tmp_path):
    gate = Gate()
    async with keyed(tmp_path, says("a b", pause=gate)) as (s, holders):
        key_id, doomed = holders.create(user="ann")
        other = holders.headers(user="ann")
        await s.server.access.refresh()
        stream = await s.post(ask(run="r"), **other)
        await read_to(stream, "TEXT_MESSAGE_CONTENT")
        ticket = await ticket_for(s, "r", doomed)
        reader = await s.get(f"/runs/r/events?ticket={ticket}")
        await read_to(reader, "TEXT_MESSAGE_CONTENT")
        holders.revoke(key_id)
        with pytest.raises(aiohttp.ClientError):
            await asyncio.wait_for(reader.read(), 30)
        async with s.get(f"/runs/r/events?ticket={ticket}") as answer:
            assert answer.status == 401
        gate.open.set()
        assert b"RUN_FINISHED" in await stream.read()


def test_a_ticket_expires_and_never_after_its_credential():
    now = [1000.0]
    tickets = Tickets(lambda _key: True, clock=lambda: now[0])
    ticket, expires = tickets.issue(ANN, Owner("acme", "ann"), "r")
    assert expires == 1000 + LONGEST_SECONDS
    found = tickets.check(ticket, "r")
    assert (found.owner, found.scopes, found.via) == (Owner("acme", "ann"), {"runs:read"}, "ticket")
    now[0] = expires
    assert tickets.check(ticket, "r").kind == "expired"
    soon = Principal(tenant="acme", user="ann", scopes=frozenset(), via="jwt", credential_id="iss", expires=expires + 5)
    assert tickets.issue(soon, soon.owner, "r")[1] == expires + 5


def test_no_changed_ticket_is_taken():
    tickets, others = Tickets(lambda _key: True), Tickets(lambda _key: True)
    ticket, _ = tickets.issue(ANN, ANN.owner, "r")
    assert isinstance(others.check(ticket, "r"), Failure), "a secret of another store"
    assert isinstance(tickets.check(ticket, "R"), Failure)
    for place, letter in enumerate(ticket):
        for other in ("A", "B", ".", "=", "\u00e9"):
            changed = ticket[:place] + other + ticket[place + 1 :]
            if other != letter and not _same_bytes(ticket, changed):
                assert isinstance(tickets.check(changed, "r"), Failure), place
    begun = time.monotonic()
    assert isinstance(tickets.check("a." * 1_000_000, "r"), Failure)
    assert time.monotonic() - begun < 30


def _same_bytes(one, other):
    """Base64 has spare bits in its last letters."""
    try:
        return [bytes_of(part) for part in one.split(".")] == [bytes_of(part) for part in other.split(".")]
    except ValueError:
        return False


@pytest.mark.req("T17")
async def test_a_ticket_counts_as_its_key(tmp_path):
    """Otherwise a key opens as many streams as it likes, each with a ticket."""
    gate = Gate()
    block = server_block(limits=ServerLimits(key=SubjectLimits(streams=1)))
    holders = KeyHolders(tmp_path / "keys.json")
    ann = holders.headers(user="ann")
    async with served(
        says("a b", pause=gate), settings=ServerSettings(block=block), access=holders.authenticator()
    ) as s:
        stream = await s.post(ask(run="r"), **ann)
        await read_to(stream, "TEXT_MESSAGE_CONTENT")
        ticket = await ticket_for(s, "r", ann)
        async with s.get(f"/runs/r/events?ticket={ticket}") as answer:
            assert answer.status == 429
            assert (await answer.json(content_type=None))["reason"] == "key-streams"
        gate.open.set()
        await stream.read()
        await until(lambda: s.server.answering == 0)
        async with s.get(f"/runs/r/events?ticket={ticket}") as answer:
            assert answer.status == 200
