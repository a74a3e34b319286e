"""Plain JSON values: reading them, how deep they nest, and how to make their texts valid UTF-8."""

from collections.abc import Collection, Iterator
from typing import Any, TypeAlias

import msgspec

from holodeck.core.text import clean

JsonObject: TypeAlias = dict[str, Any]

MAX_DEPTH = 64
_decode = msgspec.json.Decoder().decode


def depth_exceeds(value: Any, limit: int) -> bool:
    """Whether JSON is nested deeper than `limit`. It goes level by level, since such JSON aims at recursion."""
    level = [value]
    for _ in range(limit + 1):
        level = [child for node in level for child in _children(node)]
        if not level:
            return False
    return True


def _children(node: Any) -> Collection[Any]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list | tuple) else ()


def every_value(value: Any) -> Iterator[Any]:
    """The value and all values in it. Without recursion, since such JSON aims at it."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += _children(node)


def decoded(text: str | bytes) -> Any:
    """The JSON value in a text; None if the text is not JSON."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def clean_json(value: Any) -> Any:
    """The same JSON with every string valid as UTF-8 and without NUL. Recursive: the value's depth must be bounded."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    return value
