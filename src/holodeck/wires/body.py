"""Bytes of a request → JSON values, and the few questions that every decoder asks of them.

Whatever a client sends, the answer is a value or an InvalidRequest with the field's path. What the values mean is not
known here.
"""

import json
import re
from typing import Any, NoReturn

import msgspec

from holodeck.core.text import clean
from holodeck.errors import InvalidRequest

MAX_DEPTH = 64
MAX_NAME = 1024  # of messages and calls: some providers put signatures into call ids

_decode = msgspec.json.Decoder().decode
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object in a body: 400 for what is no JSON, 422 for what is no object."""
    try:
        value = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        value = _parse_halves(body, error)
    except RecursionError as error:
        raise InvalidRequest("The body is nested too deeply", status=400) from error
    if not isinstance(value, dict):
        raise InvalidRequest("The body has to be a JSON object")
    return value


def _parse_halves(body: bytes, reason: Exception) -> Any:
    """A second look at what msgspec refused.

    A JavaScript client that cuts a text in the middle of an emoji sends an escaped half of a surrogate pair. That is
    JSON, and json.loads reads it; `clean` mends it later.
    """
    if not _SURROGATE_ESCAPE.search(body):
        raise InvalidRequest("The body is not valid JSON", status=400) from reason
    try:
        return json.loads(body.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # ValueError: also of the UTF-8 decoder, and integers of 4,300 digits
        raise InvalidRequest("The body is not valid JSON", status=400) from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def text(value: Any, path: str) -> str:
    """Text that may be stored and shown to a model."""
    if not isinstance(value, str):
        raise _wrong(path, "a string", value)
    return clean(value)


def name(value: Any, path: str) -> str:
    """An id that somebody gave to a message, a call or an interrupt."""
    read = text(value, path)
    if not 0 < len(read) <= MAX_NAME:
        raise InvalidRequest(f"{path} has to have 1 to {MAX_NAME} characters", field=path)
    return read


def table(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(path, "an object", value)
    return value


def rows(value: Any, path: str, limit: int) -> list[Any]:
    """A list; null and absent are empty."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise _wrong(path, "a list", value)
    if len(value) > limit:
        raise InvalidRequest(f"{path} has {len(value)} entries; at most {limit} are allowed", field=path)
    return value


def opaque(value: Any, path: str, depth: int = MAX_DEPTH) -> Any:
    """Any JSON value, its texts cleaned, its depth bounded: later code may walk it without fear."""
    if isinstance(value, str):
        return clean(value)
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        raise InvalidRequest(f"{path} is nested more than {MAX_DEPTH} levels deep", field=path)
    if isinstance(value, list):
        return [opaque(item, path, depth - 1) for item in value]
    return {clean(key): opaque(item, path, depth - 1) for key, item in value.items()}


_JSON_NAMES = {type(None): "null", bool: "a boolean", str: "a string", list: "a list", dict: "an object"}


def _wrong(path: str, wanted: str, value: Any) -> InvalidRequest:
    got = _JSON_NAMES.get(type(value), "a number")
    return InvalidRequest(f"{path} has to be {wanted}, not {got}", field=path)
