"""What of a long conversation the model is shown."""

from collections.abc import Sequence

from holodeck.core.messages import Message, UserMessage


def latest(messages: Sequence[Message], limit: int) -> Sequence[Message]:
    """At most about `limit` messages, cut only where a user speaks, so that calls and results stay together.

    A single turn that is longer than the limit is kept whole: half a turn is worse than a long one.
    """
    if len(messages) <= limit:
        return messages
    turns = [index for index, message in enumerate(messages) if isinstance(message, UserMessage)]
    fitting = [index for index in turns if len(messages) - index <= limit]
    start = fitting[0] if fitting else (turns[-1] if turns else 0)
    return messages[start:]
