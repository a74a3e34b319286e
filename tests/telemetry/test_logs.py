"""Log lines: always JSON, always one line, never a secret, never in the way."""

import base64
import json
import logging
import os
import threading
import time
from contextlib import nullcontext
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holodeck.core.secrets import MASK
from holodeck.telemetry import logs
from holodeck.telemetry.log_context import RequestContext, enter
from holodeck.telemetry.logs import MAX_LINE, MAX_WAITING, LineFormat, LineWriter, hashed_with, note
from tests.examples import examples

MEMBERS = ["timestamp", "level", "request_id", "event", "duration_ms", "details", "user_id", "conversation_id"]


def line(_redact=(), event="x", **members) -> dict:
    raw = note(LineFormat(_redact), "info", event, **members)
    assert raw.endswith(b"\n")
    assert raw.count(b"\n") == 1
    assert len(raw) <= MAX_LINE + 1
    assert all(32 <= byte < 127 for byte in raw[:-1])
    return json.loads(raw, parse_constant=pytest.fail)


@pytest.mark.req("ORC-08")
def test_a_line_has_the_eight_members_in_order():
    written = line(duration_ms=1.23456, details={"a": 1}, extra="b")
    assert list(written) == MEMBERS
    assert written["duration_ms"] == 1.235
    assert written["details"] == {"a": 1, "extra": "b"}
    assert written["timestamp"].endswith("Z")


@pytest.mark.req("ORC-09")
def test_the_request_is_named_without_being_asked():
    async def request():
        enter(RequestContext("req_0123456789ab", "ann", "t1"))
        return line()

    import asyncio

    received = asyncio.run(request())
    assert (received["request_id"], received["user_id"], received["conversation_id"]) == (
        "req_0123456789ab",
        "ann",
        "t1",
    )
    assert line()["request_id"] is None


@pytest.mark.req("T29")
@examples(100)
@given(st.text(), st.dictionaries(st.text(), st.none() | st.floats() | st.text() | st.lists(st.text()), max_size=4))
@example("", {"APIKEY": None, "secret": 1.5, "password": ["a"]})
@example("secret=", {"api_key": "=", "cookie:": "bearer"})
def test_no_text_breaks_a_line(text, details):
    written = line(event=text, details=details)
    assert list(written) == MEMBERS


@pytest.mark.req("T29")
@pytest.mark.parametrize(
    "hostile",
    [
        '"}\n{"level":"info","event":"forged"}',
        "\r\n",
        "\x1b[2J",
        "\x9b31m",
        "\u2028\u2029\x85",
        "\x7f",
        "\ud800",
        "\u202e",
        "\x00",
    ],
)
def test_hostile_text_stays_inside_its_value(hostile):
    written = line(details={"message": hostile, hostile: 1})
    assert written["details"]["message"] == hostile
    assert written["event"] == "x"


def test_what_cannot_be_written_is_named():
    loop = {}
    loop["self"] = loop
    assert list(line(details={"at": object(), "set": {1}})["details"]) == ["at", "set"]
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for details in (loop, {"deep": deep}):
        assert "unprintable" in line(details=details)["details"]
    assert line(details={"number": float("nan")})["details"] == {"number": None}  # as JavaScript writes it
    for odd in ({"details": {"shy": Shy()}}, {"shy": Shy()}, {"user_id": Shy()}):
        assert line(**odd, request_id="r")["details"] == {"unprintable": "PermissionError"}
    written = line(duration_ms="long", request_id="r")
    assert (written["request_id"], written["event"], written["details"]) == ("r", "x", {"unprintable": "TypeError"})
    assert line(details={"number": float("inf"), "long": "x" * MAX_LINE})["details"]["cut"] > MAX_LINE


class Shy:
    def __repr__(self):
        raise PermissionError("not me")


def test_a_long_line_is_cut_and_says_so():
    written = line(["topsecretvalue"], details={"body": "topsecretvalue " + '"\\' * 100_000})
    assert written["details"]["cut"] > 100_000
    assert "topsecretvalue" not in json.dumps(written)
    assert written["details"]["start"].startswith('{"body"')


SECRETS = [f"s3cret-{n}-päss/wörd+{n}" for n in range(50)]


@pytest.mark.req("T28")
def test_known_secrets_are_masked_in_every_form():
    mask = LineFormat(SECRETS)
    for secret in SECRETS:
        for form in (secret, quote(secret, safe=""), base64.b64encode(secret.encode()).decode(), f"x{secret}y"):
            raw = note(mask, "info", form, details={"deep": [{"a": form}], form: 1}).decode()
            assert json.dumps(secret)[1:-1] not in raw
            assert quote(secret, safe="") not in raw
            assert base64.b64encode(secret.encode()).decode().rstrip("=") not in raw
            assert MASK in raw
            json.loads(raw)


