"""The part of a request that its response repeats. Every response object has all of these members."""

from collections.abc import Sequence
from typing import Any

import msgspec

from holodeck.core.text import clean
from holodeck.core.tools import ToolSchema
from holodeck.errors import InvalidRequest
from holodeck.wires.body import name, opaque, table

MAX_METADATA = 16  # pairs
_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh"})
_SUMMARIES = frozenset({"auto", "concise", "detailed"})
_VERBOSITIES = frozenset({"low", "medium", "high"})


class RequestEcho(msgspec.Struct, frozen=True, kw_only=True):
    """The members, in OpenAI's order. Those that tune the sampling are only repeated: the agent file decides them."""

    previous_response_id: str | None = None
    instructions: str | None = None
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: Any = "auto"
    truncation: str = "disabled"
    parallel_tool_calls: bool = True
    text: dict[str, Any] = msgspec.field(default_factory=lambda: {"format": {"type": "text"}})
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: int = 0
    temperature: float = 1.0
    reasoning: dict[str, Any] | None = None
    user: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    store: bool = True
    background: bool = False
    service_tier: str = "default"
    metadata: dict[str, Any] = {}
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


def not_default(echo: RequestEcho) -> dict[str, Any]:
    """Returns the members of an echo that say something, which are few: they are stored with the run."""
    members: dict[str, Any] = msgspec.to_builtins(echo)
    plain: dict[str, Any] = msgspec.to_builtins(RequestEcho())
    return {member: value for member, value in members.items() if value != plain[member]}


def echoed(raw: dict[str, Any], tools: Sequence[ToolSchema]) -> RequestEcho:
    """Makes the echo of a request whose other members have been read. Values of a wrong type become the default."""
    texts = ("previous_response_id", "instructions", "user", "safety_identifier", "prompt_cache_key")
    numbers = ("top_p", "presence_penalty", "frequency_penalty", "temperature")
    given: dict[str, Any] = {member: clean(raw[member]) for member in texts if isinstance(raw.get(member), str)}
    given |= {member: float(raw[member]) for member in numbers if _is_number(raw.get(member))}
    flags = ("parallel_tool_calls", "store", "background")
    given |= {member: raw[member] for member in flags if isinstance(raw.get(member), bool)}
    if isinstance(raw.get("max_output_tokens"), int):
        given["max_output_tokens"] = raw["max_output_tokens"]
    if raw.get("truncation") in ("auto", "disabled"):
        given["truncation"] = raw["truncation"]
    choice = raw.get("tool_choice")
    if isinstance(choice, dict):
        given["tool_choice"] = {"type": "function", "name": name(choice.get("name"), "tool_choice")}
    elif choice is not None:
        given["tool_choice"] = choice
    echo = RequestEcho(tools=tuple(map(_tool, tools)), metadata=metadata_of(raw.get("metadata")), **given)
    return msgspec.structs.replace(echo, text=_text(raw.get("text")), reasoning=_reasoning(raw.get("reasoning")))


def _tool(tool: ToolSchema) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def metadata_of(value: Any) -> dict[str, Any]:
    """Reads the pairs that a client attaches to a response or a conversation."""
    if value is None:
        return {}
    pairs = table(value, "metadata")
    if len(pairs) > MAX_METADATA:
        raise InvalidRequest(f"metadata has {len(pairs)} pairs; at most {MAX_METADATA} are allowed", field="metadata")
    cleaned: dict[str, Any] = opaque(pairs, "metadata")
    return cleaned


def _text(value: Any) -> dict[str, Any]:
    verbosity = value.get("verbosity") if isinstance(value, dict) else None
    known = {"verbosity": verbosity} if isinstance(verbosity, str) and verbosity in _VERBOSITIES else {}
    return {"format": {"type": "text"}, **known}


def _reasoning(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    effort, summary = value.get("effort"), value.get("summary")
    return {
        "effort": effort if isinstance(effort, str) and effort in _EFFORTS else None,
        "summary": summary if isinstance(summary, str) and summary in _SUMMARIES else None,
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e6  # noqa: PLR2004
