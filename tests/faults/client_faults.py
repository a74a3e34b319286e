"""Rows C01 to C12: what clients do. A run belongs to the server: a client may leave, stall or come twice, the run ends once."""

import asyncio
import json
import socket
import time

import aiohttp

from holodeck.core.ids import new_ulid
from tests.faults.scene import Scene, Turn, everything
from tests.faults.server_process import PATIENCE, ServerProcess, until
from tests.faults.wires import ClientView
from tests.models.endpoint import Respond, Wire, chunk, frame, text_frames, text_stream, tool_call_stream

GRACE = 0.6  # the agent file's detach_grace
STALL = 1.0  # … and its stall_timeout
TRIES = 5  # for what takes a second at most: a busy machine holds us up now and then, not every time
WORD = "word "


def talking(beat: float = 0.02, words: int = 10_000) -> Respond:
    """Goes on until all its words are sent or the connection is closed."""

    async def respond(wire: Wire) -> None:
        await wire.head()
        sent = 0
        while sent < words and not wire.gone.is_set():
            await wire.send(frame(chunk({"content": WORD})))
            sent += 1
            await asyncio.sleep(beat)  # the pace of the model
        await wire.send(*text_frames()[1:])
        await wire.end()

    return respond


async def leave_early(scene: Scene, turn: Turn) -> ClientView:
    """Reads a random part of the answer and hangs up; returns what came until then."""
    pieces, wanted = b"", scene.random.randint(1, 6)
    turn.left = True
    if not scene.wire.streams:
        return await leave_unanswered(scene, turn)
    async with scene.begin(turn) as answer:
        for _ in range(wanted):
            pieces += await answer.content.readany()
        answer.close()
    turn.view = scene.wire.read(answer.status, pieces, whole=False)
    return turn.view


async def leave_unanswered(scene: Scene, turn: Turn) -> ClientView:
    """Hangs up before anything has come, as soon as the model speaks."""
    asking = asyncio.create_task(scene.finish(turn))
    await turn.plan.asked()
    await asyncio.sleep(scene.random.uniform(0, 0.1))  # any moment will do
    asking.cancel()
    await asyncio.wait({asking})
    return ClientView()


async def lateness(scene: Scene) -> float:
    """Leaves, and measures for how long after the grace the model is still listened to."""
    turn = scene.turn(talking())
    view = await leave_early(scene, turn)
    begun = time.monotonic()
    await asyncio.wait_for(turn.plan.left_alone(), PATIENCE)
    assert view.ending is None, view
    return time.monotonic() - begun - GRACE


async def leaves_in_the_text(scene: Scene) -> None:
    for _ in range(TRIES):
        late = await lateness(scene)
        if late < 1.0:
            break
    scene.figures["upstream closed after the grace, ms"] = late * 1000
    assert late < 1.0, f"the model was listened to for {late:.2f} s too long, {TRIES} times"
    await scene.goes_on()
    kept = (await scene.session_now())["messages"][1]
    if kept["role"] == "user":
        return  # it left before the first word was there
    assert kept.get("cut"), f"the part that was said is not flagged: {kept}"


async def leaves_in_a_tool_call(scene: Scene) -> None:
    turn = scene.turn(tool_call_stream(("call-1", "hold", "{}")), text_stream("too late"))
    before = scene.tools.calls()["hold"]
    turn.left = True
    asking = asyncio.create_task(scene.finish(turn))
    await until(lambda: scene.tools.calls()["hold"] > before, what="the call to arrive")
    asking.cancel()
    await asyncio.wait({asking})
    await scene._session_is_idle()
    assert len(turn.plan.requests) == 1, "the model was asked again for nobody"
    kept = (await scene.session_now())["messages"]
    assert [message["role"] for message in kept] == ["user", "assistant", "tool"], kept
    assert kept[2]["failed"], kept[2]
    await scene.goes_on()


async def leaves_in_the_queue(scene: Scene) -> None:
    first, second = scene.turn(talking(words=60)), scene.turn(text_stream("never"))
    talks = asyncio.create_task(scene.finish(first))
    await first.plan.asked()
    async with scene.begin(second) as answer:
        answer.close()
    second.left, second.accepted = True, False
    assert (await talks).ending == "finished"
    assert not second.plan.requests, "a question that nobody waits for was asked"
    await scene.goes_on()