@pytest.fixture
def pipe():
    read, write = os.pipe()
    yield read, write
    for fd in (read, write):
        os.close(fd)


def read_lines(fd) -> list[dict]:
    os.set_blocking(fd, False)
    data = b""
    while True:
        try:
            piece = os.read(fd, 1_000_000)
        except BlockingIOError:
            return [json.loads(each) for each in data.splitlines()]
        data += piece


def test_events_and_the_standard_library_come_out_the_same_way(pipe):
    output = logs.configure(fd=pipe[1], secrets=["hunter2-hunter2"])
    try:
        logs.event_log.info("model_called", details={"key": "hunter2-hunter2"})
        logs.event_log.debug("not shown")
        logging.getLogger("holodeck.somewhere").warning("careful with %s", "hunter2-hunter2")
        output._bridge.emit(logging.LogRecord("holodeck.somewhere", logging.INFO, "", 1, "%d", ("no number",), None))
        logging.getLogger("other").info("not shown")
        details = {"service": "model", "new_state": "open"}
        logging.getLogger("holodeck.x").warning("circuit_breaker_state_change", extra={"details": details})
        logging.getLogger("other").error("it broke", exc_info=ZeroDivisionError("oh"))
    finally:
        output.close()
    received = read_lines(pipe[0])
    assert [each["event"] for each in received] == [
        "model_called", "log", "log", "circuit_breaker_state_change", "error_occurred",
    ]  # fmt: skip
    assert received[3]["details"] == {"logger": "holodeck.x", **details}
    assert received[1]["details"] == {"logger": "holodeck.somewhere", "message": "careful with ***"}
    assert received[2]["details"]["message"].startswith("%d [")
    assert "ZeroDivisionError: oh" in received[4]["details"]["traceback"]
    assert received[4]["level"] == "error"


def test_an_event_keeps_its_level_its_details_and_its_traceback(pipe):
    output = logs.configure(fd=pipe[1], debug=True)
    log, changing = logs.event_log, {"a": [1]}
    try:
        for method in (log.debug, log.info, log.warning, log.error):
            method("model_called", details={"n": 1}, mood="good")
        try:
            int("no number")
        except ValueError:
            log.exception("it broke")
        logging.getLogger("holodeck.x").warning("mine", extra={"details": changing})
        changing["a"].clear()
    finally:
        output.close()
    lines = read_lines(pipe[0])
    assert [each["level"] for each in lines] == ["debug", "info", "warning", "error", "error", "warning"]
    assert lines[0]["details"] == {"n": 1, "mood": "good"}
    assert "ValueError: invalid literal" in lines[4]["details"]["traceback"]
    assert lines[5]["details"]["a"] == [1]  # as it was when it was logged


def test_what_prints_unmasked_lines_for_debugging_ends_with_the_configured_output(pipe):
    """`holodeck --debug` prints every record as it is, for commands that have no log of their own."""
    printed = logging.StreamHandler()
    logging.getLogger().addHandler(printed)
    try:
        logs.configure(fd=pipe[1], debug=True).close()
        assert printed not in logging.getLogger().handlers
    finally:
        logging.getLogger().removeHandler(printed)


def test_a_log_that_is_not_configured_drops_its_events(pipe):
    logs.configure(fd=pipe[1]).close()
    logs.event_log.info("model_called")
    assert read_lines(pipe[0]) == []


