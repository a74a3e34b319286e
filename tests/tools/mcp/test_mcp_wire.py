"""Our reading of MCP beside the official SDK's: what one takes, the other takes, and it means the same."""

import json

import mcp_types
import mcp_types.methods as sdk
import msgspec
import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from holodeck.tools import mcp_wire as wire

URI = "file:///a"


def test_the_revisions_are_those_of_the_sdk():
    assert set(HANDSHAKE_PROTOCOL_VERSIONS) == wire.KNOWN_VERSIONS
    assert LATEST_HANDSHAKE_VERSION == wire.OFFERED_VERSION
    assert mcp_types.CONNECTION_CLOSED == wire.CONNECTION_CLOSED
    assert mcp_types.METHOD_NOT_FOUND == wire.METHOD_NOT_FOUND


@pytest.mark.parametrize(
    ("method", "params"),
    [
        (
            wire.INITIALIZE,
            {
                "protocolVersion": wire.OFFERED_VERSION,
                "capabilities": {},
                "clientInfo": {"name": "holodeck", "version": "1"},
            },
        ),
        (wire.LIST_TOOLS, {}),
        (wire.LIST_TOOLS, {"cursor": "next"}),
        (wire.CALL_TOOL, {"name": "echo", "arguments": {"n": 1}}),
    ],
)
@pytest.mark.parametrize("version", sorted(wire.KNOWN_VERSIONS))
def test_the_sdk_reads_our_requests(method, params, version):
    message = mcp_types.jsonrpc_message_adapter.validate_json(wire.encode(wire.request(1, method, params)))
    assert isinstance(message, mcp_types.JSONRPCRequest)
    read = sdk.parse_client_request(message.method, version, message.params)
    assert read.method == method


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (wire.notification(wire.INITIALIZED), mcp_types.JSONRPCNotification),
        (wire.notification(wire.CANCELLED, {"requestId": 1}), mcp_types.JSONRPCNotification),
        (wire.result("ping-1", {}), mcp_types.JSONRPCResponse),
        (wire.error(7, wire.METHOD_NOT_FOUND, "is not supported"), mcp_types.JSONRPCError),
    ],
)
def test_the_sdk_reads_what_else_we_say(message, kind):
    read = mcp_types.jsonrpc_message_adapter.validate_json(wire.encode(message))
    assert isinstance(read, kind)
    assert wire.decode(read.model_dump_json(exclude_none=True).encode()) == message


RESULTS = [
    {"content": []},
    {"content": [{"type": "text", "text": "a", "annotations": {"priority": 1}, "_meta": {"x": 1}}]},
    {"content": [{"type": "image", "data": "aa==", "mimeType": "image/png"}]},
    {"content": [{"type": "audio", "data": "aa==", "mimeType": "audio/wav"}]},
    {"content": [{"type": "resource_link", "name": "a", "uri": URI}]},
    {"content": [{"type": "resource", "resource": {"uri": URI, "text": ""}}]},
    {"content": [{"type": "resource", "resource": {"uri": URI, "blob": "aa=="}}]},
    {"content": [], "structuredContent": {"n": [1, None, {"m": "ü"}]}, "isError": True, "novelty": 1},
    {"content": [], "isError": "perhaps"},
    {"content": [], "structuredContent": "text"},
    {"content": None},
    {"content": "x"},
    {"content": [1]},
    {"content": [{}]},
    {"content": [{"type": "text"}]},
    {"content": [{"type": "text", "text": 7}]},
    {"content": [{"type": "video", "data": ""}]},
    {"content": [{"type": "image", "mimeType": "image/png"}]},
    {"content": [{"type": "resource", "resource": {"uri": URI}}]},
    {"content": [{"type": "resource_link", "name": "a"}]},
]


