"""What a model call cost, as far as the endpoint said. What it did not say is absent, never zero."""

import msgspec


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Counts of one call, or the sum over a run's calls. The total is the sum of prompt and completion (CHT-06)."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int | None = None  # part of the completion
    cached_tokens: int | None = None  # part of the prompt

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            reasoning_tokens=_add(self.reasoning_tokens, other.reasoning_tokens),
            cached_tokens=_add(self.cached_tokens, other.cached_tokens),
        )


def _add(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return left if right is None else right
    return left + right


def total(usages: "list[TokenUsage | None]") -> TokenUsage | None:
    """The sum, or None when any call's cost is unknown: a partial sum would be a lie."""
    known = [usage for usage in usages if usage is not None]
    if not known or len(known) != len(usages):
        return None
    result = known[0]
    for usage in known[1:]:
        result += usage
    return result
