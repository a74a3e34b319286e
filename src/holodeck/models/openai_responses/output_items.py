"""Items of a response's output that are not plain text: how they are shown, and which parts are stored for the next turn.

Pure functions over the provider's JSON, which is kept as it came: the provider reads its own items again.
"""

import json
from collections.abc import Sequence
from typing import Any

from holodeck.core.json_values import clean_json
from holodeck.core.messages import Content, MediaPart
from holodeck.models.chunks import present

KEPT = "openai_responses"  # the member of a message's `extra` that holds the items of its response

Item = dict[str, Any]

CALLS = frozenset({"function_call", "custom_tool_call"})  # item types that HoloDeck runs
FOR_CLIENTS = frozenset({"computer_call", "local_shell_call", "shell_call", "apply_patch_call"})
REPORTED_APART = {  # type of a result item of a provider's tool → type of its call item
    "shell_call_output": "shell_call",
    "tool_search_output": "tool_search_call",
    "program_output": "program",
}
_OF_CALLS = frozenset({"caller", "namespace"})  # members of a call that the provider wants back
_TEXT = frozenset({None, "output_text", "text"})
_LONGEST_RESULT = 4000
_IMAGE_FORMATS = frozenset({"png", "jpeg", "webp"})


def kind_of(item: Item) -> str:
    """The item's type; some gateways leave it out."""
    kind = item.get("type")
    if isinstance(kind, str) and kind:
        return kind
    if "arguments" in item:
        return "function_call"
    return "reasoning" if "summary" in item else "message"


def is_shown(item: Item) -> bool:
    """Whether the item is a tool that the provider ran itself."""
    kind = str(item.get("type", ""))
    return kind not in CALLS and (kind.endswith("_call") or kind in ("mcp_list_tools", "program"))


def shown_name(item: Item) -> str:
    """The tool's name: web_search, code_interpreter, or what an MCP server calls its tool."""
    kind = str(item.get("type", ""))
    name = item.get("name")
    if isinstance(name, str) and name:
        return name
    return kind.removesuffix("_call")


def shown_arguments(item: Item) -> str:
    arguments = item.get("arguments")
    if isinstance(arguments, str):
        return arguments
    if isinstance(arguments, dict):
        return json.dumps(clean_json(arguments), ensure_ascii=False)
    asked = {
        name: item[name]
        for name in ("action", "queries", "code", "revised_prompt", "server_label")
        if present(item.get(name))
    }
    if isinstance(asked.get("action"), dict):
        action = {name: value for name, value in asked.pop("action").items() if name != "sources" and present(value)}
        asked |= action
    return json.dumps(clean_json(asked), ensure_ascii=False)


def shown_result(item: Item) -> tuple[Content, bool]:
    """The result, and whether it failed: text, or the image that was generated."""
    failed = item.get("status") == "failed" or present(item.get("error"))
    if item.get("type") == "image_generation_call" and not failed and isinstance(image := item.get("result"), str):
        return (MediaPart(mime_type=_image_type(item), data=image),), False
    text = _result_text(item)
    return clean_json(text if len(text) <= _LONGEST_RESULT else f"{text[:_LONGEST_RESULT]} […]"), failed


def _result_text(item: Item) -> str:  # noqa: PLR0911  a table of what each kind of item calls its result
    if present(error := item.get("error")):
        message = error.get("message") if isinstance(error, dict) else error
        return message if isinstance(message, str) else json.dumps(error, ensure_ascii=False, default=str)
    if isinstance(item.get("output"), str):
        return str(item["output"])
    if isinstance(item.get("output"), list):
        return "\n".join(_command_text(each) for each in item["output"] if isinstance(each, dict)) or "completed"
    if item.get("type") == "program_output" and isinstance(item.get("result"), str):
        return str(item["result"])
    if isinstance(item.get("tools"), list):
        names = (tool.get("name") for tool in item["tools"] if isinstance(tool, dict))
        return ", ".join(str(name) for name in names)
    if isinstance(item.get("outputs"), list):
        return "\n".join(_output_text(output) for output in item["outputs"] if isinstance(output, dict))
    if present(item.get("results")):
        return json.dumps(item["results"], ensure_ascii=False, default=str)
    action = item.get("action")
    if isinstance(action, dict) and present(action.get("sources")):
        return json.dumps(action["sources"], ensure_ascii=False, default=str)
    return str(item.get("status") or "completed")


def _image_type(item: Item) -> str:
    given = item.get("output_format")
    return f"image/{given}" if given in _IMAGE_FORMATS else "image/png"


def _output_text(output: Item) -> str:
    logs = output.get("logs")
    return logs if isinstance(logs, str) else f"[{output.get('type', 'output')}]"


def _command_text(output: Item) -> str:
    """The output of one shell command, and its exit code if that is not 0."""
    outcome = output.get("outcome")
    outcome = outcome if isinstance(outcome, dict) else {}
    ending = f"[{outcome.get('type')} {outcome.get('exit_code', '')}]".replace(" ]", "]")
    parts = [output.get("stdout"), output.get("stderr"), ending if outcome.get("exit_code") != 0 else None]
    return "\n".join(part.rstrip("\n") for part in parts if isinstance(part, str) and part)


def kept(items: Sequence[Item]) -> dict[str, Any]:
    """The `extra` of the message: its items, if they are more than a text followed by calls."""
    slim = [slimmed(item) for item in items]
    if all(_is_plain(item) for item in slim) and _text_comes_first(slim):
        return {}
    return {KEPT: {"items": slim}}


def slimmed(item: Item) -> Item:
    """The item without the members that the message stores itself: a call's name and arguments are in its ToolCall."""
    kind = item.get("type")
    if kind in CALLS:
        return {"type": kind, **{name: clean_json(item[name]) for name in sorted(_OF_CALLS) if present(item.get(name))}}
    if kind != "message":
        return dict(clean_json(item))
    content = item.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    without_logprobs = [{name: value for name, value in part.items() if name != "logprobs"} for part in parts]
    return dict(clean_json({**item, "content": without_logprobs}))


def _is_plain(item: Item) -> bool:
    """Whether nothing is lost when only the text of a message, or the ToolCall of a call, is kept."""
    if item.get("type") == "reasoning":
        return not (present(item.get("encrypted_content")) or present(item.get("content")))
    if item.get("type") != "message":
        return item.get("type") in CALLS and len(item) == 1
    return not present(item.get("phase")) and all(
        part.get("type") in _TEXT and not present(part.get("annotations")) for part in item["content"]
    )


def _text_comes_first(items: Sequence[Item]) -> bool:
    messages = [place for place, item in enumerate(items) if item.get("type") == "message"]
    calls = [place for place, item in enumerate(items) if item.get("type") in CALLS]
    return len(messages) <= 1 and (not messages or not calls or messages[0] < calls[0])
