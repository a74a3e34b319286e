"""Models on Vertex AI: tokens from the credential files, and the two APIs at Google's addresses.

The token server and the model endpoint are one local server that speaks the real wire; the key of the service account is
made here, and its signature is checked.
"""

import asyncio
import base64
import json
import socket
import time
from contextlib import asynccontextmanager
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from google.oauth2.credentials import Credentials

from holodeck.core.messages import UserMessage
from holodeck.errors import ModelAuthFailed, ModelRejected, ModelUnavailable, ModelUnreachable
from holodeck.models.endpoint_settings import Deadlines, EndpointSettings, Reasoning
from holodeck.models.port import Prompt
from holodeck.models.providers import vertex_endpoint, vertex_urls
from holodeck.models.vertex.google_tokens import SCOPE, GoogleTokens
from holodeck.models.vertex.vertex_models import ANTHROPIC_VERSION, vertex_model
from tests.models.anthropic.message_streams import SHAPES as MESSAGES
from tests.models.asking import unused_port
from tests.models.endpoint import ModelEndpoint, Received, Respond, Wire, status, stream, text_stream
from tests.models.recording_listener import RecordingListener

GEMINI, CLAUDE = "google/gemini-2.5-flash", "anthropic/claude-sonnet-4-5@20250929"
PROMPT = Prompt(system="Be brief.", messages=(UserMessage(content="Hi"),))
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OK = text_stream("Hello", " world", usage={"prompt_tokens": 3, "completion_tokens": 2})
OK_CLAUDE = stream(*MESSAGES["thinking"].frames)


class Google(ModelEndpoint):
    """Issues tokens at /token, numbered; every other request is answered by the test's responses."""

    def __init__(self, *responses: Respond, token: Respond | None = None, lasts: int = 3600) -> None:
        super().__init__(self._respond)
        self.answers, self.token, self.lasts = list(responses), token, lasts
        self.tokens: list[Received] = []
        self.asked_for: list[Received] = []

    async def _respond(self, wire: Wire) -> None:
        if wire.request.path != "/token":
            self.asked_for.append(wire.request)
            return await self.answers[min(len(self.asked_for), len(self.answers)) - 1](wire)
        self.tokens.append(wire.request)
        issued = {"access_token": f"ya29.{len(self.tokens)}", "expires_in": self.lasts, "token_type": "Bearer"}
        return await (self.token or status(200, issued))(wire)

    @property
    def base(self) -> str:
        return self.url.removesuffix("/v1")


def service_account(token_uri: str) -> dict[str, str]:
    pem = KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return {
        "type": "service_account", "project_id": "p1", "private_key_id": "k1", "private_key": pem,
        "client_email": "agent@p1.iam.gserviceaccount.com", "client_id": "1", "token_uri": token_uri,
    }  # fmt: skip


@asynccontextmanager
async def asking(google: Google, folder, *, model: str = GEMINI, location: str = "europe-west4", **settings):
    async with google:
        file = folder / "account.json"
        file.write_text(json.dumps(service_account(f"{google.base}/token")))
        given = {"name": model, "provider": "vertex", "endpoint": google.base, "deadlines": Deadlines(connect=2)}
        client = vertex_model(
            EndpointSettings(**{**given, **settings}), GoogleTokens(str(file)), project="p1", location=location
        )
        client._sleep = lambda _: asyncio.sleep(0)
        try:
            yield client
        finally:
            await client.close()


async def reply_of(client):
    return await client.reply(PROMPT, RecordingListener())


# addresses


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("global", "aiplatform.googleapis.com"),
        ("us", "aiplatform.us.rep.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
        ("europe-west4", "europe-west4-aiplatform.googleapis.com"),
    ],
)
def test_where_a_location_is(location, host):
    assert vertex_endpoint(location) == f"https://{host}"
    url, models = vertex_urls(vertex_endpoint(location), project="p1", location=location, model=GEMINI)
    assert url == f"https://{host}/v1/projects/p1/locations/{location}/endpoints/openapi/chat/completions"
    assert models == f"https://{host}/v1beta1/publishers/google/models"


def test_the_address_of_claude():
    url, models = vertex_urls("https://v.example/", project="example.org:p1", location="us-east5", model=CLAUDE)
    place = "https://v.example/v1/projects/example.org:p1/locations/us-east5"
    assert url == f"{place}/publishers/anthropic/models/claude-sonnet-4-5@20250929:streamRawPredict"
    assert models == "https://v.example/v1beta1/publishers/anthropic/models"


# what is asked


