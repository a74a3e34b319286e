"""A cache of tool results, so that the same call is not made twice (ORC-11).

A result is reused only for the same tool, the same arguments (bound ones included) and the same user; a rule may widen
that to the tenant or to all. Failures are not cached, nor are results that were shortened. Tools that need approval have
no cache.
"""

import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
from pydantic import Field

from holodeck.blocks import Block
from holodeck.core.messages import TextPart
from holodeck.core.tools import ToolResult
from holodeck.tools.port import ToolContext

Per: TypeAlias = Literal["user", "tenant", "all"]
MAX_RESULTS = 1000
MAX_CHARACTERS = 16_000_000  # characters of all results together
_encode = msgspec.json.Encoder(order="sorted").encode


class CacheRule(Block):
    """A cache of results. It never holds results of tools that need approval, and never failures."""

    seconds: float = Field(gt=0, le=86_400, description="Seconds that a result is kept")
    per: Per = Field("user", description="Who shares a result for the same arguments")


class _CachedResult(msgspec.Struct, frozen=True):
    result: ToolResult
    until: float
    size: int


class ResultCache:
    """The results of all tools of an agent. The oldest one is evicted first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[tuple[str, ...], _CachedResult] = {}
        self._size = 0

    def get(self, key: tuple[str, ...]) -> ToolResult | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.until <= self._clock():
            self._drop(key)
            return None
        return msgspec.structs.replace(kept.result, cached=True)

    def put(self, key: tuple[str, ...], result: ToolResult, seconds: float) -> None:
        size = _size_of(result)
        if size > MAX_CHARACTERS // 10:
            return
        if key in self._kept:
            self._drop(key)
        while self._kept and (len(self._kept) >= MAX_RESULTS or self._size + size > MAX_CHARACTERS):
            self._drop(next(iter(self._kept)))
        self._kept[key] = _CachedResult(result, self._clock() + seconds, size)
        self._size += size

    def _drop(self, key: tuple[str, ...]) -> None:
        self._size -= self._kept.pop(key).size


class ToolCache(NamedTuple):
    """The cache of one tool. `name` is its toolset's and its own."""

    results: ResultCache
    name: tuple[str, str]
    rule: CacheRule

    def key(self, arguments: dict[str, Any], context: ToolContext) -> tuple[str, ...] | None:
        """The key of a call. None for arguments that JSON cannot encode: such a call is never cached."""
        owners = {"user": (context.tenant, context.user_id), "tenant": (context.tenant,), "all": ()}
        try:
            written = _encode(arguments).decode()
        except (TypeError, ValueError, RecursionError):  # ValueError: half a surrogate pair
            return None
        return (*self.name, self.rule.per, *owners[self.rule.per], written)


def _size_of(result: ToolResult) -> int:
    if isinstance(result.content, str):
        return len(result.content)
    return sum(len(part.text if isinstance(part, TextPart) else part.data or "") for part in result.content)
