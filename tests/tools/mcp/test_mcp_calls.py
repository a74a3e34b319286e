"""Calls to servers over stdio that answer, fail, hang, crash or talk nonsense (rows B04 to B06, B09 to B14, B17 to B20)."""

import asyncio
import json
import time

import psutil
import pytest

from holodeck.core.messages import MediaPart, TextPart
from holodeck.tools import stdio
from tests.loop_clock import LIMIT, LoopClock
from tests.tools.mcp.rogue_client import until


async def test_a_call_reaches_the_tool_and_its_text_comes_back(rogue):
    server = await rogue()
    result = await server.call("echo", {"title": "Käse", "bound": "\x00 stays"})
    assert json.loads(result.text) == {"title": "Käse", "bound": "\x00 stays"}
    assert not result.failed


@pytest.mark.req("B04")
@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\xff"}]}}\n',
        '{"result":{"content":[{"type":"text","text":"\xff"}]},"jsonrpc":"2.0","id":ID}\n',
        '{"jsonrpc":"2.0","id":ID,"result":{"content":\n',
        '{"\xff\n',
    ],
)
async def test_an_answer_that_cannot_be_read_fails_its_call_and_nothing_else(rogue, line):
    server = await rogue()
    pid = await server.pid()
    result = await server.call("raw", {"bytes": line})
    assert result.failed
    assert "cannot be read" in result.text
    assert await server.pid() == pid


@pytest.mark.req("B04")
@pytest.mark.parametrize(
    "line",
    [
        '{"level": "info", "msg": "called"}',
        '{"msg": "stored", "id": ID}',
        '{"error": "none"}',
        '{"id": "of a request", "error": "none", "level": "warn"}',
        "{}",
    ],
)
async def test_a_log_line_in_json_fails_no_call(rogue, line):
    server = await rogue()
    answer = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"own"}]}}'
    assert (await server.call("raw", {"bytes": f"{line}\n{answer}\n"})).text == "own"


@pytest.mark.req("B04")
async def test_an_answer_without_the_version_of_json_rpc_fails_its_call(rogue):
    server = await rogue()
    result = await server.call("raw", {"bytes": '{"id": ID, "result": {"content": []}}\n'})
    assert "the tool server 'rogue' sent an answer that cannot be read" in result.text


@pytest.mark.req("B04")
async def test_a_damaged_notification_fails_no_call(rogue):
    server = await rogue()
    lines = '{"jsonrpc":"2.0","method":"\xff"}\n{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}\n'
    assert not (await server.call("raw", {"bytes": lines})).failed


@pytest.mark.req("B05")
@pytest.mark.parametrize("tool", ["crash", "segfault", "close_stdout", "close_stdin"])
async def test_a_crash_fails_the_call_at_once_and_the_next_one_works(rogue, tool, monkeypatch):
    monkeypatch.setattr(stdio, "GRACE", 0.2)  # for those that live on
    server = await rogue()
    pid = await server.pid()
    result = await server.call(tool)
    assert result.failed
    assert result.retryable
    assert "stopped during" in result.text
    assert await server.pid() != pid
    assert server.seen(f"tools/call {tool} .") == 1  # never repeated


@pytest.mark.req("B05")
async def test_a_crash_is_known_within_a_tenth_of_a_second(rogue):
    server = await rogue()
    for _ in range(20):  # a busy machine holds us up now and then, not every time
        child, before = psutil.Process(await server.pid()), server.seen("tools/call hang .")
        call = asyncio.create_task(server.call("hang"))
        await until(lambda before=before: server.seen("tools/call hang .") > before)
        child.kill()
        began = time.monotonic()
        assert (await call).failed
        if time.monotonic() - began < 0.1:
            return
    pytest.fail("it took longer twenty times")


@pytest.mark.req("B05")
async def test_twenty_crashes_in_a_row_are_survived(rogue):
    server = await rogue()
    for _ in range(20):
        assert (await server.call("crash")).failed
        assert not (await server.call("echo")).failed
    assert server.seen("tools/call crash .") == 20


@pytest.mark.req("B05")
async def test_output_before_the_exit_is_read(rogue):
    for _ in range(5):
        server = await rogue()
        assert (await server.call("answer_and_exit")).text == "goodbye"


@pytest.mark.req("SRV-22")
async def test_a_call_that_waits_for_a_restart_shows_it(rogue):
    server = await rogue()
    await server.call("crash")
    events = []
    assert not (await server.call("echo", emit=events.append)).failed
    assert [event.content["status"] for event in events[:1]] == ["restarting"]
    assert events[1].patch[0]["value"] == "ready"


@pytest.mark.req("B06", "ORC-07")
async def test_a_call_that_hangs_is_cancelled_after_its_timeout(rogue):
    server = await rogue(timeout=1)
    result = await server.call("hang")
    assert result.failed
    assert "did not answer in 1 s" in result.text
    await until(lambda: any(line.startswith("notifications/cancelled") for line in journal_lines(server)))
    assert not (await server.call("echo")).failed


def journal_lines(server) -> list[str]:
    return server.journal.read_text().splitlines()


@pytest.mark.req("B06")
async def test_a_caller_that_gives_up_cancels_the_call_too(rogue):
    server = await rogue()
    call = asyncio.create_task(server.call("hang"))
    await until(lambda: server.seen("tools/call hang ."))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: any(line.startswith("notifications/cancelled") for line in journal_lines(server)))


@pytest.mark.req("B09")
@pytest.mark.parametrize("id_last", [False, True])
async def test_fifty_megabytes_in_one_line_fail_the_call_and_cost_no_memory(rogue, id_last):
    server = await rogue()
    pid = await server.pid()
    neighbour = asyncio.create_task(server.call("hold"))
    await until(lambda: server.seen("tools/call hold ."))
    before = psutil.Process().memory_info().rss
    result = await server.call("big", {"size": 50_000_000, "id_last": id_last})
    assert "too_large" in result.text
    assert result.failed
    assert await server.pid() == pid
    assert psutil.Process().memory_info().rss - before < 8_000_000
    assert not neighbour.done()
    neighbour.cancel()
    await asyncio.wait([neighbour])


@pytest.mark.req("B12")
async def test_an_error_of_the_tool_is_a_result_with_its_text(rogue):
    server = await rogue()
    result = await server.call("error")
    assert (result.text, result.failed, result.retryable) == ("no such todo", True, False)


@pytest.mark.req("B13")
async def test_the_first_answer_counts_and_unsolicited_answers_do_not(rogue):
    server = await rogue()
    assert (await server.call("twice")).text == "first"
    assert (await server.call("echo", {"n": 1})).text == '{"n": 1}'


@pytest.mark.req("B13")
async def test_an_answer_after_the_timeout_is_dropped(rogue):
    server = await rogue(timeout=1)
    await server.call("hang")
    late = '{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"late"}]}}\n'
    own = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"own"}]}}\n'
    assert (await server.call("raw", {"bytes": late + own})).text == "own"


BROKEN_RESULTS = [
    {"content": "x"},
    {"content": [1]},
    {"content": [{"type": "text"}]},
    {"content": [{"type": "text", "text": 7}]},
    {"content": [{"type": "video", "data": ""}]},
    {"content": [{"type": "image", "mimeType": "image/png"}]},
    {"content": [], "isError": "perhaps"},
    {"content": [], "structuredContent": "text"},
    {"content": [{"type": "resource", "resource": {"uri": "a:b"}}]},
    {"content": None},
]


@pytest.mark.req("B14")
async def test_results_that_break_the_schema_fail_their_calls_only(rogue):
    server = await rogue()
    pid = await server.pid()
    for broken in BROKEN_RESULTS:
        result = await server.call("content", {"result": broken})
        assert result.failed, broken
        assert "breaks the MCP schema" in result.text
    assert await server.pid() == pid


@pytest.mark.req("B14")
async def test_a_result_against_the_tools_own_schema_is_a_failure(rogue):
    server = await rogue()
    assert (await server.call("typed", {"n": 1})).text == '{"n":1}'
    result = await server.call("typed", {"n": "one"})
    assert result.failed
    assert "Invalid structured content" in result.text


@pytest.mark.req("B17")
@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list"])
async def test_requests_of_the_server_are_declined_at_once(rogue, method):
    server = await rogue()
    assert (await server.call("ask", {"method": method})).text == "asked"
    await until(lambda: any("not supported" in line for line in journal_lines(server)))


@pytest.mark.req("B18")
async def test_two_hundred_calls_run_eight_at_a_time_and_in_order(rogue):
    server = await rogue(timeout=20)
    holding = [asyncio.create_task(server.call("hold")) for _ in range(8)]
    await until(lambda: server.seen("tools/call hold .") == 8)
    finished: list[int] = []

    async def one(number: int) -> None:
        assert not (await server.call("echo", {"n": number})).failed
        finished.append(number)

    others = [asyncio.create_task(one(number)) for number in range(200)]
    await asyncio.sleep(0)
    assert not server.seen("tools/call echo .")
    holding[0].cancel()  # one place is enough for everybody
    await asyncio.gather(*others)
    assert finished == list(range(200))
    for task in holding:
        task.cancel()
    await asyncio.wait(holding)


