"""A model of Amazon Bedrock, by the Converse API, streaming.

`streamed` does the talking, `converse_request` writes the request, `event_frames` and `converse_answer` read the events,
`aws_credentials` signs. A model that cannot stream is asked for its answer in one piece.
"""

import contextlib
from typing import Any

from holodeck.errors import ModelError
from holodeck.models.anthropic.message_request import encoded
from holodeck.models.anthropic.refused_thinking import RefusedThinking
from holodeck.models.bedrock import converse_lessons, converse_request
from holodeck.models.bedrock.converse_answer import ConverseAnswer
from holodeck.models.bedrock.event_frames import FramedStream
from holodeck.models.diagnosis import EndpointRefusal
from holodeck.models.lessons import Lessons
from holodeck.models.offered import OfferedModel
from holodeck.models.port import Listener, Prompt
from holodeck.models.providers import bedrock_lists, converse_url, provider_named
from holodeck.models.response_body import AnswerStream
from holodeck.models.settings import EndpointSettings
from holodeck.models.streamed import StreamedModel, call_ids

_ACCEPTED = "application/vnd.amazon.eventstream, application/json"


class ConverseModel(StreamedModel):
    """One model behind one endpoint. The keyword arguments are those of StreamedModel; the endpoint has to be set."""

    native_output = True

    def __init__(self, settings: EndpointSettings, **others: Any) -> None:
        endpoint = settings.endpoint or ""
        self._model_url = converse_url(endpoint, settings.model)
        self._lists = bedrock_lists(endpoint)
        super().__init__(
            settings,
            url=f"{self._model_url}/converse-stream",
            models_url=self._lists[0],
            headers={"Accept": _ACCEPTED},
            **others,
        )
        self._refused_thinking = RefusedThinking(self.name)

    async def check(self) -> None:
        """POSTs an empty request (free): Bedrock checks the credentials before it misses the messages."""
        self._check_answer(await self._probe(self._url, b"{}"))

    async def offered(self) -> tuple[OfferedModel, ...]:
        """Models and inference profiles: many models are reached by a profile only."""
        models, profiles = self._lists
        found = await self._listed(models)
        with contextlib.suppress(
            ModelError
        ):  # a permission of its own, which an account without profiles need not have
            found |= await self._listed(profiles)
        return tuple(sorted(found))

    def _body(self, prompt: Prompt, lessons: Lessons) -> bytes:
        return encoded(
            converse_request.body_of(
                self._settings,
                prompt,
                lessons,
                unsigned=self._refused_thinking.unsigned,
                thinks=self._refused_thinking.thinks(prompt),
            )
        )

    def _url_for(self, lessons: Lessons) -> str:
        return f"{self._model_url}/converse" if "streaming" in lessons.without else self._url

    def _answer_stream(self, prompt: Prompt, listener: Listener) -> AnswerStream:
        answer = ConverseAnswer(listener, taken_ids=lambda: call_ids(prompt), debug=self._settings.debug)
        return FramedStream(answer, hint=provider_named("bedrock").hint)

    def _after(self, refusal: EndpointRefusal, prompt: Prompt, lessons: Lessons) -> Lessons | None:
        if self._refused_thinking.learn(refusal, prompt):
            return lessons
        return converse_lessons.lesson(refusal.status, refusal.text, lessons)
