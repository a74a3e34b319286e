"""What a server loads before it is ready: a package that is not loaded costs no time."""

import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from holodeck.cli.serve import command as serve
from tests.server.test_server_process import holodeck

LATER = {
    "mcp": "servers over HTTP need it, local ones do not",
    "mcp_types": "as above",
    "httpx2": "as above",
    "holodeck.models.demo.conversation": "the demo model's first reply needs it",
    "rich.console": "for the terminal chat",
    "prompt_toolkit": "for the terminal chat",
    "opentelemetry": "for those who ask for traces",
    "fastapi": "no part of the server uses it",
    "uvicorn": "no part of the server uses it",
    "sqlmodel": "another process",
}


@pytest.mark.req("SRV-04")
async def test_the_demo_server_is_ready_without_what_it_needs_later(tmp_path):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    traced = {"PYTHONPROFILEIMPORTTIME": "1", "XDG_DATA_HOME": str(tmp_path), "PATH": path}
    async with holodeck(tmp_path, "--demo", cold=True, **traced) as server:
        await server.until_ready()
    loaded = set(re.findall(r"^import time: .*\|\s+(\S+)$", server.banner.decode(), re.MULTILINE))
    assert {"httptools", "holodeck.tools.mcp_server", "holodeck.models.demo.model"} <= loaded
    assert not [name for name in loaded if any(f"{name}.".startswith(f"{later}.") for later in LATER)]


@pytest.mark.parametrize(
    ("terminal", "given", "style"), [(True, [], "text"), (False, [], "json"), (True, ["json"], "json")]
)
def test_log_lines_are_text_on_a_terminal_and_json_elsewhere(tmp_path, monkeypatch, *, terminal, given, style):
    (tmp_path / "agent.yaml").write_text("name: a\nmodel: {provider: demo}\n")
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: terminal))
    started = []
    monkeypatch.setattr("holodeck.server.process.serve", started.append)
    monkeypatch.setattr("gc.disable", lambda: None)
    words = [str(tmp_path), *(["--log-format", *given] if given else [])]
    serve.main(words, standalone_mode=False)
    assert [options.log_format for options in started] == [style]
