"""Lines of the chat itself, broken between words: a terminal would break them anywhere."""

from rich.cells import cell_len

from holodeck.cli.terminal.markdown_lines import plain


def wrapped(text: str, width: int) -> str:
    """A word that is longer than the width is left to the terminal: only so can a path be copied whole."""
    return "\n".join(part for line in text.split("\n") for part in _parts(line, width))


def _parts(line: str, width: int) -> list[str]:
    first, *words = line.split(" ")
    parts, indent = [first], " " * (len(line) - len(line.lstrip(" ")))
    for word in words:
        longer = f"{parts[-1]} {word}"
        if cell_len(plain(longer)) <= width or not plain(parts[-1]).strip():
            parts[-1] = longer
        else:
            parts.append(indent + word)
    return parts
