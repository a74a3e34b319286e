"""Which values the log masks: every key of the agent file, those of fallback models included."""

import json

import pytest

from holodeck.config.load import load_config
from holodeck.server.process import secrets_of
from holodeck.telemetry.logs import LineFormat, note

AGENT = """\
name: a
model:
  provider: openai_compatible
  name: m
  endpoint: http://localhost:1/v1
  api_key: first-key-0001
  fallback:
    - {provider: openai_compatible, name: n, endpoint: "http://localhost:2/v1", api_key: second-key-0002}
    - {provider: openai_compatible, name: o, endpoint: "http://localhost:3/v1", api_key: third-key-0003}
    - {provider: anthropic, name: p, auth_token: fourth-key-0006, headers: {X-Gateway: Bearer gateway-key-0007}}
tools:
  - {name: web, type: mcp, url: "http://localhost:4/", headers: {Authorization: Bearer tool-key-0004}}
"""


@pytest.mark.req("T29")
def test_no_key_of_an_agent_file_reaches_the_log(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT)
    secrets = secrets_of(load_config(tmp_path / "agent.yaml", environment={"MY_TOKEN": "environment-key-0005"}))
    keys = (
        "first-key-0001",
        "second-key-0002",
        "third-key-0003",
        "fourth-key-0006",
        "gateway-key-0007",
        "tool-key-0004",
        "environment-key-0005",
    )
    details = {key: f"the endpoint says {key}" for key in keys}
    written = note(LineFormat(secrets), "info", " ".join(keys), details=details).decode()
    assert json.loads(written)
    assert [key for key in keys if key in written] == []
