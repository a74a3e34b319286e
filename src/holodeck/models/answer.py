"""The answer of a chat completion, put together from the events of its stream and passed to the listener while it grows.

Pure and synchronous: every way in which a stream can be cut or can contradict itself is decided here and can be tested
without a socket. It knows nothing of bytes (`response_body` does), HTTP, retries or time.
"""

from collections.abc import Callable
from typing import Any

from holodeck.core.ids import new_call_id
from holodeck.core.json_values import clean_json
from holodeck.core.text import clean
from holodeck.core.usage import TokenUsage
from holodeck.errors import ContentFiltered
from holodeck.models.assembly import CallAssembly
from holodeck.models.chat_format import media_at
from holodeck.models.chunks import (
    DECODE_ERRORS,
    PINGS,
    PLAIN_MEMBERS,
    Choice,
    Chunk,
    InBandError,
    Malformed,
    decode,
    decode_leniently,
    decode_plain,
    merged,
    model_named,
    present,
    usage_of,
)
from holodeck.models.pieces import TextPieces
from holodeck.models.port import Listener, ModelReply
from holodeck.models.response_body import DONE, GrowingAnswer

FINISH_REASONS = {
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_length": "length",  # Mistral
    "safety": "content_filter",  # this and the next five: Gemini
    "recitation": "content_filter",
    "image_safety": "content_filter",
    "prohibited_content": "content_filter",
    "blocklist": "content_filter",
    "spii": "content_filter",
    "sensitive": "content_filter",  # Z.ai
    "refusal": "content_filter",
}
BROKEN_OFF = frozenset(
    {"error", "abort", "network_error", "insufficient_system_resource"}  # OpenRouter, vLLM and SGLang, Z.ai, DeepSeek
    # Gemini: a call that cannot be parsed
    | {"function_call_filter", "malformed_function_call", "unexpected_tool_call"}
)
NOT_FINISHED = frozenset({"", "null", "none"})

_REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
_KNOWN = frozenset({"role", "content", "tool_calls", "function_call", "refusal", *_REASONING})