async def never_reads(scene: Scene) -> None:
    """The run goes on without its reader; what it says does not pile up anywhere but in the log."""
    long = "x" * 4000
    turn = scene.turn(text_stream(*[long] * 2000))  # 8 MB: more than any socket buffer
    turn.left = True
    reader, writer = await asyncio.open_connection("127.0.0.1", scene.server.port, limit=1024)
    writer.write(_post(scene, turn))
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of a socket has it
    await turn.plan.asked()
    await asyncio.wait_for(turn.plan.left_alone(), PATIENCE)
    await scene._session_is_idle()
    kept = (await scene.session_now())["messages"]
    assert len(kept[-1]["content"]) == 2000 * len(long), "the run did not say all that it had to say"
    before = scene.server.rss()
    scene.figures["server RSS MiB"] = before
    writer.transport.abort()
    await scene.goes_on()


def _post(scene: Scene, turn: Turn) -> bytes:
    body = json.dumps(scene.wire.body(turn.words, scene.session, turn.run_id)).encode()
    headers = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "X-Request-ID": turn.request_id,
        **scene.wire.headers,
    }
    lines = [f"POST {scene.wire.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body


async def reads_slowly(scene: Scene) -> None:
    """A client that takes a little all the time is no dead one, however long a single write to it takes."""
    for _ in range(TRIES):
        if await _read_slowly(scene):
            break
    await scene.goes_on()


async def _read_slowly(scene: Scene) -> bool:
    """Slow for three times the time after which a dead client is cut off, then fast. False if we paused for too long."""
    words = ["y" * 4000] * 600  # 2.4 MB: more than the buffers between hold
    turn = scene.turn(text_stream(*words))
    pieces, begun, longest = [], time.monotonic(), 0.0
    connector = aiohttp.TCPConnector(socket_factory=_small_buffer)
    async with (
        aiohttp.ClientSession(connector=connector, read_bufsize=16_384) as client,
        scene.begin(turn, client) as answer,
    ):
        while True:
            last = time.monotonic()
            try:
                piece = await answer.content.read(16_384)
            except aiohttp.ClientPayloadError:
                piece = b""
            if not piece:
                break
            pieces.append(piece)
            if last - begun < 3 * STALL:
                await asyncio.sleep(0.03)  # the slowness itself
            longest = max(longest, time.monotonic() - last)
    if longest > STALL / 2:
        turn.left = True
        return False
    turn.view = scene.wire.read(answer.status, b"".join(pieces))
    assert turn.view.text == "".join(words), f"{len(turn.view.text)} characters came"
    return True


def _small_buffer(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that takes little ahead of its reader: otherwise the kernel would read fast for a client that does not."""
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    return made


async def silence_is_filled(scene: Scene) -> None:
    """A tool that takes longer than the keep-alive: proxies see bytes all the time."""
    turn = scene.turn(tool_call_stream(("c", "hang", "{}"), ("d", "hang", "{}")), _slow_words())
    gaps, pieces, last = [0.0], [], time.monotonic()
    async with scene.begin(turn) as answer:
        async for piece in answer.content.iter_any():
            gaps.append(time.monotonic() - last)
            last = time.monotonic()
            pieces.append(piece)
    body = b"".join(pieces)
    turn.view = scene.wire.read(answer.status, body)
    assert turn.view.text == "late", turn.view
    assert max(gaps) < 1.6, f"silent for {max(gaps):.1f} s"


def _slow_words() -> Respond:
    async def respond(wire: Wire) -> None:
        await asyncio.sleep(0.7)  # the pace of the model: with the tool's timeout, longer than the keep-alive
        await text_stream("late")(wire)

    return respond


async def comes_back(scene: Scene) -> None:
    """Cut at a random event and read on from there: both parts together are the whole, also beyond the grace."""
    for _ in range(TRIES):
        if await _came_back_in_time(scene):
            break
    await scene.goes_on()


async def _came_back_in_time(scene: Scene) -> bool:
    """False if we were so slow that the server was right to give the run up."""
    turn = scene.turn(talking(2 * GRACE / 60, 60))  # goes on for longer than the grace after we are back
    turn.left = True
    async with scene.begin(turn) as answer:
        first = b""
        while first.count(b"\n\n") < scene.random.randint(2, 10):
            first += await answer.content.readany()
        answer.close()
    left = time.monotonic()
    first = first[: first.rfind(b"\n\n") + 2]
    last_id = first[first.rfind(b"\nid: ") + 5 :].split(b"\n")[0] if b"\nid: " in first else first[4:].split(b"\n")[0]
    run_id = last_id.decode().rpartition(":")[0]
    headers = {**scene.wire.headers, "Last-Event-ID": last_id.decode()}
    async with scene.client.get(f"{scene.server.url}/runs/{run_id}/events", headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        in_time = time.monotonic() - left < GRACE
        rest, whole = await everything(answer)
    turn.view = scene.wire.read(200, first + rest, whole=whole)
    turn.left = False
    assert not in_time or turn.view.text == WORD * 60, f"{len(turn.view.text)} characters of {60 * len(WORD)}"
    return in_time


async def posts_twice(scene: Scene) -> None:
    turn = scene.turn(talking(0.01, 20))
    turn.again = True
    view = await asyncio.gather(*(scene.finish(turn) for _ in range(3)))
    late = await scene.finish(turn)
    assert [each.text for each in (*view, late)] == [WORD * 20] * 4, [each.text for each in view]
    assert len(turn.plan.requests) == 1, f"the model was asked {len(turn.plan.requests)} times"
    other = scene.wire.body("something else", scene.session, turn.run_id)
    if scene.wire.names_runs:
        other["messages"][0]["id"] = "other"
    async with scene.client.post(scene.server.url + scene.wire.path, json=other, headers=turn.headers) as answer:
        assert answer.status == 422, answer.status
    await scene.goes_on()


async def two_at_once(scene: Scene) -> None:
    """They queue. The server decides which comes first, so the order is taken from what it kept."""
    turns = [scene.turn(talking(0.01, scene.random.randint(1, 10)), words=f"{n} ") for n in range(4)]
    view = await asyncio.gather(*(scene.finish(turn) for turn in turns))
    assert {each.ending for each in view} == {"finished"}, view
    kept = (await scene.session_now())["messages"]
    assert [message["role"] for message in kept] == ["user", "assistant"] * 4, kept
    order = [message["content"] for message in kept[::2]]
    scene.turns.sort(key=lambda turn: order.index(turn.words))


async def session_is_deleted(scene: Scene) -> None:
    turn = scene.turn(talking())
    asking = asyncio.create_task(scene.finish(turn))
    await turn.plan.asked()
    async with scene.client.delete(f"{scene.server.url}/sessions/{scene.session}") as answer:
        assert answer.status == 204
    view = await asking
    assert view.ending in ("cancelled", "failed"), view
    await asyncio.wait_for(turn.plan.left_alone(), PATIENCE)
    scene.turns.clear()
    await scene.goes_on()


LIMITS = (
    ("", 422),
    ("   \n\t", 422),
    ("é" * 10_001, 422),
    ("ab\x00c", 200),
    ("é" * 4_900, 200),
    ("\ud83d", 200),
)


async def words_at_the_limit(scene: Scene) -> None:
    words, status = LIMITS[scene.seed % len(LIMITS)]
    body = scene.wire.body(words, scene.session, f"r-{scene.name}")
    async with scene.client.post(
        scene.server.url + scene.wire.path,
        data=json.dumps(body).encode("ascii"),
        headers={**scene.wire.headers, "Content-Type": "application/json"},
    ) as answer:
        data = await answer.read()
        allowed = {status, 200} if scene.wire.names_runs else {status}  # AG-UI has no limit of its own for words
        assert answer.status in allowed, f"{answer.status} {data[:300]!r}"
    scene.session = new_ulid()
    await scene.goes_on()


PROBES: tuple[tuple[bytes, tuple[int, ...]], ...] = (
    (b"GET /health HTTP/1.0\r\n\r\n", (200,)),
    (b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", (200, 405)),
    (b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", (400,)),
    (b"GET /health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", (400,)),
    (b"GET http://evil.example/health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", (400,)),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n", (400,)),
    (b"BREW /awp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", (400, 404, 405)),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", (400,)),
    (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", (414, 431, 400)),
    (b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", (400,)),
    (b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (400,)),
    (b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", (415,)),
    (b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", (100, 422)),
    (b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\nConnection: close\r\n\r\n\x1f\x8b\x08\x00", (415,)),
)  # fmt: skip


async def odd_requests(scene: Scene) -> None:
    sent, statuses = PROBES[scene.seed % len(PROBES)]
    answer = await probe(scene.server, sent)
    status = int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else 0
    assert status in statuses, f"{sent[:60]!r} → {answer[:200]!r}"
    await scene.goes_on()


async def probe(server: ServerProcess, sent: bytes) -> bytes:
    reader, writer = await server.connect()
    try:
        writer.write(sent)
        return await asyncio.wait_for(reader.read(2000), PATIENCE)
    finally:
        writer.close()
