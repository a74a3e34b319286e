"""A model behind an HTTP endpoint that streams its answers: the exchange, its deadlines, its retries.

The same for every API. What is sent and what the stream means is decided by the subclass of each API, what a failure
means by `diagnosis`; none of them does I/O.
"""

import asyncio
import contextlib
import logging
import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from msgspec.structs import replace
from pydantic import SecretStr

from holodeck.core.json_values import clean_json, every_value
from holodeck.core.messages import AssistantMessage
from holodeck.core.secrets import Redactor
from holodeck.errors import (
    ConfigError,
    ModelAuthFailed,
    ModelError,
    ModelProtocolError,
    ModelRejected,
    ModelStalled,
    ModelTimeout,
)
from holodeck.http.client import NO_HEADERS, Client, Exchange
from holodeck.http.client_connection import Response
from holodeck.http.failures import HttpError
from holodeck.models.chunks import InBandError, Malformed
from holodeck.models.diagnosis import (
    PAYMENT_REQUIRED,
    PROXY_WANTS_CREDENTIALS,
    REDIRECTS,
    SERVER_ERRORS,
    Diagnosis,
    EndpointRefusal,
)
from holodeck.models.endpoint_settings import EndpointSettings
from holodeck.models.offered import MAX_LIST, MAX_MODELS, MAX_PAGES, OfferedModel, read_page
from holodeck.models.port import Listener, ModelReply, Prompt
from holodeck.models.providers import provider_named
from holodeck.models.response_body import AnswerStream
from holodeck.models.restrictions import NOTHING, Restrictions
from holodeck.models.structured import AnswerListener, OutputMode, after_refusal, shown_by, with_answer_as_text
from holodeck.resilience.idle_timeout import IdleTimeout
from holodeck.resilience.retry import retry_after


class RequestSigner(Protocol):
    """Makes the headers of one request, for credentials that change: signatures (AWS), short-lived tokens (Google).

    Never blocks the event loop.
    """

    async def headers(self, url: str, body: bytes | None) -> Mapping[str, str]:
        """The headers to add; a request without a body is a GET. Raises a ModelError if there are no credentials."""

    def refused(self, headers: Mapping[str, str], status: int, text: str) -> bool:
        """Reports a refusal of these headers. Returns whether the next call of `headers` uses other credentials."""


log = logging.getLogger(__name__)

AFTER_FINISH = 5.0  # seconds for the usage and [DONE] that follow the finish reason
DRAIN = 0.05  # seconds for the end of the body that follows [DONE]; with it the connection can be used again
REFUSAL = 5.0  # seconds to read the text of a refusal; after that only its status is used
NOT_FOUND = 404
_SUCCESS = range(200, 300)
_UNUSABLE = frozenset({PAYMENT_REQUIRED, PROXY_WANTS_CREDENTIALS, *SERVER_ERRORS})  # no request would be answered
_COMPLAINTS = frozenset({400, 404, 422, 500, 501})  # llama.cpp answers 500 for a schema that it cannot follow
_MAX_REFUSAL = 65_536
_LONGEST_LOGGED = 200
_LOOKED_AT = 16_384  # bytes
_LOST = (HttpError, OSError)  # TimeoutError is an OSError
_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid")
_SECRET_NAME = re.compile(r"token$|key$|secret|password|authorization", re.IGNORECASE)
_TAG = re.compile(r"(?::latest|:free|\.gguf)$")
_VERSION = re.compile(r"(?:[-@](?:latest|default|preview|\d{8}|\d{4}-\d{2}-\d{2}|\d{2}-\d{2}|\d{3,4}))+$")
_REQUEST_ID = re.compile(r"[\w.:/-]{1,100}")

Sleep = Callable[[float], Awaitable[None]]


class ApiNotServed(ModelRejected):
    """The endpoint does not serve this API, or not for this model; it may serve another one."""

    of_model = True


