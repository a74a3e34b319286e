"""Statuses: which are tried again, when, and what the error says. Rows A18 to A20, and secrets."""

import base64
import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from holodeck.errors import (
    ContentFiltered,
    ContextOverflow,
    ModelAuthFailed,
    ModelRejected,
    ModelUnavailable,
    ModelUnreachable,
)
from tests.models.asking import KEY, OK, PROMPT, SHORT, asking, fails, succeeds
from tests.models.endpoint import ModelEndpoint, Wire, status
from tests.models.recording_listener import RecordingListener

RETRY_AFTER = {
    "seconds": ({"Retry_After": "3"}, 3),
    "fraction": ({"Retry_After": "0.25"}, 0.25),
    "milliseconds": ({"Retry_After_Ms": "1500", "Retry_After": "9"}, 1.5),
    "zero": ({"Retry_After": "0"}, 0.5),
    "negative": ({"Retry_After": "-5"}, 0.5),
    "garbage": ({"Retry_After": "soon"}, 0.5),
    "nan": ({"Retry_After": "nan"}, 0.5),
    "none": ({}, 0.5),
    "a date that is past": ({"Retry_After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.5),
}


@pytest.mark.req("A18")
@pytest.mark.parametrize("form", RETRY_AFTER)
async def test_retry_after_is_honoured(form):
    headers, pause = RETRY_AFTER[form]
    reply, _, endpoint, model = await succeeds(status(429, b"{}", **headers), OK)
    assert reply.text == "Hello world"
    assert len(endpoint.requests) == 2
    assert model.pauses == [pause]


@pytest.mark.req("A18")
async def test_retry_after_may_be_a_date():
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=15), usegmt=True)
    _, _, _, model = await succeeds(status(429, b"{}", Retry_After=date), OK)
    assert model.pauses == [pytest.approx(14, abs=3)]


@pytest.mark.req("A18")
@pytest.mark.parametrize(
    ("headers", "passed_on"),
    [
        ({"Retry_After": "21"}, 21),
        ({"Retry_After": "1e99"}, 86_400),
        ({"Retry_After": "inf"}, 86_400),
    ],
)
async def test_a_long_wait_is_passed_on_instead(headers, passed_on):
    error, _, endpoint, model = await fails(ModelUnavailable, status(429, b"{}", **headers))
    assert error.retry_after == passed_on
    assert len(endpoint.requests) == 1
    assert model.pauses == []


@pytest.mark.req("A18")
async def test_a_wait_beyond_the_deadline_is_not_begun():
    error, _, _, model = await fails(ModelUnavailable, status(429, b"{}", Retry_After="10"), deadlines=SHORT)
    assert error.retry_after == 10
    assert model.pauses == []


@pytest.mark.req("A18")
async def test_geminis_own_retry_delay_is_read():
    body = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": "34s"}]}}
    error, *_ = await fails(ModelUnavailable, status(429, body))
    assert error.retry_after == 34


@pytest.mark.req("A19")
@pytest.mark.parametrize(
    ("code", "error"),
    [(500, ModelUnreachable), (502, ModelUnreachable), (503, ModelUnavailable), (504, ModelUnreachable), (529, ModelUnavailable), (408, ModelUnreachable), (520, ModelUnreachable)],
)  # fmt: skip
async def test_failures_of_the_server_are_tried_three_times(code, error):
    page = b"<html><h1>Bad gateway</h1></html>"
    failure, _, endpoint, model = await fails(error, status(code, page, Content_Type="text/html"))
    assert len(endpoint.requests) == 3
    assert model.pauses == [0.5, 1.0]
    assert "<" not in str(failure)


REFUSALS = {
    "401": (401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}, ModelAuthFailed, "OPENAI_API_KEY"),
    "403": (403, b"", ModelAuthFailed, "OPENAI_API_KEY"),
    "400 for a bad key": (400, [{"error": {"message": "API key not valid.", "status": "INVALID_ARGUMENT"}}], ModelAuthFailed, "OPENAI_API_KEY"),
    "400": (400, {"error": {"message": "bad things"}}, ModelRejected, "bad things"),
    "404": (404, {"error": {"message": "The model `m` does not exist"}}, ModelRejected, "'m'"),
    "404 page": (404, b"<html>nginx</html>", ModelRejected, "/v1"),
    "405": (405, {"detail": "Method Not Allowed"}, ModelRejected, "URL"),
    "402": (402, {"error": {"message": "Insufficient Balance"}}, ModelRejected, "credit"),
    "413": (413, b"", ModelRejected, "413"),
    "422": (422, {"detail": [{"loc": ["body"], "msg": "Field required"}]}, ModelRejected, "Field required"),
    "quota": (429, {"error": {"code": "insufficient_quota", "message": "no"}}, ModelRejected, "credit"),
    "overflow by code": (400, {"error": {"code": "context_length_exceeded", "message": "x"}}, ContextOverflow, "too long"),
    "overflow openai": (400, {"error": {"message": "This model's maximum context length is 8192 tokens."}}, ContextOverflow, "too long"),
    "overflow gemini": (400, {"error": {"message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."}}, ContextOverflow, "too long"),
    "overflow anthropic": (400, {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}, ContextOverflow, "too long"),
    "overflow llama.cpp": (400, {"error": {"message": "the request exceeds the available context size"}}, ContextOverflow, "too long"),
    "overflow mistral": (400, {"object": "error", "message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"}, ContextOverflow, "too long"),
    "overflow xai": (400, {"code": "invalid argument", "error": "This model's maximum prompt length is 131072 but the request contains 140000 tokens."}, ContextOverflow, "too long"),
    "overflow lm studio": (400, {"error": "Trying to keep the first 5000 tokens. However, the model is loaded with context length of only 4096 tokens"}, ContextOverflow, "too long"),
    "overflow tgi": (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens"}, ContextOverflow, "too long"),
    "overflow moonshot": (400, {"error": {"message": "exceeded model token limit: 8192 (requested: 9000)"}}, ContextOverflow, "too long"),
    "overflow z.ai": (400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}, ContextOverflow, "too long"),
    "overflow qwen": (400, {"error": {"message": "InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]"}}, ContextOverflow, "too long"),
    "more than a minute's tokens, groq": (413, {"error": {"message": "Request too large for model `llama` on tokens per minute (TPM): Limit 6000, Requested 7000"}}, ContextOverflow, "too long"),
    "more than a minute's tokens, openai": (429, {"error": {"message": "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 35364."}}, ContextOverflow, "too long"),
    "credit anthropic": (400, {"error": {"message": "Your credit balance is too low to access the Anthropic API."}}, ModelRejected, "no credit"),
    "credit xai": (403, {"code": "no permission", "error": "Your team has either used all available credits or reached its monthly spending limit."}, ModelRejected, "no credit"),
    "disabled organization": (400, {"error": {"message": "This organization has been disabled."}}, ModelAuthFailed, "OPENAI_API_KEY"),
    "anthropic filter": (400, {"error": {"message": "Output blocked by content filtering policy"}}, ContentFiltered, "content filter"),
    "a request id in the body": (400, {"error": {"message": "bad"}, "request_id": "req_011"}, ModelRejected, "(request id req_011)"),
    "azure filter": (400, {"error": {"code": "content_filter", "message": "The response was filtered"}}, ContentFiltered, "content filter"),
    "redirect": (307, b"", ModelRejected, "redirects"),
    "501": (501, b"", ModelRejected, "501"),
}  # fmt: skip


@pytest.mark.req("A20")
@pytest.mark.parametrize("case", REFUSALS)
async def test_refusals_are_not_tried_again_and_say_what_to_do(case):
    code, body, error, words = REFUSALS[case]
    failure, _, endpoint, model = await fails(error, status(code, body))
    assert words in str(failure)
    assert len(endpoint.requests) == 1
    assert model.pauses == []


async def test_a_call_that_the_model_wrote_wrongly_is_tried_again():
    broken = {"error": {"message": "Failed to call a function.", "code": "tool_use_failed", "failed_generation": "<f>"}}
    reply, _, endpoint, model = await succeeds(status(400, broken), OK)
    assert (reply.text, len(endpoint.requests), model.pauses) == ("Hello world", 2, [0.5])


@pytest.mark.req("A20")
async def test_a_missing_key_is_asked_for_by_its_variable():
    error, _, endpoint, _ = await fails(ModelAuthFailed, status(401), api_key=None, provider="gemini")
    assert "Set GEMINI_API_KEY" in str(error)
    assert "authorization" not in endpoint.requests[0].headers


@pytest.mark.req("T28")
async def test_keys_are_not_carried_to_another_origin():
    async with ModelEndpoint(OK) as other:
        error, _, _, _ = await fails(ModelRejected, status(307, b"", Location=f"{other.url}/chat/completions"))
        assert other.requests == []
    assert str(other.port) in str(error)


ERROR_OF = {400: ModelRejected, 401: ModelAuthFailed, 429: ModelUnavailable, 500: ModelUnreachable}


@pytest.mark.req("T28")
@pytest.mark.parametrize(
    "form", [KEY, base64.b64encode(KEY.encode()).decode(), "x-tenant-secret", "AIzaSyA-0123456789abcdefghij"]
)
@pytest.mark.parametrize("code", [400, 401, 429, 500])
async def test_an_endpoint_that_echoes_secrets_is_not_quoted(form, code, caplog):
    caplog.set_level(logging.DEBUG)
    body = {"error": {"message": f"got Authorization: Bearer {form} and {form}."}}
    error, _, _, model = await fails(ERROR_OF[code], status(code, body), headers={"X-Tenant": "x-tenant-secret"})
    assert form not in str(error)
    assert form not in caplog.text
    assert form not in repr(model)
    assert "got Authorization" in str(error)


@pytest.mark.req("T28")
async def test_a_key_in_the_endpoints_query_is_a_secret_too():
    async def respond(wire: Wire) -> None:
        await status(400, {"error": {"message": f"bad request to {wire.request.path}"}})(wire)

    async with ModelEndpoint(respond) as endpoint, asking(f"{endpoint.url}?key=correct-horse") as model:
        with pytest.raises(ModelRejected) as caught:
            await model.reply(PROMPT, RecordingListener())
    assert endpoint.requests[0].path == "/v1/chat/completions?key=correct-horse"
    assert "bad request" in str(caught.value)
    assert "correct-horse" not in str(caught.value) + repr(model)


@pytest.mark.req("A20")
async def test_a_refusal_whose_text_never_ends_counts_by_its_status(monkeypatch):
    monkeypatch.setattr("holodeck.models.streamed.REFUSAL", 0.05)

    async def respond(wire: Wire) -> None:
        await wire.head(401)
        await wire.send(b"{")
        await wire.hang()

    await fails(ModelAuthFailed, respond)
