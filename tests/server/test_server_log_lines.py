"""What the log says of requests that are served, and that saying it changes nothing."""

import json
from contextlib import contextmanager

import pytest

from holodeck.errors import ModelUnreachable
from holodeck.models.scripted import Turn, calls, says
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from holodeck.telemetry import logs
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.serving import ask, served, server_block, types


@contextmanager
def logged(tmp_path, **options):
    lines = []
    with (tmp_path / "log").open("w+b") as file:
        output = logs.configure(fd=file.fileno(), **options)
        try:
            yield lines
        finally:
            output.close()
            file.seek(0)
            lines.extend(json.loads(line) for line in file)


@pytest.mark.req("SRV-18", "ORC-08")
async def test_the_line_of_a_request_names_the_session_that_it_began(tmp_path):
    settings = ServerSettings(protocols=("rest",))
    with logged(tmp_path) as lines:
        async with served(settings=settings) as s, s.post({"message": "hi"}, "/agent/tester/chat") as answer:
            session = (await answer.json())["session_id"]
    (completed,) = [line for line in lines if line["event"] == "request_completed"]
    assert (completed["conversation_id"], completed["user_id"]) == (session, "anonymous")


ULID = "01K9ZQ4W3V8N2R5T7Y9A1C3E5G"
NAMED = {
    "/awp": (ask(thread="mine"), "mine"),
    "/agent/tester/chat": ({"message": "hi", "session_id": ULID}, ULID),
    "/chat/stream": ({"input": "hi", "conversation_id": "mine"}, "mine"),
}


@pytest.mark.req("SRV-18", "ORC-08")
@pytest.mark.parametrize("room", [1, 0], ids=["served", "refused"])
@pytest.mark.parametrize("path", NAMED)
async def test_the_line_of_a_request_names_the_conversation_as_the_client_does(path, room, tmp_path):
    body, name = NAMED[path]
    key = {"Idempotency-Key": "k"}  # else REST refuses before it has read whose conversation it is
    with logged(tmp_path) as lines:
        settings = ServerSettings(protocols=tuple(WIRES), block=server_block(max_concurrent=room))
        async with served(settings=settings) as s, s.post(body, path, **key) as answer:
            await answer.read()
    (completed,) = [line for line in lines if line["event"] == "request_completed"]
    assert (completed["conversation_id"], completed["details"]["status"]) == (name, 200 if room else 503)


@pytest.mark.req("SRV-18")
async def test_debugging_a_run_that_is_longer_than_its_log_gives_it_no_second_ending(tmp_path):
    with logged(tmp_path, debug=True) as lines:
        serving = served(says("w " * 300), settings=ServerSettings(debug=True), max_log_events=100)
        async with serving as s, s.post(ask()) as answer:
            events = types(await answer.read())
    assert (events[-1], events.count("RUN_ERROR")) == ("RUN_FINISHED", 0)
    (completed,) = [line for line in lines if line["event"] == "run_completed"]
    assert completed["details"]["reply"].endswith(" w w ")


@pytest.mark.req("ORC-08")
async def test_every_line_of_a_run_has_the_clients_conversation_id(tmp_path):
    """Without a session store the conversation is kept under an id of ours, which no line shows."""
    settings = ServerSettings(protocols=("chat-stream",))
    with logged(tmp_path) as lines:
        serving = served(calls(("echo", "{}")), says("done"), settings=settings, tools=PlainTools(echo=echo))
        body = {"input": "hi", "conversation_id": "conv_123abc"}
        async with serving as s, s.post(body, "/chat/stream") as answer:
            await answer.read()
    of_run = [line for line in lines if line["event"] not in {"request_received", "log"}]
    assert {line["conversation_id"] for line in of_run} == {"conv_123abc"}
    assert len(of_run) >= 7


@pytest.mark.req("ORC-08")
@pytest.mark.parametrize("fails", [False, True])
async def test_the_line_of_a_request_says_whether_its_run_was_a_success(fails, tmp_path):
    last = Turn(error=ModelUnreachable("The model cannot be reached.")) if fails else says("done")
    with logged(tmp_path) as lines:
        async with served(calls(("echo", "{}")), last, tools=PlainTools(echo=echo)) as s, s.post(ask()) as answer:
            await answer.read()
    received, completed = (
        line["details"] for line in lines if line["event"] in {"request_received", "request_completed"}
    )
    assert received["path"] == completed["path"] == "/awp"
    assert received["input_length"] > 50
    assert (completed["status"], completed["success"], completed["tools_called"]) == (200, not fails, ["echo"])
