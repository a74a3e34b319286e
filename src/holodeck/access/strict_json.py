"""Parses the JSON of a token strictly, so that no other parser can understand it differently.

It refuses duplicate names, NaN, infinite numbers and text that is not UTF-8.
"""

import base64
import binascii
import json
from typing import Any


class NotStrict(ValueError):
    """The text is not JSON, or it is ambiguous."""


def decode_segment(text: str) -> bytes:
    """Decodes one part of a token: base64url without padding, and with the unused bits of its last character zero.

    Otherwise several texts would stand for one signature, and a changed token could still be valid.
    """
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise NotStrict("not base64url") from error
    if base64.urlsafe_b64encode(data).rstrip(b"=") != text.encode():
        raise NotStrict("not the canonical base64url form")
    return data


def object_of(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_without_repetition, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise NotStrict("not a JSON object") from error
    if not isinstance(value, dict):
        raise NotStrict("not a JSON object")
    return value


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotStrict("a name occurs twice")
    return found


def _no_constant(name: str) -> Any:
    raise NotStrict(f"{name} is not JSON")
