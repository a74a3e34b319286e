"""Bytes of a request → JSON values, and the checks that all decoders share.

Whatever a client sends, the result is a value or an InvalidRequest with the field's path. This module does not know
what the values mean.
"""

import json
import re
from collections.abc import Callable, Sequence
from math import isinf
from typing import Any, NoReturn, TypeVar

import msgspec

from holodeck.core.ids import MAX_ID_LENGTH, is_valid_id
from holodeck.core.json_values import every_value
from holodeck.core.text import clean, shorten
from holodeck.errors import InvalidRequest, PayloadTooLarge

MAX_DEPTH = 64
MAX_PLAIN_BODY = 4_000_000  # bytes besides long strings, which are files: decoding blocks the event loop
MAX_VALUES = 50_000  # values in one body: a megabyte of empty lists takes longer to decode than 30 of text
MAX_MENDED_BODY = 1_000_000  # bytes that are decoded a second time, by a slower decoder
MAX_TEXT = 1_000_000  # characters of one message, unless the agent file sets another limit
LONG_STRING = 100_000  # bytes
MAX_LONG_STRING = 14_000_000  # bytes: a file of 10 MB in base64
MAX_REASON = 2_000  # characters of a person's reason for refusing a call
MAX_SHOWN_NAME = 60  # characters of a member's name in an error
MAX_NAME = 1024  # characters in the id of a message or call: some providers put signatures into call ids

T = TypeVar("T")

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_ENDS = b"\\", b",", b":"
_EMPTY: tuple[object, ...] = (None, {})
_AS_THEY_ARE = frozenset({int, float, bool, type(None)})  # a call for each of 50,000 would hold the event loop longer
_STAND_IN = "holodeck:long-string:"
_DECIDING = frozenset({"interruptId", "inputResponses", "decisions"})


def _float(text: str) -> float:
    """Reads a number with a fraction or an exponent. msgspec takes ten times as long for those close to zero, as `5e-324`."""
    number = float(text)
    if isinf(number):
        raise ValueError("number out of range")
    return number


_decode = msgspec.json.Decoder(float_hook=_float).decode


def parse(body: bytes) -> dict[str, Any]:
    """Decodes the JSON object in a body. Raises InvalidRequest (400: not JSON, 422: not an object) or PayloadTooLarge.

    All sizes are checked before the body is decoded, and it is decoded once, because decoding blocks all other clients.
    """
    long_strings: list[str] = []
    if len(body) > MAX_PLAIN_BODY:
        body = _without_long_strings(body, long_strings)
        if len(body) > MAX_PLAIN_BODY:
            raise PayloadTooLarge(f"The body is larger than {MAX_PLAIN_BODY:,} bytes, not counting the files in it.")
    if _has_many_values(body) and _has_many_values(_outside_strings(body)):
        raise PayloadTooLarge(f"The body holds more than {MAX_VALUES:,} values")
    value = _decoded(body)
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be a JSON object")
    if long_strings:
        _put_back(value, long_strings)
    return value


def _has_many_values(body: bytes) -> bool:
    """Counts values by their commas, and lists and objects by their brackets: those nested in one another need no comma."""
    return body.count(b",") > MAX_VALUES or body.count(b"[") + body.count(b"{") > MAX_VALUES


def _outside_strings(body: bytes) -> bytes:
    """Returns the body without its first strings, which may hold many commas and brackets: of text such as TeX."""
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"")  # only the quotes around strings are left
    return b"".join(unescaped.split(b'"', MAX_VALUES)[::2])


