"""`RunRequest.encoding` has values of the client. Half a surrogate pair in one must neither fail a run nor keep it."""

import json

import msgspec
import pytest

from holodeck.core.request import RunRequest
from holodeck.runs.run import MAX_ENCODING_BYTES, MAX_ENDED_ENCODING_BYTES, kept_after_end, kept_of
from holodeck.server.options import ServerSettings
from tests.runs.test_runs import ask, make_runs
from tests.server.serving import served, until

HALF = "abc\ud83d"
MENDED = "abc\ufffd"
PAINT = {"type": "function", "name": "paint", "parameters": {"type": "object", "properties": {}}}
RESPONSE_MEMBERS = {
    "instructions": {"instructions": HALF},
    "user": {"user": HALF},
    "safety_identifier": {"safety_identifier": HALF},
    "prompt_cache_key": {"prompt_cache_key": HALF},
    "metadata": {"metadata": {HALF: HALF}},
    "tools": {"tools": [{**PAINT, "description": HALF, "parameters": {"type": "object", "title": HALF}}]},
}
CALL = {"type": "tool-paint", "toolCallId": HALF, "state": "input-available", "input": {HALF: HALF}}
UI_MESSAGES = {
    "open call": [{"id": HALF, "role": "assistant", "parts": [CALL]}],
    "settled call": [
        {"id": HALF, "role": "assistant", "parts": [{**CALL, "state": "output-available", "output": HALF}]}
    ],
}


async def finished(s):
    """The only run, once the server keeps it as finished: then it forgets it after the replay window."""
    (run,) = s.server.runs._runs.values()
    await until(lambda: run in s.server.runs.finished.until, what="the run is among the finished ones")
    return run


@pytest.mark.parametrize("store", [True, False], ids=["stored", "not stored"])
@pytest.mark.parametrize("member", RESPONSE_MEMBERS)
async def test_half_a_surrogate_pair_in_a_member_that_a_response_repeats(member, store):
    async with served() as s:
        async with s.post({"input": "hello", "store": store, **RESPONSE_MEMBERS[member]}, "/v1/responses") as answer:
            assert answer.status == 200
            echo = (await answer.json())[member]
        assert MENDED in json.dumps(echo, ensure_ascii=False)
        run = await finished(s)
        assert MENDED.encode() in msgspec.json.encode(run.request.encoding)


@pytest.mark.parametrize("store", [True, False], ids=["stored", "not stored"])
async def test_the_name_in_a_tool_choice_is_repeated_as_it_was_read(store):
    choice = {"type": "function", "name": "pai\x00nt"}  # the names of tools are ASCII: half a pair is refused
    async with served() as s:
        body = {"input": "hello", "store": store, "tools": [PAINT], "tool_choice": choice}
        async with s.post(body, "/v1/responses") as answer:
            assert answer.status == 200
            assert (await answer.json())["tool_choice"] == {"type": "function", "name": "paint"}
        await finished(s)


async def test_half_a_surrogate_pair_in_the_name_of_a_chosen_tool_is_refused():
    body = {"input": "hello", "tools": [PAINT], "tool_choice": {"type": "function", "name": "paint\ud83d"}}
    async with served() as s, s.post(body, "/v1/responses") as answer:
        assert answer.status == 400


@pytest.mark.parametrize("case", UI_MESSAGES)
async def test_half_a_surrogate_pair_in_what_the_ai_sdk_shows(case):
    question = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    messages = [question, *UI_MESSAGES[case], {**question, "id": HALF}]
    async with served(settings=ServerSettings(protocols=("ai-sdk",))) as s:
        async with s.post({"id": "c", "messages": messages}, "/ai-sdk/chat") as answer:
            assert answer.status == 200
            await answer.read()
        await finished(s)


@pytest.mark.req("D11")
@pytest.mark.parametrize("what", ["encoding", "state", "properties"])
async def test_a_run_whose_request_cannot_be_measured_is_forgotten_all_the_same(what):
    runs = make_runs(replay_window=0)
    run = await runs.start(msgspec.structs.replace(ask(), throw_away=True, **{what: {"user": HALF}}))
    await run.done()
    await until(lambda: not runs.knows(run))
    assert (runs.finished.until, runs.finished.size) == ({}, 0)


@pytest.mark.req("D11")
async def test_a_run_whose_log_cannot_be_measured_is_forgotten_all_the_same(monkeypatch):
    runs = make_runs(replay_window=0)
    run = await runs.start(ask())
    monkeypatch.setattr(type(run.log), "size", lambda _log: 1 / 0)
    await run.done()
    await until(lambda: not runs.knows(run))
    assert (runs.finished.until, runs.finished.size) == ({}, 0)


def test_an_encoding_that_cannot_be_json_is_not_stored():
    assert kept_of(RunRequest(encoding={"echo": {"user": HALF}, "created": 1})).encoding == {}


def test_of_a_long_encoding_the_longest_members_are_not_stored():
    long = {"echo": {"instructions": "x" * MAX_ENCODING_BYTES}}
    assert kept_of(RunRequest(encoding=long)).encoding == {}
    assert kept_of(RunRequest(encoding={"minimal": True, **long})).encoding == {"minimal": True}
    tools, names = {"tools": ["x" * MAX_ENCODING_BYTES], "user": "u"}, ["paint"]
    kept = kept_of(RunRequest(encoding={"created": 1, "echo": tools, "client_tools": names})).encoding
    assert kept == {"created": 1, "echo": {"user": "u"}, "client_tools": names}


@pytest.mark.req("D11")
def test_less_of_an_encoding_is_kept_after_the_end_of_the_run():
    echo = {"instructions": "x" * 1500, "tools": ["x" * 1600], "user": "u"}
    request = kept_of(RunRequest(encoding={"created": 1, "echo": echo}))
    assert request.encoding["echo"] == echo, "while the run is in progress"
    ended = kept_after_end(request).encoding
    assert ended == {"created": 1, "echo": {"instructions": echo["instructions"], "user": "u"}}
    assert len(msgspec.json.encode(ended)) <= MAX_ENDED_ENCODING_BYTES
    many = {"open_calls": {f"call {number}": {"name": "paint", "input": "x" * 50} for number in range(150)}}
    kept = kept_after_end(RunRequest(encoding=many)).encoding
    assert 1000 < len(msgspec.json.encode(kept)) <= MAX_ENDED_ENCODING_BYTES
