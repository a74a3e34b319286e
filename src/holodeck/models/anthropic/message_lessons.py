"""What a refusal teaches about an endpoint: which member of the request to leave out or to change. Pure.

Models and gateways differ in what they take, and no name says which: the endpoint's own words do.
"""

import re
from collections.abc import Mapping

from msgspec.structs import replace

from holodeck.models.anthropic.message_request import Learned

_COMPLAINTS = frozenset({400, 422})
_TOO_MANY = re.compile(
    r"max_tokens: (\d{1,9}) > (\d{1,9})|max_tokens.{0,80}(?:less than or equal to|at most) (\d{1,9})"
)

_REFUSED = r"(?s:.{0,120})(?:not support|unsupported|not permitted|not allowed|deprecated|unexpected|unknown|invalid)"
LESSONS: Mapping[str, re.Pattern[str]] = {  # the member to leave out → the words that refuse it; the first one counts
    "display": re.compile(rf"thinking[\w.]*\.display\b{_REFUSED}", re.IGNORECASE),
    "adaptive": re.compile(rf"adaptive[` '\"]*(?:thinking)?{_REFUSED}|tag 'adaptive'", re.IGNORECASE),
    "budget": re.compile(
        rf"(?:thinking\.type\.enabled|thinking\.(?:enabled\.)?budget_tokens\b){_REFUSED}", re.IGNORECASE
    ),
    "output_config": re.compile(rf"(?:output_config|\beffort\b){_REFUSED}", re.IGNORECASE),
    "top_p": re.compile(rf"top_p\b{_REFUSED}|temperature.{{0,20}}top_p.{{0,20}}cannot both", re.IGNORECASE),
    "temperature": re.compile(rf"temperature\b{_REFUSED}", re.IGNORECASE),
    "cache": re.compile(rf"cache_control\b{_REFUSED}", re.IGNORECASE),
    "service_tier": re.compile(rf"service_tier\b{_REFUSED}", re.IGNORECASE),
    "disable_parallel_tool_use": re.compile(rf"disable_parallel_tool_use\b{_REFUSED}", re.IGNORECASE),
    "stop_sequences": re.compile(rf"stop_sequences\b{_REFUSED}", re.IGNORECASE),
    "tool_choice": re.compile(rf"tool_choice\b{_REFUSED}|thinking may not be enabled when tool_choice", re.IGNORECASE),
    "thinking": re.compile(rf"\bthinking\b{_REFUSED}", re.IGNORECASE),
}
_SIGNATURE = re.compile(
    r"signature|(?:redacted_)?thinking`? blocks|messages\.\d+\.content\.\d+.{0,40}thinking", re.IGNORECASE
)
_WANTS_THINKING = re.compile(r"Expected `?thinking|must start with a thinking block", re.IGNORECASE)


def lesson(status: int, text: str, learned: Learned) -> tuple[Learned, str] | None:
    """What is known from now on, and in words; None when the refusal is about something else."""
    if status not in _COMPLAINTS:
        return None
    if (most := _most_tokens(text)) is not None and most != learned.most_tokens:
        return replace(learned, most_tokens=most), f"more than {most} max_tokens"
    for name, words in LESSONS.items():
        if name not in learned.without and words.search(text):
            return replace(learned, without=learned.without | {name}), name
    return None


def refuses_thinking(status: int, text: str) -> bool:
    """Whether the endpoint does not accept thinking of an earlier reply: another model signed it."""
    return status in _COMPLAINTS and bool(_SIGNATURE.search(text)) and not wants_thinking(status, text)


def wants_thinking(status: int, text: str) -> bool:
    """Whether the endpoint misses the thinking before a tool call, which we do not have."""
    return status in _COMPLAINTS and bool(_WANTS_THINKING.search(text))


def _most_tokens(text: str) -> int | None:
    found = _TOO_MANY.search(text)
    return int(found[2] or found[3]) if found else None
