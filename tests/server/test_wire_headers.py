"""Headers of the wires: what their clients send and what their answers have, in a page of another origin, with authentication."""

import ast
import inspect
import pkgutil
from importlib import import_module

import pytest
from starlette.datastructures import Headers

import holodeck.server
import holodeck.wires
from holodeck.server.guard import REQUEST_HEADERS, RESPONSE_HEADERS, allowed_headers
from holodeck.server.wires import WIRES
from tests.server.every_wire import QUESTIONS, SESSION
from tests.server.keyed import keyed

EACH = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
PAGE = "http://localhost:3000"
STAINLESS = [
    "lang",
    "package-version",
    "os",
    "arch",
    "runtime",
    "runtime-version",
    "retry-count",
    "timeout",
    "helper-method",
]
OPENAI = {*(f"x-stainless-{each}" for each in STAINLESS), "openai-organization", "openai-project", "user-agent"}
SENT_BY_CLIENTS = {  # read in the clients' own sources, below tests/clients/node_modules
    "rest": {"idempotency-key"},
    "chat-stream": {"idempotency-key", "prefer"},
    "openai": {*OPENAI, "idempotency-key", "x-session-id", "x-conversation-id", "x-openwebui-chat-id"},
    "responses": {*OPENAI, "idempotency-key"},
    "ai-sdk": {"idempotency-key", "user-agent"},
    "mcp": {"mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id", "last-event-id"},
    "a2a": {"a2a-version", "a2a-extensions"},
}
READ_BY_ALL = {
    "cache-control",
    "content-language",
    "content-length",
    "content-type",
    "expires",
    "last-modified",
    "pragma",
}
NOT_FOR_PAGES = {"connection", "date", "transfer-encoding", "vary", "x-accel-buffering", "allow"}
SET_BY_BROWSERS = {"host", "origin", "content-length", "content-encoding", "transfer-encoding"}
SET_BY_BROWSERS |= {"sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest"}
SET_BY_BROWSERS |= {"access-control-request-method", "access-control-request-headers"}
OWN = {"etag"}  # read from an answer that is being made


@EACH
async def test_a_page_may_send_what_the_clients_of_the_wire_send(wire, tmp_path):
    names = {"authorization", "content-type", "accept", "x-api-key", *SENT_BY_CLIENTS.get(wire.name, ())}
    asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    wanted = {"Access-Control-Request-Headers": ",".join(sorted({*names, "x-evil"}))}
    address = wire.path_of("tester")
    async with (
        keyed(tmp_path, protocols=(wire.name,)) as (s, _),
        s.client.options(s.url + address, headers={**asked, **wanted}) as answer,
    ):
        allowed = _names(answer.headers["Access-Control-Allow-Headers"])
    assert answer.status == 204
    assert names - allowed == set()
    assert "x-evil" not in allowed


@pytest.mark.parametrize("row", QUESTIONS)
async def test_a_page_may_read_each_header_of_an_answer(row, tmp_path):
    path, body, headers = QUESTIONS[row]("hi", SESSION)  # the session is unknown, which REST reports in a header
    async with keyed(tmp_path, protocols=(row.partition(" ")[0],)) as (s, holders):
        mine = {**headers, "Origin": PAGE, **holders.headers()}
        await s.server.access.refresh()
        answers = []
        for given in (body, {"wrong": 1}):
            async with s.post(given, path, **mine) as answer:
                await answer.read()
                answers.append(answer.headers)
    for found in answers:
        shown = {name.lower() for name in found if not name.lower().startswith("access-control-")}
        exposed = _names(found["Access-Control-Expose-Headers"])
        assert shown - exposed - READ_BY_ALL - NOT_FOR_PAGES == set()


def test_each_header_that_the_server_reads_is_declared():
    """With authentication a page may send only declared headers: one that is read and not declared works without it only."""
    declared = {name for wire in WIRES.values() for name in wire.request_headers}
    names = [*REQUEST_HEADERS, *declared]
    read = {name: where for package in (holodeck.server, holodeck.wires) for name, where in _read_in(package)}
    assert len(read) >= 12, "the search finds the places where headers are read"
    missing = {
        name: where
        for name, where in read.items()
        if name not in _names(allowed_headers(names, name)) | SET_BY_BROWSERS | OWN
    }
    assert missing == {}, "add it to `request_headers` of its wire, or to REQUEST_HEADERS of guard.py"


def test_each_declared_header_is_named_once():
    for wire in WIRES.values():
        for names, common in ((wire.request_headers, REQUEST_HEADERS), (wire.response_headers, RESPONSE_HEADERS)):
            given = [name.lower() for name in (*names, *common)]
            assert len(given) == len(set(given)), wire.name


def test_a_family_allows_only_names_that_begin_like_it():
    assert allowed_headers(["X-A", "X-Lib-*"], "x-lib-os, x-a, x-liberty, x-lib-\u00e9, X-Lib-OS") == "X-A, x-lib-os"


def _names(value):
    return {name.strip().lower() for name in value.split(",")}


def _read_in(package):
    """The headers that the modules of a package read from a request, each with the module."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = import_module(found.name)
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            for given in _arguments(node):
                name = _value(given, vars(module))
                if isinstance(name, str | bytes):
                    yield (name if isinstance(name, str) else name.decode()).lower(), found.name


def _arguments(node):
    """What is read if this is `headers.get(…)`, `headers[…]`, `… in headers` or `text_header(request, …)`."""
    match node:
        case ast.Call(func=ast.Attribute(value=source, attr="get" | "getlist"), args=[first, *_]) if _is_headers(
            source
        ):
            yield first
        case ast.Call(func=ast.Name("text_header") | ast.Attribute(attr="text_header"), args=[_, name]):
            yield name
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[source]) if _is_headers(source):
            yield left
        case ast.Subscript(value=source, slice=name, ctx=ast.Load()) if _is_headers(source):
            yield name


def _is_headers(node):
    return ast.unparse(node).rpartition(".")[2] == "headers"


def _value(node, names):
    try:
        return eval(ast.unparse(node), dict(names))
    except NameError:  # a parameter: the caller's argument is found at the call
        return None


def test_the_search_finds_a_header_that_is_read():
    tree = ast.parse("request.headers.get('X-New')\nintake.text_header(request, N)\n'b' in headers\nother.get('c')")
    found = [_value(each, {"N": "n"}) for node in ast.walk(tree) for each in _arguments(node)]
    assert sorted(found) == ["X-New", "b", "n"]
    assert Headers({"X-New": "1"}).get("x-new") == "1"
