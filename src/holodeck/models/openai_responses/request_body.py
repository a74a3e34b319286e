"""The body of a Responses request, and which of its members an endpoint refuses."""

import json
import re
from collections.abc import Collection
from typing import Any

import msgspec

from holodeck.core.tools import ToolSchema
from holodeck.models.chunks import cleaned
from holodeck.models.openai_responses.input_items import to_input
from holodeck.models.port import Prompt
from holodeck.models.settings import EndpointSettings, Reasoning
from holodeck.models.structured import responses_format_of

REFUSED = frozenset({400, 422})
OPTIONAL = (
    "reasoning.summary", "reasoning.effort", "reasoning", "include", "text.verbosity", "temperature", "top_p",
    "parallel_tool_calls", "tool_choice", "service_tier", "max_output_tokens", "store",
)  # fmt: skip  # members that an answer can be had without, the inner ones first
_COMPLAINT = re.compile(
    r"unsupported|not support|unrecognized|unknown|not permitted|not allowed|unexpected|invalid|only the default"
    r"|must be verified|does not exist|forbidden",
    re.IGNORECASE,
)
_HINTS = {"include": re.compile(r"encrypted_content|encrypted content is not supported", re.IGNORECASE)}
_DEFAULT_TEMPERATURE = 1.0  # the API's default, which is not sent: many reasoning models refuse the member


def encode_request(
    settings: EndpointSettings,
    prompt: Prompt,
    *,
    without: Collection[str] = (),
    plain: Collection[str] = (),
    summary: bool = False,
) -> bytes:
    """Encodes the request. `without` names members that the endpoint refuses, `plain` ids of messages whose items it refuses.

    `summary`: ask for a summary of the reasoning even if the settings do not say so.
    """
    body: dict[str, Any] = {"model": settings.model, "input": to_input(prompt.messages, plain), "stream": True}
    if prompt.system:
        body["instructions"] = prompt.system
    tools = [] if prompt.answers_now else [*map(_tool, prompt.tools), *settings.provider_tools]
    if tools:
        body["tools"] = tools
    for name, value in _options(settings, prompt, summary=summary).items():
        if value is not None and name not in without and name.partition(".")[0] not in without:
            _put(body, name, value)
    if prompt.output is not None:
        _put(body, "text.format", responses_format_of(prompt.output))
    body |= settings.extra
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # a lone surrogate that passed every other check
        return msgspec.json.encode(cleaned(body))


def refused_member(text: str, without: Collection[str]) -> str | None:
    """The member that a refusal is about, if the request can do without it."""
    if not _COMPLAINT.search(text):
        return None
    words = f"{text} {_named_in(text)}"
    for name in OPTIONAL:
        if name in without:
            continue
        mention = re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w])")
        if mention.search(words) or (name in _HINTS and _HINTS[name].search(text)):
            return name
    return None


def _named_in(text: str) -> str:
    """The paths in pydantic's `loc`, which several gateways send to name the refused member."""
    try:
        detail = json.loads(text).get("detail")
    except (ValueError, AttributeError, RecursionError):
        return ""
    places = [each.get("loc") for each in detail if isinstance(each, dict)] if isinstance(detail, list) else []
    return " ".join(".".join(str(step) for step in place if step != "body") for place in places if place)


def _options(settings: EndpointSettings, prompt: Prompt, *, summary: bool) -> dict[str, Any]:
    """The optional members by their path, None where the settings leave them to the provider."""
    reasoning = settings.reasoning or Reasoning()
    wanted = reasoning.summary or ("auto" if summary or settings.reasoning else None)
    choice = None if prompt.answers_now else settings.choice_of_tools(prompt)
    names_tool = choice not in (None, "auto", "none", "required")
    has_tools = bool(prompt.tools or settings.provider_tools) and not prompt.answers_now
    return {
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "temperature": settings.temperature if settings.temperature != _DEFAULT_TEMPERATURE else None,
        "top_p": settings.top_p,
        "max_output_tokens": settings.most_tokens(prompt),
        "reasoning.effort": reasoning.effort,
        "reasoning.summary": None if wanted == "none" else wanted,
        "text.verbosity": settings.verbosity,
        "tool_choice": {"type": "function", "name": choice} if names_tool else choice,
        "parallel_tool_calls": settings.calls_in_parallel(prompt) if has_tools else None,
        "service_tier": settings.service_tier,
    }


def _put(body: dict[str, Any], path: str, value: Any) -> None:
    outer, _, inner = path.partition(".")
    if inner:
        body.setdefault(outer, {})[inner] = value
    else:
        body[outer] = value


def _tool(tool: ToolSchema) -> dict[str, Any]:
    # Without `strict: false` the API rewrites schemas that are not strict, and refuses those that it cannot rewrite.
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }
