"""Whatever is wrong, the answer is problem+json, and the mistake is never ours."""

import gzip
import json

import pytest
from yarl import URL

from holodeck.errors import PROBLEM_BASE, ModelUnavailable
from holodeck.models.scripted import Turn
from tests.server.serving import ask, served, types

JSON = {"Content-Type": "application/json"}
GOOD = json.dumps(ask(run="fine")).encode()


def body(**changes):
    return json.dumps({**ask(run="fine"), **changes}).encode()


CASES = [  # method, path, headers, body → status, code
    ("GET", "/nothing", {}, None, 404, "not-found"),
    ("GET", "/" + "a" * 8000, {}, None, 404, "not-found"),
    ("GET", "/%00%1b[31m%e2%80%ae", {}, None, 404, "not-found"),
    ("PUT", "/awp", JSON, GOOD, 405, "method-not-allowed"),
    ("GET", "/awp", {}, None, 405, "method-not-allowed"),
    ("POST", "/health", JSON, b"{}", 405, "method-not-allowed"),
    ("PATCH", "/sessions/x", JSON, b"{}", 405, "method-not-allowed"),
    ("POST", "/awp", {"Content-Type": "text/plain"}, GOOD, 415, "unsupported-media-type"),
    ("POST", "/awp", {"Content-Type": "application/x-www-form-urlencoded"}, GOOD, 415, "unsupported-media-type"),
    ("POST", "/awp", {"Content-Type": "multipart/form-data; boundary=x"}, GOOD, 415, "unsupported-media-type"),
    ("POST", "/awp", {"Content-Type": ""}, GOOD, 415, "unsupported-media-type"),
    ("POST", "/awp", {**JSON, "Content-Encoding": "gzip"}, gzip.compress(GOOD), 415, "unsupported-media-type"),
    ("POST", "/awp", JSON, b"", 400, "invalid-request"),
    ("POST", "/awp", JSON, b"{", 400, "invalid-request"),
    ("POST", "/awp", JSON, b"\xff\xfe", 400, "invalid-request"),
    ("POST", "/awp", JSON, b"nothing", 400, "invalid-request"),
    ("POST", "/awp", JSON, b"[" * 40_000, 400, "invalid-request"),
    ("POST", "/awp", JSON, b'{"a":' * 50_000 + b"1" + b"}" * 50_000, 400, "invalid-request"),
    ("POST", "/awp", JSON, b"NaN", 400, "invalid-request"),
    ("POST", "/awp", JSON, body(state={"x": float("nan")}), 400, "invalid-request"),
    ("POST", "/awp", JSON, b"[]", 422, "invalid-request"),
    ("POST", "/awp", JSON, b"null", 422, "invalid-request"),
    ("POST", "/awp", JSON, b"{}", 422, "invalid-request"),
    ("POST", "/awp", JSON, body(threadId=None), 422, "invalid-request"),
    ("POST", "/awp", JSON, body(threadId=7), 422, "invalid-request"),
    ("POST", "/awp", JSON, body(threadId="a\nb"), 422, "invalid-request"),
    ("POST", "/awp", JSON, body(threadId="a\x1b[2Jb"), 422, "invalid-request"),
    ("POST", "/awp", JSON, body(threadId="x" * 129), 422, "invalid-request"),
    ("POST", "/awp", JSON, body(runId=""), 422, "invalid-request"),
    ("POST", "/awp", JSON, body(messages=None), 422, "invalid-request"),
    ("POST", "/awp", JSON, body(messages={"id": "m"}), 422, "invalid-request"),
    ("POST", "/awp", JSON, body(messages=[{"id": "m", "role": "user", "content": None}]), 422, "invalid-request"),
    ("POST", "/awp", JSON, body(state="x" * 300_000), 413, "payload-too-large"),
    (
        "POST",
        "/awp",
        JSON,
        body(runId="x", resume=[{"interruptId": "i", "status": "resolved"}]),
        422,
        "invalid-request",
    ),
    ("POST", "/awp", JSON, body(messages=[{"id": "else", "role": "user", "content": "hi"}]), 422, "invalid-request"),
    ("POST", "/awp", JSON, body(threadId="else"), 422, "invalid-request"),
    ("GET", "/runs/none", {}, None, 404, "run-not-found"),
    ("GET", "/runs/none/events", {}, None, 404, "run-not-found"),
    ("GET", "/runs/" + "a" * 8000, {}, None, 404, "run-not-found"),
    ("POST", "/runs/none/stop", {}, b"", 404, "run-not-found"),
    ("GET", "/runs/fine/events?after=x", {}, None, 422, "invalid-request"),
    ("GET", "/runs/fine/events?after=-2", {}, None, 422, "invalid-request"),
    ("GET", "/runs/fine/events?after=99999", {}, None, 422, "invalid-request"),
    ("GET", "/runs/fine/events?after=99999999999999999999999", {}, None, 422, "invalid-request"),
    ("GET", "/runs/fine/events", {"Last-Event-ID": "other:1"}, None, 422, "invalid-request"),
    ("GET", "/runs/fine/events", {"Last-Event-ID": "fine:-1"}, None, 422, "invalid-request"),
    ("GET", "/runs/fine/events", {"Last-Event-ID": "fine:1e3"}, None, 422, "invalid-request"),
    ("GET", "/runs/fine/events", {"Last-Event-ID": "fine:99999"}, None, 422, "invalid-request"),
    ("GET", "/sessions/none", {}, None, 404, "session-not-found"),
    ("GET", "/sessions/%00", {}, None, 400, "invalid-request"),
    ("GET", "/sessions/" + "x" * 200, {}, None, 400, "invalid-request"),
    ("DELETE", "/sessions/a%0Ab", {}, None, 400, "invalid-request"),
    ("POST", "/copilotkit/agent/other/run", JSON, GOOD, 404, "agent-not-found"),
    ("POST", "/copilotkit/agent/default/run", JSON, b"{", 400, "invalid-request"),
    ("POST", "/copilotkit/agent/default/connect", JSON, b"[]", 422, "invalid-request"),
    ("POST", "/copilotkit/agent/default/stop/a%7F", JSON, b"{}", 400, "invalid-request"),
    ("POST", "/copilotkit/agent/default/stop/a", JSON, b"[1]", 422, "invalid-request"),
    ("POST", "/copilotkit", JSON, b'{"method": "agent/dance"}', 422, "invalid-request"),
    ("POST", "/copilotkit", JSON, b'{"method": "agent/run", "params": 7, "body": 7}', 422, "invalid-request"),
    ("POST", "/copilotkit", JSON, b'{"method": ["info"]}', 422, "invalid-request"),
    ("POST", "/copilotkit", {}, b"{}", 415, "unsupported-media-type"),
]


