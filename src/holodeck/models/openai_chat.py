"""Any endpoint that speaks OpenAI's chat completions, streaming.

This module does the talking: the exchange, its deadlines, trying again. What the bytes mean is decided in `answer`,
what a failure means in `diagnosis`, what is sent in `payload`; none of them does I/O.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl, urlsplit

from holodeck.core.messages import AssistantMessage
from holodeck.core.secrets import Redactor
from holodeck.errors import ConfigError, ModelAuthFailed, ModelError, ModelProtocolError, ModelStalled, ModelTimeout
from holodeck.http.client import Client, Exchange
from holodeck.http.failures import HttpError
from holodeck.http.line import Response
from holodeck.models import payload
from holodeck.models.answer import Answer, AnswerStream
from holodeck.models.chunks import InBandError, Malformed
from holodeck.models.diagnosis import Diagnosis, Refusal
from holodeck.models.port import Listener, ModelReply, Prompt
from holodeck.models.providers import chat_url, models_url, provider_named
from holodeck.models.settings import ChatSettings
from holodeck.resilience.deadlines import SilenceLimit
from holodeck.resilience.retry import retry_after

log = logging.getLogger(__name__)

AFTER_FINISH = 5.0  # seconds for the usage and [DONE] that follow the finish reason
DRAIN = 0.05  # seconds for the end of the body that follows [DONE]; with it the connection can be used again
REFUSAL = 5.0  # seconds for the text of a refusal; without it the status has to do
_SUCCESS = range(200, 300)
NOT_FOUND = 404
_MAX_REFUSAL = 65_536
_LONGEST_LOGGED = 200
_LOST = (HttpError, OSError)  # TimeoutError is an OSError


class OpenAIChatModel:
    """One model behind one endpoint. `sleep`, `clock` and `chance` exist so that tests need not wait."""

    def __init__(
        self,
        settings: ChatSettings,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        provider = provider_named(settings.provider)
        api_key = _header_value(settings.api_key)
        self._settings = settings
        self._limits = settings.deadlines
        self._sleep, self._clock, self._chance = sleep, clock, chance
        self._url = chat_url(settings.provider, settings.endpoint)
        self._models_url = models_url(settings.provider, settings.endpoint)
        self._http = Client({**provider.headers(api_key), **settings.headers}, self._limits.connect)
        self._without: frozenset[str] = frozenset()  # members of the request that this endpoint does not take
        self._where = urlsplit(self._url).netloc
        self._diagnosis = Diagnosis(
            where=self._where,
            model=settings.model,
            key_variable=provider.key_variable,
            has_key=bool(api_key),
            redact=Redactor([api_key, *settings.headers.values(), *_query_values(self._url)], wary=True),
        )

    @property
    def name(self) -> str:
        return f"{self._settings.provider}/{self._settings.model}"

    def __repr__(self) -> str:
        return f"OpenAIChatModel({self._settings!r})"

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        ends_at = self._clock() + self._limits.total
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._attempt(prompt, listener, ends_at - self._clock())
            except ModelError as error:
                pause = self._pause(error, attempt, ends_at - self._clock())
                if pause is None:
                    raise
                log.debug("attempt %d at %s failed (%s); again in %.1f s", attempt, self.name, error.reason, pause)
            await self._sleep(pause)

    async def check(self) -> None:
        """Asks for the list of models; where there is none, an empty question, which costs nothing, shows who is there."""
        refusal = await self._probe(self._http.get(self._models_url))
        if refusal.is_page and refusal.status == NOT_FOUND:
            refusal = await self._probe(self._http.post(self._url, b"{}"))
        if refusal.is_page and (refusal.status in _SUCCESS or refusal.status == NOT_FOUND):
            raise ModelProtocolError(
                f"{self._where} answers with a web page. Probably the endpoint's URL is not that of an "
                "OpenAI-compatible API: is a /v1 missing at its end?"
            )
        if refusal.status in _SUCCESS:
            return
        failure = self._diagnosis.of_response(refusal)
        if isinstance(failure, ModelAuthFailed) or refusal.status >= 500:  # noqa: PLR2004  the server's own failure
            raise failure

    async def _probe(self, request: Exchange) -> Refusal:
        try:
            async with asyncio.timeout(self._limits.first_token), request as response:
                return await _read_refusal(response)
        except TimeoutError as error:
            raise ModelTimeout(f"The model endpoint did not answer within {self._limits.first_token:g} s.") from error
        except _LOST as error:
            raise self._diagnosis.of_connection(error, started=False) from error

    async def close(self) -> None:
        await self._http.close()

    def _pause(self, error: ModelError, attempt: int, remaining: float) -> float | None:
        """Seconds until the next attempt; None when there is none."""
        backoff = self._settings.backoff
        retries = min(1, backoff.retries) if isinstance(error, ModelTimeout) else backoff.retries
        if error.started or not error.retryable or attempt > retries:
            return None
        if error.retry_after is not None and error.retry_after > backoff.longest_hint:
            return None
        pause = error.retry_after or backoff.pause(attempt, self._chance)
        return pause if pause < remaining else None

    async def _attempt(self, prompt: Prompt, listener: Listener, remaining: float) -> ModelReply:
        """One try. Whatever goes wrong becomes a ModelError here."""
        answer = Answer(listener, taken_ids=lambda: _call_ids(prompt), debug=self._settings.debug)
        stream = AnswerStream(answer)
        try:
            await self._exchange_in_time(prompt, stream, remaining)
            return stream.end()
        except ModelError as error:
            error.started = answer.started
            raise
        except (InBandError, Malformed, *_LOST) as error:
            failure = self._diagnose(error, started=answer.started)
            failure.started = answer.started
            raise failure from error

    def _diagnose(self, error: Exception, *, started: bool) -> ModelError:
        if isinstance(error, InBandError):
            return self._diagnosis.of_error(error.value, started=started)
        if isinstance(error, Malformed):
            log.debug("malformed event from %s: %s", self.name, self._loggable(error.data))
            return self._diagnosis.malformed()
        if isinstance(error, TimeoutError):
            what = "stopped in the middle of its answer" if started else "did not begin to answer in time"
            kind = ModelStalled if started else ModelTimeout
            return kind(f"The model {self._settings.model!r} {what}. Try again, or allow it more time.")
        return self._diagnosis.of_connection(error, started=started)

    async def _exchange_in_time(self, prompt: Prompt, stream: AnswerStream, remaining: float) -> None:
        try:
            async with SilenceLimit(self._limits.first_token, within=remaining) as silence:
                await self._exchange(prompt, stream, silence)
        except _LOST:
            if stream.answer.finish_reason is None:
                raise
            # The answer is whole; only what may follow it (usage, [DONE]) is missing.

    async def _exchange(self, prompt: Prompt, stream: AnswerStream, silence: SilenceLimit) -> None:
        """Asks, and asks again without what the endpoint does not know; then reads the answer."""
        while True:
            without = self._without
            async with self._http.post(self._url, payload.encode(self._settings, prompt, without)) as response:
                if response.status in _SUCCESS:
                    stream.content_type = response.content_type
                    return await self._read(response, stream, silence)
                refusal = await _read_refusal(response)
            lesson = payload.lesson(refusal.status, refusal.text, without)
            if lesson is None:
                raise self._diagnosis.of_response(refusal)
            log.debug("%s does not take %s; asking again without it", self.name, lesson)
            self._without |= {lesson}

    async def _read(self, response: Response, stream: AnswerStream, silence: SilenceLimit) -> None:
        await response.pour(_Hearing(stream, silence, self._limits.idle).take)
        if stream.answer.done:
            await _drain(response)

    def _loggable(self, data: bytes) -> str:
        return self._diagnosis.redact(ascii(data.decode(errors="replace")))[:_LONGEST_LOGGED]


def _call_ids(prompt: Prompt) -> set[str]:
    return {
        call.id for message in prompt.messages if isinstance(message, AssistantMessage) for call in message.tool_calls
    }


def _query_values(url: str) -> list[str]:
    """Some gateways take their key in the query."""
    return [value for _, value in parse_qsl(urlsplit(url).query)]


def _header_value(api_key: str | None) -> str | None:
    """A key as a header can carry it: keys read from files end with a newline."""
    key = (api_key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigError("model.api_key holds characters that no API key has; was it copied whole?")
    return key or None


class _Hearing:
    """Takes the pieces of an answer in the moment they come, and tells the clock of every step."""

    def __init__(self, stream: AnswerStream, silence: SilenceLimit, idle: float) -> None:
        self._stream = stream
        self._answer = stream.answer
        self._silence = silence
        self._idle = idle
        self._progress = 0
        self._finished = False

    def take(self, data: bytes) -> bool:
        """Says whether the answer is whole."""
        answer = self._answer
        self._stream.feed(data)
        if answer.done:
            return True
        progress = answer.progress
        if answer.finish_reason is not None and not self._finished:
            self._finished = True
            self._silence.allow(min(self._idle, AFTER_FINISH))
        elif progress != self._progress:
            if self._progress or self._finished:
                self._silence.heard()  # also after the finish: some endpoints give a reason with every chunk
            else:
                self._silence.allow(self._idle)
        self._progress = progress
        return False


async def _read_refusal(response: Response) -> Refusal:
    body = bytearray()

    def take(data: bytes) -> bool:
        body.extend(data)
        return len(body) >= _MAX_REFUSAL

    with contextlib.suppress(*_LOST):  # what came has to do
        async with asyncio.timeout(REFUSAL):
            await response.pour(take)
    return Refusal(
        status=response.status,
        body=bytes(body[:_MAX_REFUSAL]),
        retry_after=retry_after(response.headers),
        location=response.headers.get("location"),
        content_type=response.content_type,
    )


async def _drain(response: Response) -> None:
    """Waits a moment for the end of the body: then the connection can be used again."""
    if not response.over:
        with contextlib.suppress(*_LOST):
            async with asyncio.timeout(DRAIN):
                await response.pour(lambda _: False)
