"""One chunk of a chat-completion stream, read as leniently as real endpoints need.

Only the members that matter are decoded into structs, and none of them is trusted to have the right type. What cannot
be decoded the fast way (halves of surrogate pairs, invalid UTF-8, NaN) is tried the slow way before it counts as
broken. Nothing here keeps state: putting chunks together is the work of `answer` and `assembly`.
"""

import json
from typing import Annotated, Any

import msgspec

from holodeck.core.text import one_line
from holodeck.core.usage import TokenUsage


class Choice(msgspec.Struct, gc=False):  # JSON has no cycles, so the GC need not track it
    index: Any = None
    delta: Any = None
    message: Any = None  # instead of `delta`, in a response that is not streamed
    finish_reason: Any = None
    usage: Any = None  # Moonshot puts it here
    error: Any = None  # OpenRouter puts it here


class Chunk(msgspec.Struct, gc=False):
    choices: list[Choice] | None = None
    model: Any = None  # as the endpoint names the model that answers
    usage: Any = None
    error: Any = None
    x_groq: Any = None  # Groq's usage is in it


class PlainDelta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A delta with text only. Many endpoints add the other members with the value null."""

    content: str
    role: str | None = None
    refusal: None = None
    tool_calls: None = None
    function_call: None = None
    reasoning_content: None = None
    reasoning: None = None


class PlainChoice(msgspec.Struct, gc=False):
    delta: PlainDelta
    index: Any = None
    finish_reason: None = None
    usage: None = None
    error: None = None


class PlainChunk(msgspec.Struct, gc=False):
    """The form of nearly every chunk. Any other chunk cannot be decoded into it."""

    choices: Annotated[list[PlainChoice], msgspec.Meta(min_length=1, max_length=1)]
    usage: None = None
    error: None = None
    x_groq: None = None


class Malformed(Exception):
    """An event that is not a JSON object. `data` is for the debug log only."""

    def __init__(self, data: bytes) -> None:
        super().__init__("malformed event")
        self.data = data


class InBandError(Exception):
    """The endpoint reported an error inside a successful response."""

    def __init__(self, value: Any) -> None:
        super().__init__("error in the stream")
        self.value = value


decode = msgspec.json.Decoder(Chunk).decode
decode_plain = msgspec.json.Decoder(PlainChunk).decode
PLAIN_MEMBERS = frozenset(PlainDelta.__struct_fields__)
PINGS = frozenset({b"ping", b"keepalive", b"keep-alive", b"heartbeat"})  # names of events without content
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_leniently(data: bytes) -> tuple[list[Chunk], bool]:
    """The chunks in `data`, and whether bytes that are not UTF-8 had to be replaced.

    Raises Malformed, or InBandError when the value is an error in one of the shapes that are not `{"error": …}`.
    """
    values, replaced = values_in(data)
    return [_chunk(value) for value in values], replaced


def values_in(data: bytes) -> tuple[list[dict[str, Any]], bool]:
    """The JSON objects in `data`, and whether bytes that are not UTF-8 had to be replaced. Raises Malformed.

    There is more than one object if an endpoint puts no blank lines between its events.
    """
    try:
        text, replaced = data.decode(), False
    except UnicodeDecodeError:
        text, replaced = data.decode(errors="replace"), True
    return _objects(text, data), replaced


def _objects(text: str, data: bytes) -> list[dict[str, Any]]:
    try:
        loaded = json.loads(text, strict=False)
        values = loaded if isinstance(loaded, list) else [loaded]
    except (ValueError, RecursionError):
        lines = text.splitlines() if "\n" in text else []
        try:
            values = [json.loads(line, strict=False) for line in lines if line.strip() not in ("", "[DONE]")]
        except (ValueError, RecursionError):
            values = []
    if not values or not all(isinstance(value, dict) for value in values):
        raise Malformed(data)
    return values


def _chunk(value: dict[str, Any]) -> Chunk:
    choices = value.get("choices")
    if isinstance(choices, dict):
        choices = [choices]
    if not isinstance(choices, list):
        choices = None
        if error := error_in(value):
            raise InBandError(error)
    return Chunk(
        choices=None if choices is None else [_choice(choice) for choice in choices if isinstance(choice, dict)],
        model=value.get("model"),
        usage=value.get("usage"),
        error=value.get("error"),
        x_groq=value.get("x_groq"),
    )


def _choice(value: dict[str, Any]) -> Choice:
    return Choice(**{name: value[name] for name in Choice.__struct_fields__ if name in value})


def error_in(value: Any) -> Any:
    """The error in a JSON value, or None. It is in `error`, `errors`, `detail`, vLLM's `object: error`."""
    if isinstance(value, list):
        return next((found for item in value if (found := error_in(item))), None)
    if not isinstance(value, dict):
        return None
    for name in ("error", "errors", "detail"):
        if value.get(name):
            return value[name]
    is_error = value.get("object") == "error" or value.get("type") == "error"
    return value if is_error or ("message" in value and "code" in value) else None