@pytest.mark.req("SRV-17")
async def test_every_mistake_has_its_problem():
    async with served() as s:
        async with s.post(GOOD) as answer:
            assert types(await answer.read())[-1] == "RUN_FINISHED"
        for method, path, headers, data, status, code in CASES:
            case = f"{method} {path[:60]} {headers} {(data or b'')[:60]!r}"
            address = URL(s.url + path, encoded=True)
            skipped = () if "Content-Type" in headers else ("Content-Type",)
            async with s.client.request(
                method, address, headers=headers, data=data, skip_auto_headers=skipped
            ) as answer:
                text = await answer.text()
                assert answer.status == status, (case, text)
                assert answer.headers["Content-Type"] == "application/problem+json", case
                result = json.loads(text)
                assert result["type"] == PROBLEM_BASE + code, (case, result)
                assert result["status"] == status, case
                assert result["title"], case
                assert 0 < len(result["detail"]) < 2100, case
                assert result["instance"] == answer.headers["X-Request-ID"], case
                assert "Traceback" not in str(result), case
                if status == 405:
                    assert answer.headers["Allow"], case


async def test_half_a_surrogate_pair_is_mended_not_refused():
    raw = json.dumps(ask()).encode().replace(b'"hi"', b'"cut \\ud83d here"')
    async with served() as s, s.post(raw) as answer:
        assert answer.status == 200
        assert types(await answer.read())[-1] == "RUN_FINISHED"
        assert s.model.prompts[0].messages[0].content == "cut \ufffd here"


@pytest.mark.req("SRV-17", "T28")
async def test_an_unexpected_error_is_logged_and_reported_without_details(caplog):
    async with served() as s:

        async def broken(*_, **__):
            raise ZeroDivisionError("/srv/secret/place with sk-verysecretkey")

        s.server.store.read = broken
        async with s.get("/sessions/x") as answer:
            text = await answer.text()
            assert answer.status == 500
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert json.loads(text)["type"].endswith("/internal-error")
            assert "secret" not in text
            assert "ZeroDivisionError" not in text
    assert "ZeroDivisionError" in caplog.text


async def test_a_model_that_fails_is_the_ending_of_the_stream():
    turn = Turn(text=["so far"], error=ModelUnavailable("The model is overloaded.", started=True, retry_after=7))
    async with served(turn) as s, s.post() as answer:
        body = await answer.read()
        assert answer.status == 200
        assert types(body)[-1] == "RUN_ERROR"
        assert b'"code":"model-unavailable"' in body
