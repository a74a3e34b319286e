"""Another model for the same agent: what stays, and what belongs to the provider alone."""

import pytest

from holodeck.config.build_model import build_model
from holodeck.config.load import load_config, with_model

FILE = """
name: helper
model:
  provider: anthropic
  name: claude-x
  endpoint: http://127.0.0.1:1
  auth_token: token-of-anthropic
  headers: {X-Key: secret-of-anthropic}
  betas: [a-1]
  reasoning: {budget_tokens: 2048}
  provider_tools: [{type: web_search_20250305, name: web_search}]
  extra: {top_k: 3}
  timeout: 7
  price: {input: 3, output: 15}
"""


@pytest.fixture
def config(tmp_path):
    (tmp_path / "agent.yaml").write_text(FILE)
    return load_config(tmp_path / "agent.yaml", environment={"OPENAI_API_KEY": "k"})


def test_another_model_of_the_provider_keeps_its_settings(config):
    model = with_model(config, "claude-y").agent.model
    assert (model.name, model.timeout, model.price) == ("claude-y", 7, None)
    assert model.headers["X-Key"].get_secret_value() == "secret-of-anthropic"
    assert "temperature" not in model.model_fields_set  # so none is sent


def test_the_same_model_keeps_its_price(config):
    assert with_model(config, "anthropic/claude-x").agent.model.price == config.agent.model.price


@pytest.mark.parametrize("name", ["openai/gpt-x", "ollama/llama", "demo"])
async def test_another_provider_gets_no_secret_and_no_option_of_the_first(config, name):
    changed = with_model(config, name)
    model = changed.agent.model
    assert model.timeout == 7
    assert "anthropic" not in repr(model.model_dump()).replace("provider", "")
    assert (model.headers, model.betas, model.extra, model.provider_tools) == ({}, [], {}, [])
    assert (model.endpoint, model.api_key, model.auth_token, model.reasoning) == (None, None, None, None)
    await build_model(changed).close()
