"""Where each provider is and how it wants to be addressed."""

from typing import get_args

import pytest
from pydantic import ValidationError

from holodeck.config.model_schema import ModelChoice
from holodeck.errors import ConfigError
from holodeck.http.address import proxy_for
from holodeck.models.chat_completions_model import OpenAIChatModel
from holodeck.models.endpoint_settings import EndpointSettings
from holodeck.models.providers import PROVIDERS, ProviderName, chat_url, models_url, provider_named

AZURE = "https://me.openai.azure.com"
DEPLOYMENT = f"{AZURE}/openai/deployments/gpt"
URLS = [
    ("openai", None, "https://api.openai.com/v1/chat/completions"),
    ("openai", "", "https://api.openai.com/v1/chat/completions"),
    ("gemini", None, "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions"),
    ("gemini", "https://generativelanguage.googleapis.com/v1beta/openai/", "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions"),
    ("ollama", None, "http://localhost:11434/v1/chat/completions"),
    ("openai_compatible", "http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1/chat/completions"),
    ("openai_compatible", "http://127.0.0.1:8000/v1//", "http://127.0.0.1:8000/v1/chat/completions"),
    ("openai_compatible", " http://127.0.0.1:8000/v1/chat/completions/ ", "http://127.0.0.1:8000/v1/chat/completions"),
    ("openai_compatible", "http://127.0.0.1:8000", "http://127.0.0.1:8000/chat/completions"),
    ("openai", "http://127.0.0.1:8000/v1?team=a", "http://127.0.0.1:8000/v1/chat/completions?team=a"),
    ("azure_openai", AZURE, f"{AZURE}/openai/v1/chat/completions"),
    ("azure_openai", f"{AZURE}/", f"{AZURE}/openai/v1/chat/completions"),
    ("azure_openai", f"{AZURE}/openai", f"{AZURE}/openai/v1/chat/completions"),
    ("azure_openai", f"{AZURE}/openai/v1/", f"{AZURE}/openai/v1/chat/completions"),
    ("azure_openai", f"{DEPLOYMENT}?api-version=2024-10-21", f"{DEPLOYMENT}/chat/completions?api-version=2024-10-21"),
    ("azure_openai", f"{DEPLOYMENT}/chat/completions?api-version=1", f"{DEPLOYMENT}/chat/completions?api-version=1"),
]  # fmt: skip


@pytest.mark.req("AGT-02")
@pytest.mark.parametrize(("provider", "endpoint", "expected"), URLS)
def test_urls(provider, endpoint, expected):
    assert chat_url(provider, endpoint) == expected
    assert models_url(provider, endpoint) == expected.replace("/chat/completions", "/models")


@pytest.mark.parametrize(
    ("provider", "endpoint", "words"),
    [
        ("openai_compatible", None, "needs model.endpoint"),
        ("azure_openai", None, "needs model.endpoint"),
        ("openai", "api.example.org/v1", "http"),
        ("openai", "ftp://example.org", "http"),
        ("openai", "https://user:pass@example.org/v1", "must not hold"),
        ("opnai", None, "known are openai"),
    ],
)
def test_wrong_endpoints_are_explained(provider, endpoint, words):
    with pytest.raises(ConfigError, match=words) as caught:
        chat_url(provider, endpoint)
    assert "pass@" not in str(caught.value)


@pytest.mark.req("AGT-02")
def test_keys():
    assert {name: provider.key_variable for name, provider in PROVIDERS.items()} == {
        "openai": "OPENAI_API_KEY",
        "gemini": "GEMINI_API_KEY",
        "anthropic": "ANTHROPIC_API_KEY",
        "azure_openai": "AZURE_OPENAI_API_KEY",
        "ollama": "OLLAMA_API_KEY",
        "openai_compatible": "OPENAI_API_KEY",
        "bedrock": "AWS_BEARER_TOKEN_BEDROCK",
        "vertex": "GOOGLE_APPLICATION_CREDENTIALS",
    }
    assert {*PROVIDERS, "demo"} == set(get_args(ProviderName)), "the names that an agent file may have"
    keyless = [name for name, provider in PROVIDERS.items() if not provider.needs_key]
    assert keyless == ["ollama", "openai_compatible", "bedrock", "vertex"]
    assert provider_named("openai").headers("k") == {"Authorization": "Bearer k"}
    assert provider_named("azure_openai").headers("k") == {"api-key": "k"}
    assert provider_named("openai").headers(None) == {}


def test_a_row_names_keys_that_the_agent_file_has():
    """A misspelt key in `own_keys` or `lacks` would check nothing."""
    for provider in PROVIDERS.values():
        assert provider.own_keys | provider.lacks <= set(ModelChoice.model_fields), provider.name
        assert provider.apis <= {"chat", "responses"}, provider.name


@pytest.mark.req("T28")
def test_settings_do_not_show_the_key():
    settings = EndpointSettings(
        name="m",
        provider="openai",
        endpoint="http://127.0.0.1:1/v1?key=a-secret",
        api_key="sk-secret-123456",
        headers={"X": "other-secret"},
        extra={"authorization": "one-more-secret"},
    )
    for shown in (repr(settings), str(settings), repr(OpenAIChatModel(settings)), OpenAIChatModel(settings).name):
        assert "secret" not in shown
    assert OpenAIChatModel(settings).name == "openai/m"
    with pytest.raises(ValidationError) as refused:
        EndpointSettings(name="m", headers={"X": "my secret", "Y": ["my secret"]}, extra=["my secret"])
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("key", ["sk-a\nb", "sk-\x00", "sk-é"])
def test_a_key_that_no_header_can_carry_is_a_config_error(key):
    with pytest.raises(ConfigError, match="api_key") as caught:
        OpenAIChatModel(EndpointSettings(name="m", provider="openai", api_key=key))
    assert key not in str(caught.value)


def test_proxies_of_the_environment_are_used_except_for_loopback(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:3128")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:3128")
    monkeypatch.setenv("no_proxy", "inside.example.org")
    assert proxy_for("https://api.example.org/v1") == "http://127.0.0.1:3128"
    assert proxy_for("https://inside.example.org/v1") is None
    assert proxy_for("http://127.0.0.1:8000/v1") is None
    assert proxy_for("http://localhost:11434/v1") is None