async def test_gemini_is_asked_by_chat_completions_with_a_token(tmp_path):
    google = Google(OK)
    async with asking(google, tmp_path, reasoning=Reasoning(budget_tokens=100)) as client:
        reply = await reply_of(client)
    [request] = google.asked_for
    assert reply.text == "Hello world"
    assert request.path == "/v1/projects/p1/locations/europe-west4/endpoints/openapi/chat/completions"
    assert request.headers["authorization"] == "Bearer ya29.1"
    assert request.json["model"] == GEMINI
    assert request.json["extra_body"] == {"google": {"thinking_config": {"thinking_budget": 100}}}


async def test_claude_is_asked_by_messages_with_its_version_in_the_body(tmp_path):
    google = Google(OK_CLAUDE)
    async with asking(google, tmp_path, model=CLAUDE, betas=("context-1m",)) as client:
        reply = await reply_of(client)
    [request] = google.asked_for
    assert (reply.text, reply.reasoning) == ("Fine.", "Hm. Yes.")
    assert request.path.endswith("/publishers/anthropic/models/claude-sonnet-4-5@20250929:streamRawPredict")
    assert request.json["anthropic_version"] == ANTHROPIC_VERSION
    assert "model" not in request.json
    assert request.json["stream"] is True
    assert request.headers["anthropic-beta"] == "context-1m"
    assert request.headers["authorization"] == "Bearer ya29.1"


async def test_a_token_of_the_file_needs_no_credentials():
    async with Google(OK) as google:
        settings = EndpointSettings(name=GEMINI, provider="vertex", endpoint=google.base, api_key="printed")
        client = vertex_model(settings, None, project="p1", location="global")
        assert (await reply_of(client)).text == "Hello world"
        await client.close()
    assert google.asked_for[0].headers["authorization"] == "Bearer printed"


async def test_models_of_the_publisher_are_listed(tmp_path):
    first = {"publisherModels": [{"name": "publishers/google/models/gemini-2.5-pro"}], "nextPageToken": "n"}
    last = {"publisherModels": [{"name": "publishers/google/models/gemini-2.5-flash"}]}
    google = Google(status(200, first), status(200, last))
    async with asking(google, tmp_path) as client:
        assert [each.id for each in await client.offered()] == [GEMINI, "google/gemini-2.5-pro"]
    assert google.asked_for[1].path == "/v1beta1/publishers/google/models?pageToken=n"


# tokens


