"""A model of Amazon Bedrock, through the Converse API, streaming.

`streamed` makes the requests, `converse_request` writes the request, `converse_answer` reads the events,
`aws_credentials` signs. A model that cannot stream is asked for its answer in one piece.
"""

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from botocore.eventstream import EventStreamBuffer, EventStreamMessage, ParserError
from msgspec.structs import replace

from holodeck.errors import ModelError, ModelProtocolError
from holodeck.models.anthropic import message_restrictions
from holodeck.models.anthropic.message_restrictions import RefusedThinking
from holodeck.models.bedrock import converse_request
from holodeck.models.bedrock.converse_answer import ConverseAnswer
from holodeck.models.chunks import InBandError
from holodeck.models.diagnosis import EndpointRefusal
from holodeck.models.endpoint_settings import EndpointSettings
from holodeck.models.offered import OfferedModel
from holodeck.models.port import Listener, ModelReply, Prompt
from holodeck.models.providers import bedrock_lists, converse_url, provider_named
from holodeck.models.response_body import AnswerStream, GrowingAnswer
from holodeck.models.restrictions import Restrictions, any_of
from holodeck.models.streamed import StreamedModel, call_ids

_COMPLAINTS = frozenset({400, 403, 422})  # 403: Bedrock's answer to a cache point that the model does not take
_REFUSED = r"(?s:.{0,120}?)(?:n.t support|not support|unsupported|not permitted|not allowed|extraneous|unknown|invalid)"
_LIMIT = re.compile(
    r"(?:maximum tokens|max_?tokens).{0,80}?(?:limit of|lower than|at most|less or equal to) (\d{1,9})", re.IGNORECASE
)


def _field(name: str) -> str:
    """A pattern for both word orders of a refusal: "doesn't support the X field", and "X: extraneous key"."""
    return rf"(?:support|allow|permit)\w*(?s:.{{0,60}}?)\b{name}\b|\b{name}\b{_REFUSED}"


RESTRICTIONS: Mapping[str, re.Pattern[str]] = {  # what to do without → the words that refuse it; the first one counts
    "streaming": any_of(r"support\w* tool use in streaming", r"support\w*.{0,40}streaming", r"ConverseStream.{0,40}not support"),
    "system": any_of(r"support\w* system (?:messages|prompts?)"),
    "cache of tools": any_of(r"tool(?:s|Config)\b(?s:.{0,80}?)cachePoint", r"cachePoint(?s:.{0,80}?)\btool(?:s|Config)\b"),
    "cache": any_of(_field("cachePoint"), r"prompt caching"),
    "tool_choice": any_of(_field("toolChoice"), r"toolConfig\.toolChoice"),
    "status": any_of(_field(r"toolResult\.status"), _field("status")),
    "output_config": any_of(_field(r"outputConfig\.effort"), _field("effort")),
    "temperature": any_of(_field("temperature")),
    "top_p": any_of(_field("topP")),
    "stop_sequences": any_of(_field("stopSequences")),
    "service_tier": any_of(_field("serviceTier"), r"service tier(?s:.{0,60}?)not"),
}  # fmt: skip


def restrictions_after(status: int, text: str, known: Restrictions) -> Restrictions | None:
    """Returns the restrictions for the next attempt, or None if the refusal is about something else.

    Many publishers' models share this API, and each accepts different members. For Anthropic's models, Bedrock passes
    on Anthropic's own error text.
    """
    if status not in _COMPLAINTS:
        return None
    if (found := _LIMIT.search(text)) and int(found[1]) != known.most_tokens:
        return replace(known, most_tokens=int(found[1]))
    names = ("cache", "cache of tools") if status == 403 else RESTRICTIONS  # noqa: PLR2004  all others mean no access
    for name in RESTRICTIONS:
        if name in names and name not in known.without and RESTRICTIONS[name].search(text):
            return known.and_without(name)
    return message_restrictions.restrictions_after(status, text, known)


MAX_FRAME = 8_000_000  # bytes
_FRAME_BEGINS = b"\x00"  # the first byte of a frame's length; no JSON body or web page begins with it
_ACCEPTED = "application/vnd.amazon.eventstream, application/json"


