"""Learns from an endpoint's error which request member to drop or change. Pure.

Models and gateways accept different members, and a model's name does not show which. The text of the refusal does.
"""

import re
from collections.abc import Mapping

from msgspec.structs import replace

from holodeck.models.restrictions import Restrictions, any_of

_COMPLAINTS = frozenset({400, 422})
_TOO_MANY = re.compile(
    r"max_tokens: (\d{1,9}) > (\d{1,9})|max_tokens.{0,80}(?:less than or equal to|at most) (\d{1,9})"
)

_REFUSED = r"(?s:.{0,120}?)(?:not support|unsupported|not permitted|not allowed|deprecated|unexpected|unknown|invalid)"


# the member to leave out → the words that refuse it; the first one counts
RESTRICTIONS: Mapping[str, re.Pattern[str]] = {
    "display": any_of(rf"thinking[\w.]*\.display\b{_REFUSED}"),
    "budget": any_of(rf"(?:thinking\.type\.enabled|thinking\.(?:enabled\.)?budget_tokens\b){_REFUSED}"),
    "adaptive": any_of(rf"adaptive[` '\"]*(?:thinking)?{_REFUSED}", r"tag 'adaptive'", r"thinking\.type\W+must be"),
    "output_config": any_of(rf"(?:output_config|\beffort\b){_REFUSED}", r"not support\w* (?:the )?\W?effort"),
    "top_p": any_of(rf"top_p\b{_REFUSED}", r"temperature.{0,20}top_p.{0,20}cannot both", r"top_p\b.{0,20}only be"),
    "temperature": any_of(rf"temperature\b{_REFUSED}", r"temperature\b.{0,20}only be"),
    "cache": any_of(rf"cache_control\b{_REFUSED}"),
    "service_tier": any_of(rf"service_tier\b{_REFUSED}"),
    "disable_parallel_tool_use": any_of(rf"disable_parallel_tool_use\b{_REFUSED}"),
    "stop_sequences": any_of(rf"stop_sequences\b{_REFUSED}"),
    "tool_choice": any_of(rf"tool_choice\b{_REFUSED}", r"thinking may not be enabled when tool_choice"),
    "thinking": any_of(rf"\bthinking\b{_REFUSED}"),
}
_SIGNATURE = re.compile(
    r"signature|(?:redacted_)?thinking`? blocks|messages\.\d+\.content\.\d+.{0,40}thinking|reasoning_?content",
    re.IGNORECASE,
)
_BLOCKS = re.compile(
    r"input tag '\w+' found using 'type'|tool reference .{0,120}not found|source tool .{0,120}not found"
    r"|\b(?:server_tool_use|mcp_tool_use|\w+_tool_result)\b"
    r"|container\b.{0,120}(?:not found|expired|invalid|does not exist)|encrypted_(?:content|index)",
    re.IGNORECASE | re.DOTALL,
)
_BESIDE_PROMPT = re.compile(r"context|prompt|input", re.IGNORECASE)
_WANTS_THINKING = re.compile(r"Expected `?thinking|must start with a thinking block", re.IGNORECASE)


def restrictions_after(status: int, text: str, known: Restrictions) -> Restrictions | None:
    """Returns the restrictions for the next attempt, or None if the refusal is about something else."""
    if status not in _COMPLAINTS:
        return None
    if (most := _most_tokens(text)) is not None and most not in (known.most_tokens, known.most_tokens_now):
        is_of_prompt = _BESIDE_PROMPT.search(text) is not None
        return replace(known, most_tokens_now=most) if is_of_prompt else replace(known, most_tokens=most)
    for name, words in RESTRICTIONS.items():
        if name not in known.without and words.search(text):
            return known.and_without(name)
    return None


def refuses_thinking(status: int, text: str) -> bool:
    """Whether the endpoint does not accept thinking of an earlier reply: another model signed it."""
    return status in _COMPLAINTS and bool(_SIGNATURE.search(text)) and not wants_thinking(status, text)


def refuses_blocks(status: int, text: str) -> bool:
    """Whether the endpoint refuses other blocks of an earlier reply, such as those of a tool that it no longer has."""
    return status in _COMPLAINTS | {404} and bool(_BLOCKS.search(text))


def wants_thinking(status: int, text: str) -> bool:
    """Whether the endpoint requires the thinking before a tool call, which we do not have."""
    return status in _COMPLAINTS and bool(_WANTS_THINKING.search(text))


def _most_tokens(text: str) -> int | None:
    found = _TOO_MANY.search(text)
    return int(found[2] or found[3]) if found else None
