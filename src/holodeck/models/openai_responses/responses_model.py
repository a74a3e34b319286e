"""Any endpoint that speaks OpenAI's Responses API, streaming, without keeping anything at the provider (`store: false`).

`streamed` makes the requests, `request_body` writes the request, `growing_response` reads the events.
"""

import logging
import re
from typing import Any

from holodeck.errors import ModelError, ModelRejected
from holodeck.models.diagnosis import EndpointRefusal
from holodeck.models.lessons import Lessons
from holodeck.models.openai_responses.growing_response import LARGEST_EVENT, GrowingResponse
from holodeck.models.openai_responses.input_items import messages_with_items
from holodeck.models.openai_responses.request_body import REFUSED, encode_request, refused_member
from holodeck.models.port import Listener, Prompt
from holodeck.models.providers import models_url, responses_url
from holodeck.models.response_body import AnswerStream
from holodeck.models.settings import EndpointSettings
from holodeck.models.streamed import ApiNotServed, StreamedModel, call_ids

log = logging.getLogger(__name__)

_NOT_SERVED = frozenset({404, 405, 501})
_NO_SUCH_MODEL = re.compile(r"model_not_found|model\b.{0,120}(does not exist|not found)", re.IGNORECASE | re.DOTALL)
_OTHER_API = re.compile(
    r"chat.?completions|responses.{0,20}(api|endpoint)?.{0,40}(not|un)\s?(supported|available)", re.IGNORECASE
)
_REFUSED_ITEMS = re.compile(
    r"encrypted|\brs_\w+|\bitem\b.{0,80}(not found|without its required|not persisted)|of type '?reasoning|input\[\d+\]"
    r"|invalid.{0,40}signature|duplicate item|no tool (call|output) found",
    re.IGNORECASE | re.DOTALL,
)
_MOST_REMEMBERED = 10_000


class ResponsesModel(StreamedModel):
    """One model behind one endpoint. `summary`: request a summary of the thoughts even if the settings do not."""

    native_output = True

    def __init__(self, settings: EndpointSettings, *, summary: bool = False, **timing: Any) -> None:
        super().__init__(
            settings,
            url=responses_url(settings.provider, settings.endpoint),
            models_url=models_url(settings.provider, settings.endpoint),
            **timing,
        )
        self._summary = summary
        self._plain: dict[str, None] = {}  # ids of messages whose items the endpoint refused, oldest first
        self._unsent = [name for name in ("seed", "stop") if getattr(settings, name)]

    def _body(self, prompt: Prompt, lessons: Lessons) -> bytes:
        while self._unsent:
            log.warning("%s: the Responses API has no %s; it is not sent", self.name, self._unsent.pop())
        return encode_request(self._settings, prompt, without=lessons.without, plain=self._plain, summary=self._summary)

    def _answer_stream(self, prompt: Prompt, listener: Listener) -> AnswerStream:
        answer = GrowingResponse(listener, taken_ids=lambda: call_ids(prompt), debug=self._settings.debug)
        return AnswerStream(answer, limit=LARGEST_EVENT)

    def _after(self, refusal: EndpointRefusal, prompt: Prompt, lessons: Lessons) -> Lessons | None:
        if self._drops_items(refusal, prompt):
            return lessons
        member = refused_member(refusal.text, lessons.without) if refusal.status in REFUSED else None
        return None if member is None else lessons.and_without(member)

    def _drops_items(self, refusal: EndpointRefusal, prompt: Prompt) -> bool:
        """Remembers messages whose encrypted reasoning (of another model or account) the endpoint refused.

        Returns whether to repeat the request without it.
        """
        if refusal.status not in REFUSED | {404} or not _REFUSED_ITEMS.search(refusal.text):
            return False
        refused = [message for message in messages_with_items(prompt.messages) if message not in self._plain]
        if not refused:
            return False
        log.warning(
            "%s does not accept the reasoning of %d earlier messages (another model's?); it is left out",
            self.name, len(refused),
        )  # fmt: skip
        self._plain |= dict.fromkeys(refused)
        while len(self._plain) > _MOST_REMEMBERED:
            del self._plain[next(iter(self._plain))]
        return True

    def _failure_of(self, refusal: EndpointRefusal) -> ModelError:
        failure = super()._failure_of(refusal)
        return ApiNotServed(failure.message) if type(failure) is ModelRejected and is_not_served(refusal) else failure


def is_not_served(refusal: EndpointRefusal) -> bool:
    """Whether the refusal means that the endpoint does not serve this API, and not only that the model is wrong."""
    if refusal.status in _NOT_SERVED:
        return not _NO_SUCH_MODEL.search(refusal.text) or bool(_OTHER_API.search(refusal.text))
    return refusal.status in REFUSED and bool(_OTHER_API.search(refusal.text))
