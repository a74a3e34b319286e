"""A Bedrock client and an endpoint that speaks the real wire: signatures, requests, refusals, retries."""

import base64
import json
import logging
from contextlib import asynccontextmanager

import pytest
from botocore.validate import ParamValidator

from holodeck.core.messages import AssistantMessage, MediaPart, TextPart, ToolCall, ToolMessage, UserMessage
from holodeck.core.tools import ToolSchema
from holodeck.errors import (
    ContextOverflow,
    ModelAuthFailed,
    ModelError,
    ModelInterrupted,
    ModelRejected,
    ModelUnavailable,
    ModelUnreachable,
)
from holodeck.models.anthropic.content_blocks import KEPT
from holodeck.models.bedrock.aws_credentials import ADVICE, AwsSigner
from holodeck.models.bedrock.converse_model import ConverseModel
from holodeck.models.bedrock.converse_request import ANSWER_NOW
from holodeck.models.endpoint_settings import Deadlines, EndpointSettings, Reasoning
from holodeck.models.port import OutputSchema, Prompt
from tests.models.bedrock.converse_api import converse_operation
from tests.models.bedrock.converse_streams import (
    SHAPES,
    SIGNATURE,
    SIGNED,
    START,
    delta,
    failure,
    frame,
)
from tests.models.bedrock.sigv4_check import KEY_ID, SECRET, is_signed
from tests.models.endpoint import ModelEndpoint, Respond, status, stream
from tests.models.recording_listener import RecordingListener

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
NOVA = "amazon.nova-pro-v1:0"
VARIABLES = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}
HI = UserMessage(content="Hi")
LOOK = ToolSchema(name="look", description="Looks.", parameters={"properties": {"a": {"type": "integer"}}})
PNG, PDF = (base64.b64encode(each).decode() for each in (b"\x89PNG", b"%PDF-1.7"))


def frames(*pieces: bytes) -> Respond:
    return stream(*pieces, content_type="application/vnd.amazon.eventstream")


def shaped(name: str) -> Respond:
    return frames(*SHAPES[name].frames)


def refused(code: int, message: str, **headers: str) -> Respond:
    return status(code, {"message": message}, **headers)


OK = shaped("text")


@asynccontextmanager
async def asking(*responses: Respond, signed: bool = True, region: str = "eu-central-1", **settings):
    """A client in front of an endpoint; `pauses` are the seconds it would have waited between attempts."""
    async with ModelEndpoint(*responses) as endpoint:
        base = endpoint.url.removesuffix("/v1")
        given = {"name": CLAUDE, "provider": "bedrock", "endpoint": base, "deadlines": Deadlines(connect=2)}
        given |= {"key_advice": ADVICE, "cache": "off", "temperature": None, **settings}
        pauses: list[float] = []

        async def note(seconds: float) -> None:
            pauses.append(seconds)

        signer = AwsSigner(region, variables=VARIABLES, signed=given.get("headers")) if signed else None
        model = ConverseModel(EndpointSettings(**given), signer=signer, sleep=note, chance=lambda: 1.0)
        model.pauses = pauses
        try:
            yield model, endpoint
        finally:
            await model.close()


async def answers(*responses: Respond, prompt: Prompt | None = None, **settings):
    async with asking(*responses, **settings) as (model, endpoint):
        reply = await model.reply(prompt or Prompt(system="Be brief.", messages=(HI,)), RecordingListener())
    return reply, endpoint


async def fails(error: type[ModelError], *responses: Respond, prompt: Prompt | None = None, **settings):
    async with asking(*responses, **settings) as (model, endpoint):
        with pytest.raises(error) as caught:
            await model.reply(prompt or Prompt(messages=(HI,)), RecordingListener())
    assert type(caught.value) is error
    assert SECRET not in str(caught.value)
    return caught.value, endpoint, model.pauses


async def asked(prompt: Prompt, **settings):
    """The request that a prompt becomes. botocore's own description of the API finds it valid."""
    _, endpoint = await answers(OK, prompt=prompt, **settings)
    body = endpoint.requests[0].json
    report = ParamValidator().validate(
        {"modelId": settings.get("model", CLAUDE), **body}, converse_operation().input_shape
    )
    assert not report.has_errors(), report.generate_report()
    return body


# who asks


