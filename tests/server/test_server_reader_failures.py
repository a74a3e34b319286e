"""Events that cannot be written and middleware that fails: the stream ends properly on every wire, the run is unharmed."""

import logging
from itertools import repeat
from pathlib import Path

import pytest

from holodeck.core.events import CustomSent, TextAdded, TextStarted
from holodeck.core.tools import ToolResult
from holodeck.models.scripted import calls, says
from holodeck.runs.middleware import Chain, own
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES as SERVED_WIRES
from tests.agent.parts import PlainTools
from tests.server.serving import ask, served

ALL = ServerSettings(protocols=tuple(SERVED_WIRES))
PROTOBUF = "application/vnd.ag-ui.event+proto"
WIRES = {
    "AG-UI": ("/awp", ask, {}, b'"type":"RUN_FINISHED"'),
    "protobuf": ("/awp", ask, {"Accept": PROTOBUF}, b"finishReason"),
    "CopilotKit": ("/copilotkit/agent/default/run", ask, {}, b'"type":"RUN_FINISHED"'),
    "REST": ("/agent/tester/chat/stream", lambda: {"message": "hi"}, {}, b"event: "),
    "chat-stream": ("/chat/stream", lambda: {"input": "hi"}, {}, b"event: "),
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
    path, body, headers, ending = WIRES[wire]
    async with s.post(body(), path, **headers) as answer:
        assert answer.status == 200
        received = await answer.read()  # raises if the stream breaks off
    assert ending in received
    return received


@pytest.mark.parametrize("wire", WIRES)
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
@pytest.mark.parametrize("wire", ["AG-UI", "protobuf", "CopilotKit"])
@pytest.mark.parametrize("function", [boom, late, endless, nonsense, number, unwritable])
async def test_a_middleware_that_fails_does_not_end_the_stream(wire, function, caplog):
    warn = logging.getLogger("holodeck.test").warning

    def chain():
        return Chain([own(function, warn)])

    async with served(says("well done and more"), settings=ALL, chain=chain) as s:
        await body_of(s, wire)
        (run,) = s.server.runs._runs.values()
        assert run.state == "finished"
    texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert texts
    if function is not unwritable:
        assert all(function.__name__ in text for text in texts)
