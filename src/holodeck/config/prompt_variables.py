"""Finds misspelt variables in the instructions: the model would be shown `{usr_id}` unchanged.

Only near misses are reported. Braces have other uses in a prompt: examples of JSON, patterns of an answer.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from holodeck.config.load import LoadedConfig
from holodeck.config.schema import InlineInstructions, InstructionsFile
from holodeck.config.upstream_format import nearest

VARIABLES = ("user_id", "now", "timezone")
OTHER_WORDS = {
    **dict.fromkeys(("user", "username", "user_name"), "user_id"),
    **dict.fromkeys(("time", "date", "today", "datetime", "current_time", "current_date"), "now"),
    **dict.fromkeys(("tz", "zone"), "timezone"),
}
_IN_BRACES = re.compile(r"(?<![{$])\{(\w{1,40})\}(?!\})")


def misspelt_variables(config: LoadedConfig) -> Iterator[str]:
    """Yields a warning for each, with its file and line."""
    given, document = config.agent.instructions, config.document
    if isinstance(given, InstructionsFile):
        lines = _lines(config.folder / given.file)
        yield from _warnings("\n".join(lines), given.file, lines, 1)
    elif isinstance(given, InlineInstructions):
        mark = document.where(("instructions", "inline"))
        yield from _warnings(given.inline, document.file, _lines(Path(document.file)), mark.line)
    elif isinstance(given, str):
        mark = document.where(("instructions",))
        yield from _warnings(given, document.file, _lines(Path(document.file)), mark.line)


def _warnings(text: str, file: str, lines: Sequence[str], first: int) -> Iterator[str]:
    """`lines` are those of the file. The text begins in line `first`."""
    for name in dict.fromkeys(_IN_BRACES.findall(text)):
        close = OTHER_WORDS.get(name.lower()) or nearest(name, VARIABLES, cutoff=0.6)
        if name not in VARIABLES and close:
            number = next((i for i, line in enumerate(lines, 1) if i >= first and f"{{{name}}}" in line), first)
            yield f"{file}:{number}: {{{name}}} is not a variable, the model sees it as it is; did you mean {{{close}}}?"


def _lines(file: Path) -> list[str]:
    """Returns no lines for an unreadable file: building the agent reports it."""
    try:
        return file.read_text("utf-8").splitlines()
    except (OSError, UnicodeError):
        return []
