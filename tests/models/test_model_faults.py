"""The client against an endpoint that misbehaves on the wire: rows A01 to A17, over real sockets."""

import asyncio
import logging
import time

import msgspec
import pytest

from holodeck.errors import (
    ContentFiltered,
    ContextOverflow,
    ModelAuthFailed,
    ModelInterrupted,
    ModelProtocolError,
    ModelRejected,
    ModelStalled,
    ModelTimeout,
    ModelTruncated,
    ModelUnavailable,
    ModelUnreachable,
)
from holodeck.models.endpoint_settings import Deadlines
from tests.loop_clock import LIMIT
from tests.models.asking import HI, KEY, OK, PROMPT, SHORT, asking, fails, succeeds, unused_port
from tests.models.endpoint import (
    DONE,
    ModelEndpoint,
    Wire,
    chunk,
    close_at_once,
    frame,
    hang,
    reset_at_once,
    stream,
)
from tests.models.recording_listener import RecordingListener


@pytest.mark.req("A01")
async def test_a_closed_port():
    async with asking(f"http://127.0.0.1:{unused_port()}/v1") as model:
        with pytest.raises(ModelUnreachable, match="No connection to 127"):
            await model.reply(PROMPT, RecordingListener())
        assert model.pauses == [0.5, 1.0]


@pytest.mark.req("A01")
async def test_there_is_no_such_host():
    async with asking("http://no-such-host.invalid/v1") as model:
        with pytest.raises(
            ModelUnreachable, match=r"no-such-host\.invalid cannot be resolved\. Check your network connection and"
        ):
            await model.reply(PROMPT, RecordingListener())


@pytest.mark.req("A02")
@pytest.mark.parametrize("fault", [close_at_once, reset_at_once])
async def test_a_connection_closed_before_the_first_byte_is_tried_three_times(fault):
    _, _, endpoint, model = await fails(ModelUnreachable, fault)
    assert len(endpoint.requests) == 3
    assert len(model.pauses) == 2


@pytest.mark.req("A02")
async def test_the_second_try_may_work():
    reply, listener, endpoint, _ = await succeeds(close_at_once, OK)
    assert reply.text == listener.words == "Hello world"
    assert len(endpoint.requests) == 2


@pytest.mark.req("A03", "A04")
@pytest.mark.parametrize("end", [Wire.reset, Wire.close])
async def test_a_connection_broken_in_the_middle_is_not_tried_again(end):
    listener, sent = RecordingListener(), asyncio.Event()
    listener.text = lambda delta: (listener.recorded.append(("text", delta)), sent.set())

    async def respond(wire: Wire) -> None:
        await wire.head()
        await wire.send(HI)
        await sent.wait()
        end(wire)

    async with ModelEndpoint(respond) as endpoint, asking(endpoint.url) as model:
        with pytest.raises(ModelInterrupted) as caught:
            await model.reply(PROMPT, listener)
    assert caught.value.started
    assert listener.words == "Hi"
    assert len(endpoint.requests) == 1


@pytest.mark.req("A03")
async def test_a_connection_broken_before_the_first_word_is_tried_again():
    async def respond(wire: Wire) -> None:
        await wire.head()
        await wire.send(frame(chunk({"role": "assistant"})))
        wire.close()

    reply, _, endpoint, _ = await succeeds(respond, respond, OK)
    assert reply.text == "Hello world"
    assert len(endpoint.requests) == 3


@pytest.mark.req("A05")
@pytest.mark.parametrize(("frames", "tries"), [([], 3), ([HI], 1), ([b": x\n\n"], 3)])
async def test_a_clean_end_without_a_finish_is_truncated(frames, tries):
    _, _, endpoint, _ = await fails(ModelTruncated, stream(*frames))
    assert len(endpoint.requests) == tries


@pytest.mark.req("A06")
@pytest.mark.parametrize("end", [Wire.close, Wire.hang], ids=["close", "hang"])
async def test_once_finished_nothing_can_spoil_the_answer(end):
    async def respond(wire: Wire) -> None:
        await wire.head()
        await wire.send(HI, frame(chunk(finish="stop")))
        result = end(wire)
        if result is not None:
            await result

    reply, *_ = await succeeds(respond, deadlines=SHORT)
    assert reply.text == "Hi"


@pytest.mark.req("A06", "A21")
async def test_a_finish_reason_on_every_chunk_does_not_cut_the_answer(monkeypatch):
    monkeypatch.setattr("holodeck.models.streamed.AFTER_FINISH", 0.15)

    async def respond(wire: Wire) -> None:
        await wire.head()
        for _ in range(6):
            await wire.send(frame(chunk({"content": "x"}, finish="stop")))
            await asyncio.sleep(0.05)  # the pace of the model
        await wire.end()

    reply, *_ = await succeeds(respond)
    assert reply.text == "xxxxxx"


@pytest.mark.req("A07")
async def test_silence_before_the_first_word_is_tried_once_more():
    error, _, endpoint, _ = await fails(ModelTimeout, hang, deadlines=SHORT)
    assert len(endpoint.requests) == 2
    assert ("did not begin" in str(error), error.reason) == (True, "upstream_timeout")


@pytest.mark.req("A08")
async def test_silence_in_the_middle_ends_the_answer():
    async def respond(wire: Wire) -> None:
        await wire.head()
        await wire.send(HI)
        await wire.hang()

    error, listener, endpoint, _ = await fails(ModelStalled, respond, deadlines=SHORT)
    assert (error.started, error.code, error.reason) == (True, "timeout", "upstream_stalled")
    assert listener.words == "Hi"
    assert len(endpoint.requests) == 1


