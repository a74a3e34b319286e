"""The body of `POST /v1/chat/completions` → RunRequest.

The decoder refuses parameters that would change what the answer means, since ignoring them gives wrong answers
silently. It ignores parameters that only tune the sampling: the agent file decides them. The model is shown system and
developer messages as a note of the application. They never replace the agent's own instructions.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from holodeck.core import messages as m
from holodeck.core.request import RunOptions, RunRequest
from holodeck.errors import InvalidRequest
from holodeck.wires.body import MAX_TEXT, name, optional, parse, short_text, table, tables, text, valid_id
from holodeck.wires.client_values import client_call, media
from holodeck.wires.openai_chat import parameters
from holodeck.wires.openai_chat.error_form import unsupported

MAX_MESSAGES = 10_000
MAX_CALLS = 256  # in one assistant message

HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "function_call": (),
    "functions": (),
    "logprobs": (False,),
    "modalities": (["text"],),
    "n": (1,),
    "response_format": ({"type": "text"},),
    "top_logprobs": (0,),
    "web_search_options": (),
}
"""Refused parameters, and the values with which they are harmless. `null` always is."""


class ChatCompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A client's request. The messages of `run` are its whole copy of the conversation; their files are not read yet."""

    run: RunRequest
    model: str | None = None
    stream: bool = False
    include_usage: bool = False
    session_id: str | None = None  # from `metadata`
    store: bool = False  # store the conversation, and recognise it when its messages arrive again


def decode(body: bytes, max_text: int = MAX_TEXT) -> ChatCompletionRequest:
    """Reads a body. Raises InvalidRequest with the member's path, or PayloadTooLarge."""
    raw = parse(body)
    for parameter, harmless in HARMLESS.items():
        parameters.check_supported(raw.get(parameter), parameter, harmless)
    options = {} if raw.get("stream_options") is None else table(raw["stream_options"], "stream_options")
    messages, instructions = _messages(raw.get("messages"), max_text)
    run = RunRequest(
        messages=messages,
        client_tools=parameters.function_tools(raw.get("tools"), "function"),
        context=instructions,
        options=RunOptions(
            tool_choice=_choice(raw.get("tool_choice")),
            max_output_tokens=_limit(raw),
            one_call_at_a_time=parameters.one_call_at_a_time(raw),
        ),
    )
    return ChatCompletionRequest(
        run=run,
        model=optional(name, raw.get("model"), "model"),
        stream=parameters.flag(raw.get("stream"), "stream"),
        include_usage=parameters.flag(options.get("include_usage"), "stream_options.include_usage"),
        session_id=_session(raw.get("metadata")),
        store=parameters.flag(raw.get("store"), "store"),
    )


def _choice(value: Any) -> str | None:
    return parameters.tool_choice(value, value.get("function") if isinstance(value, dict) else None)


def _limit(raw: dict[str, Any]) -> int | None:
    """Returns the limit. It has two names: if both are set, the lower value counts."""
    return min(
        (
            limit
            for member in ("max_tokens", "max_completion_tokens")
            if (limit := parameters.token_limit(raw.get(member), member)) is not None
        ),
        default=None,
    )


def _session(metadata: Any) -> str | None:
    given = metadata.get("session_id") if isinstance(metadata, dict) else None
    return optional(valid_id, given, "metadata.session_id")


def _messages(value: Any, max_text: int) -> tuple[tuple[m.Message, ...], tuple[tuple[str, str], ...]]:
    """Returns the conversation, and the instructions from its system and developer messages as context."""
    read: list[m.Message] = []
    instructions: list[str] = []
    tool_names: dict[str, str] = {}
    for path, raw in tables(value, "messages", MAX_MESSAGES):
        role = text(raw.get("role"), f"{path}.role")
        if role == "user":
            read.append(
                m.UserMessage(content=parameters.content_of(raw.get("content"), f"{path}.content", max_text, _part))
            )
        elif role == "assistant":
            answer = _assistant(raw, path, max_text)
            tool_names.update((call.id, call.name) for call in answer.tool_calls)
            read.append(answer)
        elif role == "tool":
            read.append(_tool_message(raw, path, tool_names, max_text))
        elif role in {"system", "developer"}:
            instructions.append(_texts(raw.get("content"), f"{path}.content", max_text))
        else:
            raise unsupported(f"{path}.role", f"{path}.role must be user, assistant, tool, system or developer.")
    if not read or isinstance(read[-1], m.AssistantMessage):
        wrong = "must end with a message of the user or a tool" if value else "is missing or empty"
        raise InvalidRequest(f"messages {wrong}", field="messages")
    return tuple(read), parameters.as_context(instructions)


def _assistant(raw: dict[str, Any], path: str, max_text: int) -> m.AssistantMessage:
    content, calls = raw.get("content"), tables(raw.get("tool_calls"), f"{path}.tool_calls", MAX_CALLS)
    return m.AssistantMessage(
        content="" if content is None else _texts(content, f"{path}.content", max_text),
        tool_calls=tuple(client_call(call, where) for where, call in calls),
    )


def _tool_message(raw: dict[str, Any], path: str, tool_names: Mapping[str, str], max_text: int) -> m.ToolMessage:
    call_id = name(raw.get("tool_call_id"), f"{path}.tool_call_id")
    content = _texts(raw.get("content"), f"{path}.content", max_text)
    return m.ToolMessage(call_id=call_id, name=tool_names.get(call_id, ""), content=content)


def _texts(value: Any, path: str, max_text: int) -> str:
    """Returns the text of a content. Raises for media."""
    if isinstance(value, list):
        value = [_as_text(item) for item in value]
    content = parameters.content_of(value, path, max_text, _part)
    if not isinstance(content, str) and any(isinstance(part, m.MediaPart) for part in content):
        raise unsupported(path, f"{path} may hold text only.")
    return m.text_of(content)


def _as_text(part: Any) -> Any:
    """Turns a refusal in an assistant message into text."""
    if isinstance(part, dict) and part.get("type") == "refusal":
        return {"type": "text", "text": part.get("refusal")}
    return part


def _part(raw: dict[str, Any], path: str, max_text: int) -> m.Part:
    kind = raw.get("type")
    if kind == "text":
        return m.TextPart(short_text(raw.get("text"), f"{path}.text", max_text))
    if kind == "image_url":
        return media(table(raw.get("image_url"), f"{path}.image_url").get("url"), f"{path}.image_url.url", "image/*")
    if kind == "file":
        file, where = table(raw.get("file"), f"{path}.file"), f"{path}.file"
        if not isinstance(file.get("file_data"), str):
            raise unsupported(where, f"{where} must hold file_data: this server keeps no uploaded files.")
        return parameters.file_data(file["file_data"], where, file.get("filename"))
    raise unsupported(f"{path}.type", f"{path}.type must be text, image_url or file.")
