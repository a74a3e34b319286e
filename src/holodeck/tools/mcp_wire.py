"""The subset of MCP messages that an agent and its users need: the handshake, tools, prompts, resources.

Values only. It validates the members that we use and ignores the rest. The tests compare it with the official SDK's
models. We do not use those models here: building hundreds of them would slow every start, and they would validate more
of each message than we read.

`tool_result` turns an answer into text and media for the model. An answer is hostile data: it is cleaned and capped, and
content that the model cannot read is only named.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct, field

from holodeck._version import __version__
from holodeck.core.json_values import MAX_DEPTH, clean_json, depth_exceeds
from holodeck.core.messages import MediaPart, Part, TextPart
from holodeck.core.text import clean, one_line, shorten
from holodeck.core.tools import ToolResult

OFFERED_VERSION = "2025-11-25"
KNOWN_VERSIONS = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", OFFERED_VERSION})

METHOD_NOT_FOUND = -32601
CONNECTION_CLOSED = -32000

INITIALIZE = "initialize"
INITIALIZED = "notifications/initialized"
CANCELLED = "notifications/cancelled"
PROGRESS = "notifications/progress"
TOOLS_CHANGED = "notifications/tools/list_changed"
PING = "ping"
LIST_TOOLS = "tools/list"
CALL_TOOL = "tools/call"
LIST_PROMPTS = "prompts/list"
GET_PROMPT = "prompts/get"
LIST_RESOURCES = "resources/list"
READ_RESOURCE = "resources/read"

RequestId = int | str

NOTHING = "(the tool returned nothing)"

_MIME = re.compile(r"[\w.+-]{1,64}/[\w.+-]{1,64}", re.ASCII)


class McpError(Exception):
    """An error instead of a result: the server's, or a transport's on its behalf."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ErrorDetail(Struct, frozen=True):
    code: int
    message: str


class McpMessage(Struct, frozen=True, omit_defaults=True):
    """A JSON-RPC message of any kind: a request has a method and an id, an answer a result or an error.

    Null counts as absent: some servers send `"error": null` with every result.
    """

    jsonrpc: Literal["2.0"]
    id: RequestId | None = None
    method: str | None = None
    params: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: ErrorDetail | None = None

    def __post_init__(self) -> None:
        if [self.method, self.result, self.error].count(None) != 2:  # noqa: PLR2004  one of the three
            raise ValueError("a message has one of method, result and error")

    @property
    def answers(self) -> RequestId | None:
        """The id of the request that this answers. Some servers send our numbers back as strings."""
        if self.method is not None:
            return None
        return int(self.id) if isinstance(self.id, str) and _NUMBER.fullmatch(self.id) else self.id


def hello() -> dict[str, Any]:
    """The parameters of `initialize`."""
    return {
        "protocolVersion": OFFERED_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "holodeck", "version": __version__},
    }


def request(number: int, method: str, params: dict[str, Any]) -> McpMessage:
    return McpMessage("2.0", id=number, method=method, params=params or None)


def notification(method: str, params: dict[str, Any] | None = None) -> McpMessage:
    return McpMessage("2.0", method=method, params=params)


def result(number: RequestId, value: dict[str, Any]) -> McpMessage:
    return McpMessage("2.0", id=number, result=value)


def error(number: RequestId, code: int, message: str) -> McpMessage:
    return McpMessage("2.0", id=number, error=ErrorDetail(code, message))


class Hello(Struct, frozen=True, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Any]


class Progress(Struct, frozen=True):
    """The progress of a call; `total` is None if the server does not know it."""

    progress: float
    total: float | None = None
    message: str | None = None


class Annotations(Struct, frozen=True, rename="camel"):
    """The claims of a server about a tool. A claim of the wrong type counts as absent."""

    read_only_hint: Any = None
    idempotent_hint: Any = None

    @property
    def repeatable(self) -> bool:
        return self.read_only_hint is True or self.idempotent_hint is True


class ListedTool(Struct, frozen=True, rename="camel"):
    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    output_schema: dict[str, Any] | None = None
    annotations: Annotations | None = None

    @property
    def repeatable(self) -> bool:
        return self.annotations is not None and self.annotations.repeatable


class ToolsPage(Struct, frozen=True, rename="camel"):
    tools: list[ListedTool]
    next_cursor: str | None = None


class TextBlock(Struct, frozen=True, tag="text"):
    text: str


class ImageBlock(Struct, frozen=True, tag="image", rename="camel"):
    data: str
    mime_type: str


class AudioBlock(Struct, frozen=True, tag="audio", rename="camel"):
    data: str
    mime_type: str


class LinkBlock(Struct, frozen=True, tag="resource_link"):
    name: str
    uri: str


