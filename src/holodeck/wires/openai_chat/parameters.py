"""Parameters that requests of both OpenAI wires have."""

from collections.abc import Sequence
from typing import Any

from holodeck.errors import InvalidRequest
from holodeck.wires.body import name
from holodeck.wires.openai_chat.error_form import unsupported

INSTRUCTIONS = "Instructions of the application"
"""What the model is shown above system and developer messages; they never replace the agent's own instructions."""
CHOICES = ("auto", "none", "required")


def check_supported(value: Any, parameter: str, harmless: Sequence[Any]) -> None:
    """Refuses a parameter unless it has one of these values. `null` is always harmless."""
    if value is None or value in harmless:
        return
    allowed = "".join(f" or send {each!r}" for each in harmless)
    raise unsupported(parameter, f"{parameter} is not supported with this value: leave it out{allowed}.")


def flag(value: Any, path: str) -> bool:
    """A boolean; null and absent are false."""
    if not isinstance(value, bool | None):
        raise InvalidRequest(f"{path} has to be true or false", field=path)
    return bool(value)


def token_limit(value: Any, path: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidRequest(f"{path} has to be a whole number from 1 on", field=path)
    return value


def tool_choice(value: Any, function: Any) -> str | None:
    """`auto`, `none`, `required`, or the name of a tool. `function` is the member that holds the name."""
    if value is None or (isinstance(value, str) and value in CHOICES):
        return value
    if isinstance(value, dict) and value.get("type") == "function" and isinstance(function, dict):
        return name(function.get("name"), "tool_choice")
    raise unsupported("tool_choice", "tool_choice has to be auto, none, required or a function.")


def places(path: str, items: Sequence[Any]) -> list[tuple[str, Any]]:
    """Each item with its path."""
    return [(f"{path}[{i}]", item) for i, item in enumerate(items)]
