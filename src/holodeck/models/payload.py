"""The body of a chat-completion request, and what an endpoint's complaint teaches about it.

Endpoints differ in which members they know. We send what is right for most and leave out what one complains about; no
behaviour is guessed from a model's name.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from holodeck.core.tools import ToolSchema
from holodeck.models.chat_format import to_chat
from holodeck.models.chunks import cleaned
from holodeck.models.port import Prompt
from holodeck.models.settings import ChatSettings

_COMPLAINTS = frozenset({400, 422})

LESSONS: Mapping[str, re.Pattern[str]] = {
    "stream_options": re.compile(r"stream_options|include_usage"),
    "max_tokens": re.compile(r"max_completion_tokens"),  # newer OpenAI models want the other name
    "temperature": re.compile(
        r"temperature.{0,80}(not support|unsupported|only the default)|"
        r"(unsupported|not support).{0,80}temperature",
        re.IGNORECASE | re.DOTALL,
    ),
}


def encode(settings: ChatSettings, prompt: Prompt, without: frozenset[str] = frozenset()) -> bytes:
    """The request's bytes; `without` names lessons that were learned."""
    body: dict[str, Any] = {"model": settings.model, "messages": to_chat(prompt), "stream": True}
    if "stream_options" not in without:
        body["stream_options"] = {"include_usage": True}
    if settings.temperature is not None and "temperature" not in without:
        body["temperature"] = settings.temperature
    if settings.max_tokens is not None:
        body["max_completion_tokens" if "max_tokens" in without else "max_tokens"] = settings.max_tokens
    if prompt.tools:
        body["tools"] = [_tool(tool) for tool in prompt.tools]
    body |= settings.options
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # lone surrogates that came in past every other check
        return msgspec.json.encode(cleaned(body))


def lesson(status: int, text: str, without: frozenset[str]) -> str | None:
    """Which member to do without after a refusal; None when the refusal is about something else."""
    if status not in _COMPLAINTS:
        return None
    return next((name for name, words in LESSONS.items() if name not in without and words.search(text)), None)


def _tool(tool: ToolSchema) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}