class Answer(GrowingAnswer):
    def __init__(self, listener: Listener, *, taken_ids: Callable[[], set[str]] = set, debug: bool = False) -> None:
        super().__init__(listener, debug=debug)
        self._text = TextPieces(listener.text)
        self._reasoning = TextPieces(listener.reasoning)
        self._calls = CallAssembly(listener, taken_ids)
        self._call_deltas = self._images = 0
        self._usage: TokenUsage | None = None
        self._extra: dict[str, Any] = {}
        self._reasoning_member: str | None = None
        self._refused = False
        self._choice: Any = None  # the index of the one choice that we follow
        self._saw_delta = False
        self._in_thought = False  # the last text was marked as one of Gemini's thoughts
        self._expects_plain = False  # the last chunk was nothing but text: the next one may be as well

    @property
    def started(self) -> bool:
        return bool(self._text or self._reasoning or self._calls.started or self._images)

    @property
    def progress(self) -> int:
        return len(self._text.deltas) + len(self._reasoning.deltas) + self._call_deltas + self._images

    def take(self, name: bytes, data: bytes) -> None:
        if self._expects_plain and name != b"error":
            try:
                choice = decode_plain(data).choices[0]
            except DECODE_ERRORS:
                pass  # not plain text: the full decoder reads it
            else:
                if choice.index == self._choice:
                    self._text.add(choice.delta.content)
                    return
        self._take_any(name, data)

    def _take_any(self, name: bytes, data: bytes) -> None:
        if data == DONE:
            self.done = True
            return
        try:
            chunk = decode(data)
        except DECODE_ERRORS:
            self._take_unusual(name, data)
            return
        choices = chunk.choices
        if self._debug or name == b"error" or choices is None:
            self._take_unusual(name, data)
        elif (
            len(choices) == 1
            and choices[0].index == self._choice
            and chunk.usage is chunk.error is chunk.x_groq is None
        ):
            self._take_choice(choices[0])
        else:
            self._take_chunk(chunk)

    def reply(self) -> ModelReply:
        self._check_end()
        if self.finish_reason in BROKEN_OFF:
            raise InBandError({"message": f"the model stopped with {self.finish_reason!r}"})
        reason = self.finish_reason or "stop"
        self._reasoning.end()
        self._text.end()
        if reason == "content_filter" or self._refused:
            raise ContentFiltered("The model's provider refused to answer this (content filter).")
        calls = self._calls.finish(cut=reason == "length")
        if calls and reason == "stop":
            reason = "tool_calls"  # Gemini says stop
        if calls and self._reasoning_member == "reasoning_content":
            # DeepSeek and Kimi answer 400 when the thinking before a tool call does not come back.
            self._extra["reasoning_content"] = str(self._reasoning)
        return ModelReply(
            text=str(self._text),
            reasoning=str(self._reasoning),
            tool_calls=calls,
            finish_reason=reason,
            usage=self._usage,
            model=self._model,
            extra=self._extra,
        )

    def _take_unusual(self, name: bytes, data: bytes) -> None:
        if self._is_marker(data) or name in PINGS:
            return
        if name == b"error":
            raise InBandError(_error_event(data))
        chunks, replaced = decode_leniently(data)
        if replaced:
            self._warn_of_bytes()
        for chunk in chunks:
            if self._debug:
                self._listener.raw(clean_json(_plain(chunk)))
            self._take_chunk(chunk)

    def _take_chunk(self, chunk: Chunk) -> None:
        if chunk.error is not None and present(chunk.error):
            raise InBandError(chunk.error)
        if not self._model:
            self._model = model_named(chunk.model)
        choices = chunk.choices
        if choices:
            choice: Choice | None = choices[0]
            if len(choices) > 1 or choices[0].index != self._choice:
                choice = self._own_choice(choices)
            if choice is not None:
                self._take_choice(choice)
        if chunk.usage is not None:
            self._usage = usage_of(chunk.usage) or self._usage
        elif isinstance(chunk.x_groq, dict):
            self._usage = usage_of(chunk.x_groq.get("usage")) or self._usage

    def _own_choice(self, choices: list[Choice]) -> Choice | None:
        """Returns the choice that we follow (the first one received), if it is in the list."""
        if self._choice is None:
            self._choice = choices[0].index
        own = [choice for choice in choices if choice.index in (None, self._choice)]
        if not own or len(choices) > 1:
            self._warn("extra-choices", "The model endpoint sent several answers; only the first one is used.")
        return own[0] if own else None

    def _take_choice(self, choice: Choice) -> None:
        delta = choice.delta
        if isinstance(delta, dict):
            self._saw_delta = True
            self._expects_plain = (
                not self._debug and type(delta.get("content")) is str and delta.keys() <= PLAIN_MEMBERS
            )
            if "tool_calls" in delta and len(delta) == 1:
                self._take_calls(delta)
            elif delta:
                self._take_delta(delta)
        elif isinstance(choice.message, dict) and not self._saw_delta:
            self._take_delta(choice.message)
        if choice.finish_reason is not None:
            self._finish(choice.finish_reason)
        if choice.error is not None and present(choice.error):
            raise InBandError(choice.error)
        if choice.usage is not None:
            self._usage = usage_of(choice.usage) or self._usage

    def _finish(self, value: Any) -> None:
        reason = clean(str(value)).lower().partition(":")[0]  # Gemini: "content_filter: RECITATION"
        if reason not in NOT_FINISHED:
            self.finish_reason = FINISH_REASONS.get(reason, reason)

    def _take_delta(self, delta: dict[str, Any]) -> None:
        for member in _REASONING:
            if present(delta.get(member)):
                self._reasoning_member = member
                self._take_content(delta[member], self._reasoning.add)
                break  # some endpoints send the same text under two names
        thought = _is_thought(delta)
        if present(content := delta.get("content")):
            if (thought or self._in_thought) and isinstance(content, str):
                content = self._untagged(content, thought=thought)
            self._take_content(content, self._reasoning.add if thought else self._text.add)
        if present(delta.get("refusal")):
            self._refused = True
            self._take_content(delta["refusal"], self._text.add)
        self._take_calls(delta)
        if not (delta.keys() <= _KNOWN or thought):
            self._take_images(delta.get("images"))
            self._keep(delta)

    def _untagged(self, content: str, *, thought: bool) -> str:
        """Removes Gemini's tags: at the beginning of its first thought, and before the text after the last."""
        was_thought, self._in_thought = self._in_thought, thought
        if not thought:
            return content.removeprefix("</thought>")
        return (content if was_thought else content.removeprefix("<thought>")).removesuffix("</thought>")

    def _take_calls(self, delta: dict[str, Any]) -> None:
        calls = delta.get("tool_calls")
        legacy = delta.get("function_call")
        if isinstance(calls, dict):
            calls = [calls]
        if not present(calls) and isinstance(legacy, dict):
            calls = [{"index": 0, "function": legacy}]
        if isinstance(calls, list):
            for position, member in enumerate(calls):
                if isinstance(member, dict):
                    self._call_deltas += 1
                    self._calls.add(member, position, len(calls))

    def _take_images(self, images: Any) -> None:
        """Shows the images of OpenRouter. They go back with the message."""
        for image in images if isinstance(images, list) else ():
            found = image.get("image_url") if isinstance(image, dict) else None
            url = found.get("url") if isinstance(found, dict) else found
            if isinstance(url, str) and url:
                self._images += 1
                self._show_image(new_call_id(), media_at(url, "image/png"))

    def _take_content(self, content: Any, say: Callable[[str], None]) -> None:
        """Emits a text, or the texts in a list of parts. Thinking parts are emitted as reasoning."""
        if isinstance(content, str):
            say(content)
        elif isinstance(content, list):
            for part in content:
                self._take_content(part, say)
        elif isinstance(content, dict):
            thinking = content.get("thinking") or content.get("summary")  # Mistral's name, Databricks' name
            if present(thinking):
                self._take_content(thinking, self._reasoning.add)
            elif isinstance(content.get("text"), str):
                say(content["text"])
        elif isinstance(content, int | float) and not isinstance(content, bool):
            say(str(content))

    def _keep(self, delta: dict[str, Any]) -> None:
        """Keeps unknown members, to send them back with the message. Numbers (token ids) describe the delta only."""
        kept = {
            name: clean_json(value)
            for name, value in delta.items()
            if name not in _KNOWN and isinstance(value, str | dict | list) and present(value)
        }
        if kept:
            self._extra = merged(self._extra, kept)


def _is_thought(delta: dict[str, Any]) -> bool:
    """Whether the content is a thought: Gemini marks it by extra_content.google.thought."""
    extra = delta.get("extra_content")
    google = extra.get("google") if isinstance(extra, dict) else None
    return isinstance(google, dict) and google.get("thought") is True


def _plain(chunk: Chunk) -> dict[str, Any]:
    choices = [{name: getattr(choice, name) for name in Choice.__struct_fields__} for choice in chunk.choices or ()]
    return {"choices": choices, "usage": chunk.usage}


def _error_event(data: bytes) -> Any:
    try:
        chunks, _ = decode_leniently(data)
    except Malformed:
        return {"message": data.decode(errors="replace")}
    except InBandError as error:
        return error.value
    return next((chunk.error for chunk in chunks if present(chunk.error)), {"message": data.decode(errors="replace")})
