"""Thinking and other blocks of earlier replies that an endpoint did not accept, and that are not sent to it again.

Thoughts are signed. A history that another model wrote, or an edited session, has signatures which the
endpoint rejects: the messages go back without their thinking, and the conversation continues.
"""

import logging

from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.models.anthropic.content_blocks import THINKING, kept_blocks
from holodeck.models.anthropic.message_restrictions import refuses_blocks, refuses_thinking, wants_thinking
from holodeck.models.diagnosis import EndpointRefusal
from holodeck.models.port import Prompt
from holodeck.models.restrictions import remember

log = logging.getLogger(__name__)


class RefusedThinking:
    """The thinking that one endpoint refused. `name` is the model's, for the log."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.unsigned: dict[str, None] = {}  # ids of messages that are sent without their thinking
        self._thoughtless: dict[str, None] = {}  # ids of user messages whose turn continues without thinking

    def thinks(self, prompt: Prompt) -> bool:
        """Whether the model may think in this turn."""
        return _turn(prompt) not in self._thoughtless

    def learn(self, refusal: EndpointRefusal, prompt: Prompt) -> bool:
        """Remembers thinking that the endpoint refused or required. Returns whether to repeat the request without it."""
        if wants_thinking(refusal.status, refusal.text) and self.thinks(prompt):
            log.warning("%s wants the thinking of an earlier reply; the turn continues without thinking", self._name)
            remember(self._thoughtless, [_turn(prompt)])
            return True
        signed = [message.id for message in prompt.messages if _thought(message) and message.id not in self.unsigned]
        if not (signed and refuses_thinking(refusal.status, refusal.text)):
            return False
        log.warning(
            "%s refused the thinking of earlier replies (another model may have signed it); it is dropped", self._name
        )
        remember(self.unsigned, signed)
        return True


class RefusedBlocks:
    """Replies whose blocks one endpoint refused: they go back as text and calls, and the conversation continues.

    The endpoint accepts the blocks of a provider's tool only while the request has the tool, or its beta header.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.plain: dict[str, None] = {}  # ids of the messages that go back as text and calls

    def learn(self, refusal: EndpointRefusal, prompt: Prompt) -> bool:
        """Remembers blocks that the endpoint refused. Returns whether to repeat the request without them."""
        kept = [each.id for each in prompt.messages if isinstance(each, AssistantMessage) and kept_blocks(each)]
        refused = [message_id for message_id in kept if message_id not in self.plain]
        if not (refused and refuses_blocks(refusal.status, refusal.text)):
            return False
        log.warning("%s refused blocks of earlier replies; they are sent as text", self._name)
        remember(self.plain, refused)
        return True


def _turn(prompt: Prompt) -> str:
    """The id of the message that the model is answering."""
    return next((each.id for each in reversed(prompt.messages) if isinstance(each, UserMessage)), "")


def _thought(message: object) -> bool:
    return isinstance(message, AssistantMessage) and any(
        block.get("type") in THINKING for block in kept_blocks(message)
    )
