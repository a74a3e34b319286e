"""Rows C01 to C12: what clients do. A run belongs to the server: a client may leave, stall or come twice, the run ends once."""

import asyncio
import json
import socket
import time

import aiohttp

from holodeck.core.ids import new_ulid
from tests.faults.scenario import FaultScenario, Turn, everything
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


async def leave_early(scenario: FaultScenario, turn: Turn) -> ClientView:
    """Reads a random part of the answer and hangs up; returns what came until then."""
    pieces, wanted = b"", scenario.random.randint(1, 6)
    turn.left = True
    if not scenario.wire.streams:
        return await leave_unanswered(scenario, turn)
    async with scenario.begin(turn) as answer:
        for _ in range(wanted):
            pieces += await answer.content.readany()
        answer.close()
    turn.view = scenario.wire.read(answer.status, pieces, whole=False)
    return turn.view


async def leave_unanswered(scenario: FaultScenario, turn: Turn) -> ClientView:
    """Hangs up before anything has come, as soon as the model speaks."""
    asking = asyncio.create_task(scenario.finish(turn))
    await turn.plan.asked()
    await asyncio.sleep(scenario.random.uniform(0, 0.1))  # any moment will do
    asking.cancel()
    await asyncio.wait({asking})
    return ClientView()


async def lateness(scenario: FaultScenario) -> float:
    """Leaves, and measures for how long after the grace the model is still listened to."""
    turn = scenario.turn(talking())
    view = await leave_early(scenario, turn)
    begun = time.monotonic()
    await asyncio.wait_for(turn.plan.left_alone(), PATIENCE)
    assert view.ending is None, view
    return time.monotonic() - begun - GRACE


async def leaves_in_the_text(scenario: FaultScenario) -> None:
    for _ in range(TRIES):
        late = await lateness(scenario)
        if late < 1.0:
            break
    scenario.figures["upstream closed after the grace, ms"] = late * 1000
    assert late < 1.0, f"the model was listened to for {late:.2f} s too long, {TRIES} times"
    await scenario.continues()
    kept = (await scenario.session_now())["messages"][1]
    if kept["role"] == "user":
        return  # it left before the first word was there
    assert kept.get("cut"), f"the part that was said is not flagged: {kept}"


async def leaves_in_a_tool_call(scenario: FaultScenario) -> None:
    turn = scenario.turn(tool_call_stream(("call-1", "hold", "{}")), text_stream("too late"))
    before = scenario.tools.calls()["hold"]
    turn.left = True
    asking = asyncio.create_task(scenario.finish(turn))
    await until(lambda: scenario.tools.calls()["hold"] > before, what="the call to arrive")
    asking.cancel()
    await asyncio.wait({asking})
    await scenario._session_is_idle()
    assert len(turn.plan.requests) == 1, "the model was asked again although no client waits"
    kept = (await scenario.session_now())["messages"]
    assert [message["role"] for message in kept] == ["user", "assistant", "tool"], kept
    assert kept[2]["failed"], kept[2]
    await scenario.continues()


async def leaves_in_the_queue(scenario: FaultScenario) -> None:
    first, second = scenario.turn(talking(words=60)), scenario.turn(text_stream("never"))
    talks = asyncio.create_task(scenario.finish(first))
    await first.plan.asked()
    async with scenario.begin(second) as answer:
        answer.close()
    second.left, second.accepted = True, False
    assert (await talks).ending == "finished"
    assert not second.plan.requests, "a question that no client waits for was asked"
    await scenario.continues()