def _without_long_strings(body: bytes, long_strings: list[str]) -> bytes:
    """Returns the body with a short placeholder for each long string, such as a file in base64.

    Text between two quotes is a string if it has neither a colon nor a comma: nothing else is that long without them.
    """
    pieces: list[bytes] = []
    start, here = 0, LONG_STRING
    while here < len(body):  # a string of more than twice LONG_STRING is found wherever it begins
        end = body.find(b'"', here)
        if end < 0:  # searching further would scan the rest again for every step
            break
        begin = body.rfind(b'"', start, here)
        if begin < 0 or end - begin <= LONG_STRING or any(body.find(mark, begin, end) >= 0 for mark in _ENDS):
            here = end + LONG_STRING
            continue
        if end - begin > MAX_LONG_STRING:
            raise PayloadTooLarge(f"A text or file in the body is larger than {MAX_LONG_STRING:,} bytes")
        pieces += body[start : begin + 1], b"%b%d" % (_STAND_IN.encode(), len(long_strings))
        try:
            long_strings.append(body[begin + 1 : end].decode())
        except UnicodeDecodeError as error:
            raise InvalidRequest("The body is not valid JSON", status=400) from error
        start, here = end, end + LONG_STRING
    return b"".join([*pieces, body[start:]])


def _put_back(value: Any, long_strings: list[str]) -> None:
    """Replaces the placeholders of long strings wherever they are in `value`.

    Each is replaced once: a client that writes placeholders itself must not turn a few bytes into megabytes each.
    """
    left = {f"{_STAND_IN}{number}": string for number, string in enumerate(long_strings)}
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        for key, item in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(item, str):
                holder[key] = left.pop(item, item)
            elif isinstance(item, dict | list):
                waiting.append(item)


def _decoded(body: bytes) -> Any:
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _parse_halves(body, error)
    except RecursionError as error:
        raise InvalidRequest("The body is nested too deeply", status=400) from error


