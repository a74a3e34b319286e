"""The cost of a model call, as far as it is known: a figure that the endpoint did not report is absent, never zero."""

from functools import reduce
from operator import add

import msgspec


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Counts of one call, or the sum over a run's calls. The total is the sum of prompt and completion (CHT-06)."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int | None = None  # part of the completion
    cached_tokens: int | None = None  # part of the prompt
    cache_write_tokens: int | None = None  # part of the prompt: tokens that the provider put into its cache
    cost: float | None = None  # in the currency of the price, or of the gateway that reported it

    def __post_init__(self) -> None:
        if self.prompt_tokens < 0 or self.completion_tokens < 0:
            raise ValueError("token counts cannot be negative")

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            reasoning_tokens=_add(self.reasoning_tokens, other.reasoning_tokens),
            cached_tokens=_add(self.cached_tokens, other.cached_tokens),
            cache_write_tokens=_add(self.cache_write_tokens, other.cache_write_tokens),
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
        )


def _add(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return left if right is None else right
    return left + right


def total(usages: "list[TokenUsage | None]") -> TokenUsage | None:
    """The sum, or None if the cost of any call is unknown: a partial sum would be wrong."""
    known = [usage for usage in usages if usage is not None]
    if not known or len(known) != len(usages):
        return None
    return reduce(add, known)
