"""Bedrock and Vertex from their files: where the region, the project and the credentials come from, and what is missing."""

import pytest

from holodeck.config.build_model import build_model, offered_models
from holodeck.config.load import load_config
from holodeck.errors import ConfigError
from holodeck.models.port import Prompt
from tests.config.missing_packages import uninstall
from tests.models.bedrock.converse_streams import SHAPES
from tests.models.bedrock.sigv4_check import KEY_ID, SECRET, is_signed
from tests.models.endpoint import ModelEndpoint, status, stream, text_stream
from tests.models.recording_listener import RecordingListener

KEYS = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}
OK = stream(*SHAPES["text"].frames, content_type="application/vnd.amazon.eventstream")


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """The machine's own AWS files are not read."""
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)

    def load(model: str, **environment: str):
        (tmp_path / "agent.yaml").write_text(f"name: a\nmodel: {model}\n")
        return load_config(tmp_path / "agent.yaml", environment=environment)

    return load


async def asked(config):
    model = build_model(config)
    try:
        return await model.reply(Prompt(), RecordingListener())
    finally:
        await model.close()


@pytest.mark.parametrize(
    ("options", "environment", "region"),
    [
        (", region: eu-west-1", {"AWS_REGION": "us-east-1"}, "eu-west-1"),
        ("", {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-west-2"}, "us-east-1"),
        ("", {"AWS_DEFAULT_REGION": "us-west-2"}, "us-west-2"),
        (", profile: work", {}, "ap-south-1"),
    ],
)
async def test_a_bedrock_model_is_asked_in_its_region(loaded, tmp_path, options, environment, region):
    (tmp_path / "AWS_CONFIG_FILE").write_text("[profile work]\nregion = ap-south-1\n")
    profile = f"[work]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n"
    (tmp_path / "AWS_SHARED_CREDENTIALS_FILE").write_text(profile)
    async with ModelEndpoint(OK) as endpoint:
        base = endpoint.url.removesuffix("/v1")
        config = loaded(
            f"{{provider: bedrock, name: 'amazon.nova-lite-v1:0', endpoint: '{base}'{options}}}", **KEYS, **environment
        )
        assert (await asked(config)).text == "Hello world"
    assert is_signed(endpoint.requests[0], region=region)
    assert "temperature" not in endpoint.requests[0].body.decode()


async def test_a_bearer_token_of_the_environment_wins_over_keys(loaded):
    async with ModelEndpoint(OK) as endpoint:
        base = endpoint.url.removesuffix("/v1")
        environment = {**KEYS, "AWS_REGION": "us-east-1", "AWS_BEARER_TOKEN_BEDROCK": "bedrock-api-key"}
        await asked(loaded(f"{{provider: bedrock, name: m, endpoint: '{base}'}}", **environment))
    assert endpoint.requests[0].headers["authorization"] == "Bearer bedrock-api-key"


async def test_the_endpoint_of_the_environment_is_asked(loaded):
    async with ModelEndpoint(OK) as endpoint:
        variables = {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": endpoint.url.removesuffix("/v1")}
        assert (await asked(loaded("{provider: bedrock, name: m}", **KEYS, **variables))).text == "Hello world"


async def test_models_of_both_are_listed(loaded):
    bedrock = status(200, {"modelSummaries": [{"modelId": "amazon.nova-lite-v1:0"}]})
    vertex = status(200, {"publisherModels": [{"name": "publishers/google/models/gemini-2.5-flash"}]})
    async with ModelEndpoint(bedrock) as endpoint:
        base = endpoint.url.removesuffix("/v1")
        config = loaded(f"{{provider: bedrock, name: m, region: us-east-1, endpoint: '{base}'}}", **KEYS)
        assert [each.id for each in await offered_models(config)] == ["amazon.nova-lite-v1:0"]
    async with ModelEndpoint(vertex) as endpoint:
        base = endpoint.url.removesuffix("/v1")
        config = loaded(f"{{provider: vertex, name: google/x, project: p, api_key: t, endpoint: '{base}'}}")
        assert [each.id for each in await offered_models(config)] == ["google/gemini-2.5-flash"]


@pytest.mark.parametrize(
    ("options", "environment", "path"),
    [
        (", project: p1, location: us-east5", {"GOOGLE_CLOUD_PROJECT": "p2"}, "projects/p1/locations/us-east5/"),
        ("", {"GOOGLE_CLOUD_PROJECT": "p2", "GOOGLE_CLOUD_LOCATION": "eu"}, "projects/p2/locations/eu/"),
        (", project: p1", {}, "projects/p1/locations/global/"),
    ],
)
async def test_a_vertex_model_is_asked_in_its_project(loaded, options, environment, path):
    async with ModelEndpoint(text_stream("Hi")) as endpoint:
        base = endpoint.url.removesuffix("/v1")
        model = f"{{provider: vertex, name: google/gemini-2.5-flash, api_key: t, endpoint: '{base}'{options}}}"
        assert (await asked(loaded(model, **environment))).text == "Hi"
    assert endpoint.requests[0].path == f"/v1/{path}endpoints/openapi/chat/completions"
    assert endpoint.requests[0].headers["authorization"] == "Bearer t"


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("{provider: bedrock, name: m}", ":2:8: model.region: is required: set it, or AWS_REGION"),
        ("{provider: vertex, name: google/m}", ":2:8: model.project: is required: set it, or GOOGLE_CLOUD_PROJECT"),
    ],
)
def test_a_missing_place_is_reported_with_the_cure(loaded, model, problem):
    with pytest.raises(ConfigError) as caught:
        build_model(loaded(model))
    assert problem.partition(": ")[2] in str(caught.value)
    assert "agent.yaml:2:" in str(caught.value)


@pytest.mark.parametrize(
    ("model", "package", "extra"),
    [
        ("{provider: bedrock, name: m, region: us-east-1}", "botocore", "bedrock"),
        ("{provider: vertex, name: google/m, project: p}", "google.auth", "vertex"),
    ],
)
def test_a_missing_extra_is_named(loaded, monkeypatch, model, package, extra):
    uninstall(monkeypatch, package, "holodeck.models.bedrock", "holodeck.models.vertex")
    with pytest.raises(ConfigError, match=rf"model\.provider: .*pip install 'holodeck-agents\[{extra}\]'"):
        build_model(loaded(model))