class StreamedModel(ABC):
    """One model behind one endpoint. `sleep`, `clock` and `chance` exist so that tests need not wait."""

    native_output: ClassVar[bool] = False  # whether `_body` can ask for `prompt.output`

    def __init__(
        self,
        settings: EndpointSettings,
        *,
        url: str,
        models_url: str,
        headers: Mapping[str, str] | None = None,
        signer: RequestSigner | None = None,
        sleep: Sleep = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`headers` are the API's own, besides the key; the user's headers override them and those of `signer`."""
        provider = provider_named(settings.provider)
        api_key, auth_token = _header_value(settings.api_key), _header_value(settings.auth_token)
        self._settings = settings
        self._limits = settings.deadlines
        self._sleep, self._clock, self._chance = sleep, clock, chance
        self._url, self._models_url = url, models_url
        own_headers = settings.plain_headers
        has_own = any(name.lower() == "authorization" for name in own_headers)
        self._signer = None if has_own else signer
        self._http = Client({**provider.headers(api_key), **(headers or {}), **own_headers}, self._limits.connect)
        self._output_mode = OutputMode.NATIVE if self.native_output else OutputMode.TOOL
        self._restrictions = NOTHING  # confirmed by an accepted request
        self._where = urlsplit(url).netloc
        self._diagnosis = Diagnosis(
            where=self._where,
            model=settings.name,
            key_advice=settings.key_advice or f"{provider.key_variable} or model.api_key",
            endpoint_option=settings.endpoint_option,
            has_key=bool(api_key or auth_token or signer),
            redact=Redactor(
                [
                    api_key,
                    auth_token,
                    *own_headers.values(),
                    *(value for _, value in parse_qsl(urlsplit(url).query)),  # some gateways take their key there
                    *_secrets_in(settings),
                ],
                wary=True,
            ),
            hint=provider.hint,
            credential=provider.credential,
        )

    # what an API adds

    @abstractmethod
    def _body(self, prompt: Prompt, restrictions: Restrictions) -> dict[str, Any]:
        """The JSON of the request, without the members that `restrictions` leave out."""

    @abstractmethod
    def _answer_stream(self, prompt: Prompt, listener: Listener) -> AnswerStream:
        """Creates the stream that reads the response to one request."""

    @abstractmethod
    def _after(self, refusal: EndpointRefusal, prompt: Prompt, restrictions: Restrictions) -> Restrictions | None:
        """The restrictions for repeating a refused request; None if it cannot be repeated."""

    def _url_for(self, restrictions: Restrictions) -> str:  # noqa: ARG002  Bedrock: another one for models without streams
        return self._url

    def _failure_of(self, refusal: EndpointRefusal) -> ModelError:
        return self._diagnosis.of_response(refusal)

    # the port

    @property
    def name(self) -> str:
        return f"{self._settings.provider}/{self._settings.name}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings!r})"

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
                log.debug("attempt %d at %s failed (%s); retrying in %.1f s", attempt, self.name, error.reason, pause)
            await self._sleep(pause)

    async def check(self) -> None:
        """GETs the list of models. If it is not there, POSTs an empty body (free) to see whether a model API answers."""
        refusal = await self._probe(self._models_url)
        if refusal.status in REDIRECTS or (refusal.is_page and refusal.status == NOT_FOUND):
            refusal = await self._probe(self._url, b"{}")
        self._check_answer(refusal)

    def _check_answer(self, refusal: EndpointRefusal) -> None:
        """Raises if the answer to a request that costs nothing shows that the endpoint or the key cannot be used."""
        if refusal.is_page and (refusal.status in _SUCCESS or refusal.status == NOT_FOUND):
            raise ModelProtocolError(
                f"{self._where} responds with a web page. Probably the endpoint's URL is not the URL of a model API "
                f"({provider_named(self._settings.provider).hint})."
            )
        if refusal.status in _SUCCESS:
            return
        failure = self._diagnosis.of_response(refusal)
        if isinstance(failure, ModelAuthFailed) or refusal.status in _UNUSABLE or refusal.status in REDIRECTS:
            raise failure

    async def offered(self) -> tuple[OfferedModel, ...]:
        """The models that the endpoint lists, in alphabetical order. Raises a ModelError if it has no list."""
        return tuple(sorted(await self._listed(self._models_url)))

    async def _listed(self, url: str) -> set[OfferedModel]:
        found: set[OfferedModel] = set()
        query: dict[str, str] = {}
        for _ in range(MAX_PAGES):
            separator = "&" if urlsplit(url).query else "?"
            answer = await self._probe(f"{url}{separator}{urlencode(query)}" if query else url, limit=MAX_LIST)
            if answer.status not in _SUCCESS or answer.is_page:
                raise self._no_list(answer)
            page = read_page(answer.body, self._where)
            found.update(page.models)
            query = page.next_query
            if not query or len(found) >= MAX_MODELS:
                break
        return found

    async def close(self) -> None:
        await self._http.close()

    # one attempt

    def _no_list(self, answer: EndpointRefusal) -> ModelError:
        failure = self._diagnosis.of_response(answer)
        if answer.is_page or type(failure) is ModelRejected:
            return ModelRejected(
                f"{self._where} does not list its models (it answers {answer.status}). Its documentation names them; "
                f"or model.endpoint is wrong ({provider_named(self._settings.provider).hint})."
            )
        return failure

    async def _request(self, url: str, body: bytes | None = None) -> Exchange:
        headers = await self._proof(url, body)
        return self._http.get(url, headers) if body is None else self._http.post(url, body, headers)

    async def _proof(self, url: str, body: bytes | None) -> Mapping[str, str]:
        return NO_HEADERS if self._signer is None else await self._signer.headers(url, body)

    async def _probe(self, url: str, body: bytes | None = None, *, limit: int = _MAX_REFUSAL) -> EndpointRefusal:
        try:
            async with asyncio.timeout(self._limits.first_token), await self._request(url, body) as response:
                return await _read_refusal(response, limit)
        except TimeoutError as error:
            raise ModelTimeout(f"The model endpoint did not answer within {self._limits.first_token:g} s.") from error
        except _LOST as error:
            raise self._diagnosis.of_connection(error, started=False) from error

    def _pause(self, error: ModelError, attempt: int, remaining: float) -> float | None:
        """Seconds until the next attempt; None for no further attempt."""
        backoff = self._settings.backoff
        retries = min(1, backoff.retries) if isinstance(error, ModelTimeout) else backoff.retries
        if error.started or not error.retryable or attempt > retries:
            return None
        if error.retry_after is not None and error.retry_after > backoff.longest_hint:
            return None
        pause = error.retry_after or backoff.pause(attempt, self._chance)
        return pause if pause < remaining else None

    async def _attempt(self, prompt: Prompt, listener: Listener, remaining: float) -> ModelReply:
        """One attempt. Every failure leaves it as a ModelError."""
        stream = self._answer_stream(prompt, listener if prompt.output is None else AnswerListener(listener))
        stream.endpoint_option = self._settings.endpoint_option
        try:
            await self._exchange_in_time(prompt, stream, remaining)
            reply = self._with_model(stream.end())
            return reply if prompt.output is None else with_answer_as_text(reply)
        except (ModelError, InBandError, Malformed, *_LOST) as error:
            started = stream.answer.started
            failure = error if isinstance(error, ModelError) else self._diagnose(error, started=started)
            failure.started = started
            if stream.request_id and stream.request_id not in failure.message:
                failure.args = (f"{failure.message} (request id {stream.request_id})",)
            raise failure from (None if failure is error else error)

    def _with_model(self, reply: ModelReply) -> ModelReply:
        """The reply, with the name of the model that answered if a router chose another one than requested."""
        if not reply.model:
            return reply
        is_asked = unversioned(reply.model) == unversioned(self._settings.name)
        return replace(reply, model="" if is_asked else f"{self._settings.provider}/{reply.model}")

    def _diagnose(self, error: Exception, *, started: bool) -> ModelError:
        if isinstance(error, InBandError):
            return self._diagnosis.of_error(error.value, started=started)
        if isinstance(error, Malformed):
            log.debug("malformed event from %s: %s", self.name, self._loggable(error.data))
            return self._diagnosis.malformed()
        if isinstance(error, TimeoutError):
            what = "stopped in the middle of its answer" if started else "did not begin to answer in time"
            kind = ModelStalled if started else ModelTimeout
            return kind(f"The model {self._settings.name!r} {what}. Try again, or raise model.timeout.")
        return self._diagnosis.of_connection(error, started=started)

    async def _exchange_in_time(self, prompt: Prompt, stream: AnswerStream, remaining: float) -> None:
        try:
            async with IdleTimeout(self._limits.first_token, within=remaining) as silence:
                await self._exchange(prompt, stream, silence)
        except _LOST:
            if stream.answer.finish_reason is None:
                raise
            # The answer is complete; only its trailer (usage, [DONE]) is missing.

    async def _exchange(self, prompt: Prompt, stream: AnswerStream, silence: IdleTimeout) -> None:
        """Sends the request, repeats it without refused members, then reads the answer."""
        restrictions, mode, proofs = self._restrictions, self._output_mode, 1
        while True:
            url, body = self._url_for(restrictions), encoded(self._body(shown_by(mode, prompt), restrictions))
            proof = await self._proof(url, body)
            async with self._http.post(url, body, proof) as response:
                stream.request_id = _request_id(response.headers)
                if response.status in _SUCCESS:
                    self._keep(restrictions, mode)
                    stream.content_type = response.content_type
                    return await self._read(response, stream, silence)
                refusal = await _read_refusal(response)
            stream.request_id = stream.request_id or refusal.request_id
            if proofs and self._signer is not None and self._signer.refused(proof, refusal.status, refusal.text):
                proofs -= 1
                continue
            asked_for_output = prompt.output is not None and refusal.status in _COMPLAINTS
            other_mode = after_refusal(mode, refusal.text) if asked_for_output else None
            learned = restrictions if other_mode is not None else self._after(refusal, prompt, restrictions)
            if learned is None:
                raise self._failure_of(refusal)
            restrictions, mode = learned, other_mode or mode

    def _keep(self, restrictions: Restrictions, mode: OutputMode) -> None:
        """Applies the restrictions of an accepted request to all further ones."""
        if restrictions is not self._restrictions:
            for what in restrictions.beyond(self._restrictions):
                log.info("%s does not accept %s; it is left out from now on", self.name, what)
            self._restrictions |= restrictions
        if mode is not self._output_mode:
            log.warning("%s: the endpoint refuses %s; %s is used", self.name, self._output_mode.value, mode.value)
            self._output_mode = mode

    async def _read(self, response: Response, stream: AnswerStream, silence: IdleTimeout) -> None:
        await response.read_into(_TimedStream(stream, silence, self._limits.idle).take)
        if stream.answer.done:
            await _drain(response)

    def _loggable(self, data: bytes) -> str:
        """The beginning of the data without secrets. The redacted part is longer than the logged one, so no secret is cut."""
        beginning = ascii(data[:_LOOKED_AT].decode(errors="replace"))
        return self._diagnosis.redact(beginning)[:_LONGEST_LOGGED]


@lru_cache(maxsize=64)
def unversioned(model: str) -> str:
    """A model's name without the endpoint's additions: publisher, date of the version, tag of a tier."""
    name = model.lower().rstrip("/").rpartition("/")[2]
    return _VERSION.sub("", _TAG.sub("", name)) or name


def call_ids(prompt: Prompt) -> set[str]:
    """The ids of the calls so far: some endpoints restart their numbering with every reply."""
    return {
        call.id for message in prompt.messages if isinstance(message, AssistantMessage) for call in message.tool_calls
    }


def _secrets_in(settings: EndpointSettings) -> list[str]:
    """Tokens inside `extra` and `provider_tools`, for example an MCP server's."""
    tables = (each for each in every_value([settings.extra, settings.provider_tools]) if isinstance(each, dict))
    members = (member for table in tables for member in table.items())
    return [item for name, item in members if isinstance(item, str) and _SECRET_NAME.search(str(name))]


def _header_value(api_key: SecretStr | None) -> str | None:
    """The key, stripped (keys read from files end with a newline) and checked for a header."""
    key = api_key.get_secret_value().strip() if api_key else ""
    if not (key.isascii() and key.isprintable()):
        raise ConfigError("model.api_key contains characters that no API key has; was it copied completely?")
    return key or None


def encoded(body: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # a lone surrogate that passed every other check
        return msgspec.json.encode(clean_json(body))


def _request_id(headers: Mapping[str, str]) -> str:
    """The provider's id of the request, which its support asks for."""
    for name in _REQUEST_IDS:
        if value := headers.get(name):
            return value if _REQUEST_ID.fullmatch(value) else ""
    return ""


class _TimedStream:
    """Body sink: feeds the answer, and resets the idle timeout with each piece of content."""

    def __init__(self, stream: AnswerStream, silence: IdleTimeout, idle: float) -> None:
        self._stream = stream
        self._answer = stream.answer
        self._silence = silence
        self._idle = idle
        self._progress = 0
        self._finished = False

    def take(self, data: bytes) -> bool:
        """Takes a piece of the body. Returns whether the answer is complete."""
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
                self._silence.reset()  # also after the finish: some endpoints give a reason with every chunk
            else:
                self._silence.allow(self._idle)
        self._progress = progress
        return False


async def _read_refusal(response: Response, limit: int = _MAX_REFUSAL) -> EndpointRefusal:
    body = bytearray()

    def take(data: bytes) -> bool:
        body.extend(data)
        return len(body) >= limit

    with contextlib.suppress(*_LOST):  # the part that arrived is used
        async with asyncio.timeout(REFUSAL):
            await response.read_into(take)
    return EndpointRefusal(
        status=response.status,
        body=bytes(body[:limit]),
        retry_after=retry_after(response.headers),
        location=response.headers.get("location"),
        content_type=response.content_type,
    )


async def _drain(response: Response) -> None:
    """Waits a moment for the end of the body: then the connection can be used again."""
    if not response.over:
        with contextlib.suppress(*_LOST):
            async with asyncio.timeout(DRAIN):
                await response.read_into(lambda _: False)
