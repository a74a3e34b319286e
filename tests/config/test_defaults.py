"""An agent file without settings means the defaults of the classes that it fills: each default is declared once."""

from dataclasses import fields, replace

from holodeck.config.build import build_run_settings, mcp_settings
from holodeck.config.load import config_of
from holodeck.config.schema import RunsBlock, ServerBlock
from holodeck.config.serving import ServeOptions
from holodeck.config.tool_schema import McpToolSettings
from holodeck.runs.run_settings import RunSettings
from holodeck.server.main import settings_of
from holodeck.server.options import ServerSettings
from holodeck.tools.mcp_settings import McpSettings

NOTHING_SET = config_of({"name": "a", "model": {"provider": "demo"}}, environment={})


def test_of_the_server():
    found = settings_of(ServeOptions(config=NOTHING_SET))
    most = {"max_connections": found.block.max_connections}  # file descriptors limit it
    assert found == ServerSettings(block=ServerBlock().model_copy(update=most))


def test_no_key_of_the_server_block_is_copied():
    """A key is declared in the block and used from `ServerSettings.block`."""
    own = {field.name for field in fields(ServerSettings)} - {"push"}  # how hosts are called; which ones: the block
    assert not own & {*ServerBlock.model_fields, *RunsBlock.model_fields}


def test_of_runs():
    assert build_run_settings(NOTHING_SET) == RunSettings()


def test_of_an_mcp_server():
    tool = McpToolSettings(name="x", type="mcp", command="x")
    assert replace(mcp_settings(NOTHING_SET, tool), cwd=None) == McpSettings(name="x", command="x")
