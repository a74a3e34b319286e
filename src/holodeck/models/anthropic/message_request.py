"""The body of a Messages request, from the prompt and the settings. Pure; `restrictions` has what an endpoint refused."""

import re
from base64 import b64decode
from collections.abc import Container, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from holodeck.core.json_values import decoded
from holodeck.core.messages import (
    AssistantMessage,
    Content,
    MediaPart,
    Message,
    Part,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    parts_of,
    text_of,
)
from holodeck.core.tools import ToolSchema, accepted_name
from holodeck.models.anthropic.content_blocks import CALL, KEPT, THINKING, kept_blocks
from holodeck.models.anthropic.message_events import Value
from holodeck.models.endpoint_settings import SMALLEST_BUDGET, EndpointSettings, Reasoning
from holodeck.models.port import Prompt
from holodeck.models.restrictions import NOTHING, Restrictions

ANSWER_TOKENS = 16_000  # max_tokens, which the API requires, if the file does not set it
ADAPTIVE_TOKENS = 32_000  # the same with thinking whose length the model chooses
LONG_ADAPTIVE_TOKENS = 64_000
NO_OUTPUT = "(no output)"  # the text of a result without one, where the API requires a text
BREAKPOINTS = 4  # cache breakpoints that one request may have
EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "xhigh": 24_576, "max": 32_000}
_LONG_EFFORTS = frozenset({"xhigh", "max"})
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_NOT_IN_AN_ID = re.compile(r"[^a-zA-Z0-9_-]")


def body_of(
    settings: EndpointSettings,
    prompt: Prompt,
    restrictions: Restrictions = NOTHING,
    *,
    unsigned: Container[str] = (),
    plain: Container[str] = (),
    thinks: bool = True,
) -> Value:
    """The request. `unsigned` and `plain` are ids of messages whose thinking, or whose blocks, the endpoint refused."""
    most = max_tokens(settings, restrictions, prompt.max_output_tokens)
    body: Value = {
        "model": settings.name,
        "max_tokens": most,
        "messages": messages_of(prompt.messages, unsigned, plain),
        "stream": True,
    }
    if prompt.system.strip():
        body["system"] = [{"type": "text", "text": prompt.system}]
    if tools := _tools(prompt.tools, settings.provider_tools):
        body["tools"] = tools
    if container := _container(prompt.messages, plain):
        body["container"] = container
    if settings.cache != "off" and "cache" not in restrictions.without:
        _set_breakpoints(body, settings.cache)
    options = _options(settings, prompt, restrictions) | (thinking_of(settings, restrictions, most) if thinks else {})
    body |= {name: value for name, value in options.items() if value is not None and name not in restrictions.without}
    if prompt.output is not None:
        output_format = {"type": "json_schema", "schema": prompt.output.schema}
        body["output_config"] = {**body.get("output_config", {}), "format": output_format}
    return body | settings.extra


def max_tokens(settings: EndpointSettings, restrictions: Restrictions = NOTHING, asked: int | None = None) -> int:
    """The file's limit, or enough for an answer after the thinking; at most what the endpoint and the client allow."""
    reasoning = settings.reasoning or Reasoning(effort="none")
    wanted = settings.max_tokens
    if wanted is None and reasoning.budget_tokens is not None:
        wanted = reasoning.budget_tokens + ANSWER_TOKENS
    elif wanted is None and reasoning.effort == "none":
        wanted = ANSWER_TOKENS
    elif wanted is None:
        wanted = LONG_ADAPTIVE_TOKENS if reasoning.effort in _LONG_EFFORTS else ADAPTIVE_TOKENS
    allowed = [most for most in (restrictions.most_tokens, restrictions.most_tokens_now, asked) if most is not None]
    return min([wanted, *allowed])


# messages


def messages_of(messages: Iterable[Message], unsigned: Container[str] = (), plain: Container[str] = ()) -> list[Value]:
    """The messages, alternating between user and assistant: all results of a step become one user message."""
    result: list[Value] = []
    for message in messages:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = _blocks(message, unsigned, plain)
        if not blocks:
            continue  # the API refuses empty messages
        if result and result[-1]["role"] == role:
            result[-1]["content"] += blocks
        else:
            result.append({"role": role, "content": blocks})
    return result