async def test_a_request_is_signed_and_its_url_holds_the_model():
    reply, endpoint = await answers(OK)
    [request] = endpoint.requests
    assert reply.text == "Hello world"
    assert request.path == "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"
    assert is_signed(request, region="eu-central-1")
    assert not is_signed(request, region="eu-central-1", secret="another")


async def test_the_check_of_signatures_accepts_botocore_itself():
    """So it is the specification's, and not a copy of our own mistakes."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    from tests.models.endpoint import Received

    arn = "arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Aapplication-inference-profile%2Fabc"
    path = f"/model/{arn}/converse-stream"
    request = AWSRequest("POST", f"https://b.example{path}", data=b"{}", headers={"Content-Type": "application/json"})
    SigV4Auth(Credentials(KEY_ID, SECRET), "bedrock", "us-east-1").add_auth(request)
    headers = {name.lower(): value for name, value in request.headers.items()} | {"host": "b.example"}
    assert is_signed(Received("POST", path, headers, b"{}"), region="us-east-1")


async def test_an_arn_names_a_model():
    arn = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc"
    _, endpoint = await answers(OK, name=arn)
    assert endpoint.requests[0].path == f"/model/{arn.replace(':', '%3A').replace('/', '%2F')}/converse-stream"
    assert is_signed(endpoint.requests[0], region="eu-central-1")


async def test_the_files_own_headers_are_signed_too():
    _, endpoint = await answers(OK, headers={"X-Amzn-Bedrock-Tag": "a  b"})
    assert "x-amzn-bedrock-tag" in endpoint.requests[0].headers["authorization"]
    assert is_signed(endpoint.requests[0], region="eu-central-1")


async def test_a_session_token_goes_along():
    signer = AwsSigner("us-east-1", variables={**VARIABLES, "AWS_SESSION_TOKEN": "session"})
    headers = await signer.headers("https://b.example/model/m/converse-stream", b"{}")
    assert headers["X-Amz-Security-Token"] == "session"
    assert "x-amz-security-token" in headers["Authorization"]


async def test_a_bearer_token_needs_no_signature():
    _, endpoint = await answers(OK, signed=False, api_key="bedrock-api-key")
    assert endpoint.requests[0].headers["authorization"] == "Bearer bedrock-api-key"


async def test_an_authorization_of_the_file_wins():
    _, endpoint = await answers(OK, headers={"Authorization": "Basic eDp5"})
    assert endpoint.requests[0].headers["authorization"] == "Basic eDp5"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A machine without credentials, but for what the test writes."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path


async def test_a_profile_has_the_credentials(home):
    (home / "credentials").write_text(f"[work]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n")
    headers = await AwsSigner("us-east-1", profile="work").headers("https://b.example/", None)
    assert f"Credential={KEY_ID}/" in headers["Authorization"]


async def test_credentials_that_a_program_issues_are_renewed(home):
    """`credential_process` is how many companies issue short-lived keys."""
    issued = {"Version": 1, "AccessKeyId": KEY_ID, "SecretAccessKey": SECRET, "SessionToken": "t"}
    (home / "issued.json").write_text(json.dumps({**issued, "Expiration": "2199-01-01T00:00:00Z"}))
    (home / "config").write_text(f"[profile work]\ncredential_process = cat {home / 'issued.json'}\n")
    headers = await AwsSigner("us-east-1", profile="work").headers("https://b.example/", None)
    assert headers["X-Amz-Security-Token"] == "t"


async def test_credentials_that_expired_are_looked_up_again(home):
    """`aws sso login`, or a job that writes short-lived keys, has put others there meanwhile."""
    lines = "[work]\naws_access_key_id={}\naws_secret_access_key={}\n"
    (home / "credentials").write_text(lines.format(KEY_ID, SECRET))
    signer = AwsSigner("us-east-1", profile="work")
    old = await signer.headers("https://b.example/", None)
    (home / "credentials").write_text(lines.format("AKIANEXT", SECRET))
    assert not signer.refused(old, 403, "User is not authorized to perform bedrock:InvokeModel")
    assert "AKIANEXT" not in (await signer.headers("https://b.example/", None))["Authorization"]
    assert signer.refused(old, 403, "The security token included in the request is expired")
    assert "Credential=AKIANEXT/" in (await signer.headers("https://b.example/", None))["Authorization"]
    given = AwsSigner("us-east-1", variables=VARIABLES)
    assert not given.refused(old, 403, "The security token included in the request is expired")


async def test_no_credentials_say_what_to_set(home):
    with pytest.raises(ModelAuthFailed, match=r"no AWS credentials.*AWS_BEARER_TOKEN_BEDROCK.*model\.profile"):
        await AwsSigner("us-east-1").headers("https://b.example/", None)


async def test_a_profile_that_is_not_there_is_named(home):
    with pytest.raises(ModelAuthFailed, match="nosuch"):
        await AwsSigner("us-east-1", profile="nosuch").headers("https://b.example/", None)


async def test_credentials_that_cannot_be_fetched_say_from_where(home, monkeypatch):
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:9/credentials")
    monkeypatch.setenv("AWS_METADATA_SERVICE_NUM_ATTEMPTS", "1")
    from botocore import utils

    monkeypatch.setattr(utils.ContainerMetadataFetcher, "SLEEP_TIME", 0)
    with pytest.raises(ModelAuthFailed, match="cannot be used"):
        await AwsSigner("us-east-1").headers("https://b.example/", None)


# what is asked


async def test_a_plain_request_has_what_the_file_sets_and_no_more():
    body = await asked(Prompt(system="Be brief.", messages=(HI,)), cache="off")
    assert body == {"messages": [{"role": "user", "content": [{"text": "Hi"}]}], "system": [{"text": "Be brief."}]}


async def test_options_have_their_members():
    body = await asked(
        Prompt(messages=(HI,)),
        name=NOVA,
        max_tokens=500,
        temperature=0.2,
        top_p=0.9,
        stop=("END",),
        service_tier="flex",
        reasoning=Reasoning(effort="high"),
        extra={"additionalModelRequestFields": {"topK": 5}, "requestMetadata": {"team": "a"}},
    )
    assert body["inferenceConfig"] == {"maxTokens": 500, "temperature": 0.2, "topP": 0.9, "stopSequences": ["END"]}
    assert body["serviceTier"] == {"type": "flex"}
    assert body["outputConfig"] == {"effort": "high"}
    assert body["additionalModelRequestFields"] == {"topK": 5}
    assert body["requestMetadata"] == {"team": "a"}


async def test_claude_is_asked_to_think_in_its_own_words():
    body = await asked(
        Prompt(messages=(HI,)),
        reasoning=Reasoning(budget_tokens=4000),
        max_tokens=9000,
        betas=("interleaved-thinking-2025-05-14",),
        extra={"additionalModelRequestFields": {"top_k": 5}},
    )
    assert body["additionalModelRequestFields"] == {
        "thinking": {"type": "enabled", "budget_tokens": 4000},
        "anthropic_beta": ["interleaved-thinking-2025-05-14"],
        "top_k": 5,
    }
    adaptive = await asked(Prompt(messages=(HI,)), reasoning=Reasoning(effort="minimal"))
    assert adaptive["additionalModelRequestFields"]["thinking"]["type"] == "adaptive"
    assert adaptive["outputConfig"] == {"effort": "low"}


async def test_tools_and_the_choice_among_them():
    prompt = Prompt(messages=(HI,), tools=(LOOK,))
    body = await asked(prompt, tool_choice="required", provider_tools=({"systemTool": {"name": "nova_grounding"}},))
    assert body["toolConfig"]["tools"] == [
        {
            "toolSpec": {
                "name": "look",
                "description": "Looks.",
                "inputSchema": {"json": {"type": "object", **LOOK.parameters}},
            }
        },
        {"systemTool": {"name": "nova_grounding"}},
    ]
    assert body["toolConfig"]["toolChoice"] == {"any": {}}
    assert (await asked(prompt, tool_choice="look"))["toolConfig"]["toolChoice"] == {"tool": {"name": "look"}}
    assert "toolChoice" not in (await asked(prompt))["toolConfig"]


def conversation(*, extra: dict | None = None, result: object = "seen", failed: bool = False):
    call = ToolCall(id="call_" + "x" * 80, name="look", arguments='{"a": 1}')
    return (
        HI,
        AssistantMessage(content="I look.", tool_calls=(call,), extra=extra or {}),
        ToolMessage(call_id=call.id, name="look", content=result, failed=failed),
    )


async def test_a_call_and_its_result_have_one_id_that_the_api_takes():
    body = await asked(Prompt(messages=conversation(failed=True), tools=(LOOK,)), cache="off")
    _, call, result = (message["content"] for message in body["messages"])
    assert call[1]["toolUse"]["input"] == {"a": 1}
    assert call[1]["toolUse"]["toolUseId"] == result[0]["toolResult"]["toolUseId"]
    assert result[0]["toolResult"]["content"] == [{"text": "seen"}]
    assert result[0]["toolResult"]["status"] == "error"


async def test_tools_that_were_used_are_described_even_when_none_is_offered():
    """Converse refuses a history with calls otherwise."""
    body = await asked(Prompt(messages=conversation()), cache="off")
    assert [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"]] == ["look"]
    now = await asked(Prompt(messages=conversation(), tools=(LOOK,), answers_now=True), cache="off")
    assert now["system"] == [{"text": ANSWER_NOW}]
    assert "toolChoice" not in now["toolConfig"]
    fresh = await asked(Prompt(messages=(HI,), tools=(LOOK,), answers_now=True))
    assert "toolConfig" not in fresh


async def test_thinking_goes_back_with_the_results():
    kept = {KEPT: {"content": [SIGNED, {"type": "redacted_thinking", "data": "T3BhcXVl"}, {"type": "text", "text": "I look."}, {"type": "tool_use"}]}}  # fmt: skip
    body = await asked(Prompt(messages=conversation(extra=kept), tools=(LOOK,)))
    assert body["messages"][1]["content"][:3] == [
        {"reasoningContent": {"reasoningText": {"text": "Hm. Yes.", "signature": SIGNATURE}}},
        {"reasoningContent": {"redactedContent": "T3BhcXVl"}},
        {"text": "I look."},
    ]


async def test_images_and_documents():
    files = (
        MediaPart(mime_type="image/png", data=PNG),
        MediaPart(mime_type="application/pdf", data=PDF, filename="Q3  report (final).v2.pdf"),
        MediaPart(mime_type="text/csv", data=base64.b64encode(b"a,b").decode(), filename="x.csv"),
        MediaPart(mime_type="image/png", url="https://i.example/a.png"),
    )
    body = await asked(Prompt(messages=(UserMessage(content=files),)), cache="off")
    assert body["messages"][0]["content"] == [
        {"image": {"format": "png", "source": {"bytes": PNG}}},
        {"document": {"format": "pdf", "name": "Q3 report (final) v2", "source": {"bytes": PDF}}},
        {"document": {"format": "txt", "name": "x", "source": {"bytes": base64.b64encode(b"a,b").decode()}}},
        {"text": "Image: https://i.example/a.png"},
    ]
    again = (UserMessage(content=files[1:2]), *conversation(result=(files[1],))[1:])
    sent = (await asked(Prompt(messages=again, tools=(LOOK,)), cache="off"))["messages"]
    names = [sent[0]["content"][0]["document"]["name"]]
    names.append(sent[2]["content"][0]["toolResult"]["content"][0]["document"]["name"])
    assert names == ["Q3 report (final) v2", "Q3 report (final) v2 (2)"]
    alone = await asked(Prompt(messages=(UserMessage(content=files[1:2]),)), cache="off")
    assert "text" in alone["messages"][0]["content"][1]  # Converse wants one beside a document
    shown = conversation(result=(TextPart("see"), files[0]))
    result = (await asked(Prompt(messages=shown, tools=(LOOK,))))["messages"][2]["content"][0]["toolResult"]
    assert result["content"] == [{"text": "see"}, {"image": {"format": "png", "source": {"bytes": PNG}}}]


@pytest.mark.parametrize(("cache", "point"), [("auto", {"type": "default"}), ("1h", {"type": "default", "ttl": "1h"})])
async def test_cache_points(cache, point):
    messages = (HI, AssistantMessage(content="Hello."), UserMessage(content="And?"))
    body = await asked(Prompt(system="Be brief.", messages=messages, tools=(LOOK,)), cache=cache)
    mark = {"cachePoint": point}
    assert body["toolConfig"]["tools"][-1] == mark
    assert body["system"][-1] == mark
    assert [message["content"][-1] == mark for message in body["messages"]] == [True, False, True]


async def test_an_answer_by_a_schema_is_asked_for_natively_and_by_a_tool_otherwise():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    prompt = Prompt(messages=(HI,), output=OutputSchema(name="place", schema=schema))
    body = await asked(prompt)
    described = body["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert (described["name"], json.loads(described["schema"])) == ("place", schema)
    no = refused(400, "This model doesn't support the outputConfig.textFormat field. Remove it and try again.")
    reply, endpoint = await answers(no, shaped("one call"), prompt=prompt)
    assert endpoint.requests[1].json["toolConfig"]["tools"][0]["toolSpec"]["name"] == "give_answer"
    assert reply.finish_reason == "tool_calls"


# what is refused, and learned


@pytest.mark.parametrize(
    ("code", "message", "settings", "gone"),
    [
        (403, "You invoked an unsupported model or your request did not allow prompt caching. See the documentation.", {}, "cachePoint"),
        (400, "Malformed input request: #/toolConfig/tools/1: extraneous key [cachePoint] is not permitted", {}, "tools cachePoint"),
        (400, "This model doesn't support the temperature field. Remove temperature and try again.", {"temperature": 0.5}, "temperature"),
        (400, "This model doesn't support the stopSequences field. Remove stopSequences and try again.", {"stop": ("X",)}, "stopSequences"),
        (400, "This model doesn't support the toolConfig.toolChoice.any field. Remove toolConfig.toolChoice.any and try again.", {"tool_choice": "required"}, "toolChoice"),
        (400, "The model returned the following errors: `temperature` and `top_p` cannot both be specified for this model.", {"temperature": 0.5, "top_p": 0.5}, "topP"),
        (400, "The model returned the following errors: thinking.type.enabled: not supported for this model", {"reasoning": Reasoning(budget_tokens=2000)}, "budget_tokens"),
        (400, "This model does not support the effort parameter.", {"reasoning": Reasoning(effort="high")}, "effort"),
    ],
)  # fmt: skip
async def test_what_a_model_refuses_is_left_out(code, message, settings, gone):
    settings = {"cache": "auto", **settings}
    prompt = Prompt(system="Be brief.", messages=(HI,), tools=(LOOK,))
    reply, endpoint = await answers(refused(code, message), OK, prompt=prompt, **settings)
    first, second = (request.json for request in endpoint.requests)
    if gone == "tools cachePoint":
        assert "cachePoint" not in json.dumps(second["toolConfig"])
        assert "cachePoint" in json.dumps(second["system"])
    else:
        assert f'"{gone}"' in json.dumps(first)
        assert f'"{gone}"' not in json.dumps(second)
    assert reply.text == "Hello world"


async def test_a_model_that_cannot_stream_with_tools_is_asked_for_the_whole_answer():
    whole = status(200, SHAPES["a whole answer"].body)
    no = refused(400, "This model doesn't support tool use in streaming mode.")
    reply, endpoint = await answers(no, whole, prompt=Prompt(messages=(HI,), tools=(LOOK,)))
    assert endpoint.requests[1].path.endswith("/converse")
    assert is_signed(endpoint.requests[1], region="eu-central-1")
    assert [call.name for call in reply.tool_calls] == ["look"]


async def test_a_model_without_system_prompts_reads_it_in_the_first_message():
    _, endpoint = await answers(refused(400, "This model doesn't support system messages. Try again without."), OK)
    body = endpoint.requests[1].json
    assert "system" not in body
    assert body["messages"][0]["content"][:2] == [{"text": "Be brief."}, {"text": "Hi"}]


async def test_a_limit_of_tokens_is_learned():
    no = refused(400, "The maximum tokens you requested exceeds the model limit of 4096. Try again with a lower one.")
    _, endpoint = await answers(no, OK, max_tokens=9000)
    assert endpoint.requests[1].json["inferenceConfig"] == {"maxTokens": 4096}


@pytest.mark.parametrize(
    "words",
    [
        "The model returned the following errors: messages.1.content.0: Invalid `signature` in `thinking` block",
        "This model doesn't support the reasoningContent field. Remove reasoningContent and try again.",
    ],
)
async def test_thinking_that_a_model_does_not_take_is_dropped_once(words, caplog):
    kept = {KEPT: {"content": [SIGNED, {"type": "text", "text": "I look."}, {"type": "tool_use"}]}}
    no = refused(400, words)
    prompt = Prompt(messages=conversation(extra=kept), tools=(LOOK,))
    with caplog.at_level(logging.WARNING):
        _, endpoint = await answers(no, OK, prompt=prompt)
    assert "reasoningContent" in json.dumps(endpoint.requests[0].json)
    assert "reasoningContent" not in json.dumps(endpoint.requests[1].json)
    assert "refused the thinking" in caplog.text
    await fails(ModelRejected, no, prompt=prompt)  # and not for ever


# what fails


@pytest.mark.parametrize(
    ("code", "message", "error", "words"),
    [
        (403, "The security token included in the request is invalid.", ModelAuthFailed, "did not accept the AWS credentials"),
        (403, "You don't have access to the model with the specified model ID.", ModelAuthFailed, "the account may use the model"),
        (404, "Could not resolve the foundation model from the provided model identifier.", ModelRejected, "there is no model"),
        (400, "Input is too long for requested model.", ContextOverflow, "too long"),
        (400, "Input Tokens Exceeded: Number of input tokens exceeds maximum length.", ContextOverflow, "too long"),
        (400, "messages: text content blocks must be non-empty", ModelRejected, "refused the request"),
    ],
)  # fmt: skip
async def test_a_refusal_says_what_to_do(code, message, error, words):
    failure_, endpoint, pauses = await fails(error, refused(code, message, X_Amzn_RequestId="0a1b-2c3d"), cache="off")
    assert words in str(failure_)
    assert "request id 0a1b-2c3d" in str(failure_)
    assert (len(endpoint.requests), pauses) == (1, [])


@pytest.mark.parametrize("code", [424, 429, 500, 503])
async def test_passing_failures_are_tried_again(code):
    reply, endpoint = await answers(refused(code, "Try later."), OK)
    assert (reply.text, len(endpoint.requests)) == ("Hello world", 2)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("throttlingException", ModelUnavailable),
        ("serviceUnavailableException", ModelUnavailable),
        ("internalServerException", ModelUnreachable),
        ("modelStreamErrorException", ModelUnreachable),
    ],
)
async def test_exceptions_before_the_first_token_are_tried_again(name, error):
    no = frames(frame(*START), failure(name, message="Not now"))
    reply, endpoint = await answers(no, OK)
    assert (reply.text, len(endpoint.requests)) == ("Hello world", 2)
    caught, _, pauses = await fails(error, no)
    assert "Not now" in str(caught)
    assert len(pauses) == 2


async def test_exceptions_after_the_first_token_are_not():
    no = frames(frame(*START), frame(*delta(0, {"text": "Hi"})), failure("throttlingException", message="Not now"))
    caught, endpoint, pauses = await fails(ModelInterrupted, no)
    assert caught.started
    assert (len(endpoint.requests), pauses) == (1, [])


async def test_a_validation_exception_in_the_stream_is_not_repeated():
    no = frames(failure("validationException", message="Bad request"))
    caught, endpoint, _ = await fails(ModelRejected, no)
    assert "Bad request" in str(caught)
    assert len(endpoint.requests) == 1


# the port


async def test_check_costs_nothing_and_finds_bad_credentials():
    async with asking(refused(400, "1 validation error detected: messages")) as (model, endpoint):
        await model.check()
    assert endpoint.requests[0].body == b"{}"
    assert is_signed(endpoint.requests[0], region="eu-central-1")
    async with asking(refused(403, "The security token included in the request is expired")) as (model, _):
        with pytest.raises(ModelAuthFailed, match="AWS credentials"):
            await model.check()


async def test_models_and_profiles_are_listed():
    models = status(200, {"modelSummaries": [{"modelId": NOVA, "modelName": "Nova Pro"}]})
    first = {"inferenceProfileSummaries": [{"inferenceProfileId": CLAUDE}], "nextToken": "more/+"}
    last = {"inferenceProfileSummaries": [{"inferenceProfileId": "eu.x"}]}
    async with asking(models, status(200, first), status(200, last)) as (model, endpoint):
        offered = await model.offered()
    assert [each.id for each in offered] == [NOVA, "eu.x", CLAUDE]
    assert [request.path for request in endpoint.requests] == [
        "/foundation-models", "/inference-profiles", "/inference-profiles?nextToken=more%2F%2B",
    ]  # fmt: skip
    assert all(is_signed(request, region="eu-central-1") for request in endpoint.requests)
    async with asking(models, refused(403, "not authorized")) as (model, _):
        assert [each.id for each in await model.offered()] == [NOVA]
