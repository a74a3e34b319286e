"""Of the SDK only the HTTP client is loaded, and only for servers over HTTP; other programs do not notice."""

import subprocess
import sys

import pytest


def run(program: str, *arguments: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_local_tools_need_nothing_of_the_sdk():
    loaded = run("import holodeck.tools.mcp_toolset, sys; print(*[name for name in sys.modules])")
    assert "holodeck.tools.mcp_server" in loaded
    assert not {"mcp", "mcp_types", "starlette", "httpx2", "jsonschema"} & set(loaded)


def test_the_http_client_comes_without_the_server_half():
    loaded = run(
        "import holodeck.tools.mcp_toolset, holodeck.tools.mcp_http, sys; print(*[name for name in sys.modules])"
    )
    assert "httpx2" in loaded
    assert not {"mcp.server", "starlette"} & set(loaded)


AFTER = [  # what another module may import when `holodeck.tools.mcp_sdk` has been imported
    "import mcp; a, b = mcp.ClientSession, mcp.client.session.ClientSession",
    "import mcp; a, b = mcp.shared.message.SessionMessage, sdk.SessionMessage",
    "from mcp import ClientSession as a, Client, types; import mcp; b = mcp.client.session.ClientSession",
    "from mcp.client import Client as a; import mcp; b = mcp.Client",
    "from mcp import *; import mcp.client.session as s; a, b = ClientSession, s.ClientSession",
    "import mcp.server.mcpserver; from mcp.shared.message import SessionMessage as a; b = sdk.SessionMessage",
]
SDK = "import holodeck.tools.mcp_sdk as sdk; "
BEFORE = f"import mcp; {SDK} a, b = mcp.client.streamable_http.streamable_http_client, sdk.streamable_http_client"
NONSENSE = f"{SDK}import mcp\ntry:\n  mcp.nonsense\nexcept AttributeError as e:\n  print(e.name)"
FORKS = """
import os, sys
import mcp
for name in [name for name in sys.modules if name.partition(".")[0] == "mcp"]:
    del sys.modules[name]  # what it needs of others stays: most of its start
for program in sys.argv[1:]:
    if os.fork() == 0:
        exec(program)
        sys.stdout.flush()
        os._exit(0)  # without what Python does at its end, which takes as long
    os.wait()
"""


@pytest.fixture(scope="module")
def reported() -> dict[str, str]:
    """What each program printed, which had a process of its own."""
    programs = [*(f"{SDK}{each}; print(a is b)" for each in AFTER), f"{BEFORE}; print(a is b)", NONSENSE]
    return dict(zip([*AFTER, BEFORE, NONSENSE], run(FORKS, *programs), strict=True))


@pytest.mark.parametrize("program", AFTER)
def test_a_plain_import_works_afterwards_with_the_same_classes(reported, program):
    assert reported[program] == "True"


def test_a_plain_import_works_before_with_the_same_classes(reported):
    assert reported[BEFORE] == "True"


def test_a_name_that_does_not_exist_is_an_ordinary_error(reported):
    assert reported[NONSENSE] == "nonsense"
