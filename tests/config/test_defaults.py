"""An agent file without settings means the defaults of the classes that it fills: each default is declared once."""

from dataclasses import replace

from holodeck.config.build import build_run_settings, mcp_settings
from holodeck.config.load import config_of
from holodeck.config.serving import ServeOptions
from holodeck.config.tool_schema import McpToolSettings
from holodeck.runs.run_settings import RunSettings
from holodeck.server.main import settings_of
from holodeck.server.options import ServerSettings
from holodeck.tools.mcp_settings import McpSettings

NOTHING_SET = config_of({"name": "a", "model": {"provider": "demo"}}, environment={})


def test_of_the_server():
    found = settings_of(ServeOptions(config=NOTHING_SET))
    assert replace(found, max_connections=0) == replace(
        ServerSettings(), max_connections=0
    )  # file descriptors limit it


def test_of_runs():
    assert build_run_settings(NOTHING_SET) == RunSettings()


def test_of_an_mcp_server():
    tool = McpToolSettings(name="x", type="mcp", command="x")
    assert replace(mcp_settings(NOTHING_SET, tool), cwd=None) == McpSettings(name="x", command="x")