def _blocks(message: Message, unsigned: Container[str], plain: Container[str]) -> list[Value]:
    if isinstance(message, UserMessage):
        return _content(message.content)
    if isinstance(message, ToolMessage):
        result: Value = {"type": "tool_result", "tool_use_id": _id(message.call_id)}
        if content := _content(message.content):
            result["content"] = content
        if message.failed:
            result |= {"content": content or [{"type": "text", "text": NO_OUTPUT}], "is_error": True}
        return [result]
    kept = [] if message.id in plain else kept_blocks(message)
    if not kept:
        text = [{"type": "text", "text": message.content}] if message.content.strip() else []
        return text + [_call(call) for call in message.tool_calls]
    return _restored(message, kept, with_thinking=message.id not in unsigned)


def _restored(message: AssistantMessage, kept: Sequence[Value], *, with_thinking: bool) -> list[Value]:
    """The stored blocks. Calls take their current ids and arguments: a person may edit them before they run."""
    if message.content != "".join(str(block.get("text")) for block in kept if block.get("type") == "text"):
        # A structured answer arrived as a call and is stored as text.
        kept = [block for block in kept if block.get("type") != "text"]
        kept += [{"type": "text", "text": message.content}] if message.content.strip() else []
    calls = iter(message.tool_calls)
    blocks: list[Value] = []
    for block in kept:
        kind = block.get("type")
        if kind == CALL:
            call = next(calls, None)
            if call is not None:
                blocks.append({**block, **_call(call)})
        elif with_thinking or kind not in THINKING:
            blocks.append(block)
    blocks += [_call(call) for call in calls]
    while blocks and blocks[-1].get("type") in THINKING:  # the API refuses thoughts that nothing follows
        blocks.pop()
    return blocks


def _call(call: ToolCall) -> Value:
    return {"type": CALL, "id": _id(call.id), "name": accepted_name(call.name), "input": _input(call.arguments)}


def _input(arguments: str) -> Any:
    """The model's own JSON, unparsed. Anything but an object is wrapped in one, as the API's guide asks."""
    if not arguments.strip():
        return {}
    is_object = isinstance(decoded(arguments), dict)
    return msgspec.Raw(arguments.encode()) if is_object else {"INVALID_JSON": arguments}


def _id(call_id: str) -> str:
    """A call id with the characters that the API accepts; other providers' ids may have others."""
    return _NOT_IN_AN_ID.sub("_", call_id) or "_"


def _content(content: Content) -> list[Value]:
    return [block for part in parts_of(content) if (block := _part(part)) is not None]


def _part(part: Part) -> Value | None:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text} if part.text.strip() else None
    kind = part.mime_type.partition(";")[0].strip().lower()
    if kind in _IMAGES or (kind.startswith("image/") and part.url and not part.data):
        return {"type": "image", "source": _source(part, kind)}
    if kind == "application/pdf" and (part.data or part.url):
        return _document(_source(part, kind), part)
    if kind.startswith("text/") and part.data and (text := _decoded(part.data)):
        return _document({"type": "text", "media_type": "text/plain", "data": text}, part)
    return {"type": "text", "text": " ".join(filter(None, [text_of((part,)), part.url]))}


def _document(source: Value, part: MediaPart) -> Value:
    return {"type": "document", "source": source, **({"title": part.filename} if part.filename else {})}


def _source(part: MediaPart, kind: str) -> Value:
    if part.data:
        return {"type": "base64", "media_type": kind, "data": part.data}
    return {"type": "url", "url": part.url}


def _decoded(data: str) -> str:
    try:
        return b64decode(data).decode()
    except ValueError:
        return ""


