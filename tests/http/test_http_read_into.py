"""Taking a body: nothing is lost between two readers, and a reader gets what its sink raised."""

import asyncio
from contextlib import asynccontextmanager
from contextvars import ContextVar

import pytest

from holodeck.http.failures import ConnectionBroken
from tests.http.peers import Peer, Peers

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


class Steps:
    """A server that goes on when a test says so: each `step` is one packet."""

    def __init__(self, *steps: bytes, end: str = "hold") -> None:
        self._steps, self._end = steps, end
        self.go = asyncio.Semaphore(0)

    async def __call__(self, peer: Peer) -> None:
        await peer.request()
        for step in self._steps:
            await self.go.acquire()
            await peer.say(step)
        if self._end == "hold":
            await peer.gone.wait()
        else:
            await self.go.acquire()
            getattr(peer, self._end)()

    def release(self, count: int = 1) -> None:
        for _ in range(count):
            self.go.release()


class Taken:
    """Has enough after so many pieces."""

    def __init__(self, enough: int = 10_000) -> None:
        self.pieces: list[bytes] = []
        self._enough = enough
        self.came = asyncio.Event()

    def __call__(self, piece: bytes) -> bool:
        self.pieces.append(piece)
        self.came.set()
        return len(self.pieces) >= self._enough


async def test_each_piece_is_given_when_it_comes(client):
    script = Steps(HEAD, chunk(b"one"), chunk(b"two"), END)
    taken = Taken()
    script.release()
    async with Peers(script) as peers, client.post(peers.url, b"{}") as response:
        reading = asyncio.create_task(response.read_into(taken))
        for count in (1, 2):
            taken.came.clear()
            script.release()
            await taken.came.wait()
            assert len(taken.pieces) == count
        assert not response.over
        script.release()
        await reading
        assert response.over
    assert taken.pieces == [b"one", b"two"]


async def test_enough_and_later_again_loses_nothing(client):
    pieces = [b"%d," % number for number in range(200)]
    script = Steps(HEAD, *(chunk(piece) for piece in pieces), END)
    script.release(len(pieces) + 2)
    came = []
    async with Peers(script) as peers, client.post(peers.url, b"{}") as response:
        while not response.over or response._early:
            taken = Taken(enough=3)
            await response.read_into(taken)
            came += taken.pieces
            await asyncio.sleep(0)  # more comes meanwhile
        await response.read_into(Taken())
    assert b"".join(came) == b"".join(pieces)


async def test_data_that_arrived_before_read_into_is_passed_first(client):
    script = Steps(HEAD + chunk(b"one"), chunk(b"two"), END)
    async with Peers(script) as peers:
        script.release(2)
        async with client.post(peers.url, b"{}") as response:
            while b"".join(response._early) != b"onetwo":
                await asyncio.sleep(0)
            first, then = Taken(enough=1), Taken()
            await response.read_into(first)
            script.release()
            await response.read_into(then)
        assert b"".join(first.pieces + then.pieces) == b"onetwo"
        assert response.over


async def test_a_body_that_came_with_its_head_is_there_when_no_one_waited(client):
    script = Steps(HEAD + chunk(b"all") + END)
    script.release()
    async with Peers(script) as peers, client.post(peers.url, b"{}") as response:
        taken = Taken()
        await response.read_into(taken)
        await response.read_into(taken)  # again: there is no more
    assert taken.pieces == [b"all"]


class OfMine(Exception):
    pass


@pytest.mark.parametrize("error", [OfMine, StopIteration, ValueError, OSError, TimeoutError])
@pytest.mark.parametrize("early", [True, False])
async def test_an_exception_of_the_sink_reaches_the_caller(client, error, early):
    script = Steps(HEAD + chunk(b"one") if early else HEAD, chunk(b"two"), chunk(b"three"))

    def take(_: bytes) -> bool:
        raise error

    async with Peers(script) as peers:
        script.release()
        async with client.post(peers.url, b"{}") as response:
            reading = asyncio.create_task(response.read_into(take))
            await asyncio.sleep(0)
            script.release(2)
            with pytest.raises(RuntimeError if error is StopIteration else error):  # no coroutine can raise it
                await reading
            assert not response.over
        await peers.all_gone()  # the rest of the body is not waited for


@asynccontextmanager
async def failed_taking(client, *pieces):
    """A response whose first piece could not be taken, with its server, which sends the others when released."""
    script = Steps(HEAD, *pieces)

    def take(_: bytes) -> bool:
        raise OfMine

    async with Peers(script) as peers:
        script.release()
        async with client.post(peers.url, b"{}") as response:
            reading = asyncio.create_task(response.read_into(take))
            await asyncio.sleep(0)
            script.release()
            with pytest.raises(OfMine):
                await reading
            yield response, script


async def test_after_taking_failed_nothing_is_kept_for_anybody(client):
    late = Taken()
    async with failed_taking(client, chunk(b"one"), chunk(b"two") + END) as (response, script):
        (line,) = client._busy
        script.release()
        while not line.reusable:  # all of the body has come
            await asyncio.sleep(0)
        with pytest.raises(OfMine):
            await response.read_into(late)
    assert late.pieces == []


async def test_the_error_of_taking_the_very_last_piece_is_raised_too(client):
    async with failed_taking(client, chunk(b"one") + END) as (response, _):
        assert not response.over


async def test_after_a_failure_every_pour_fails_and_gives_nothing_new(client):
    script = Steps(HEAD, chunk(b"one"), end="reset")
    async with Peers(script) as peers:
        script.release()
        async with client.post(peers.url, b"{}") as response:
            reading = asyncio.create_task(response.read_into(Taken()))
            script.release(2)
            with pytest.raises(ConnectionBroken):
                await reading
            late = Taken()
            for _ in range(2):
                with pytest.raises(ConnectionBroken):
                    await response.read_into(late)
    assert late.pieces == []


async def test_data_that_arrived_before_a_failure_is_passed_first(client):
    script = Steps(HEAD + chunk(b"one"), end="close")
    async with Peers(script) as peers:
        script.release(2)
        async with client.post(peers.url, b"{}") as response:
            await peers.all_gone()
            (line,) = client._busy
            while not line.lost:
                await asyncio.sleep(0)
            taken = Taken()
            with pytest.raises(ConnectionBroken):
                await response.read_into(taken)
    assert taken.pieces == [b"one"]


async def test_a_pour_that_was_given_up_can_be_repeated(client):
    script = Steps(HEAD, chunk(b"one"), chunk(b"two") + END)
    async with Peers(script) as peers:
        script.release()
        async with client.post(peers.url, b"{}") as response:
            taken = Taken()
            reading = asyncio.create_task(response.read_into(taken))
            script.release()
            await taken.came.wait()
            reading.cancel()
            script.release()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await response.read_into(taken)
            assert response.over
        assert taken.pieces == [b"one", b"two"]


async def test_taking_sees_the_callers_context(client):
    """Not that of the task that made the connection."""
    whose: ContextVar[str] = ContextVar("whose", default="nobody's")
    seen: dict[str, list[str]] = {"a": [], "b": []}

    async def script(peer: Peer) -> None:
        for _ in seen:
            await peer.request()
            await peer.say(HEAD, chunk(b"one"), chunk(b"two"), chunk(b"three") + END)

    async def one(name: str) -> None:
        whose.set(name)
        async with client.post(peers.url, b"{}") as response:
            await response.read_into(lambda _: seen[name].append(whose.get()))

    async with Peers(script) as peers:
        for name in seen:
            await asyncio.create_task(one(name))
        assert peers.connections == 1
    assert {name: set(found) for name, found in seen.items()} == {"a": {"a"}, "b": {"b"}}
