"""Rough token counts, for limits where no exact count is available.

Current tokenizers average four characters per token in English text; code and other scripts need more tokens. A limit a
quarter below the model's window is safe. Usage never contains these estimates: it is what the endpoint reported.
"""

from collections.abc import Iterable

from holodeck.core.messages import AssistantMessage, Content, MediaPart, Message

CHARACTERS_PER_TOKEN = 4
TOKENS_OF_A_MESSAGE = 4  # its role and what separates it from the next
TOKENS_OF_AN_IMAGE = 1000  # what providers bill for an image of ordinary size, however many bytes it has


def tokens_in(messages: Iterable[Message]) -> int:
    return sum(map(tokens_of, messages))


def tokens_of(message: Message) -> int:
    tokens = TOKENS_OF_A_MESSAGE + _tokens_of_content(message.content)
    if isinstance(message, AssistantMessage):
        tokens += sum(tokens_of_text(call.name + call.arguments) for call in message.tool_calls)
    return tokens


def tokens_of_text(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def _tokens_of_content(content: Content) -> int:
    if isinstance(content, str):
        return tokens_of_text(content)
    return sum(TOKENS_OF_AN_IMAGE if isinstance(part, MediaPart) else tokens_of_text(part.text) for part in content)