class Resource(Struct, frozen=True, rename="camel"):
    """A document in the answer, as `text` or as `blob`."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None

    def __post_init__(self) -> None:
        if self.text is None and self.blob is None:
            raise ValueError("a resource has a text or a blob")


class ResourceBlock(Struct, frozen=True, tag="resource"):
    resource: Resource


McpContent = TextBlock | ImageBlock | AudioBlock | LinkBlock | ResourceBlock


class CallResult(Struct, frozen=True, rename="camel"):
    content: list[McpContent] = field(default_factory=list)
    structured_content: dict[str, Any] | None = None
    is_error: bool = False


class PromptArgument(Struct, frozen=True):
    name: str
    description: str | None = None
    required: bool | None = None


class ListedPrompt(Struct, frozen=True):
    """A prompt of a server: a text with arguments to fill in."""

    name: str
    description: str | None = None
    arguments: list[PromptArgument] | None = None


class PromptsPage(Struct, frozen=True, rename="camel"):
    prompts: list[ListedPrompt]
    next_cursor: str | None = None


class PromptMessage(Struct, frozen=True):
    role: str
    content: McpContent


class FilledPrompt(Struct, frozen=True):
    messages: list[PromptMessage]


class ListedResource(Struct, frozen=True, rename="camel"):
    uri: str
    name: str
    description: str | None = None
    mime_type: str | None = None


class ResourcesPage(Struct, frozen=True, rename="camel"):
    resources: list[ListedResource]
    next_cursor: str | None = None


class ReadResource(Struct, frozen=True):
    contents: list[Resource]


R = TypeVar("R", McpMessage, Hello, ToolsPage, CallResult, PromptsPage, FilledPrompt, ResourcesPage, ReadResource)

_NUMBER = re.compile(r"[0-9]{1,18}")
_LENIENT = re.compile(rb"NaN|Infinity|\\u[dD][89a-fA-F]")
_SURROGATES = re.compile(  # escaped backslashes and complete pairs stay unchanged
    rb"(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)

_decoder = msgspec.json.Decoder(McpMessage)
_encode = msgspec.json.Encoder().encode


class UnsendableMessage(ValueError):
    """A message that cannot be written as JSON, with the reason."""


def encode(message: McpMessage) -> bytes:
    try:
        return _encode(message)
    except UnicodeEncodeError as error:
        raise UnsendableMessage("a text holds half a surrogate pair") from error
    except (TypeError, RecursionError) as error:
        raise UnsendableMessage("they are not JSON, or nest too deeply") from error


def decode(line: bytes) -> McpMessage:
    """Decodes a message. Raises ValueError for a line that is not a JSON-RPC message."""
    try:
        try:
            return _decoder.decode(line)
        except ValueError:
            if not _LENIENT.search(line):
                raise
        # Not JSON, but written by some libraries: NaN (Python's json module), half a surrogate pair (JavaScript's cut texts)
        value = json.loads(mended(line), parse_constant=lambda _: None)
        return _decoder.decode(_encode(value))
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def mended(text: bytes) -> bytes:
    """The JSON text with lone surrogates replaced by U+FFFD."""
    return _SURROGATES.sub(lambda match: match[0] if match[1] else rb"\ufffd", text) if b"\\u" in text else text


def progress_of(params: Mapping[str, Any]) -> Progress | None:
    """The progress in a notification; None if it breaks the schema."""
    try:
        return msgspec.convert(params, Progress)
    except msgspec.ValidationError:
        return None


def read(value: Mapping[str, Any], kind: type[R]) -> R:
    """The result as a value of type `kind`. Raises msgspec.ValidationError."""
    return msgspec.convert(value, kind)


def tool_result(answer: CallResult, limit: int, shortened: Callable[[str, int], str] = shorten) -> ToolResult:
    """The result for the model: texts joined, media named (and kept when small), about `limit` characters in all."""
    lines: list[str] = []
    media: list[Part] = []
    room = limit
    for block in answer.content:
        line, part = _read(block)
        lines.append(line)
        if part is not None and part.data is not None and len(part.data) < room:
            room -= len(part.data)
            media.append(part)
    text = "\n".join(filter(None, lines)) or _structured(answer.structured_content) or NOTHING
    text = shortened(text, limit)
    return ToolResult(content=(TextPart(text), *media) if media else text, failed=answer.is_error)


def _structured(value: Any) -> str:
    if value is None:
        return ""
    if depth_exceeds(value, MAX_DEPTH):
        return f"(the tool's answer is nested deeper than {MAX_DEPTH} levels and was left out)"
    return msgspec.json.encode(clean_json(value)).decode()


def _read(block: McpContent) -> tuple[str, MediaPart | None]:
    match block:
        case TextBlock():
            return clean(block.text), None
        case ImageBlock() | AudioBlock():
            return _media(block.mime_type, block.data)
        case LinkBlock():
            return f"[resource {one_line(block.name)}: {one_line(block.uri, 200)}]", None
        case ResourceBlock():
            return _resource(block.resource)


def text_of_block(block: McpContent) -> str:
    """The text of a block. Other content is named."""
    return _read(block)[0]


def _resource(resource: Resource) -> tuple[str, MediaPart | None]:
    if resource.text is not None:
        return clean(resource.text), None
    return _media(resource.mime_type or "", resource.blob or "", one_line(resource.uri, 200))


def _media(declared: str, data: str, name: str = "") -> tuple[str, MediaPart | None]:
    mime = declared if _MIME.fullmatch(declared) else "application/octet-stream"
    try:
        size = len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return f"[{mime}, damaged]", None
    label = f"{name}: {mime}" if name else mime
    return f"[{label}, {_readable(size)}]", MediaPart(mime_type=mime, data=data)


def _readable(size: int) -> str:
    return f"{size} bytes" if size < 1_000 else f"{size / 1_000:.0f} kB"  # noqa: PLR2004  a kilobyte
