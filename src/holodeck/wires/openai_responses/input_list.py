"""Stored messages as items: the input of a run, and a whole conversation.

The id of an answer or a client's call has the id of its run, so that a reference to it can be looked up.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from holodeck.core import messages as m

_OF_A_RUN = re.compile(r"(?:msg|fc)_([0-9A-HJKMNP-TV-Z]{26})_.+", re.DOTALL)
_REOPENED = re.compile(r"msg_.{63}_\d+")  # a later piece of a text: the first piece is stored with the whole text


def item_id(prefix: str, run_id: str, own_id: str) -> str:
    return f"{prefix}_{run_id}_{own_id}"


def run_of(item: str) -> str | None:
    """Returns the run whose item this is, or None if the id does not say."""
    found = _OF_A_RUN.fullmatch(item)
    return None if found is None else found[1]


def may_be_missing(item: str) -> bool:
    """Whether an input may leave this item out, as it may reasoning, calls of the server and questions to a person."""
    return not item.startswith(("msg_", "fc_")) or _REOPENED.fullmatch(item) is not None


def input_items(messages: Iterable[m.Message]) -> list[dict[str, Any]]:
    """Returns the user's messages and the results of the client's tools, oldest first."""
    return [item for message in messages if (item := _item(message)) is not None]


def conversation_items(
    messages: Sequence[m.Message], *, labels: Mapping[str, str], questions: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Returns a conversation as the items of its responses, oldest first.

    `labels` maps the agent's own tools to the names of their servers; other tools are the client's. `questions` has the
    pending interrupts, by the ids of their calls.
    """
    results = {message.call_id: message for message in messages if isinstance(message, m.ToolMessage)}
    found: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, m.AssistantMessage):
            found += _answered(message)
            found += [
                _called(call, labels[call.name], results.get(call.id), questions.get(call.id))
                if call.name in labels
                else _asked(call, message.run_id or "")
                for call in message.tool_calls
            ]
        elif not isinstance(message, m.ToolMessage) or message.name not in labels:
            found += input_items([message])
    return found


def _answered(message: m.AssistantMessage) -> Iterator[dict[str, Any]]:
    if message.reasoning:
        summary = [{"type": "summary_text", "text": message.reasoning}]
        yield {"id": f"rs_{message.id}", "type": "reasoning", "summary": summary, "status": "completed"}
    if message.content:
        part = {"type": "output_text", "text": message.content, "annotations": [], "logprobs": []}
        about = {"type": "message", "role": "assistant", "status": "completed"}
        yield {"id": item_id("msg", message.run_id or "", message.id), **about, "content": [part]}


def _asked(call: m.ToolCall, run_id: str) -> dict[str, Any]:
    """A call of the client's own tool."""
    about = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
    return {"id": item_id("fc", run_id, call.id), "type": "function_call", **about, "status": "completed"}


def _called(call: m.ToolCall, label: str, result: m.ToolMessage | None, question: str | None) -> dict[str, Any]:
    about = {"name": call.name, "arguments": call.arguments}
    if question is not None and result is None:
        return {"id": question, "type": "mcp_approval_request", **about, "server_label": label}
    text = None if result is None else m.text_of(result.content)
    failed = result is not None and result.failed
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
    return {
        "id": f"mcp_{call.id}",
        "type": "mcp_call",
        **about,
        "server_label": label,
        "status": "failed" if failed else "in_progress" if result is None else "completed",
        "output": None if failed else text,
        "error": error if failed else None,
        "approval_request_id": None,
    }


def _item(message: m.Message) -> dict[str, Any] | None:
    if isinstance(message, m.UserMessage):
        return {
            "id": f"msg_{message.id}",
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": [*map(_part, m.parts_of(message.content))],
        }
    if isinstance(message, m.ToolMessage):
        return {
            "id": f"fco_{message.id}",
            "type": "function_call_output",
            "call_id": message.call_id,
            "output": m.text_of(message.content),
            "status": "completed",
        }
    return None


def _part(part: m.Part) -> dict[str, Any]:
    if isinstance(part, m.TextPart):
        return {"type": "input_text", "text": part.text}
    url = part.url if part.data is None else part.data_url
    if part.mime_type.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": part.filename, "file_url" if part.data is None else "file_data": url}
