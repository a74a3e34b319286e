"""`server.limits.request` of an agent file reaches the server, each key."""

import pytest

from holodeck.config.limit_schema import RequestLimits
from holodeck.config.load import load_config
from holodeck.config.serving import ServeOptions
from holodeck.core.sizes import KIB, MB
from holodeck.server.process import settings_of


def limits_of(tmp_path, block: str) -> RequestLimits:
    text = f"name: a\nmodel: {{provider: demo}}\nserver: {{limits: {{request: {{{block}}}}}}}\n"
    (tmp_path / "agent.yaml").write_text(text)
    return settings_of(ServeOptions(config=load_config(tmp_path / "agent.yaml"))).block.limits.request


@pytest.mark.parametrize("key", RequestLimits.model_fields)
def test_each_key_changes_its_limit(tmp_path, key):
    member = key.removesuffix("_mb").removesuffix("_kb")
    unit = MB if key.endswith("_mb") else KIB if key.endswith("_kb") else 1
    assert getattr(limits_of(tmp_path, f"{key}: 17"), member) == 17 * unit


def test_the_other_sizes_come_from_their_blocks(tmp_path):
    text = "name: a\nmodel: {provider: demo}\nfiles: {max_request_mb: 7}\nserver: {max_connections: 5}\n"
    (tmp_path / "agent.yaml").write_text(text)
    settings = settings_of(ServeOptions(config=load_config(tmp_path / "agent.yaml")))
    assert (settings.max_upload, settings.block.max_connections) == (8 * MB, 5), "with the form around the files"
