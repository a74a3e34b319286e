"""`server.limits.request` of an agent file reaches the server, each key."""

from dataclasses import fields, replace

import pytest

from holodeck.config.load import load_config
from holodeck.config.schema import RequestLimitsBlock
from holodeck.config.serving import ServeOptions
from holodeck.server.main import _settings
from holodeck.server.options import KB, MB, RequestLimits

ELSEWHERE = {"max_upload", "max_connections"}  # files.max_request_mb, server.max_connections


def limits_of(tmp_path, block: str) -> RequestLimits:
    text = f"name: a\nmodel: {{provider: demo}}\nserver: {{limits: {{request: {{{block}}}}}}}\n"
    (tmp_path / "agent.yaml").write_text(text)
    return _settings(ServeOptions(config=load_config(tmp_path / "agent.yaml"))).limits


def test_the_defaults_of_the_file_are_those_of_the_server(tmp_path):
    usual = RequestLimits()
    given = limits_of(tmp_path, "")
    assert replace(given, max_connections=usual.max_connections) == usual  # the descriptors may allow fewer


@pytest.mark.parametrize("key", RequestLimitsBlock.model_fields)
def test_each_key_changes_its_limit(tmp_path, key):
    member = key.removesuffix("_mb").removesuffix("_kb")
    unit = MB if key.endswith("_mb") else KB if key.endswith("_kb") else 1
    assert getattr(limits_of(tmp_path, f"{key}: 17"), member) == 17 * unit


def test_every_limit_can_be_set():
    keys = {key.removesuffix("_mb").removesuffix("_kb") for key in RequestLimitsBlock.model_fields}
    assert keys | ELSEWHERE == {field.name for field in fields(RequestLimits)}
