"""Any endpoint that speaks Anthropic's Messages API, streaming.

`streamed` makes the requests, `message_request` writes the request, `message_answer` reads the events,
`message_restrictions` learns from refusals.
"""

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from holodeck.core.messages import AssistantMessage
from holodeck.core.usage import total
from holodeck.errors import ModelError
from holodeck.models.anthropic import message_request, message_restrictions
from holodeck.models.anthropic.content_blocks import CALL, KEPT, kept_blocks, open_provider_calls
from holodeck.models.anthropic.message_answer import PAUSES, MessageAnswer
from holodeck.models.anthropic.message_restrictions import RefusedThinking
from holodeck.models.diagnosis import EndpointRefusal
from holodeck.models.endpoint_settings import EndpointSettings
from holodeck.models.port import Listener, ModelReply, Prompt
from holodeck.models.providers import messages_models_url, messages_url, provider_named
from holodeck.models.response_body import AnswerStream
from holodeck.models.restrictions import RefusedMessages, Restrictions
from holodeck.models.streamed import StreamedModel, call_ids

log = logging.getLogger(__name__)

VERSION = "2023-06-01"
MAX_PAUSES = 20  # pauses per turn
MAX_EVENT = 32_000_000  # bytes: results of the provider's own tools come as one event


class AnthropicModel(StreamedModel):
    """One model behind one endpoint. The other keyword arguments are those of StreamedModel."""

    native_output = True

    def __init__(self, settings: EndpointSettings, **others: Any) -> None:
        settings = _with_one_beta_header(settings)
        if "url" not in others:
            others |= {"url": messages_url(settings.endpoint), "models_url": messages_models_url(settings.endpoint)}
        super().__init__(
            settings,
            headers=_headers(settings),
            **others,
        )
        self._refused_thinking = RefusedThinking(self.name)
        self._plain = RefusedMessages()  # they go back as text and calls, without the provider's blocks

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        """Asks again after each pause of the provider, up to MAX_PAUSES times, and joins the replies."""
        parts: list[ModelReply] = []
        while True:
            try:
                parts.append(await super().reply(prompt, listener))
            except ModelError as error:
                error.started = error.started or bool(parts)
                raise
            if parts[-1].finish_reason not in PAUSES or len(parts) > MAX_PAUSES:
                return _joined(parts)
            so_far = AssistantMessage(content=parts[-1].text, extra=parts[-1].extra)
            prompt = msgspec.structs.replace(prompt, messages=(*prompt.messages, so_far))

    def _body(self, prompt: Prompt, restrictions: Restrictions) -> dict[str, Any]:
        return message_request.body_of(
            self._settings,
            prompt,
            restrictions,
            unsigned=self._refused_thinking.unsigned,
            plain=self._plain,
            thinks=self._refused_thinking.thinks(prompt),
        )

    def _answer_stream(self, prompt: Prompt, listener: Listener) -> AnswerStream:
        last = prompt.messages[-1] if prompt.messages else None
        answer = MessageAnswer(
            listener,
            taken_ids=lambda: call_ids(prompt),
            paused_calls=open_provider_calls(last) if isinstance(last, AssistantMessage) else (),
            debug=self._settings.debug,
        )
        return AnswerStream(answer, limit=MAX_EVENT, hint=provider_named(self._settings.provider).hint)

    def _after(self, refusal: EndpointRefusal, prompt: Prompt, restrictions: Restrictions) -> Restrictions | None:
        if self._refused_thinking.learn(refusal, prompt) or self._drops_blocks(refusal, prompt):
            return restrictions
        return message_restrictions.restrictions_after(refusal.status, refusal.text, restrictions)

    def _drops_blocks(self, refusal: EndpointRefusal, prompt: Prompt) -> bool:
        """The endpoint accepts the blocks of a provider's tool only while the request has the tool, or its beta header."""
        kept = [each.id for each in prompt.messages if isinstance(each, AssistantMessage) and kept_blocks(each)]
        if not (message_restrictions.refuses_blocks(refusal.status, refusal.text) and self._plain.learn(kept)):
            return False
        log.warning("%s refused blocks of earlier replies; they are sent as text", self.name)
        return True


def _with_one_beta_header(settings: EndpointSettings) -> EndpointSettings:
    """Moves a beta header from `headers` into `betas`, and drops the key if there is a token."""
    given = {name: value for name, value in settings.plain_headers.items() if name.lower() == "anthropic-beta"}
    betas = [beta.strip() for value in given.values() for beta in value.split(",")]
    changes = {
        "api_key": None if settings.auth_token else settings.api_key,
        "headers": {name: value for name, value in settings.headers.items() if name not in given},
        "betas": list(dict.fromkeys([*settings.betas, *filter(None, betas)])),
    }
    return settings.model_copy(update=changes)


def _headers(settings: EndpointSettings) -> dict[str, str]:
    headers = {"anthropic-version": VERSION}
    if settings.auth_token:
        headers["Authorization"] = f"Bearer {settings.auth_token.get_secret_value().strip()}"
    if settings.betas:
        headers["anthropic-beta"] = ",".join(settings.betas)
    return headers


def _joined(parts: Sequence[ModelReply]) -> ModelReply:
    """Joins the parts of a turn that was paused into one reply."""
    last = parts[-1]
    if len(parts) == 1:
        return last
    extra: dict[str, Any] = {"content": [block for part in parts for block in _blocks_of(part)]}
    if container := last.extra.get(KEPT, {}).get("container"):
        extra["container"] = container
    return msgspec.structs.replace(
        last,
        text="".join(part.text for part in parts),
        reasoning="".join(part.reasoning for part in parts),
        tool_calls=tuple(call for part in parts for call in part.tool_calls),
        usage=total([part.usage for part in parts]),
        extra={KEPT: extra},
    )


def _blocks_of(reply: ModelReply) -> list[dict[str, Any]]:
    kept = reply.extra.get(KEPT, {}).get("content")
    if kept is not None:
        return list(kept)
    text = [{"type": "text", "text": reply.text}] if reply.text else []
    return [*text, *({"type": CALL} for _ in reply.tool_calls)]