async def test_a_token_is_asked_for_with_a_signed_assertion_and_used_until_it_expires(tmp_path):
    google = Google(OK)
    async with asking(google, tmp_path) as client:
        await asyncio.gather(*(reply_of(client) for _ in range(3)))
        await reply_of(client)
    [request] = google.tokens
    form = parse_qs(request.body.decode())
    signed, _, signature = form["assertion"][0].rpartition(".")
    KEY.public_key().verify(_decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    claims = json.loads(_decoded(signed.partition(".")[2]))
    assert (claims["iss"], claims["scope"]) == ("agent@p1.iam.gserviceaccount.com", SCOPE)
    assert claims["exp"] > time.time()
    assert {each.headers["authorization"] for each in google.asked_for} == {"Bearer ya29.1"}


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


async def test_a_token_that_expires_is_renewed(tmp_path):
    google = Google(OK, lasts=1)  # within google-auth's margin: expired at once
    async with asking(google, tmp_path) as client:
        await reply_of(client)
        await reply_of(client)
    assert [each.headers["authorization"] for each in google.asked_for] == ["Bearer ya29.1", "Bearer ya29.2"]


async def test_the_project_that_pays_goes_along():
    """Of `gcloud auth application-default login`: a user's credentials name the project that is billed."""
    tokens = GoogleTokens()
    tokens._credentials = Credentials(token="mine", quota_project_id="payer")
    assert await tokens.headers("", None) == {"Authorization": "Bearer mine", "X-Goog-User-Project": "payer"}


# what fails


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A machine without Google credentials."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


async def test_no_credentials_say_what_to_set(stranger):
    with pytest.raises(ModelAuthFailed, match=r"no Google credentials.*GOOGLE_APPLICATION_CREDENTIALS.*gcloud auth"):
        await GoogleTokens().headers("", None)


@pytest.mark.parametrize("content", [None, "{", '{"type": "mystery"}', '{"type": "service_account"}'])
async def test_a_bad_file_is_named(tmp_path, content):
    file = tmp_path / "account.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ModelAuthFailed, match=r"in account\.json cannot be read.*service account") as caught:
        await GoogleTokens(str(file)).headers("", None)
    assert str(tmp_path) not in str(caught.value)  # clients see it


async def test_a_refused_account_says_so(tmp_path):
    no = status(400, {"error": "invalid_grant", "error_description": "Invalid JWT: account not found"})
    async with asking(Google(OK, token=no), tmp_path) as client:
        with pytest.raises(ModelAuthFailed, match=r"did not issue an access token.*invalid_grant"):
            await reply_of(client)
        with pytest.raises(ModelAuthFailed):
            await client.check()


async def test_a_token_that_was_revoked_is_renewed_once(tmp_path):
    revoked = status(401, {"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "invalid credentials"}})
    google = Google(revoked, OK)
    async with asking(google, tmp_path) as client:
        reply = await reply_of(client)
    assert reply.text == "Hello world"
    assert [request.headers["authorization"] for request in google.asked_for] == ["Bearer ya29.1", "Bearer ya29.2"]


async def test_a_second_token_that_is_refused_is_an_error(tmp_path):
    google = Google(status(401, {"error": {"code": 401, "message": "invalid credentials"}}))
    async with asking(google, tmp_path) as client:
        with pytest.raises(ModelAuthFailed):
            await reply_of(client)
    assert len(google.asked_for) == len(google.tokens) == 2


async def test_requests_that_had_the_same_revoked_token_share_the_next_one(tmp_path):
    revoked = status(401, {"error": {"code": 401, "message": "invalid credentials"}})
    both = asyncio.Barrier(2)

    async def by_token(wire: Wire) -> None:
        if wire.request.headers["authorization"] != "Bearer ya29.1":
            return await OK(wire)
        await asyncio.wait_for(both.wait(), 30)  # neither is refused before both were sent
        return await revoked(wire)

    google = Google(by_token)
    async with asking(google, tmp_path) as client:
        await asyncio.gather(reply_of(client), reply_of(client))
    assert (len(google.asked_for), len(google.tokens)) == (4, 2)


async def test_a_token_server_that_is_down_is_unreachable(tmp_path):
    file = tmp_path / "account.json"
    file.write_text(json.dumps(service_account(f"http://127.0.0.1:{unused_port()}/token")))
    tokens = GoogleTokens(str(file))
    with pytest.raises(ModelUnreachable, match="No connection to Google's token server"):
        await tokens.headers("", None)


@pytest.mark.parametrize(
    ("response", "error", "words"),
    [
        (status(401, {"error": {"message": "Request had invalid authentication credentials."}}), ModelAuthFailed, "did not accept the Google credentials"),
        (status(403, {"error": {"message": "Permission 'aiplatform.endpoints.predict' denied"}}), ModelAuthFailed, "GOOGLE_APPLICATION_CREDENTIALS"),
        (status(404, {"error": {"message": "Publisher Model not found"}}), ModelRejected, "there is no model"),
        (status(429, [{"error": {"message": "Resource exhausted"}}]), ModelUnavailable, "rate limit"),
    ],
)  # fmt: skip
async def test_a_refusal_says_what_to_do(tmp_path, response, error, words):
    advice = "GOOGLE_APPLICATION_CREDENTIALS"
    async with asking(Google(response), tmp_path, key_advice=advice) as client:
        with pytest.raises(error, match=words):
            await reply_of(client)


async def test_the_loop_continues_while_a_token_is_fetched(tmp_path):
    """google-auth blocks; it does so in a thread."""
    asked, released = asyncio.Event(), asyncio.Event()

    async def slow(wire: Wire) -> None:
        asked.set()
        await released.wait()
        await status(200, {"access_token": "late", "expires_in": 3600})(wire)

    google = Google(OK, token=slow)
    async with asking(google, tmp_path) as client:
        waiting = asyncio.create_task(reply_of(client))
        await asked.wait()  # this server runs in the same loop: it could not have read the request otherwise
        assert not waiting.done()
        released.set()
        assert (await waiting).text == "Hello world"


async def test_a_token_server_that_does_not_answer_keeps_nothing_else_from_its_work(tmp_path):
    """Names of hosts are looked up in the threads of the event loop: those of another model, too."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = tmp_path / "account.json"
        file.write_text(json.dumps(service_account(f"http://127.0.0.1:{silent.getsockname()[1]}/token")))
        tokens = GoogleTokens(str(file))
        waiting = [asyncio.create_task(tokens.headers("https://example.com", b"")) for _ in range(40)]
        await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.get_running_loop().getaddrinfo("localhost", 80), 15)
        assert not any(each.done() for each in waiting)
        for each in waiting:
            each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
