"""Any endpoint that speaks OpenAI's Responses API, streaming, without keeping anything at the provider (`store: false`).

`streamed` makes the requests, `growing_response` reads the events. `ChosenApiModel` is `model.api: auto`.
"""

import json
import logging
import re
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from holodeck.core.tools import ToolSchema
from holodeck.errors import ModelError, ModelRejected
from holodeck.models.diagnosis import EndpointRefusal
from holodeck.models.endpoint_settings import NO_REASONING, EndpointSettings
from holodeck.models.openai_responses.growing_response import LARGEST_EVENT, GrowingResponse
from holodeck.models.openai_responses.input_items import messages_with_items, to_input
from holodeck.models.port import Listener, Model, ModelReply, Prompt, WrappedModel
from holodeck.models.providers import models_url, responses_url
from holodeck.models.response_body import AnswerStream
from holodeck.models.restrictions import RefusedMessages, Restrictions
from holodeck.models.streamed import ApiNotServed, StreamedModel, call_ids
from holodeck.models.structured import as_openai_names_it

REFUSED = frozenset({400, 422})
OPTIONAL = (
    "reasoning.summary", "reasoning.effort", "reasoning", "include", "text.verbosity", "temperature", "top_p",
    "parallel_tool_calls", "tool_choice", "service_tier", "max_output_tokens", "store",
)  # fmt: skip  # optional members, the inner ones first
_COMPLAINT = re.compile(
    r"unsupported|not support|unrecognized|unknown|not permitted|not allowed|unexpected|invalid|only the default"
    r"|must be verified|does not exist|forbidden",
    re.IGNORECASE,
)
_HINTS = {"include": re.compile(r"encrypted_content|encrypted content is not supported", re.IGNORECASE)}
_DEFAULT_TEMPERATURE = 1.0  # the API's default, which is not sent: many reasoning models refuse the member


def body_of(
    settings: EndpointSettings,
    prompt: Prompt,
    *,
    without: Collection[str] = (),
    plain: Collection[str] = (),
    summary: bool = False,
) -> dict[str, Any]:
    """The request. `without` names members that the endpoint refuses, `plain` ids of messages whose items it refuses.

    `summary`: ask for a summary of the reasoning even if the settings do not say so.
    """
    body: dict[str, Any] = {"model": settings.name, "input": to_input(prompt.messages, plain), "stream": True}
    if prompt.system:
        body["instructions"] = prompt.system
    tools = [] if prompt.answers_now else [*map(_tool, prompt.tools), *settings.provider_tools]
    if tools:
        body["tools"] = tools
    for name, value in _options(settings, prompt, summary=summary).items():
        if value is not None and name not in without and name.partition(".")[0] not in without:
            _put(body, name, value)
    if prompt.output is not None:
        _put(body, "text.format", {"type": "json_schema", **as_openai_names_it(prompt.output)})
    return body | settings.extra


def refused_member(text: str, without: Collection[str]) -> str | None:
    """The member that a refusal is about, if the request can do without it."""
    if not _COMPLAINT.search(text):
        return None
    words = f"{text} {_named_in(text)}"
    for name in OPTIONAL:
        if name in without:
            continue
        mention = re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w])")
        if mention.search(words) or (name in _HINTS and _HINTS[name].search(text)):
            return name
    return None


def _named_in(text: str) -> str:
    """The paths in pydantic's `loc`, which several gateways send to name the refused member."""
    try:
        detail = json.loads(text).get("detail")
    except (ValueError, AttributeError, RecursionError):
        return ""
    places = [each.get("loc") for each in detail if isinstance(each, dict)] if isinstance(detail, list) else []
    return " ".join(".".join(str(step) for step in place if step != "body") for place in places if place)


def _options(settings: EndpointSettings, prompt: Prompt, *, summary: bool) -> dict[str, Any]:
    """The optional members by their path, None where the settings leave them to the provider."""
    reasoning = settings.reasoning or NO_REASONING
    wanted = reasoning.summary or ("auto" if summary or settings.reasoning else None)
    choice = None if prompt.answers_now else settings.choice_of_tools(prompt)
    names_tool = choice not in (None, "auto", "none", "required")
    has_tools = bool(prompt.tools or settings.provider_tools) and not prompt.answers_now
    return {
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "temperature": settings.temperature if settings.temperature != _DEFAULT_TEMPERATURE else None,
        "top_p": settings.top_p,
        "max_output_tokens": settings.most_tokens(prompt),
        "reasoning.effort": reasoning.effort,
        "reasoning.summary": None if wanted == "none" else wanted,
        "text.verbosity": settings.verbosity,
        "tool_choice": {"type": "function", "name": choice} if names_tool else choice,
        "parallel_tool_calls": settings.calls_in_parallel(prompt) if has_tools else None,
        "service_tier": settings.service_tier,
    }


