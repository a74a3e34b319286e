"""Function tools in action: results, failures, time-outs, threads, events. Nothing a function does escapes."""

import asyncio
import contextvars
import logging
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path

import msgspec
import pytest
from pydantic import BaseModel

from holodeck.core.events import ActivityShown, CustomSent, RunFailed, RunFinished
from holodeck.core.messages import TextPart
from holodeck.core.secrets import Redactor
from holodeck.core.tools import ToolResult
from holodeck.errors import ConfigError
from holodeck.tools import functions
from holodeck.tools.functions import FunctionTool, FunctionToolset
from holodeck.tools.port import ToolContext

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
LIMIT = 5  # seconds that a test waits for another thread at most


def toolset(*made, **options):
    return FunctionToolset([FunctionTool.of(function, **options) for function in made])


async def call(function, *, context=None, timeout=5.0, max_result_chars=50_000, **arguments):  # noqa: ASYNC109  the tool's own
    tool = FunctionTool.of(function, name="tool", timeout=timeout, max_result_chars=max_result_chars)
    return await FunctionToolset([tool]).call("tool", arguments, context or ToolContext(user_id="alice"))


@dataclass
class Point:
    x: int
    y: int


class Person(BaseModel):
    name: str


class Row(msgspec.Struct):
    id: int


CYCLE: list = []
CYCLE.append(CYCLE)

RESULTS = [
    ("text", "text"),
    ("", ""),
    (None, "done"),
    (3, "3"),
    (True, "true"),
    ({"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'),
    (Point(1, 2), '{"x":1,"y":2}'),
    ([Person(name="A")], '[{"name":"A"}]'),
    ({"row": Row(1)}, '{"row":{"id":1}}'),
    ("a\x00b\ud800", "ab\ufffd"),
]


@pytest.mark.parametrize(("value", "text"), RESULTS, ids=[repr(each[0]) for each in RESULTS])
async def test_results_become_text_whether_sync_or_async(value, text):
    async def soon() -> object:
        return value

    assert await call(lambda: value) == await call(soon) == ToolResult(content=text)


async def test_a_function_may_answer_with_parts_or_its_own_failure():
    made = ToolResult(content=(TextPart("a"),), failed=True)
    assert await call(lambda: made) == made


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (object(), "returned a object that cannot be written as JSON"),
        (CYCLE, "returned a list that cannot be written"),
        ([object()], "returned a list"),
    ],
    ids=["object", "cycle", "inner object"],
)
async def test_a_result_that_is_not_json_is_a_failure(value, problem):
    result = await call(lambda: value)
    assert result.failed
    assert problem in result.text


@pytest.mark.req("AGT-08")
async def test_a_long_result_is_shortened_and_says_so():
    result = await call(lambda: "x" * 200, max_result_chars=50)
    assert result.text == "x" * 50 + "… [150 of 200 characters left out]"
    assert functions.MAX_RESULT_CHARS == 50_000


class Odd(Exception):
    pass


FAILURES = [
    (ValueError("no such unit"), "tool failed: ValueError: no such unit"),
    (Odd(), "tool failed: Odd"),
    (StopIteration(3), "tool failed: RuntimeError: coroutine raised StopIteration"),
    (TimeoutError("slow"), "tool failed: TimeoutError: slow"),
    (FileNotFoundError(2, "No such file", "/home/me/secret/plan.txt"), "No such file: 'plan.txt'"),
    (OSError("cannot open C:\\Users\\me\\plan.txt now"), "cannot open plan.txt now"),
    (ValueError("see https://example.test/a/b/c"), "see https://example.test/a/b/c"),
    (ValueError("1/2 and/or 3/4"), "1/2 and/or 3/4"),
]


@pytest.mark.req("AGT-08")
@pytest.mark.parametrize(("error", "text"), FAILURES, ids=[repr(each[0]) for each in FAILURES])
async def test_a_failure_is_a_text_without_traceback_or_folders(error, text):
    def fails() -> None:
        raise error

    async def fails_later() -> None:
        raise error

    for result in (await call(fails), await call(fails_later)):
        assert result.failed
        assert text in result.text
        assert "Traceback" not in result.text
        assert "/home" not in result.text


async def test_the_author_finds_the_traceback_in_the_log(caplog):
    def fails() -> None:
        raise ValueError("no")

    with caplog.at_level(logging.WARNING):
        await call(fails)
    assert caplog.records[0].exc_info[1].args == ("no",)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
