"""What a client says about itself: held against the official SDK's own checks."""

from typing import Any

import pytest
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request, encode_header_value

from holodeck.wires.jsonrpc import RpcError, RpcMessage
from holodeck.wires.mcp.envelope import MODERN, Caller, open_envelope

PREFIX = "io.modelcontextprotocol/"
META = {f"{PREFIX}protocolVersion": MODERN, f"{PREFIX}clientCapabilities": {}}
HEADERS = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "ask"}


def params(meta: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": "ask", "arguments": {}, "_meta": META if meta is None else meta, **more}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in META.items() if not key.endswith(name)}


MODERN_REQUESTS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "as it should be": (params(), HEADERS),
    "no capabilities": (params(without("clientCapabilities")), HEADERS),
    "no version in the body": (params(without("protocolVersion")), HEADERS),
    "no meta": (params({}), HEADERS),
    "meta is a list": (params([]), HEADERS),
    "another version in the header": (params(), {**HEADERS, "mcp-protocol-version": "2025-11-25"}),
    "no version in the header": (params(), {k: v for k, v in HEADERS.items() if k != "mcp-protocol-version"}),
    "another method": (params(), {**HEADERS, "mcp-method": "tools/list"}),
    "no method": (params(), {k: v for k, v in HEADERS.items() if k != "mcp-method"}),
    "another name": (params(), {**HEADERS, "mcp-name": "wait"}),
    "no name": (params(), {k: v for k, v in HEADERS.items() if k != "mcp-name"}),
    "the name in base64": (params(name="é"), {**HEADERS, "mcp-name": encode_header_value("é")}),
    "broken base64": (params(), {**HEADERS, "mcp-name": "=?base64?YXNr=?="}),
    "base64 of no text": (params(), {**HEADERS, "mcp-name": "=?base64?/w==?="}),
    "a version that is unknown": (
        params({**META, f"{PREFIX}protocolVersion": "v9"}),
        {**HEADERS, "mcp-protocol-version": "v9"},
    ),
}


@pytest.mark.parametrize("name", MODERN_REQUESTS)
def test_a_request_is_taken_or_refused_as_the_sdk_does(name: str) -> None:
    given, headers = MODERN_REQUESTS[name]
    theirs = classify_inbound_request({"method": "tools/call", "params": given}, headers=headers)
    message = RpcMessage(method="tools/call", params=given, id=7)
    if not isinstance(theirs, InboundLadderRejection):
        assert open_envelope(message, headers.items()).caller == Caller(version=MODERN)
        return
    with pytest.raises(RpcError) as refused:
        open_envelope(message, headers.items())
    assert (refused.value.rpc_code, refused.value.status) == (theirs.code, 400)
    assert refused.value.request_id == 7
    if theirs.data is not None:
        assert refused.value.data == theirs.data


def test_white_space_around_a_header_does_not_count() -> None:
    message = RpcMessage(method="tools/call", params=params(), id=1)
    assert open_envelope(message, {**HEADERS, "mcp-name": " ask "}.items()).caller.is_modern


def test_a_header_that_is_there_twice_is_refused() -> None:
    message = RpcMessage(method="tools/call", params=params(), id=1)
    with pytest.raises(RpcError, match="twice"):
        open_envelope(message, [*HEADERS.items(), ("Mcp-Name", "ask")])


@pytest.mark.parametrize("version", [None, "2025-11-25", "2025-06-18", "2024-11-05"])
def test_without_a_version_in_the_body_a_client_is_an_older_one(version: str | None) -> None:
    headers = [] if version is None else [("MCP-Protocol-Version", version)]
    call = open_envelope(RpcMessage(method="tools/list", params={"_meta": {"progressToken": 3}}, id=1), headers)
    assert (call.caller.is_modern, call.progress_token) == (False, 3)


def test_over_standard_input_there_are_no_headers() -> None:
    assert open_envelope(RpcMessage(method="tools/call", params=params(), id=1), None).caller.is_modern


@pytest.mark.parametrize(
    ("capabilities", "forms", "tasks"),
    [
        ({}, False, False),
        ({"elicitation": {}}, True, False),
        ({"elicitation": {"form": {}}}, True, False),
        ({"elicitation": {"url": {}}}, False, False),
        ({"elicitation": None}, False, False),
        ({"extensions": {f"{PREFIX}tasks": {}}}, False, True),
        ({"extensions": [f"{PREFIX}tasks"]}, False, False),
    ],
)
def test_capabilities(capabilities: dict[str, Any], *, forms: bool, tasks: bool) -> None:
    caller = Caller(version=MODERN, capabilities=capabilities)
    assert (caller.answers_forms, caller.takes_tasks) == (forms, tasks)