class ConverseModel(StreamedModel):
    """One model behind one endpoint. The keyword arguments are those of StreamedModel; the endpoint must be set."""

    native_output = True

    def __init__(self, settings: EndpointSettings, **others: Any) -> None:
        endpoint = settings.endpoint or ""
        self._model_url = converse_url(endpoint, settings.name)
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
        """POSTs an empty request (free): Bedrock checks the credentials before it complains about missing messages."""
        self._check_answer(await self._probe(self._url, b"{}"))

    async def offered(self) -> tuple[OfferedModel, ...]:
        """Lists models and inference profiles: many models can be used through a profile only."""
        models, profiles = self._lists
        found = await self._listed(models)
        with contextlib.suppress(ModelError):  # needs its own permission, which an account without profiles may lack
            found |= await self._listed(profiles)
        return tuple(sorted(found))

    def _body(self, prompt: Prompt, restrictions: Restrictions) -> dict[str, Any]:
        return converse_request.body_of(
            self._settings,
            prompt,
            restrictions,
            unsigned=self._refused_thinking.unsigned,
            thinks=self._refused_thinking.thinks(prompt),
        )

    def _url_for(self, restrictions: Restrictions) -> str:
        return f"{self._model_url}/converse" if "streaming" in restrictions.without else self._url

    def _answer_stream(self, prompt: Prompt, listener: Listener) -> AnswerStream:
        answer = ConverseAnswer(listener, taken_ids=lambda: call_ids(prompt), debug=self._settings.debug)
        return FramedStream(answer, hint=provider_named("bedrock").hint)

    def _after(self, refusal: EndpointRefusal, prompt: Prompt, restrictions: Restrictions) -> Restrictions | None:
        if self._refused_thinking.learn(refusal, prompt):
            return restrictions
        return restrictions_after(refusal.status, refusal.text, restrictions)


class FramedStream(AnswerStream):
    """Passes the binary frames of a response body to an answer; botocore checks lengths and checksums.

    A body without frames is read as SSE or JSON, as by the other APIs.
    """

    def __init__(self, answer: GrowingAnswer, *, hint: str) -> None:
        super().__init__(answer, content_type="application/vnd.amazon.eventstream", limit=MAX_FRAME, hint=hint)
        self._frames: EventStreamBuffer | None = None
        self._begun = False
        self._waiting = 0  # bytes received since the last complete frame

    def feed(self, data: bytes) -> None:
        if not self._begun and data:
            self._begun = True
            self._frames = EventStreamBuffer() if data.startswith(_FRAME_BEGINS) else None
        if self._frames is None:
            super().feed(data)
        else:
            self._feed_frames(self._frames, data)

    def end(self) -> ModelReply:
        # A stream that ended before its first frame counts as framed.
        is_framed = self._frames is not None or not self._begun
        return self.answer.reply() if is_framed else super().end()

    def _feed_frames(self, frames: EventStreamBuffer, data: bytes) -> None:
        frames.add_data(data)
        self._waiting += len(data)
        if self._waiting > MAX_FRAME:
            raise ModelProtocolError(
                f"The model endpoint sent a frame of more than {MAX_FRAME:,} bytes, which no model does."
            )
        try:
            for frame in frames:
                self._waiting = 0
                if self.answer.done:
                    break  # the rest is not part of the answer
                self._take(frame)
        except (ParserError, UnicodeDecodeError, KeyError) as error:  # KeyError: a header of an unknown type
            raise ModelProtocolError(f"The model endpoint sent a frame that is damaged: {error}.") from error

    def _take(self, frame: EventStreamMessage) -> None:
        kind = frame.headers.get(":message-type")
        if kind == "error":
            code, message = (frame.headers.get(name) for name in (":error-code", ":error-message"))
            raise InBandError({"type": code, "message": message})
        name = frame.headers.get(":exception-type" if kind == "exception" else ":event-type")
        self.answer.take(str(name).encode(), frame.payload)
