"""The list of models that an endpoint offers, as its API writes it.

OpenAI-compatible endpoints and Anthropic answer `GET …/models` in nearly the same form, Bedrock and Vertex under their
own names. Only the id is certain; several endpoints add the context window.
"""

import re
from typing import Any

import msgspec

from holodeck.core.json_values import decoded
from holodeck.core.text import one_line
from holodeck.errors import ModelProtocolError

MAX_LIST = 16_000_000  # bytes of one page
MAX_PAGES = 20
MAX_MODELS = 10_000
_LONGEST_ID = 300
# OpenRouter, Groq, vLLM, Anthropic, and gateways
_WINDOWS = ("context_length", "context_window", "max_model_len", "max_input_tokens", "max_context_length")
_LISTS = ("data", "models", "modelSummaries", "inferenceProfileSummaries", "publisherModels")
_IDS = ("id", "modelId", "inferenceProfileId", "name")
_PREFIX = re.compile(r"^(?:models/|publishers/([^/]+)/models/)")  # Gemini's, and Vertex's, whose publisher is kept
_NEXT_TOKENS = {"nextToken": "nextToken", "nextPageToken": "pageToken"}  # member of a page → parameter of the next one


class OfferedModel(msgspec.Struct, frozen=True, order=True):
    id: str
    context_window: int | None = None  # tokens, if the endpoint reports it


class Page(msgspec.Struct, frozen=True):
    models: tuple[OfferedModel, ...]
    next_query: dict[str, str] = {}  # the query for the next page; empty: this is the last one


def read_page(body: bytes, where: str) -> Page:
    """Reads one page of the list. Raises ModelProtocolError if the body is not a list."""
    value = decoded(body)
    entries = _entries(value)
    if entries is None:
        raise ModelProtocolError(f"{where} responds to the request for its models with something other than a list.")
    models = tuple(model for each in entries[:MAX_MODELS] if (model := _model(each)) is not None)
    return Page(models, _next_query(value) if models else {})


def _entries(value: Any) -> list[Any] | None:
    if isinstance(value, dict):
        value = next((value[name] for name in _LISTS if name in value), None)
        value = [] if value is None else value  # Ollama without a model answers {"data": null}
    return value if isinstance(value, list) else None


def _model(entry: Any) -> OfferedModel | None:
    name = next((entry[key] for key in _IDS if entry.get(key)), None) if isinstance(entry, dict) else entry
    if not isinstance(name, str):
        return None
    model_id = one_line(_PREFIX.sub(lambda match: f"{match[1]}/" if match[1] else "", name, count=1), _LONGEST_ID)
    return OfferedModel(model_id, _window(entry)) if model_id else None


def _window(entry: Any) -> int | None:
    if not isinstance(entry, dict):
        return None
    meta = entry.get("meta")
    served = meta.get("n_ctx") if isinstance(meta, dict) else None  # llama.cpp
    figures = [*(entry.get(name) for name in _WINDOWS), served]
    return next((each for each in figures if isinstance(each, int) and not isinstance(each, bool) and each > 0), None)


def _next_query(value: Any) -> dict[str, str]:
    """The query for the next page: Anthropic names the last id, Bedrock and Vertex a token."""
    if not isinstance(value, dict):
        return {}
    last = value.get("last_id")
    if value.get("has_more") is True and isinstance(last, str) and last:
        return {"after_id": last}
    tokens = ((parameter, value.get(member)) for member, parameter in _NEXT_TOKENS.items())
    return next(({name: token} for name, token in tokens if isinstance(token, str) and token), {})