async def test_a_function_cannot_end_the_process(error):
    def leaves() -> None:
        raise error

    assert (await call(leaves)).text == f"tool failed: RuntimeError: it raised {type(error).__name__}"


async def test_a_coroutine_that_cancels_itself_has_failed():
    async def gives_up() -> None:
        raise asyncio.CancelledError

    assert (await call(gives_up)).text == "tool failed: it cancelled itself"


async def test_arguments_are_converted_and_misfits_are_explained():
    def total(points: list[Point]) -> int:
        return sum(point.x for point in points)

    assert (await call(total, points=[{"x": 1, "y": 0}, {"x": 2, "y": 0}])).text == "3"
    result = await call(total, points=[{"x": "one", "y": 0}])
    assert result.failed
    assert result.text.startswith("The arguments do not fit tool:\n- points.0.x: Input should be a valid integer")


@pytest.mark.req("A27")
async def test_an_unknown_name_is_answered_with_the_nearest():
    def convert() -> None: ...

    tools = toolset(convert)
    assert (
        await tools.call("convrt", {}, ToolContext(user_id="a"))
    ).text == "There is no tool 'convrt'; did you mean convert?"
    assert (
        await tools.call("zzz", {}, ToolContext(user_id="a"))
    ).text == "There is no tool 'zzz'; the tools are convert"


async def test_a_sync_function_runs_in_a_thread_with_the_callers_variables():
    VARIABLE.set("from the caller")

    def where() -> list:
        return [threading.current_thread() is threading.main_thread(), VARIABLE.get()]

    assert (await call(where)).text == '[false,"from the caller"]'


async def test_a_plain_decorator_around_an_async_function():
    async def inner(word: str) -> str:
        return word

    @wraps(inner)
    def outer(*args, **kwargs):
        return inner(*args, **kwargs)

    assert (await call(outer, word="hi")).text == "hi"


@pytest.mark.req("AGT-08")
async def test_calls_run_side_by_side():
    barrier = threading.Barrier(3, timeout=LIMIT)

    def meet() -> int:
        return barrier.wait()

    tools = toolset(meet)
    results = await asyncio.gather(*(tools.call("meet", {}, ToolContext(user_id="a")) for _ in range(3)))
    assert sorted(result.text for result in results) == ["0", "1", "2"]


async def test_a_coroutine_that_takes_too_long_is_cancelled():
    cleaned = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    result = await call(slow, timeout=0.02)
    assert result == ToolResult.failure("tool did not answer in 0.02 s", retryable=True)
    assert cleaned == [True]


async def test_a_coroutine_that_will_not_be_cancelled_is_left_behind(monkeypatch):
    monkeypatch.setattr(functions, "_GRACE", 0.02)
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    assert (await call(stubborn, timeout=0.02)).text == "tool did not answer in 0.02 s"
    release.set()


async def test_a_sync_function_that_takes_too_long_is_abandoned():
    release, ended = threading.Event(), threading.Event()

    def slow(context: ToolContext) -> None:
        release.wait(LIMIT)
        context.emit(CustomSent("late", 1))
        ended.set()

    events: list = []
    result = await call(slow, timeout=0.02, context=ToolContext(user_id="a", emit=events.append))
    assert result.text == "tool did not answer in 0.02 s; it may still be running, its result will not be used"
    release.set()
    await asyncio.to_thread(ended.wait, LIMIT)
    await asyncio.sleep(0)
    assert events == []


async def test_cancelling_the_caller_cancels_the_function():
    started, cleaned = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    task = asyncio.create_task(call(slow))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()


async def test_closing_ends_what_is_running():
    started = asyncio.Event()

    async def slow() -> None:
        started.set()
        await asyncio.Event().wait()

    tools = toolset(slow)
    task = asyncio.create_task(tools.call("slow", {}, ToolContext(user_id="a")))
    await started.wait()
    await tools.close()
    assert (await task).failed


async def test_functions_that_never_return_use_up_their_own_threads_only(monkeypatch):
    monkeypatch.setattr(functions, "MAX_THREADS", 2)
    release = threading.Event()

    def stuck() -> None:
        release.wait(LIMIT)

    tools = toolset(stuck, timeout=0.02)
    for _ in range(2):
        assert "did not answer" in (await tools.call("stuck", {}, ToolContext(user_id="a"))).text
    busy = await tools.call("stuck", {}, ToolContext(user_id="a"))
    assert busy.text == "stuck is busy: too many calls have not returned"
    assert busy.retryable
    release.set()


