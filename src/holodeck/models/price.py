"""The price of a model's tokens."""

from pydantic import Field

from holodeck.blocks import Block
from holodeck.core.usage import TokenUsage

PER_TOKENS = 1_000_000  # providers give their prices for this many tokens


class Price(Block):
    """The price of a million tokens, in any currency. The chat shows costs in the same one."""

    input: float = Field(ge=0, le=1_000_000, description="Tokens that the model reads")
    output: float = Field(ge=0, le=1_000_000, description="Tokens that it writes, its thoughts included")
    cached: float | None = Field(
        None, ge=0, le=1_000_000, description="Input from the provider's cache; default: input"
    )
    cache_write: float | None = Field(
        None, ge=0, le=1_000_000, description="Input that the provider put into its cache; default: input"
    )

    def of(self, usage: TokenUsage) -> float:
        cached = min(usage.cached_tokens or 0, usage.prompt_tokens)
        written = min(usage.cache_write_tokens or 0, usage.prompt_tokens - cached)
        return (
            (usage.prompt_tokens - cached - written) * self.input
            + cached * (self.input if self.cached is None else self.cached)
            + written * (self.input if self.cache_write is None else self.cache_write)
            + usage.completion_tokens * self.output
        ) / PER_TOKENS
