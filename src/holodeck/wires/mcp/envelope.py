"""One message of an MCP client, and its version and capabilities. Both eras of the protocol use one address.

Since 2026-07-28 every request carries its version and its capabilities in `params._meta`, and repeats version, method
and name in headers. Before that, a client introduced itself once, with `initialize`. The server serves such a client
without a session.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from holodeck.core.text import clean
from holodeck.wires.jsonrpc import INVALID_PARAMS, JsonRpcId, RpcError, RpcMessage

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Versions that begin with `initialize`. The server offers the first to a client that asks for an unknown one."""

HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022
PREFIX = "io.modelcontextprotocol/"
VERSION_KEY, CAPABILITIES_KEY = f"{PREFIX}protocolVersion", f"{PREFIX}clientCapabilities"
SERVER_INFO_KEY = f"{PREFIX}serverInfo"
TASKS = f"{PREFIX}tasks"
VERSION_HEADER, METHOD_HEADER, NAME_HEADER = "mcp-protocol-version", "mcp-method", "mcp-name"
_NAME_OF: Mapping[str, str] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Methods whose `Mcp-Name` header repeats a parameter."""
_BASE64 = re.compile(r"=\?base64\?(.*)\?=")
_MAX_TOKEN = 1024


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A client's capabilities, from the request. A legacy client sends none after `initialize`."""

    version: str = LEGACY[0]
    capabilities: dict[str, Any] = {}

    @property
    def is_modern(self) -> bool:
        return self.version == MODERN

    @property
    def answers_forms(self) -> bool:
        """Returns whether the client shows a form to a person when a result asks for it. `{}` means forms."""
        given = self.capabilities.get("elicitation")
        return isinstance(given, dict) and (not given or "form" in given)

    @property
    def takes_tasks(self) -> bool:
        extensions = self.capabilities.get("extensions")
        return isinstance(extensions, dict) and TASKS in extensions


class McpCall(msgspec.Struct, frozen=True, kw_only=True):
    id: JsonRpcId
    method: str
    params: dict[str, Any]
    caller: Caller
    progress_token: str | int | None = None


def open_envelope(message: RpcMessage, headers: Iterable[tuple[str, str]] | None) -> McpCall:
    """Checks a request's version, capabilities and headers (None: the transport has none). Raises RpcError."""
    meta = message.params.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    given = None if headers is None else _routing_headers(headers, message.id)
    caller = _caller(message, meta, given)
    token = meta.get("progressToken")
    is_token = isinstance(token, str | int) and not isinstance(token, bool) and len(str(token)) <= _MAX_TOKEN
    return McpCall(
        id=message.id,
        method=message.method,
        params=message.params,
        caller=caller,
        progress_token=token if is_token else None,
    )


def missing_capability(required: dict[str, Any], what: str, request_id: JsonRpcId) -> RpcError:
    data = {"requiredCapabilities": required}
    return RpcError(MISSING_CAPABILITY, what, data=data, request_id=request_id)


def _caller(message: RpcMessage, meta: dict[str, Any], headers: Mapping[str, str] | None) -> Caller:
    named = None if headers is None else headers.get(VERSION_HEADER)
    if VERSION_KEY not in meta and (named is None or named in LEGACY):
        return Caller(version=named or LEGACY[0])
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        what = f"params._meta must have {' and '.join(missing)}."
        raise RpcError(INVALID_PARAMS, what, request_id=message.id)
    version, capabilities = meta[VERSION_KEY], meta[CAPABILITIES_KEY]
    if headers is not None:
        _check_headers(message, version, headers)
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        what = f"{VERSION_KEY} must be a string and {CAPABILITIES_KEY} an object."
        raise RpcError(INVALID_PARAMS, what, request_id=message.id)
    if version != MODERN:
        data = {"supported": [MODERN], "requested": clean(version)}
        raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data=data, request_id=message.id)
    return Caller(version=version, capabilities=capabilities)


def _routing_headers(headers: Iterable[tuple[str, str]], request_id: JsonRpcId) -> dict[str, str]:
    """Returns the headers that repeat part of the body. Refuses duplicates: readers of two copies would disagree."""
    found: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        if key not in (VERSION_HEADER, METHOD_HEADER, NAME_HEADER):
            continue
        if key in found:
            raise _mismatch(f"{key} is sent twice.", request_id)
        found[key] = value.strip(" \t")
    return found


def _check_headers(message: RpcMessage, version: Any, headers: Mapping[str, str]) -> None:
    if headers.get(VERSION_HEADER) != version:
        raise _mismatch(f"{VERSION_HEADER} is not the protocol version in params._meta.", message.id)
    if headers.get(METHOD_HEADER) != message.method:
        raise _mismatch(f"{METHOD_HEADER} is not the method of the body.", message.id)
    parameter = _NAME_OF.get(message.method)
    value = None if parameter is None else message.params.get(parameter)
    if value is not None and _decoded(headers.get(NAME_HEADER)) != value:
        raise _mismatch(f"{NAME_HEADER} is not the {parameter} of the body.", message.id)


def _decoded(value: str | None) -> str | None:
    """Decodes a header's text, which may be base64 between markers. None for malformed base64."""
    framed = None if value is None else _BASE64.fullmatch(value)
    if framed is None:
        return value
    try:
        decoded = base64.b64decode(framed[1], validate=True)
        is_canonical = base64.b64encode(decoded).decode("ascii") == framed[1]
        return decoded.decode() if is_canonical else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def _mismatch(what: str, request_id: JsonRpcId) -> RpcError:
    return RpcError(HEADER_MISMATCH, what, request_id=request_id)
