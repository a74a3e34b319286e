"""Turns a failure at a model endpoint into a typed error that a person can act on.

Statuses, error bodies, error objects inside a stream and broken connections all end here. Every text that comes from
the endpoint is shortened and stripped of secrets first. It does not decide about retries.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from holodeck.core.secrets import Redactor
from holodeck.core.text import one_line
from holodeck.errors import (
    ContentFiltered,
    ContextOverflow,
    ModelAuthFailed,
    ModelError,
    ModelInterrupted,
    ModelProtocolError,
    ModelRejected,
    ModelUnavailable,
    ModelUnreachable,
)
from holodeck.http.failures import NoConnection, NoHost, NoProxy, NotHttp, NoTrust, Unsendable
from holodeck.models.chunks import error_in

_LONGEST_QUOTE = 200
REDIRECTS = range(300, 400)
PROXY_WANTS_CREDENTIALS = 407
SERVER_ERRORS = range(500, 600)
PAYMENT_REQUIRED = 402
_PASSING = frozenset({408, 409, 424, 425})  # retried as by the official SDKs; 424 is Bedrock's, for a failed model
_OVERLOADED = frozenset({429, 503, 529})
_AUTH = frozenset({401, 403})
_NOWHERE = frozenset({404, 405})
_OF_REQUEST = frozenset({400, 413, 422})
_NOT_IMPLEMENTED = 501

_OVERFLOW = re.compile(
    r"context_length_exceeded|context.{0,20}(length|window|size|limit)|prompt is too long|too many (input )?tokens"
    r"|input.{0,40}(token count|is too long).{0,60}|exceeds? the (maximum|max|available).{0,40}(token|context)"
    r"|reduce the length of|maximum.{0,20}prompt.{0,10}length|input tokens?.{0,20}exceed|tokens exceeds? max"
    r"|exceeded model token limit|prompt exceeds max length|range of input length should|inputs\W{0,3} tokens.{0,40}must be",
    re.IGNORECASE,
)
_TOO_LARGE = re.compile(r"request.too.large|exceeds the maximum size", re.IGNORECASE)  # waiting does not help
_BROKEN_CALL = re.compile(r"tool_use_failed")  # Groq: the model wrote a call that is not JSON
_FILTER = re.compile(
    r"content.?filter|content management policy|data_inspection_failed|safety system|invalid_prompt|usage policy"
    r"|content_policy|policy_violation|bio_policy|cyber_policy",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(
    r"(invalid|incorrect|missing|no|expired).{0,12}api.?key|api.?key.{0,20}(not valid|invalid|expired|not found)"
    r"|invalid_api_key|authentication_error|permission_denied|unauthenticated|organization has been disabled",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(
    r"insufficient_quota|insufficient.{0,10}(balance|credit)|billing_hard_limit|credit balance is too low"
    r"|used all available credits|spending limit",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(  # what OpenAI's Responses API, Groq, Mistral, DeepSeek, OpenRouter and Bedrock say with a 400
    r"model_not_found|model_decommissioned|\binvalid_model\b|model not exist|not a valid model|model identifier is invalid",
    re.IGNORECASE,
)
_BUSY = re.compile(
    r"rate.?limit|too many requests|overloaded|resource_exhausted|unavailable|capacity|temporarily", re.IGNORECASE
)
_CALLERS_MISTAKE = re.compile(
    r"invalid_request|bad_request|invalid_argument|not_found|_image|image_|unsupported", re.IGNORECASE
)
_ID_IN_BODY = re.compile(r'"request_?id"\s*:\s*"([\w.:/-]{1,100})"', re.IGNORECASE)
_RETRY_DELAY = re.compile(r'"retryDelay"\s*:\s*"([\d.]{1,10})s"')  # google.rpc.RetryInfo


_NO_CONNECTION = {
    NoTrust: "No secure connection to {where}: {error}.",
    NoProxy: "{where} cannot be reached: {error}. Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY.",
    NoHost: "The host name {where} cannot be resolved. Check your network connection and {option}.",
    NoConnection: "No connection to {where}. Is the model endpoint running?",
}
_CLOSED = "{where} closed the connection before it answered."


class EndpointRefusal(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    body: bytes = b""
    retry_after: float | None = None
    location: str | None = None
    content_type: str = ""

    @property
    def is_page(self) -> bool:
        return self.content_type == "text/html" or self.body.lstrip().startswith(b"<")

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    @property
    def request_id(self) -> str:
        """The id that the body gives the request; empty if it gives none."""
        found = _ID_IN_BODY.search(self.text)
        return found[1] if found else ""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Describes failures of one endpoint: `where` is its host, `key_advice` the setting to check if the key is wrong."""

    where: str
    model: str
    key_advice: str
    has_key: bool
    redact: Redactor
    hint: str = "it usually ends in /v1"  # what the URL of an endpoint usually looks like
    endpoint_option: str = "model.endpoint"  # where the user sets it
    credential: str = "API key"

    def of_response(self, refusal: EndpointRefusal) -> ModelError:
        text = refusal.text
        quote = self._quote(text)
        status = refusal.status
        if status in REDIRECTS or status == PROXY_WANTS_CREDENTIALS:
            return self._of_detour(refusal)
        if (known := self._of_words(text, quote, status)) is not None:
            return known
        if status in _NOWHERE or (status in _OF_REQUEST and _NO_MODEL.search(text)):
            doubt = f", or the endpoint's URL is wrong ({self.hint})" if status in _NOWHERE else ""
            return _rejected_model(f"{self.where} answered {status}: there is no model {self.model!r}{doubt}.{quote}")
        if status in _OVERLOADED:
            return ModelUnavailable(
                f"The model at {self.where} is overloaded or its rate limit is reached ({status}). Try again later."
                f"{quote}",
                retry_after=refusal.retry_after if refusal.retry_after is not None else _retry_delay(text),
            )
        is_broken_call = status in _OF_REQUEST and _BROKEN_CALL.search(text)
        if status in _PASSING or is_broken_call or (status in SERVER_ERRORS and status != _NOT_IMPLEMENTED):
            return ModelUnreachable(
                f"The model endpoint {self.where} failed ({status}). Try again later.{quote}",
                retry_after=refusal.retry_after,
            )
        rejected = ModelRejected(f"The model endpoint {self.where} refused the request ({status}).{quote}")
        rejected.of_request = status in _OF_REQUEST
        return rejected

    def of_error(self, value: Any, *, started: bool) -> ModelError:
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        quote = self._quote(text)
        status = _status_in(value)
        error = self._of_words(text, quote, status)
        if error is None and status is not None:
            error = self.of_response(EndpointRefusal(status=status, body=text.encode(errors="replace")))
        if error is None and _BUSY.search(text):
            error = ModelUnavailable(f"The model at {self.where} is overloaded.{quote}")
        if error is None and _NO_MODEL.search(text):
            error = _rejected_model(f"There is no model {self.model!r} at {self.where}.{quote}")
        if error is None and _CALLERS_MISTAKE.search(text):
            error = ModelRejected(f"The model endpoint {self.where} refused the request.{quote}")
        if error is None:
            error = ModelUnreachable(f"The model endpoint {self.where} reported a failure.{quote}")
        if started and not isinstance(error, ContentFiltered | ContextOverflow):
            error = ModelInterrupted(f"The model endpoint {self.where} broke off its answer.{quote}")
        return error

    def of_connection(self, error: BaseException, *, started: bool) -> ModelError:
        if isinstance(error, Unsendable):
            return ModelRejected(f"No request can be sent to {self.where}: {error}.")
        if isinstance(error, NotHttp):
            return ModelProtocolError(f"{self.where} does not respond as a model endpoint does.")
        if started:
            return ModelInterrupted(f"The connection to {self.where} broke in the middle of the model's answer.")
        why = next((text for kind, text in _NO_CONNECTION.items() if isinstance(error, kind)), _CLOSED)
        return ModelUnreachable(why.format(where=self.where, error=error, option=self.endpoint_option))

    def malformed(self) -> ModelError:
        return ModelProtocolError(
            f"{self.where} sent an event that is not a JSON object, so its answer cannot be read."
        )

    def _of_detour(self, refusal: EndpointRefusal) -> ModelError:
        """The error for an answer that a proxy gave, or for a redirect."""
        if refusal.status == PROXY_WANTS_CREDENTIALS:
            return ModelRejected(
                f"{self.where} cannot be reached: the proxy requires authentication (407). Check HTTPS_PROXY and HTTP_PROXY."
            )
        to = f" to {one_line(self.redact(refusal.location), 120)}" if refusal.location else ""
        return ModelRejected(
            f"{self.where} redirects ({refusal.status}){to}. Redirects are not followed, because the key would go "
            f"along; set {self.endpoint_option} to the right URL."
        )

    def _of_words(self, text: str, quote: str, status: int | None) -> ModelError | None:
        """The error that the words of a response describe, if they are more exact than its status."""
        if _NO_CREDIT.search(text) or status == PAYMENT_REQUIRED:
            return _rejected_model(f"The account at {self.where} has no credit left, or none for this model.{quote}")
        if status in _AUTH or (_BAD_KEY.search(text) and (status is None or status == 400)):  # noqa: PLR2004  Gemini and xAI say 400 for a bad key
            return ModelAuthFailed(self._about_key(quote))
        if status is not None and status in SERVER_ERRORS:
            return None
        says_too_long = status != 429 and _OVERFLOW.search(text)  # noqa: PLR2004  limits per minute speak of tokens too
        if says_too_long or _TOO_LARGE.search(text):
            return ContextOverflow(
                f"The conversation is too long for the model {self.model!r}. Start a new one or shorten it.{quote}"
            )
        if _FILTER.search(text):
            return ContentFiltered(f"The model's provider refused to answer this (content filter).{quote}")
        return None

    def _about_key(self, quote: str) -> str:
        if self.has_key:
            return f"{self.where} did not accept the {self.credential}. Check {self.key_advice}.{quote}"
        return f"{self.where} requires an API key. Set {self.key_advice}.{quote}"

    def _quote(self, body: str) -> str:
        quoted = one_line(self.redact(_message_in(body)), _LONGEST_QUOTE)
        return f" Its message: {quoted}" if quoted else ""


def _rejected_model(message: str) -> ModelRejected:
    error = ModelRejected(message)
    error.of_model = True
    return error


def _message_in(body: str) -> str:
    """The message in an error body; empty for HTML, which has no useful one."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return "" if body.lstrip().startswith("<") else body
    found = error_in(value) or value
    if isinstance(found, list) and found:
        found = found[0]
    if isinstance(found, dict):
        found = next((found[name] for name in ("message", "msg", "detail", "error") if found.get(name)), found)
    return found if isinstance(found, str) else json.dumps(found, default=str)


def _status_in(value: Any) -> int | None:
    if not isinstance(value, dict):
        return None
    for name in ("status", "status_code", "code", "http_status"):
        figure = value.get(name)
        if isinstance(figure, str) and figure.isdecimal():
            figure = int(figure)
        if isinstance(figure, int) and 400 <= figure < 600:  # noqa: PLR2004  the statuses of failure
            return figure
    return None


def _retry_delay(body: str) -> float | None:
    found = _RETRY_DELAY.search(body)
    return float(found[1]) if found and found[1].count(".") <= 1 and found[1] != "." else None
