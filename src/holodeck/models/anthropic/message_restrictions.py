"""Learns from an endpoint's error which request member to drop or change, and which thinking not to send again.

Models and gateways accept different members, and a model's name does not show which. The text of the refusal does.
"""

import logging
import re
from collections.abc import Mapping

from msgspec.structs import replace

from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.models.anthropic.content_blocks import THINKING, kept_blocks
from holodeck.models.diagnosis import EndpointRefusal
from holodeck.models.port import Prompt
from holodeck.models.restrictions import RefusedMessages, Restrictions, any_of

log = logging.getLogger(__name__)

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
_WANTS_THINKING = re.compile(  # before a tool call; we do not have it
    r"Expected `?thinking|must start with a thinking block", re.IGNORECASE
)


def restrictions_after(status: int, text: str, known: Restrictions) -> Restrictions | None:
    """Returns the restrictions for the next attempt, or None if the refusal is about something else."""
    if status not in _COMPLAINTS:
        return None
    found = _TOO_MANY.search(text)
    most = int(found[2] or found[3]) if found else None
    if most not in (None, known.most_tokens, known.most_tokens_now):
        is_of_prompt = _BESIDE_PROMPT.search(text) is not None
        return replace(known, most_tokens_now=most) if is_of_prompt else replace(known, most_tokens=most)
    for name, words in RESTRICTIONS.items():
        if name not in known.without and words.search(text):
            return known.and_without(name)
    return None


def refuses_blocks(status: int, text: str) -> bool:
    """Whether the endpoint refuses other blocks of an earlier reply, such as those of a tool that it no longer has."""
    return status in _COMPLAINTS | {404} and bool(_BLOCKS.search(text))


class RefusedThinking:
    """The thinking of earlier replies that one endpoint did not accept, and that is not sent to it again.

    Thoughts are signed. A history that another model wrote, or an edited session, has signatures which the endpoint
    rejects: the messages go back without their thinking, and the conversation continues. `name` is the model's, for the log.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.unsigned = RefusedMessages()  # they are sent without their thinking
        self._thoughtless = RefusedMessages()  # messages of the user whose turn continues without thinking

    def thinks(self, prompt: Prompt) -> bool:
        """Whether the model may think in this turn."""
        return _turn(prompt) not in self._thoughtless

    def learn(self, refusal: EndpointRefusal, prompt: Prompt) -> bool:
        """Remembers thinking that the endpoint refused or required. Returns whether to repeat the request without it."""
        if refusal.status not in _COMPLAINTS:
            return False
        is_wanted = _WANTS_THINKING.search(refusal.text) is not None
        if is_wanted and self._thoughtless.learn([_turn(prompt)]):
            log.warning("%s wants the thinking of an earlier reply; the turn continues without thinking", self._name)
            return True
        if is_wanted or not _SIGNATURE.search(refusal.text):
            return False
        if not self.unsigned.learn(message.id for message in prompt.messages if _thought(message)):
            return False
        log.warning(
            "%s refused the thinking of earlier replies (another model may have signed it); it is dropped", self._name
        )
        return True


def _turn(prompt: Prompt) -> str:
    """The id of the message that the model is answering."""
    return next((each.id for each in reversed(prompt.messages) if isinstance(each, UserMessage)), "")


def _thought(message: object) -> bool:
    return isinstance(message, AssistantMessage) and any(
        block.get("type") in THINKING for block in kept_blocks(message)
    )
