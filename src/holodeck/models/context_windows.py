"""How many tokens a model can read, where its name says it. A small table; `model.context_window` overrides it.

Only models of OpenAI, Anthropic and Google are in it: what a local server can read is its operator's choice, and no name
shows it. A figure that is too low costs a long conversation its oldest turns a little early; one that is too high costs one
refused request, after which the conversation is shown from a later point.
"""

import re

_KNOWN = tuple(
    (re.compile(pattern), window)
    for pattern, window in (
        (r"gpt-4\.1", 1_047_576),
        (r"gpt-5.*chat", 128_000),
        (r"gpt-[5-9]|codex", 400_000),
        (r"gpt-4o|chatgpt-4o|gpt-4-turbo|gpt-4-(0125|1106)", 128_000),
        (r"gpt-4-32k", 32_768),
        (r"gpt-4", 8_192),
        (r"gpt-3\.5-turbo", 16_385),
        (r"o1-(mini|preview)", 128_000),
        (r"o[1-9](-|$)", 200_000),
        (r"claude-", 200_000),
        (r"gemini-1\.5-pro", 2_097_152),
        (r"gemini-", 1_048_576),
    )
)
_BEFORE_NAME = re.compile(r"^.*/|^(?:[a-z]+\.)?anthropic\.")  # a gateway's, or Bedrock's
_LARGEST_RESERVE = 16_000  # tokens for an answer whose length the file does not limit
_SAFE = 0.75  # estimates count four characters as a token; code and other scripts come to more


def known_window(model: str) -> int | None:
    """The context window of a model by its name, also behind a gateway (`openai/gpt-4.1`); None if it is not known."""
    name = _BEFORE_NAME.sub("", model.lower())
    return next((window for pattern, window in _KNOWN if pattern.match(name)), None)


def room_for_history(window: int, max_tokens: int | None) -> int:
    """Estimated tokens of a conversation that fit into the window beside an answer."""
    reserve = min(max_tokens or _LARGEST_RESERVE, window // 4)
    return int((window - reserve) * _SAFE)