async def never_reads(scenario: FaultScenario) -> None:
    """The run goes on without its reader; what it says does not pile up anywhere but in the log."""
    long = "x" * 4000
    turn = scenario.turn(text_stream(*[long] * 2000))  # 8 MB: more than any socket buffer
    turn.left = True
    reader, writer = await asyncio.open_connection("127.0.0.1", scenario.server.port, limit=1024)
    writer.write(_post(scenario, turn))
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of a socket has it
    await turn.plan.asked()
    await asyncio.wait_for(turn.plan.left_alone(), PATIENCE)
    await scenario._session_is_idle()
    kept = (await scenario.session_now())["messages"]
    assert len(kept[-1]["content"]) == 2000 * len(long), "the run did not say all that it had to say"
    before = scenario.server.rss()
    scenario.figures["server RSS MiB"] = before
    writer.transport.abort()
    await scenario.continues()


def _post(scenario: FaultScenario, turn: Turn) -> bytes:
    body = json.dumps(scenario.wire.body(turn.words, scenario.session, turn.run_id)).encode()
    headers = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "X-Request-ID": turn.request_id,
        **scenario.wire.headers,
    }
    lines = [f"POST {scenario.wire.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body


async def reads_slowly(scenario: FaultScenario) -> None:
    """A client that takes a little all the time is no dead one, however long a single write to it takes."""
    for _ in range(TRIES):
        if await _read_slowly(scenario):
            break
    await scenario.continues()


async def _read_slowly(scenario: FaultScenario) -> bool:
    """Slow for three times the time after which a dead client is cut off, then fast. False if we paused for too long."""
    words = ["y" * 4000] * 600  # 2.4 MB: more than the buffers between hold
    turn = scenario.turn(text_stream(*words))
    pieces, begun, longest = [], time.monotonic(), 0.0
    connector = aiohttp.TCPConnector(socket_factory=_small_buffer)
    async with (
        aiohttp.ClientSession(connector=connector, read_bufsize=16_384) as client,
        scenario.begin(turn, client) as answer,
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
    turn.view = scenario.wire.read(answer.status, b"".join(pieces))
    assert turn.view.text == "".join(words), f"{len(turn.view.text)} characters came"
    return True


def _small_buffer(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that takes little ahead of its reader: otherwise the kernel would read fast for a client that does not."""
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    return made


async def silence_is_filled(scenario: FaultScenario) -> None:
    """A tool that takes longer than the keep-alive: proxies see bytes all the time."""
    turn = scenario.turn(tool_call_stream(("c", "hang", "{}"), ("d", "hang", "{}")), _slow_words())
    gaps, pieces, last = [0.0], [], time.monotonic()
    async with scenario.begin(turn) as answer:
        async for piece in answer.content.iter_any():
            gaps.append(time.monotonic() - last)
            last = time.monotonic()
            pieces.append(piece)
    body = b"".join(pieces)
    turn.view = scenario.wire.read(answer.status, body)
    assert turn.view.text == "late", turn.view
    assert max(gaps) < 1.6, f"silent for {max(gaps):.1f} s"


def _slow_words() -> Respond:
    async def respond(wire: Wire) -> None:
        await asyncio.sleep(0.7)  # the pace of the model: with the tool's timeout, longer than the keep-alive
        await text_stream("late")(wire)

    return respond


async def comes_back(scenario: FaultScenario) -> None:
    """Cut at a random event and read on from there: both parts together are the whole, also beyond the grace."""
    for _ in range(TRIES):
        if await _came_back_in_time(scenario):
            break
    await scenario.continues()


async def _came_back_in_time(scenario: FaultScenario) -> bool:
    """False if we were so slow that the server was right to give the run up."""
    turn = scenario.turn(talking(2 * GRACE / 60, 60))  # goes on for longer than the grace after we are back
    turn.left = True
    async with scenario.begin(turn) as answer:
        first = b""
        while first.count(b"\n\n") < scenario.random.randint(2, 10):
            first += await answer.content.readany()
        answer.close()
    left = time.monotonic()
    first = first[: first.rfind(b"\n\n") + 2]
    last_id = first[first.rfind(b"\nid: ") + 5 :].split(b"\n")[0] if b"\nid: " in first else first[4:].split(b"\n")[0]
    run_id = last_id.decode().rpartition(":")[0]
    headers = {**scenario.wire.headers, "Last-Event-ID": last_id.decode()}
    async with scenario.client.get(f"{scenario.server.url}/runs/{run_id}/events", headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        in_time = time.monotonic() - left < GRACE
        rest, whole = await everything(answer)
    turn.view = scenario.wire.read(200, first + rest, whole=whole)
    turn.left = False
    assert not in_time or turn.view.text == WORD * 60, f"{len(turn.view.text)} characters of {60 * len(WORD)}"
    return in_time


async def posts_twice(scenario: FaultScenario) -> None:
    turn = scenario.turn(talking(0.01, 20))
    turn.again = True
    view = await asyncio.gather(*(scenario.finish(turn) for _ in range(3)))
    late = await scenario.finish(turn)
    assert [each.text for each in (*view, late)] == [WORD * 20] * 4, [each.text for each in view]
    assert len(turn.plan.requests) == 1, f"the model was asked {len(turn.plan.requests)} times"
    other = scenario.wire.body("something else", scenario.session, turn.run_id)
    if scenario.wire.names_runs:
        other["messages"][0]["id"] = "other"
    async with scenario.client.post(
        scenario.server.url + scenario.wire.path, json=other, headers=turn.headers
    ) as answer:
        assert answer.status == 422, answer.status
    await scenario.continues()


async def two_at_once(scenario: FaultScenario) -> None:
    """They queue. The server decides which comes first, so the order is taken from what it kept."""
    turns = [scenario.turn(talking(0.01, scenario.random.randint(1, 10)), words=f"{n} ") for n in range(4)]
    view = await asyncio.gather(*(scenario.finish(turn) for turn in turns))
    assert {each.ending for each in view} == {"finished"}, view
    kept = (await scenario.session_now())["messages"]
    assert [message["role"] for message in kept] == ["user", "assistant"] * 4, kept
    order = [message["content"] for message in kept[::2]]
    scenario.turns.sort(key=lambda turn: order.index(turn.words))


async def session_is_deleted(scenario: FaultScenario) -> None:
    turn = scenario.turn(talking())
    asking = asyncio.create_task(scenario.finish(turn))
    await turn.plan.asked()
    async with scenario.client.delete(f"{scenario.server.url}/sessions/{scenario.session}") as answer:
        assert answer.status == 204
    view = await asking
    assert view.ending in ("cancelled", "failed"), view
    await asyncio.wait_for(turn.plan.left_alone(), PATIENCE)
    scenario.turns.clear()
    await scenario.continues()


LIMITS = (
    ("", 422),
    ("   \n\t", 422),
    ("é" * 10_001, 422),
    ("ab\x00c", 200),
    ("é" * 4_900, 200),
    ("\ud83d", 200),
)


async def words_at_the_limit(scenario: FaultScenario) -> None:
    words, status = LIMITS[scenario.seed % len(LIMITS)]
    body = scenario.wire.body(words, scenario.session, f"r-{scenario.name}")
    async with scenario.client.post(
        scenario.server.url + scenario.wire.path,
        data=json.dumps(body).encode("ascii"),
        headers={**scenario.wire.headers, "Content-Type": "application/json"},
    ) as answer:
        data = await answer.read()
        allowed = {status, 200} if scenario.wire.names_runs else {status}  # AG-UI has no limit of its own for words
        assert answer.status in allowed, f"{answer.status} {data[:300]!r}"
    scenario.session = new_ulid()
    await scenario.continues()


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


async def odd_requests(scenario: FaultScenario) -> None:
    sent, statuses = PROBES[scenario.seed % len(PROBES)]
    answer = await probe(scenario.server, sent)
    status = int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else 0
    assert status in statuses, f"{sent[:60]!r} → {answer[:200]!r}"
    await scenario.continues()


async def probe(server: ServerProcess, sent: bytes) -> bytes:
    reader, writer = await server.connect()
    try:
        writer.write(sent)
        return await asyncio.wait_for(reader.read(2000), PATIENCE)
    finally:
        writer.close()
