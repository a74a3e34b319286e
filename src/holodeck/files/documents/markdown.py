"""Markdown helpers: tables that stay tables, text that cannot break out of a cell."""

from collections.abc import Iterable, Sequence


def table(rows: Iterable[Sequence[str]]) -> str:
    """Formats a table whose first row is the header. Fills short rows; returns nothing for a table without text."""
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    width = max((len(row) for row in cells), default=0)
    if not any(cell for row in cells for cell in row):
        return ""
    lines = [_line([*row, *[""] * (width - len(row))]) for row in cells]
    return "\n".join([lines[0], _line(["---"] * width), *lines[1:]])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def heading(level: int, text: str) -> str:
    return f"{'#' * min(level, 6)} {' '.join(text.split())}"


def item(level: int, text: str, *, marker: str = "-") -> str:
    return f"{'  ' * min(level, 8)}{marker} {' '.join(text.split())}"


def is_address(target: str) -> bool:
    return target.startswith(("https://", "http://", "mailto:"))


def link(text: str, target: str) -> str:
    """Formats a link. A link within the document becomes its text alone."""
    return f"[{text}]({target})" if is_address(target) else text


def between(block: str, following: str) -> str:
    """Returns the separator of two blocks: a blank line, but none inside a list."""
    return "\n" if _is_item(block) and _is_item(following) else "\n\n"


def _is_item(block: str) -> bool:
    return block.lstrip().startswith(("- ", "1. "))
