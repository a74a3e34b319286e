"""Tools as values: the schemas that the model is offered, its calls, and their results."""

import re
from enum import StrEnum
from typing import Any

import msgspec

from holodeck.core.messages import Content, text_of

_decode = msgspec.json.Decoder().decode


def accepted_name(name: str) -> str:
    """The name as every provider accepts it. A model may invent others, such as `multi_tool_use.parallel`."""
    return name if TOOL_NAME.fullmatch(name) else _NOT_IN_A_NAME.sub("_", name)[:64] or "_"


class Approval(StrEnum):
    """Whether a person has to agree before a tool runs."""

    NEVER = "never"
    ALWAYS = "always"


TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what every provider accepts
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


class ToolSchema(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as the model sees it. `parameters` is a JSON Schema of an object."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    approval: Approval = Approval.NEVER
    on_client: bool = False  # a frontend tool: offered to the model, carried out by the client
    repeatable: bool = False  # a second call with the same arguments does no harm (reads, idempotent writes)


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool call. `failed` is for readers of the log; the model reads the text either way."""

    content: Content
    failed: bool = False
    retryable: bool = False  # the tool could not be reached, broke off or was too slow; asking it again may help
    cached: bool = False  # the result of an earlier call, kept by `cache:` of the agent file
    unsent: bool = False  # the call certainly did not take effect: it never reached the tool

    @property
    def text(self) -> str:
        return text_of(self.content)

    @classmethod
    def failure(cls, text: str, *, retryable: bool = False, unsent: bool = False) -> "ToolResult":
        return cls(content=text, failed=True, retryable=retryable, unsent=unsent)


def arguments_shown(arguments: str) -> dict[str, Any]:
    """Arguments of a call for people: the object if they are one, else the model's text."""
    try:
        value = _decode(arguments or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"arguments": arguments}
    return value if isinstance(value, dict) else {"arguments": value}