def _container(messages: Sequence[Message], plain: Container[str]) -> str | None:
    """The container in which the provider last ran code for this conversation, if it has not expired."""
    for message in reversed(messages):
        if not isinstance(message, AssistantMessage) or message.id in plain:
            continue
        kept = message.extra.get(KEPT)
        container = kept.get("container") if isinstance(kept, dict) else None
        if isinstance(container, dict) and isinstance(container.get("id"), str):
            return container["id"] if _lives(container.get("expires_at")) else None
    return None


def _lives(expires_at: Any) -> bool:
    try:
        expires = datetime.fromisoformat(str(expires_at))
    except ValueError:
        return False
    return expires.replace(tzinfo=expires.tzinfo or UTC) > datetime.now(UTC)


# options


def _tools(tools: Sequence[ToolSchema], provider_tools: Sequence[Value]) -> list[Value]:
    ours = [
        {
            "name": tool.name,
            **({"description": tool.description} if tool.description else {}),
            "input_schema": {"type": "object", **tool.parameters},
        }
        for tool in tools
    ]
    return ours + [dict(tool) for tool in provider_tools]


def _options(settings: EndpointSettings, prompt: Prompt, restrictions: Restrictions) -> Value:
    return {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "stop_sequences": list(settings.stop) or None,
        "service_tier": settings.service_tier,
        "tool_choice": _tool_choice(settings, prompt, restrictions),
    }


def _tool_choice(settings: EndpointSettings, prompt: Prompt, restrictions: Restrictions) -> Value | None:
    choice = settings.choice_of_tools(prompt)
    serial = settings.calls_in_parallel(prompt) is False and "disable_parallel_tool_use" not in restrictions.without
    if choice is None and not (serial and prompt.tools):
        return None
    choice = choice or "auto"
    named = _CHOICES.get(choice)
    value: Value = {"type": named} if named else {"type": "tool", "name": choice}
    if serial and choice != "none":
        value["disable_parallel_tool_use"] = True
    return value


def thinking_of(settings: EndpointSettings, restrictions: Restrictions, most: int) -> Value:
    """The members for thinking. Older models take a budget, newer ones an effort; refusals show which."""
    reasoning = settings.reasoning
    if reasoning is None:
        return {}
    if reasoning.effort == "none" and reasoning.budget_tokens is None:
        return {"thinking": {"type": "disabled"}}
    effort = EFFORTS.get(reasoning.effort or "")
    wants_budget = reasoning.budget_tokens is not None and "budget" not in restrictions.without
    if wants_budget or "adaptive" in restrictions.without:
        budget = _budget(reasoning, most)
        thinking: Value | None = None if budget is None else {"type": "enabled", "budget_tokens": budget}
    else:
        thinking = {"type": "adaptive"}
    if thinking is not None and "display" not in restrictions.without:
        shown = reasoning.summary or ("auto" if thinking["type"] == "adaptive" else None)
        if shown is not None:
            thinking["display"] = "omitted" if shown == "none" else "summarized"
    return {"thinking": thinking, "output_config": {"effort": effort} if effort else None}


def _budget(reasoning: Reasoning, most: int) -> int | None:
    """A thinking budget that leaves room for an answer; None if there is no room for both."""
    wanted = reasoning.budget_tokens or _BUDGETS.get(reasoning.effort or "medium", _BUDGETS["medium"])
    room = most - SMALLEST_BUDGET
    return min(wanted, room) if room >= SMALLEST_BUDGET else None


# caching


def _set_breakpoints(body: Value, cache: str) -> None:
    """Adds cache points after the tools, the system prompt and the last two user messages."""
    mark: Value = {"type": "ephemeral", **({"ttl": "1h"} if cache == "1h" else {})}
    tools = body.get("tools", ())
    own = [tool for tool in tools if "input_schema" in tool]
    left = BREAKPOINTS - sum("cache_control" in tool for tool in tools)
    ends = [own or tools, body.get("system", ())]
    ends += [message["content"] for message in reversed(body["messages"]) if message["role"] == "user"][:2]
    for blocks in ends:
        if blocks and left > 0 and "cache_control" not in blocks[-1]:
            blocks[-1]["cache_control"] = mark
            left -= 1