def test_a_stuck_thread_does_not_hold_up_the_end_of_the_process():
    code = """
import asyncio, threading
from holodeck.tools.functions import FunctionTool, FunctionToolset
from holodeck.tools.port import ToolContext
def stuck() -> None: threading.Event().wait()
tools = FunctionToolset([FunctionTool.of(stuck, timeout=0.02)])
print(asyncio.run(tools.call("stuck", {}, ToolContext(user_id="a"))).text)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True)
    assert ended.stdout.startswith("stuck did not answer in 0.02 s")
    assert ended.stderr == ""


@pytest.mark.req("SRV-22")
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_function_may_report_what_it_does(kind):
    def work(context: ToolContext) -> str:
        for number in range(3):
            context.emit(CustomSent("step", number))
        context.emit(ActivityShown("a", "reading", {}))
        return context.user_id

    async def work_later(context: ToolContext) -> str:
        return work(context)

    events: list = []
    result = await call(
        work if kind == "sync" else work_later, context=ToolContext(user_id="alice", emit=events.append)
    )
    assert result.text == "alice"
    assert events == [*(CustomSent("step", number) for number in range(3)), ActivityShown("a", "reading", {})]


def test_two_functions_of_one_name_are_refused():
    def same() -> None: ...

    with pytest.raises(ConfigError, match="two functions are called 'same'"):
        toolset(same, same)


def test_a_tool_needs_a_proper_name():
    with pytest.raises(ConfigError, match="cannot be called '<lambda>'"):
        FunctionTool.of(lambda: None)


@pytest.mark.req("AGT-04")
@pytest.mark.parametrize(
    ("error", "retryable"),
    [(ConnectionResetError("reset"), True), (TimeoutError("late"), True), (ValueError("wrong"), False)],
)
async def test_a_broken_connection_or_a_timeout_is_worth_another_try(error, retryable):
    async def breaks() -> None:
        raise error

    assert (await call(breaks)).retryable is retryable


@pytest.mark.req("T28")
async def test_secrets_in_the_text_of_an_exception_are_masked():
    def leaks() -> None:
        raise RuntimeError("cannot log in with hunter2hunter2 nor sk-abcdefghijklmnop at /home/ann/db.py")

    tool = FunctionTool.of(leaks)
    toolset = FunctionToolset([tool], redact=Redactor(["hunter2hunter2"]))
    text = (await toolset.call("leaks", {}, ToolContext(user_id="a"))).text
    assert text == "leaks failed: RuntimeError: cannot log in with *** nor *** at db.py"


@pytest.mark.parametrize("in_thread", [True, False])
@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        (RunFinished("r", "s"), "a tool cannot emit RunFinished"),
        (RunFailed("r", "s", code="x", message="x"), "a tool cannot emit RunFailed"),
        (CustomSent("v", {"path": Path("x")}), "cannot be written as JSON"),
        (CustomSent("v", "\ud800"), "cannot be written as JSON"),
        ("no event", "a tool cannot emit str"),
    ],
    ids=["finished", "failed", "path", "half a surrogate pair", "no event"],
)
async def test_a_tool_emits_only_what_is_its_own_and_what_can_be_written(event, complaint, in_thread):
    emitted = []

    def plain(context: ToolContext) -> str:
        context.emit(event)
        return "done"

    async def coroutine(context: ToolContext) -> str:
        return plain(context)

    toolset = FunctionToolset([FunctionTool.of(plain if in_thread else coroutine, name="tool")])
    result = await toolset.call("tool", {}, ToolContext(user_id="a", emit=emitted.append))
    assert result.failed
    assert complaint in result.text
    assert emitted == []


async def test_what_a_tool_emits_is_plain_json():
    emitted = []

    async def reports(context: ToolContext) -> None:
        context.emit(CustomSent("v", {"when": datetime(2026, 1, 2, tzinfo=UTC), "list": (1, 2), "nan": float("nan")}))

    toolset = FunctionToolset([FunctionTool.of(reports)])
    await toolset.call("reports", {}, ToolContext(user_id="a", emit=emitted.append))
    assert emitted == [CustomSent("v", {"when": "2026-01-02T00:00:00Z", "list": [1, 2], "nan": None})]
