"""Thinking of earlier replies that an endpoint did not accept, and that is not sent to it again.

Thoughts are signed. A history that another model wrote, or an edited session, has signatures which the
endpoint rejects: the messages go back without their thinking, and the conversation continues.
"""

import logging

from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.models.anthropic.content_blocks import THINKING, kept_blocks
from holodeck.models.anthropic.message_restrictions import refuses_thinking, wants_thinking
from holodeck.models.diagnosis import EndpointRefusal
from holodeck.models.port import Prompt
from holodeck.models.restrictions import RefusedMessages

log = logging.getLogger(__name__)


class RefusedThinking:
    """The thinking that one endpoint refused. `name` is the model's, for the log."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.unsigned = RefusedMessages()  # they are sent without their thinking
        self._thoughtless = RefusedMessages()  # messages of the user whose turn continues without thinking

    def thinks(self, prompt: Prompt) -> bool:
        """Whether the model may think in this turn."""
        return _turn(prompt) not in self._thoughtless

    def learn(self, refusal: EndpointRefusal, prompt: Prompt) -> bool:
        """Remembers thinking that the endpoint refused or required. Returns whether to repeat the request without it."""
        if wants_thinking(refusal.status, refusal.text) and self._thoughtless.learn([_turn(prompt)]):
            log.warning("%s wants the thinking of an earlier reply; the turn continues without thinking", self._name)
            return True
        if not refuses_thinking(refusal.status, refusal.text):
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
