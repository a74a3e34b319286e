"""Lessons from a refusal of Bedrock: which member of the request to leave out or to change. Pure.

Many publishers' models share this API, and each accepts different members. For Anthropic's models, Bedrock passes on
Anthropic's own error text.
"""

import re
from collections.abc import Mapping

from msgspec.structs import replace

from holodeck.models.anthropic import message_lessons
from holodeck.models.lessons import Lessons

_COMPLAINTS = frozenset({400, 403, 422})  # 403: Bedrock's answer to a cache point that the model does not take
_REFUSED = r"(?s:.{0,120}?)(?:n.t support|not support|unsupported|not permitted|not allowed|extraneous|unknown|invalid)"
_LIMIT = re.compile(
    r"(?:maximum tokens|max_?tokens).{0,80}?(?:limit of|lower than|at most|less or equal to) (\d{1,9})", re.IGNORECASE
)


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


def _field(name: str) -> str:
    """A pattern for both word orders of a refusal: "doesn't support the X field", and "X: extraneous key"."""
    return rf"(?:support|allow|permit)\w*(?s:.{{0,60}}?)\b{name}\b|\b{name}\b{_REFUSED}"


LESSONS: Mapping[str, re.Pattern[str]] = {  # what to do without → the words that refuse it; the first one counts
    "streaming": _words(r"support\w* tool use in streaming", r"support\w*.{0,40}streaming", r"ConverseStream.{0,40}not support"),
    "system": _words(r"support\w* system (?:messages|prompts?)"),
    "cache of tools": _words(r"tool(?:s|Config)\b(?s:.{0,80}?)cachePoint", r"cachePoint(?s:.{0,80}?)\btool(?:s|Config)\b"),
    "cache": _words(_field("cachePoint"), r"prompt caching"),
    "tool_choice": _words(_field("toolChoice"), r"toolConfig\.toolChoice"),
    "status": _words(_field(r"toolResult\.status"), _field("status")),
    "output_config": _words(_field(r"outputConfig\.effort"), _field("effort")),
    "temperature": _words(_field("temperature")),
    "top_p": _words(_field("topP")),
    "stop_sequences": _words(_field("stopSequences")),
    "service_tier": _words(_field("serviceTier"), r"service tier(?s:.{0,60}?)not"),
}  # fmt: skip


def lesson(status: int, text: str, known: Lessons) -> Lessons | None:
    """Returns the lessons for the next attempt, or None if the refusal is about something else."""
    if status not in _COMPLAINTS:
        return None
    if (found := _LIMIT.search(text)) and int(found[1]) != known.most_tokens:
        return replace(known, most_tokens=int(found[1]))
    names = ("cache", "cache of tools") if status == 403 else LESSONS  # noqa: PLR2004  all others mean no access
    for name in LESSONS:
        if name in names and name not in known.without and LESSONS[name].search(text):
            return known.and_without(name)
    return message_lessons.lesson(status, text, known)