@pytest.mark.req("B19")
async def test_a_flood_on_stderr_is_read_and_forgotten(rogue):
    server = await rogue(timeout=30)
    before = psutil.Process().memory_info().rss
    assert (await server.call("flood_stderr", {"megabytes": 100})).text == "done"
    assert psutil.Process().memory_info().rss - before < 8_000_000


@pytest.mark.req("B20")
@pytest.mark.parametrize(("depth", "words"), [(100, "nested deeper"), (300_000, "cannot be read")])
async def test_deep_json_harms_no_one(rogue, depth, words):
    server = await rogue()
    assert words in (await server.call("deep", {"depth": depth})).text
    assert not (await server.call("echo")).failed


@pytest.mark.req("B20")
@pytest.mark.parametrize("odd", ["deep", "half a surrogate pair", "no JSON"])
async def test_arguments_that_cannot_be_written_never_leave(rogue, odd):
    server = await rogue()
    arguments: dict = {"text": "\ud800" if odd.startswith("half") else object() if odd == "no JSON" else ""}
    for _ in range(100_000 if odd == "deep" else 0):
        arguments = {"deeper": arguments}
    result = await server.call("echo", arguments)
    assert (result.failed, result.unsent, result.retryable) == (True, True, False)
    assert "cannot be sent" in result.text
    assert not server.seen("tools/call echo .")
    assert not (await server.call("echo")).failed


@pytest.mark.req("B05")
async def test_the_server_gets_the_call_id(rogue):
    server = await rogue()
    meta = json.loads((await server.call("meta", call_id="c1")).text)
    assert meta["dev.holodeck/call-id"] == "c1"


async def test_progress_is_an_activity_that_is_not_flooded(rogue):
    server, emitted = await rogue(), []
    context = {"emit": emitted.append, "call_id": "c1", "tool": "office_progress"}
    result = await server.call("progress", {"reports": 5_000}, **context)
    assert result.text == "done"
    assert emitted[0].kind == "tool_progress"
    assert emitted[0].call == ("c1", "office_progress"), "the name that clients see, with its prefix"
    assert emitted[0].content == {"tool": "office_progress", "progress": 0, "total": 100, "message": "row 0"}
    assert len(emitted) < 500
    assert all(event.message_id == emitted[0].message_id for event in emitted)


@pytest.mark.req("B05")
@pytest.mark.parametrize("tool", ["crash", "hang", "segfault", "close_stdin"])
async def test_a_call_that_may_have_taken_effect_is_marked_as_sent(rogue, tool, monkeypatch):
    server = await rogue(timeout=LIMIT)
    calling = asyncio.create_task(server.call(tool))
    await until(lambda: server.seen(f"tools/call {tool} ."))  # it is sent: only now may its time run out
    if tool == "hang":
        LoopClock(monkeypatch).advance(LIMIT)
    result = await calling
    assert (result.failed, result.retryable, result.unsent) == (True, True, False)


@pytest.mark.req("B05")
async def test_a_call_that_waits_in_vain_for_its_turn_was_not_sent(rogue, monkeypatch):
    server = await rogue(timeout=1)
    monkeypatch.setattr(server.toolset, "_slots", asyncio.Semaphore(0))  # as if eight others did not return
    result = await server.call("echo")
    assert (result.failed, result.retryable, result.unsent) == (True, True, True)
    assert "was not sent" in result.text
    assert not server.seen("tools/call echo .")


@pytest.mark.req("B05")
async def test_a_call_on_a_server_that_is_gone_was_not_sent(rogue):
    server = await rogue()
    await server.toolset.close()
    result = await server.call("echo")
    assert (result.failed, result.unsent) == (True, True)


@pytest.mark.req("B11")
async def test_an_image_is_named_for_the_model_and_kept(rogue):
    server = await rogue()
    result = await server.call("image")
    assert result.content == (
        TextPart("[image/png, 16 bytes]"),
        MediaPart(mime_type="image/png", data="iVBORw0KGgoAAAANSUhEUg=="),
    )


@pytest.mark.req("AGT-08")
async def test_a_long_result_is_shortened_and_says_so(rogue):
    server = await rogue(max_result_chars=100)
    text = (await server.call("echo", {"text": "x" * 1_000})).text
    assert text.endswith("characters left out]")
    assert len(text) < 200