def _put(body: dict[str, Any], path: str, value: Any) -> None:
    outer, _, inner = path.partition(".")
    if inner:
        body.setdefault(outer, {})[inner] = value
    else:
        body[outer] = value


def _tool(tool: ToolSchema) -> dict[str, Any]:
    # Without `strict: false` the API rewrites schemas that are not strict, and refuses those that it cannot rewrite.
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


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
        self._plain = RefusedMessages()  # they go back without the provider's items
        self._unsent = [name for name in ("seed", "stop") if getattr(settings, name)]

    def _body(self, prompt: Prompt, restrictions: Restrictions) -> dict[str, Any]:
        while self._unsent:
            log.warning("%s: the Responses API has no %s; it is not sent", self.name, self._unsent.pop())
        return body_of(self._settings, prompt, without=restrictions.without, plain=self._plain, summary=self._summary)

    def _answer_stream(self, prompt: Prompt, listener: Listener) -> AnswerStream:
        answer = GrowingResponse(listener, taken_ids=lambda: call_ids(prompt), debug=self._settings.debug)
        return AnswerStream(answer, limit=LARGEST_EVENT)

    def _after(self, refusal: EndpointRefusal, prompt: Prompt, restrictions: Restrictions) -> Restrictions | None:
        if self._drops_items(refusal, prompt):
            return restrictions
        member = refused_member(refusal.text, restrictions.without) if refusal.status in REFUSED else None
        return None if member is None else restrictions.and_without(member)

    def _drops_items(self, refusal: EndpointRefusal, prompt: Prompt) -> bool:
        """Remembers messages whose encrypted reasoning (of another model or account) the endpoint refused.

        Returns whether to repeat the request without it.
        """
        if refusal.status not in REFUSED | {404} or not _REFUSED_ITEMS.search(refusal.text):
            return False
        refused = self._plain.learn(messages_with_items(prompt.messages))
        if refused:
            log.warning(
                "%s does not accept the reasoning of %d earlier messages (another model's?); it is left out",
                self.name, refused,
            )  # fmt: skip
        return bool(refused)

    def _failure_of(self, refusal: EndpointRefusal) -> ModelError:
        failure = super()._failure_of(refusal)
        return ApiNotServed(failure.message) if type(failure) is ModelRejected and is_not_served(refusal) else failure


def is_not_served(refusal: EndpointRefusal) -> bool:
    """Whether the refusal means that the endpoint does not serve this API, and not only that the model is wrong."""
    if refusal.status in _NOT_SERVED:
        return not _NO_SUCH_MODEL.search(refusal.text) or bool(_OTHER_API.search(refusal.text))
    return refusal.status in REFUSED and bool(_OTHER_API.search(refusal.text))


OPENAI_HOST = "api.openai.com"
_REASONING = re.compile(r"(ft:)?(o\d|gpt-([5-9]|\d\d)(?!.*chat)|codex|computer-use)")


def is_openai_reasoning(settings: EndpointSettings) -> bool:
    """Whether this is one of OpenAI's own reasoning models at OpenAI: only the Responses API keeps their thoughts.

    The name decides, because nothing else is known before the first request.
    """
    endpoint = (settings.endpoint or "").strip()
    at_openai = urlsplit(endpoint).hostname == OPENAI_HOST if endpoint else settings.provider == "openai"
    return at_openai and _REASONING.match(settings.name) is not None


class ChosenApiModel(WrappedModel):
    """Uses the preferred API. Switches to the other one for good when the endpoint does not serve the preferred one."""

    def __init__(self, preferred: tuple[str, Model], other: tuple[str, Model]) -> None:
        """The same model by two APIs, each with the API's name."""
        super().__init__(preferred[1])
        self._preferred, self._other = preferred, other
        self._settled: Model | None = None

    def __repr__(self) -> str:
        return f"ChosenApiModel({self._preferred!r}, {self._other!r})"

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        if self._settled is not None:
            return await self._settled.reply(prompt, listener)
        (api, model), (other_api, other) = self._preferred, self._other
        try:
            reply = await model.reply(prompt, listener)
        except ApiNotServed as error:
            reply = await self._ask_other(prompt, listener, error)
            log.warning("%s is not available through the API %s; %s is used from now on", self.name, api, other_api)
            self._settled = other
        return reply

    async def _ask_other(self, prompt: Prompt, listener: Listener, error: ApiNotServed) -> ModelReply:
        try:
            return await self._other[1].reply(prompt, listener)
        except ApiNotServed:
            raise error from None

    async def close(self) -> None:
        await super().close()
        await self._other[1].close()