DRIPS = {
    "comments": b": ping\n\n",
    "role only": frame(chunk({"role": "assistant", "content": ""})),
    "empty chunks": frame({"choices": []}),
    "ping events": b'event: ping\ndata: {"type":"ping"}\n\n',
}


@pytest.mark.req("A09")
@pytest.mark.parametrize("drip", DRIPS)
async def test_drips_are_no_sign_of_life(drip):
    async def respond(wire: Wire) -> None:
        await wire.head()
        await wire.send(HI)
        while not wire.gone.is_set():
            await wire.send(DRIPS[drip])
            await asyncio.sleep(0.02)  # the pace of the drip, not a wait for something

    await fails(ModelStalled, respond, deadlines=msgspec.structs.replace(SHORT, total=LIMIT))


@pytest.mark.req("A09")
async def test_content_keeps_an_answer_alive_until_the_total_deadline():
    async def respond(wire: Wire) -> None:
        await wire.head()
        while not wire.gone.is_set():
            await wire.send(HI)
            await asyncio.sleep(0.05)  # the pace of the model

    limits = Deadlines(connect=1, first_token=0.3, idle=0.3, total=0.7)
    began = time.monotonic()
    _, listener, _, _ = await fails(ModelStalled, respond, deadlines=limits)
    assert time.monotonic() - began > 0.6
    assert len(listener.words) > 10


@pytest.mark.req("A10", "T28")
async def test_a_malformed_event_is_a_protocol_error_and_its_text_goes_to_the_debug_log_only(caplog):
    caplog.set_level(logging.DEBUG, "holodeck")
    secret = f"{{broken {KEY} \x1b[31m".encode() + b"x" * 500
    error, _, endpoint, _ = await fails(ModelProtocolError, stream(HI, b"data: " + secret + b"\n\n"))
    assert "broken" not in str(error)
    assert len(endpoint.requests) == 1
    (line,) = [record.getMessage() for record in caplog.records if "malformed" in record.getMessage()]
    assert "broken" in line
    assert KEY not in caplog.text
    assert "\x1b" not in line
    assert len(line) < 300


@pytest.mark.req("A14")
async def test_an_endless_line_ends_in_an_error():
    async def respond(wire: Wire) -> None:
        await wire.head()
        await wire.send(HI, b"data: ")
        while not wire.gone.is_set():
            await wire.send(b"x" * 65_536)

    await fails(ModelProtocolError, respond)


@pytest.mark.req("A16")
async def test_a_web_page_is_a_protocol_error_with_a_hint():
    error, *_ = await fails(ModelProtocolError, stream(b"<html>Welcome</html>", content_type="text/html"))
    assert "/v1" in str(error)


async def not_http(wire: Wire) -> None:
    await wire.raw(b"SSH-2.0-OpenSSH_9\r\n\r\n")
    wire.close()


@pytest.mark.req("A16")
async def test_what_does_not_speak_http_is_a_protocol_error():
    await fails(ModelProtocolError, not_http)


@pytest.mark.req("A17")
@pytest.mark.parametrize(
    ("value", "error", "tries"),
    [
        ({"message": "overloaded", "code": 502}, ModelUnreachable, 3),
        ({"message": "Rate limit reached", "code": "rate_limit_exceeded"}, ModelUnavailable, 3),
        ({"message": "busy", "code": 429}, ModelUnavailable, 3),
        ({"type": "overloaded_error", "message": "Overloaded"}, ModelUnavailable, 3),
        ("something", ModelUnreachable, 3),
        ({"code": "503", "status": "UNAVAILABLE"}, ModelUnavailable, 3),
        ({"message": "too long", "code": "context_length_exceeded"}, ContextOverflow, 1),
        ({"message": "no", "code": "invalid_api_key"}, ModelAuthFailed, 1),
        ({"message": "no", "type": "invalid_request_error"}, ModelRejected, 1),
        ({"message": "no", "code": "content_filter"}, ContentFiltered, 1),
    ],
)
async def test_an_error_inside_the_stream_follows_the_rule(value, error, tries):
    _, _, endpoint, _ = await fails(error, stream(frame({"error": value}), DONE))
    assert len(endpoint.requests) == tries
    late, _, endpoint, _ = await fails(
        error if error in (ContextOverflow, ContentFiltered) else ModelInterrupted, stream(HI, frame({"error": value}))
    )
    assert late.started
    assert len(endpoint.requests) == 1


@pytest.mark.req("A17", "T28")
async def test_the_endpoints_own_words_are_passed_on_without_secrets():
    words = {"message": f"Provider returned error for Bearer {KEY} " + "x y " * 200, "code": 500}
    error, *_ = await fails(ModelInterrupted, stream(HI, frame({"error": words})))
    assert "Provider returned error" in str(error)
    assert len(str(error)) < 400


@pytest.mark.req("A23")
async def test_a_half_call_of_a_cut_answer_is_not_reported():
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":'}}
    cut = stream(frame(chunk({"tool_calls": [call]})), frame(chunk(finish="length")), DONE)
    reply, listener, _, _ = await succeeds(cut)
    assert reply.finish_reason == "length"
    assert reply.tool_calls == ()
    assert listener.warnings == ["tool-call-cut"]


@pytest.mark.req("A24")
async def test_a_filtered_answer_is_not_tried_again():
    _, listener, endpoint, _ = await fails(ContentFiltered, stream(HI, frame(chunk(finish="content_filter")), DONE))
    assert listener.words == "Hi"
    assert len(endpoint.requests) == 1