def _parse_halves(body: bytes, reason: Exception) -> Any:
    """Decodes once more what msgspec refused.

    A JavaScript client that cuts a text in the middle of an emoji sends an escaped half of a surrogate pair. That is
    JSON, and json.loads reads it; `clean` repairs it later.
    """
    if not body.strip():
        raise InvalidRequest("The body is empty; it must be a JSON object", status=400) from reason
    if not _SURROGATE_ESCAPE.search(body):
        where = (
            f": {reason}" if isinstance(reason, msgspec.DecodeError) and not isinstance(reason, UnicodeError) else ""
        )
        raise InvalidRequest(
            f"The body is not valid JSON{where.replace('JSON is malformed: ', '')}", status=400
        ) from reason
    if len(body) > MAX_MENDED_BODY:
        raise PayloadTooLarge(
            "The body contains an unpaired surrogate (invalid Unicode); "
            f"such a body may have at most {MAX_MENDED_BODY:,} bytes without its files"
        ) from reason
    try:
        return json.loads(body.decode(), parse_float=_float, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # ValueError: also from UTF-8, and for integers of 4,300 digits
        raise InvalidRequest("The body is not valid JSON", status=400) from error


def refuse_repeated_names(body: bytes | str) -> None:
    """Raises InvalidRequest if an object in a body has a name twice. For bodies with a person's decision (ACC-07).

    Parsers differ in which of the two counts: what a proxy let through as a no must not be a yes here. Only such bodies
    are read a second time.
    """
    plain = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    if len(plain) > MAX_PLAIN_BODY:
        plain = _without_long_strings(plain, [])
    try:
        json.loads(plain.decode("utf-8", "surrogatepass"), object_pairs_hook=_check_names, parse_int=str)
    except RecursionError as error:
        raise InvalidRequest("The body is nested too deeply", status=400) from error
    except ValueError as error:
        raise InvalidRequest("The body is not valid JSON", status=400) from error


def _check_names(members: list[tuple[str, Any]]) -> None:
    """Compares names as they are read later: without the characters that `clean` removes."""
    names: set[str] = set()
    for given, _ in members:
        if (read := clean(given)) in names:
            shown = shorten(read, MAX_SHOWN_NAME)
            raise InvalidRequest(f"{shown!r} appears twice in one object; no approval was recorded", field=shown)
        names.add(read)


def may_decide(value: Any) -> bool:
    return any(isinstance(each, dict) and not _DECIDING.isdisjoint(each) for each in every_value(value))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def text(value: Any, path: str) -> str:
    """Reads text that may be stored and shown to a model."""
    if not isinstance(value, str):
        raise _wrong(path, "a string", value)
    return clean(value)


def short_text(value: Any, path: str, limit: int) -> str:
    """Reads text of at most `limit` characters. Checks the length before it cleans the text."""
    if isinstance(value, str) and len(value) > limit:
        raise InvalidRequest(f"{path} has {len(value):,} characters; {limit:,} are allowed", field=path)
    return text(value, path)


def refusal_reason(value: Any, path: str) -> str | None:
    return short_text(value, path, MAX_REASON).strip() or None if value is not None else None


def name(value: Any, path: str) -> str:
    """Reads the id of a message, a call or an interrupt."""
    read = text(value, path)
    if not 0 < len(read) <= MAX_NAME:
        raise InvalidRequest(f"{path} must have 1 to {MAX_NAME} characters", field=path)
    return read


def table(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(path, "an object", value)
    return value


def rows(value: Any, path: str, limit: int) -> list[Any]:
    """Reads a list. Null and absent count as empty."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise _wrong(path, "a list", value)
    if len(value) > limit:
        raise InvalidRequest(f"{path} has {len(value)} entries; at most {limit} are allowed", field=path)
    return value


def places(path: str, items: Sequence[Any]) -> list[tuple[str, Any]]:
    return [(f"{path}[{i}]", item) for i, item in enumerate(items)]


def tables(value: Any, path: str, limit: int) -> list[tuple[str, dict[str, Any]]]:
    """The objects of a list, each with its path."""
    return [(place, table(item, place)) for place, item in places(path, rows(value, path, limit))]


def optional(read: Callable[[Any, str], T], value: Any, path: str) -> T | None:
    """Returns None for null and absent, else the result of `read`."""
    return None if value is None else read(value, path)


def decided(value: Any, path: str) -> bool:
    """Reads a person's answer to an approval. Refuses anything but true and false: approvals fail closed (ACC-07)."""
    if not isinstance(value, bool):
        raise InvalidRequest(f"{path} must be true or false; no approval was recorded", field=path)
    return value


def valid_id(value: Any, path: str) -> str:
    """Reads a client's own id of a thread, run, conversation or user, without cleaning: two ids must not become one."""
    if not isinstance(value, str):
        raise _wrong(path, "a string", value)
    if not is_valid_id(value):  # all that `clean` would change is not printable
        raise InvalidRequest(f"{path} must have 1 to {MAX_ID_LENGTH} printable characters", field=path)
    return value


def opaque(value: Any, path: str) -> Any:
    """Reads any JSON value: cleans its texts, and limits its depth and size, so that later code can walk it safely."""
    return value if value in _EMPTY else _Walk(path).cleaned(value, MAX_DEPTH)


class _Walk:
    def __init__(self, path: str) -> None:
        self._path, self._left = path, MAX_VALUES

    def cleaned(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return clean(value)
        if not isinstance(value, dict | list):
            return value
        if depth == 0:
            raise InvalidRequest(f"{self._path} is nested more than {MAX_DEPTH} levels deep", field=self._path)
        self._left -= len(value)
        if self._left < 0:
            raise PayloadTooLarge(f"{self._path} holds more than {MAX_VALUES:,} values")
        deeper = depth - 1
        if isinstance(value, list):
            return [item if type(item) in _AS_THEY_ARE else self.cleaned(item, deeper) for item in value]
        return {
            clean(k): item if type(item) in _AS_THEY_ARE else self.cleaned(item, deeper) for k, item in value.items()
        }


_JSON_NAMES = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}


def _wrong(path: str, wanted: str, value: Any) -> InvalidRequest:
    if value is None:
        return InvalidRequest(f"{path} is missing or null; it must be {wanted}", field=path)
    got = _JSON_NAMES.get(type(value), "a file")  # a form may have a file instead of a JSON value
    return InvalidRequest(f"{path} must be {wanted}, not {got}", field=path)