def present(value: Any) -> bool:
    """Whether a member has a value: null and empty values mean absence."""
    return value is not None and value not in ("", {}, [])


_CACHED = ("cached_tokens", "prompt_cache_hit_tokens", "num_cached_tokens")  # Moonshot, DeepSeek, Mistral
_TICKS = 10_000_000_000.0  # xAI's unit of cost: so many are one dollar
_LONGEST_NAME = 120
_ENDLESS = 1e300  # numbers from here on are infinite, or too large for a float
_GROWING = frozenset({"text", "summary", "data"})  # members of OpenRouter's reasoning_details that arrive in pieces


def merged(old: Any, new: Any) -> Any:
    """Merges two values of an unknown member.

    Objects merge, lists grow (entries with the same `index` are one entry in pieces), anything else is replaced.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: merged(old.get(key), value) for key, value in new.items() if value is not None}
    if isinstance(old, list) and isinstance(new, list):
        result = list(old)
        for item in new:
            _grow(result, item)
        return result
    return new


def _grow(items: list[Any], new: Any) -> None:
    last = items[-1] if items else None
    if not (isinstance(last, dict) and isinstance(new, dict) and _is_same_entry(last, new)):
        items.append(new)
        return
    grown = {
        key: last[key] + value
        for key, value in new.items()
        if key in _GROWING and isinstance(value, str) and isinstance(last.get(key), str)
    }
    items[-1] = merged(last, new) | grown


def _is_same_entry(last: dict[str, Any], new: dict[str, Any]) -> bool:
    return "index" in new and last.get("index") == new["index"] and last.get("type") == new.get("type")


def model_named(value: Any) -> str:
    """The name of the model that answers, as the endpoint gives it; empty if it gives none.

    llama.cpp gives the path of its file, which must not reach clients or metrics.
    """
    is_name = isinstance(value, str) and not value.startswith(("/", ".", "~")) and "\\" not in value
    return one_line(value, _LONGEST_NAME) if is_name and not value.endswith(".gguf") else ""


def usage_of(value: Any) -> TokenUsage | None:
    """The usage that the endpoint reported; None if it is missing or makes no sense."""
    if not isinstance(value, dict):
        return None
    prompt = _count(value, "prompt_tokens", "input_tokens")
    # The Responses API says input and output where chat completions say prompt and completion.
    of_prompt = value.get("prompt_tokens_details") or value.get("input_tokens_details")
    of_completion = value.get("completion_tokens_details") or value.get("output_tokens_details")
    cached, written = _count(of_prompt, "cached_tokens"), _count(of_prompt, "cache_write_tokens")
    cached = _count(value, *_CACHED) if cached is None else cached
    completion = _completion(value, prompt, cached, written)
    if prompt is None or completion is None:
        return None
    return TokenUsage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        reasoning_tokens=_count(of_completion, "reasoning_tokens"),
        cached_tokens=cached,
        cache_write_tokens=written or None,
        cost=_cost(value),
    )


def _completion(value: dict[str, Any], prompt: int | None, cached: int | None, written: int | None) -> int | None:
    """The tokens that the model wrote, its thoughts included.

    Gemini and Grok count thoughts in the total only, and Gemini leaves out a completion of zero. Gateways to Anthropic's
    models count cached tokens in the total only.
    """
    completion, total = _count(value, "completion_tokens", "output_tokens"), _count(value, "total_tokens")
    if prompt is None or total is None or total < prompt + (completion or 0):
        return completion
    read = _count(value, "cache_read_input_tokens") or cached or 0
    made = _count(value, "cache_creation_input_tokens") or written or 0
    if completion is not None and total - prompt - completion in (read, made, read + made):
        return completion
    return total - prompt


def _cost(usage: dict[str, Any]) -> float | None:
    """The amount that the endpoint charged, if it reports it: OpenRouter in dollars, xAI in fractions of a dollar."""
    for member, unit in (("cost", 1.0), ("cost_in_usd_ticks", _TICKS)):
        value = usage.get(member)
        if value is not None and isinstance(value, int | float) and type(value) is not bool and 0 <= value < _ENDLESS:
            return float(value) / unit
    return None


def _count(value: Any, *names: str) -> int | None:
    for name in names if isinstance(value, dict) else ():
        figure = value.get(name)
        if type(figure) is int and figure >= 0:  # a bool has a type of its own
            return figure
        if type(figure) is float and figure.is_integer() and figure >= 0:
            return int(figure)
    return None
