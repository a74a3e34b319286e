"""Events that cannot be written and middleware that fails: the stream ends properly on every wire, the run is unharmed."""

import logging
from itertools import repeat
from pathlib import Path

import pytest

from holodeck.core.events import CustomSent, TextAdded, TextStarted
from holodeck.core.tools import ToolResult
from holodeck.models.scripted import calls, says
from holodeck.runs.middleware import EventMiddleware, own
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from tests.agent.agent_fixture import PlainTools
from tests.server.every_wire import QUESTIONS, SESSION, wires_in
from tests.server.serving import served

ALL = ServerSettings(protocols=tuple(WIRES))
ENDINGS = {  # what the last part of an answer has, by the question
    "ag-ui": b'"type":"RUN_FINISHED"',
    "ag-ui protobuf": b"finishReason",
    "ag-ui copilotkit": b'"type":"RUN_FINISHED"',
    "ag-ui copilotkit, one address": b'"type":"RUN_FINISHED"',
    "rest": b'"status":"completed"',
    "rest stream": b"event: stream_end",
    "chat-stream": b"event: done",
    "openai": b'"finish_reason":"stop"',
    "openai stream": b"data: [DONE]",
    "responses": b'"status":"completed"',
    "responses stream": b"data: [DONE]",
    "ai-sdk": b"data: [DONE]",
    "mcp": b'"isError":false',
    "a2a": b"TASK_STATE_COMPLETED",
    "a2a stream": b"TASK_STATE_COMPLETED",
}


class Unreadable:
    """Cannot even be looked at."""

    def __repr__(self):
        raise RuntimeError("no")


def nested():
    value: list = []
    for _ in range(5_000):
        value = [value]
    return value


VALUES = {
    "a path": lambda: {"p": Path("x")},
    "an object": lambda: [Unreadable()],
    "an exception": lambda: ValueError("x"),
    "a set of objects": lambda: {object()},
    "odd keys": lambda: {object(): 1},
    "nested without end": nested,
}


async def body_of(s, wire):
    path, body, headers = QUESTIONS[wire]("hi", SESSION)
    async with s.post(body, path, **headers) as answer:
        assert answer.status == 200
        received = await answer.read()  # raises if the stream breaks off
    assert ENDINGS[wire] in received
    return received


@pytest.mark.parametrize("wire", QUESTIONS)
@pytest.mark.parametrize("value", VALUES)
async def test_an_event_that_cannot_be_written_does_not_end_the_stream(wire, value, caplog):
    async def odd(_arguments, context):
        context.emit(CustomSent("v", VALUES[value]()))
        return ToolResult(content="ok")

    async with served(calls(("odd", "{}")), says("well done"), tools=PlainTools(odd=odd), settings=ALL) as s:
        received = await body_of(s, wire)
        assert b"done" in received
        (run,) = s.server.runs._runs.values()
        async with s.get(f"/runs/{run.run_id}") as answer:
            assert (await answer.json())["state"] == "finished"
        async with s.get(f"/runs/{run.run_id}/events") as answer:
            assert await answer.read()
    lines = [record for record in caplog.records if "cannot be written" in record.getMessage()]
    assert all(record.levelno == logging.WARNING for record in lines)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def boom(event):
    return 1 / 0 if isinstance(event, TextAdded) else event


async def late(event):
    return event


def endless(event):
    return repeat(event)


def nonsense(_event):
    return ["x", 3]


def number(_event):
    return 3


def unwritable(event):
    return [event, CustomSent("v", Path("x"))] if isinstance(event, TextStarted) else event


@pytest.mark.req("SRV-21")
@pytest.mark.parametrize("wire", QUESTIONS)
@pytest.mark.parametrize("function", [boom, late, endless, nonsense, number, unwritable])
async def test_a_middleware_that_fails_does_not_end_the_stream(wire, function, caplog):
    warn = logging.getLogger("holodeck.test").warning

    def middleware():
        return EventMiddleware([own(function, warn)])

    async with served(says("well done and more"), settings=ALL, middleware=middleware) as s:
        await body_of(s, wire)
        (run,) = s.server.runs._runs.values()
        assert run.state == "finished"
    texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    if function is unwritable:
        assert len(texts) == (wires_in([wire]) <= {"ag-ui", "ai-sdk"})  # the wires that show custom events
    else:
        assert len(texts) == 1
        assert function.__name__ in texts[0]
