"""Any endpoint that speaks OpenAI's chat completions, streaming.

`streamed` makes the requests, `payload` writes the request, `answer` reads the events.
"""

import logging
from typing import Any, TypeGuard

from msgspec.structs import replace

from holodeck.core.messages import AssistantMessage, Message
from holodeck.errors import ModelError, ModelRejected
from holodeck.models import payload
from holodeck.models.answer import Answer
from holodeck.models.chat_format import is_signed, unsigned
from holodeck.models.diagnosis import EndpointRefusal
from holodeck.models.lessons import Lessons
from holodeck.models.port import Listener, Prompt
from holodeck.models.providers import chat_url, models_url
from holodeck.models.response_body import AnswerStream
from holodeck.models.settings import EndpointSettings
from holodeck.models.streamed import ApiNotServed, StreamedModel, call_ids

log = logging.getLogger(__name__)

_MOST_REMEMBERED = 10_000


class OpenAIChatModel(StreamedModel):
    """One model behind one endpoint. The keyword arguments are those of StreamedModel."""

    native_output = True

    def __init__(self, settings: EndpointSettings, **others: Any) -> None:
        if "url" not in others:
            others |= {
                "url": chat_url(settings.provider, settings.endpoint),
                "models_url": models_url(settings.provider, settings.endpoint),
            }
        super().__init__(settings, **others)
        self._unsigned: dict[str, None] = {}  # ids of messages whose signatures the endpoint refused, the oldest first

    def _body(self, prompt: Prompt, lessons: Lessons) -> bytes:
        if self._unsigned:
            messages = [unsigned(each) if self._is_unsigned(each) else each for each in prompt.messages]
            prompt = replace(prompt, messages=messages)
        return payload.encode(self._settings, prompt, lessons.without)

    def _is_unsigned(self, message: Message) -> TypeGuard[AssistantMessage]:
        return isinstance(message, AssistantMessage) and message.id in self._unsigned

    def _answer_stream(self, prompt: Prompt, listener: Listener) -> AnswerStream:
        return AnswerStream(Answer(listener, taken_ids=lambda: call_ids(prompt), debug=self._settings.debug))

    def _after(self, refusal: EndpointRefusal, prompt: Prompt, lessons: Lessons) -> Lessons | None:
        status, text, without = refusal.status, refusal.text, lessons.without
        if payload.refuses_signatures(status, text) and self._drops_signatures(prompt):
            return lessons.and_without(payload.UNSIGNED)
        if (wanted := payload.wanted_of_messages(status, text)) is not None:
            return None if wanted in without else lessons.and_without(wanted)
        refused = payload.refused_of_messages(status, text, prompt, without)
        refused = refused or payload.refused_option(status, text, without)
        return None if refused is None else lessons.and_without(refused)

    def _drops_signatures(self, prompt: Prompt) -> bool:
        signed = [each for each in prompt.messages if isinstance(each, AssistantMessage) and is_signed(each)]
        refused = [each.id for each in signed if each.id not in self._unsigned]
        if refused:
            log.warning("%s refused the signatures of %d earlier replies; they are dropped", self.name, len(refused))
            self._unsigned |= dict.fromkeys(refused)
        while len(self._unsigned) > _MOST_REMEMBERED:
            del self._unsigned[next(iter(self._unsigned))]
        return bool(refused)

    def _failure_of(self, refusal: EndpointRefusal) -> ModelError:
        failure = super()._failure_of(refusal)
        is_of_other = type(failure) is ModelRejected and "v1/responses" in refusal.text
        return ApiNotServed(failure.message) if is_of_other else failure