@pytest.mark.parametrize(("level", "shown"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_a_level_leaves_out_what_is_below_it(pipe, level, shown):
    output = logs.configure(fd=pipe[1], level=level)
    for method in (logs.event_log.debug, logs.event_log.info, logs.event_log.warning, logs.event_log.error):
        method("model_called")
    output.close()
    assert len(read_lines(pipe[0])) == shown


def test_text_lines_for_a_developer(pipe):
    output = logs.configure(fd=pipe[1], style="text", secrets=["hunter2-hunter2"])
    logs.event_log.info("model_called", duration_ms=12.3456, details={"key": "hunter2-hunter2", "text": "a\n\x1b[31m"})
    logs.event_log.warning("long", details={"text": "x" * 20_000})
    output.close()
    os.set_blocking(pipe[0], False)
    lines = os.read(pipe[0], 1_000_000).decode("ascii").splitlines()
    assert lines[0][13:] == 'INFO    model_called duration_ms=12.346 key="***" text="a\\n\\u001b[31m"'
    assert len(lines) == 2
    assert lines[1].endswith("characters)")
    assert len(lines[1]) <= logs.MAX_LINE


@pytest.mark.req("D13")
def test_a_blocked_pipe_costs_lines_and_nothing_else(pipe):
    read, write = pipe
    writer = LineWriter(write, bytes, lambda count: b'{"dropped": %d}\n' % count, max_lines=100)
    written = b'{"x": "%b"}\n' % (b"x" * 1000)
    begun = time.monotonic()
    for _ in range(5000):
        writer.put(written)
    assert time.monotonic() - begun < 10, "no thread reads before all lines are queued"
    assert writer.dropped > 4000
    reader = threading.Thread(target=lambda: collected.extend(_drain(read)))
    collected: list[dict] = []
    reader.start()
    while writer._waiting:  # the thread takes them when the pipe has room
        time.sleep(0.001)
    writer.put(written)
    writer.close(20)
    assert not writer._thread.is_alive()
    os.write(write, b'{"end": true}\n')
    reader.join(20)
    assert sum(each.get("dropped", 0) for each in collected) == writer.dropped
    assert sum("x" in each for each in collected) == 5001 - writer.dropped


@pytest.mark.req("D13")
def test_lines_come_in_their_order_and_take_no_more_memory_than_they_may(pipe):
    read, write = pipe
    writer = LineWriter(write, bytes, lambda count: b'{"dropped": %d}\n' % count, max_bytes=20_000)
    with writer._lock:  # the thread cannot take them
        put, writer._lock = writer.put, nullcontext()
        for number in range(MAX_WAITING + 1000):
            put(b'{"number": %d, "x": "%b"}\n' % (number, b"x" * 80))
        writer._lock = writer._filled._lock
    assert 20_000 < writer._size < 20_200
    writer.close(20)
    received = read_lines(read)
    kept = [each["number"] for each in received if "number" in each]
    assert kept == list(range(len(kept)))
    assert len(kept) + writer.dropped == MAX_WAITING + 1000
    assert received[-1] == {"dropped": writer.dropped}


def _drain(fd) -> list[dict]:
    data = b""
    while not data.endswith(b'{"end": true}\n'):
        data += os.read(fd, 65536)
    return [json.loads(each) for each in data.splitlines()]


def test_a_closed_pipe_is_survived():
    read, write = os.pipe()
    os.close(read)
    writer = LineWriter(write, bytes, lambda count: b"%d\n" % count)
    for _ in range(10):
        writer.put(b"x\n")
    writer.close(20)
    assert not writer._thread.is_alive()
    assert writer.dropped > 0
    os.close(write)


@pytest.mark.req("T29")
@pytest.mark.parametrize("where", ["details", "event", "conversation_id"])
def test_a_secret_across_a_cut_leaves_no_half_of_itself(where):
    """A line that is too long is cut; whatever the place of a secret in it, not eight characters of it are left."""
    secret = "sk-" + "".join(f"{n:02x}" for n in range(24))
    texts = []
    cuts = {"details": range((MAX_LINE - 2000) // 2 - 200, MAX_LINE // 2 + 100, 7), "event": range(0, 2100, 7)}
    for before in cuts.get(where, cuts["event"]):
        long = "x" * before + secret + "y" * MAX_LINE
        members = {"details": {"a": long}} if where == "details" else {"details": {"a": "z" * MAX_LINE}, where: long}
        written = json.dumps(line((secret,), **members))
        assert "cut" in written
        texts += [secret[i : i + 8] for i in range(len(secret) - 8) if secret[i : i + 8] in written]
    assert texts == []


def test_users_can_be_named_by_a_hash():
    shown = LineFormat(name_user=hashed_with(b"key"))

    def user_line(who, **details):
        made = note(dict, "info", "x", details=details, user_id=who)
        return json.loads(shown(made))

    ann = user_line("ann@example.com", user="ann@example.com", owner="bob", count=3)
    assert ann["user_id"] == ann["details"]["user"] == user_line("ann@example.com")["user_id"]
    assert ann["user_id"].startswith("user:")
    assert ann["details"]["owner"] != ann["user_id"]
    assert ann["details"]["count"] == 3
    assert "ann@" not in json.dumps(ann)
    assert user_line(None)["user_id"] is None
    assert (
        json.loads(note(LineFormat(name_user=hashed_with(b"other")), "info", "x", user_id="bob"))["user_id"]
        != user_line("bob")["user_id"]
    )
