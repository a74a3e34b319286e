"""Bytes of a request → JSON values, and the few questions that every decoder asks of them.

Whatever a client sends, the answer is a value or an InvalidRequest with the field's path. What the values mean is not
known here.
"""

import json
import re
from typing import Any, NoReturn

import msgspec

from holodeck.core.ids import MAX_FOREIGN_ID, is_foreign_id
from holodeck.core.text import clean
from holodeck.errors import InvalidRequest, PayloadTooLarge

MAX_DEPTH = 64
MAX_SEPARATORS = 500_000  # commas, in texts too: thirty megabytes of `1,1,1` would be gigabytes of values
MAX_OPAQUE = 100_000  # values under one member that is walked here, while every other stream stands still
MAX_NAME = 1024  # of messages and calls: some providers put signatures into call ids

_decode = msgspec.json.Decoder().decode
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object in a body: 400 for what is no JSON, 422 for what is no object, 413 for what has no end."""
    if body.count(b",") > MAX_SEPARATORS:
        raise PayloadTooLarge(f"The body holds more than {MAX_SEPARATORS:,} values")
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


def foreign_id(value: Any, path: str) -> str:
    """A thread, run, conversation or user, as its owner calls it. It is not mended: two names must not become one."""
    read = text(value, path)
    if read != value or not is_foreign_id(read):
        raise InvalidRequest(f"{path} has to have 1 to {MAX_FOREIGN_ID} printable characters", field=path)
    return read


def opaque(value: Any, path: str) -> Any:
    """Any JSON value, its texts cleaned, its depth and number bounded: later code may walk it without fear."""
    return _Walk(path).cleaned(value, MAX_DEPTH)


class _Walk:
    def __init__(self, path: str) -> None:
        self._path, self._left = path, MAX_OPAQUE

    def cleaned(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return clean(value)
        if not isinstance(value, dict | list):
            return value
        if depth == 0:
            raise InvalidRequest(f"{self._path} is nested more than {MAX_DEPTH} levels deep", field=self._path)
        self._left -= len(value)
        if self._left < 0:
            raise PayloadTooLarge(f"{self._path} holds more than {MAX_OPAQUE:,} values")
        if isinstance(value, list):
            return [self.cleaned(item, depth - 1) for item in value]
        return {clean(key): self.cleaned(item, depth - 1) for key, item in value.items()}


_JSON_NAMES = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}


def _wrong(path: str, wanted: str, value: Any) -> InvalidRequest:
    got = _JSON_NAMES.get(type(value), "a file")  # forms have parts that JSON has not
    return InvalidRequest(f"{path} has to be {wanted}, not {got}", field=path)
