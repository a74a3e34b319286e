"""Every member of uvicorn's inside that `holodeck.server.protocol` uses. None of them is documented.

If this fails after an update of uvicorn, read what changed in its `httptools_impl.py`, then `protocol.py` beside it.
"""

import ast
import inspect
import re
from pathlib import Path

import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from holodeck.server import protocol

OVERRIDDEN = {
    "connection_lost", "connection_made", "data_received", "on_headers_complete", "on_message_begin",
    "on_message_complete", "on_response_complete", "send_400_response",
}  # fmt: skip
OF_PROTOCOL = OVERRIDDEN | {
    "_start_asgi_task", "_unset_keepalive_if_required", "app", "client", "cycle", "flow", "headers", "logger", "loop",
    "parser", "pipeline", "scope", "transport", "url",
}  # fmt: skip
OF_CYCLE = {
    "chunked_encoding", "disconnected", "expected_content_length", "keep_alive", "message_event", "on_response",
    "response_complete", "response_started", "scope", "send", "transport", "waiting_for_100_continue",
}  # fmt: skip
SHARED_NAMES = {"__init__"}
SOURCE = Path(protocol.__file__)


def members_of(kind: type) -> set[str]:
    return set(vars(kind)) | set(re.findall(r"self\.(\w+)", inspect.getsource(kind)))


def names_in(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return functions | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_uvicorn_has_each_member():
    assert members_of(HttpToolsProtocol) >= OF_PROTOCOL
    assert members_of(RequestResponseCycle) >= OF_CYCLE
    assert set(vars(HttpToolsProtocol)) >= OVERRIDDEN
    assert "capture_signals" in vars(uvicorn.Server)


def test_each_member_that_is_used_is_named_here():
    used = names_in(SOURCE) - SHARED_NAMES
    assert used & members_of(HttpToolsProtocol) <= OF_PROTOCOL | OF_CYCLE
    assert used & members_of(RequestResponseCycle) <= OF_PROTOCOL | OF_CYCLE
    assert used >= OF_PROTOCOL | OF_CYCLE, "named here and not used any more"


def test_no_other_module_touches_uvicorns_inside():
    for path in SOURCE.parents[1].rglob("*.py"):
        if path != SOURCE:
            assert "uvicorn._" not in path.read_text(), path
            assert httptools_impl.__name__ not in path.read_text(), path