@pytest.mark.req("B14")
@pytest.mark.parametrize("given", RESULTS, ids=json.dumps)
def test_a_result_is_one_for_both_or_for_neither(given):
    try:
        theirs = sdk.parse_server_result(wire.CALL_TOOL, wire.OFFERED_VERSION, given)
    except ValidationError:
        with pytest.raises(msgspec.ValidationError):
            wire.read(given, wire.CallResult)
        return
    ours = wire.read(given, wire.CallResult)
    assert (ours.is_error, ours.structured_content) == (theirs.is_error, theirs.structured_content)
    for mine, other in zip(ours.content, theirs.content, strict=True):
        dumped = other.model_dump(by_alias=True, mode="json", exclude_none=True)
        assert without_nulls(msgspec.to_builtins(mine)).items() <= dumped.items()


def without_nulls(value: dict) -> dict:
    return {
        key: without_nulls(item) if isinstance(item, dict) else item for key, item in value.items() if item is not None
    }


LISTINGS = [
    {"tools": []},
    {"tools": [{"name": "a", "inputSchema": {"type": "object"}}], "nextCursor": "b"},
    {
        "tools": [
            {"name": "a", "title": "A", "description": "d", "inputSchema": {"type": "object"}, "outputSchema": None}
        ]
    },
    {"tools": [{"name": "a", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}}]},
    {"tools": [{"name": "a"}]},
    {"tools": [{"inputSchema": {"type": "object"}}]},
    {"tools": {}},
    {},
]


@pytest.mark.parametrize("given", LISTINGS, ids=json.dumps)
def test_a_listing_is_one_for_both_or_for_neither(given):
    try:
        theirs = sdk.parse_server_result(wire.LIST_TOOLS, wire.OFFERED_VERSION, given)
    except ValidationError:
        with pytest.raises(msgspec.ValidationError):
            wire.read(given, wire.ToolsPage)
        return
    ours = wire.read(given, wire.ToolsPage)
    assert ours.next_cursor == theirs.next_cursor
    assert [(tool.name, tool.description, tool.input_schema, tool.output_schema) for tool in ours.tools] == [
        (tool.name, tool.description, tool.input_schema, tool.output_schema) for tool in theirs.tools
    ]


@pytest.mark.req("B04")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{},"error":null}', wire.result(1, {})),
        (b'{"jsonrpc":"2.0","id":1,"result":{"n":NaN,"m":-Infinity}}', wire.result(1, {"n": None, "m": None})),
        (b'{"jsonrpc":"2.0","id":1,"result":{"n":123456789012345678901234567890}}', None),
        (b'{"jsonrpc":"2.0","id":"1","error":{"code":-1,"message":"no","data":[1]}}', wire.error("1", -1, "no")),
    ],
)
def test_what_lenient_servers_send_is_understood(line, expected):
    message = wire.decode(line)
    assert message.answers == 1
    assert message == (expected or wire.result(1, {"n": 123456789012345678901234567890}))


@pytest.mark.req("B04", "B20")
@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b'{"id":1,"result":{}}',
        b'{"jsonrpc":"1.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":true,"result":{}}',
        b'{"jsonrpc":"2.0","id":1.5,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}',
        b'{"jsonrpc":"2.0","id":1,"result":[]}',
        b'{"jsonrpc":"2.0","id":1,"result":{"n":' + b"[" * 100_000 + b"NaN" + b"]" * 100_000 + b"}}",
        b'{"jsonrpc":"2.0","id":1,"result":{"n":NaN,"m":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
        b"",
    ],
)
def test_an_invalid_message_is_refused(line):
    with pytest.raises(ValueError):  # noqa: PT011  msgspec's, json's and our own words for it
        wire.decode(line)


@pytest.mark.req("B04")
@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (rb"half \ud83d", "half \ufffd"),
        (rb"\ude00 half", "\ufffd half"),
        (rb"whole \ud83d\ude00", "whole \U0001f600"),
        (rb"\\ud83d", "\\ud83d"),
        (rb"\ud83d and \ud83d\ude00", "\ufffd and \U0001f600"),
    ],
)
def test_half_a_surrogate_pair_is_mended_and_the_rest_kept(sent, read):
    message = wire.decode(b'{"jsonrpc":"2.0","id":1,"result":{"n":NaN,"text":"%b"}}' % sent)
    assert message.result == {"n": None, "text": read}
    assert wire.decode(b'{"jsonrpc":"2.0","id":1,"result":{"text":"%b"}}' % sent).result == {"text": read}
