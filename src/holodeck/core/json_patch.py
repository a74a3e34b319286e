"""JSON Patch (RFC 6902) on plain values: applied as a whole or not at all. The document itself never changes.

A model writes the patches, so a prompt injection may write one. The operations count the values that they copy and
compare: `copy` from the root doubles the document each time.
"""

import copy
from collections.abc import Sequence
from typing import Any

MAX_VALUES, MAX_BYTES = 100_000, 1_000_000


class PatchError(ValueError):
    """The patch does not fit the document. The message names the operation and the reason."""


class PatchBudget:
    """How many values, and bytes of text, all operations of one patch together may copy or compare."""

    def __init__(self) -> None:
        self.spent_values = self.spent_bytes = 0

    def copied(self, value: Any) -> Any:
        """A deep copy. Raises ValueError when it exceeds the budget."""
        if isinstance(value, dict):
            self._spend(len(value), sum(map(len, value)))
            return {key: self.copied(item) for key, item in value.items()}
        if isinstance(value, list):
            self._spend(len(value))
            return [self.copied(item) for item in value]
        self._spend(1, len(value) if isinstance(value, str) else 0)
        return value

    def equal(self, left: Any, right: Any) -> bool:
        """JSON equality: true is not 1, as it is in Python."""
        self._spend(1, min(len(left), len(right)) if isinstance(left, str) and isinstance(right, str) else 0)
        if isinstance(left, bool) or isinstance(right, bool):
            return left is right
        if isinstance(left, dict) and isinstance(right, dict):
            return left.keys() == right.keys() and all(self.equal(left[key], right[key]) for key in left)
        if isinstance(left, list) and isinstance(right, list):
            return len(left) == len(right) and all(map(self.equal, left, right))
        return bool(left == right)

    def _spend(self, values: int, size: int = 0) -> None:
        self.spent_values += values
        self.spent_bytes += size
        if self.spent_values > MAX_VALUES or self.spent_bytes > MAX_BYTES:
            raise ValueError("the operations together copy or compare too much")


def apply_patch(document: Any, patch: Sequence[dict[str, Any]], budget: PatchBudget | None = None) -> Any:
    """Returns the patched document. Raises PatchError, and then nothing has changed."""
    result = copy.deepcopy(document)
    budget = budget or PatchBudget()
    for number, operation in enumerate(patch):
        try:
            result = _apply(result, operation, budget)
        except (KeyError, IndexError, TypeError, ValueError) as problem:
            raise PatchError(
                f"operation {number} ({operation.get('op')!r} at {operation.get('path')!r}): {problem}"
            ) from None
    return result


def _apply(document: Any, operation: dict[str, Any], budget: PatchBudget) -> Any:
    kind, path = operation["op"], _tokens(operation["path"])
    if kind == "add":
        return _add(document, path, budget.copied(operation["value"]))
    if kind == "remove":
        return _remove(document, path)
    if kind == "replace":
        _get(document, path)
        return _replace(document, path, budget.copied(operation["value"]))
    if kind == "test":
        if not budget.equal(_get(document, path), operation["value"]):
            raise ValueError("the value differs")
        return document
    source = _tokens(operation["from"])
    value = _get(document, source)
    if kind == "copy":
        return _add(document, path, budget.copied(value))
    if kind == "move":
        if path[: len(source)] == source and path != source:
            raise ValueError("a value cannot be moved into itself")
        return _add(_remove(document, source), path, value)
    raise ValueError("unknown operation; known are add, remove, replace, move, copy and test")


def _tokens(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise ValueError("a path starts with '/' or is empty")
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _get(document: Any, path: list[str]) -> Any:
    for token in path:
        document = document[_index(document, token)]
    return document


def _index(container: Any, token: str) -> Any:
    if isinstance(container, dict):
        if token not in container:
            raise ValueError(f"there is no member {token!r}")
        return token
    if not isinstance(container, list):
        raise ValueError(f"{token!r} leads into a value that is not an object or array")  # noqa: TRY004  one error for all
    if not (token.isdecimal() and token.isascii() and (len(token) == 1 or token[0] != "0")):
        raise ValueError(f"{token!r} is not an array index")
    if int(token) >= len(container):
        raise ValueError(f"index {token} is past the end")
    return int(token)


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent.insert(len(parent) if last in ("-", str(len(parent))) else _index(parent, last), value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise ValueError(f"{last!r} leads into a value that is not an object or array")  # noqa: TRY004  one error for all
    return document


def _replace(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _get(document, path[:-1])
    parent[_index(parent, path[-1])] = value
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        return None
    parent = _get(document, path[:-1])
    del parent[_index(parent, path[-1])]
    return document
