"""Any endpoint that speaks OpenAI's chat completions, streaming.

`streamed` does the talking, `payload` writes the request, `answer` reads the events.
"""

from typing import Any

from holodeck.errors import ModelError, ModelRejected
from holodeck.models import payload
from holodeck.models.answer import Answer
from holodeck.models.diagnosis import EndpointRefusal
from holodeck.models.lessons import Lessons
from holodeck.models.port import Listener, Prompt
from holodeck.models.providers import chat_url, models_url
from holodeck.models.response_body import AnswerStream
from holodeck.models.settings import EndpointSettings
from holodeck.models.streamed import ApiNotServed, StreamedModel, call_ids


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

    def _body(self, prompt: Prompt, lessons: Lessons) -> bytes:
        return payload.encode(self._settings, prompt, lessons.without)

    def _answer_stream(self, prompt: Prompt, listener: Listener) -> AnswerStream:
        return AnswerStream(Answer(listener, taken_ids=lambda: call_ids(prompt), debug=self._settings.debug))

    def _after(self, refusal: EndpointRefusal, prompt: Prompt, lessons: Lessons) -> Lessons | None:
        status, text, without = refusal.status, refusal.text, lessons.without
        if (wanted := payload.wanted_of_messages(status, text)) is not None:
            return None if wanted in without else lessons.and_without(wanted)
        refused = payload.refused_of_messages(status, text, prompt, without)
        refused = refused or payload.refused_option(status, text, without)
        return None if refused is None else lessons.and_without(refused)

    def _failure_of(self, refusal: EndpointRefusal) -> ModelError:
        failure = super()._failure_of(refusal)
        is_of_other = type(failure) is ModelRejected and "v1/responses" in refusal.text
        return ApiNotServed(failure.message) if is_of_other else failure
