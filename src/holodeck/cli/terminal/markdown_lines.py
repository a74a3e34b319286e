"""Markdown as terminal lines, even while it is still being written.

`GrowingMarkdown` splits the text so far into finished blocks, which are rendered once, and the last block, which may
still change. HTML and link definitions are shown as written, not dropped. Links show their target and are never
clickable, because text and address come from a model.
"""

import io
import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from string import punctuation
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.markdown import CodeBlock, Heading, ListItem, Markdown, MarkdownElement, TableElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.item.number": "cyan",
        "markdown.item.bullet": "cyan",
        "markdown.link": "underline",
        "markdown.link_url": "dim",
    }
)
CODE_THEME = "ansi_dark"  # the terminal's own colours, without a background
MIN_WIDTH = 10

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("reference")
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


class _LeftHeading(Heading):
    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class _PlainCode(CodeBlock):
    """Code without padding, so that text copied from the screen is the code.

    In a finished block (`whole`) the terminal wraps long lines: copied, they are one line. While the block grows they
    are wrapped here, because repainted lines have to fit. So are lines in a list or quote, which rich would cut.
    """

    whole = False

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> "_PlainCode":
        code = cls((token.info or "").partition(" ")[0] or "text", markdown.code_theme)
        code.whole = token.level == 0 and isinstance(markdown, ReplyMarkdown) and markdown.is_finished
        return code

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = Syntax(str(self.text).rstrip(), self.lexer_name, theme=self.theme, word_wrap=True)
        if not self.whole:
            yield code
            return
        text = code.highlight(code.code)
        text.rstrip()
        text.no_wrap, text.overflow = True, "ignore"
        yield text


class _DottedItem(ListItem):
    """A numbered item with the dot that Markdown has."""

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        width = len(str(last_number)) + 3
        lines = console.render_lines(self.elements, options.update(width=options.max_width - width), style=self.style)
        style = console.get_style("markdown.item.number", default="none")
        for index, line in enumerate(lines):
            yield Segment(" " * width if index else f"{number}. ".rjust(width), style)
            yield from line
            yield Segment("\n")


class _FoldedTable(TableElement):
    """A table that breaks long words over lines; rich would cut them off."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                for column in table.columns:
                    column.overflow = "fold"
            yield table


class ReplyMarkdown(Markdown):
    """Markdown of a model, already sanitised. Line breaks are kept, because models mean them.

    `is_finished`: no more text follows in this block, and nothing will repaint it.
    """

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _PlainCode,
        "code_block": _PlainCode,
        "list_item_open": _DottedItem,
        "table_open": _FoldedTable,
    }

    def __init__(self, markup: str, *, is_finished: bool = False) -> None:
        super().__init__("", code_theme=CODE_THEME, hyperlinks=False)
        self.is_finished = is_finished
        self.markup = markup
        self.parsed = _with_line_breaks(_PARSER.parse(markup))


def _with_line_breaks(tokens: list[Token]) -> list[Token]:
    for token in tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"
    return tokens


class Renderer:
    """Renders anything that rich can show as coloured lines of at most `width` cells, except finished code."""

    def __init__(self, *, colours: bool) -> None:
        self._out = io.StringIO()
        self._console = Console(
            file=self._out,
            theme=THEME,
            force_terminal=True,
            color_system="standard" if colours else None,
            no_color=not colours,
            legacy_windows=False,
            highlight=False,
            markup=False,
            emoji=False,
            _environ={},  # ignores COLUMNS and similar variables, which `terminal_size` handles
        )

    def lines(self, what: RenderableType, width: int) -> list[str]:
        self._console.width = max(width, MIN_WIDTH)
        self._console.print(what, crop=not (isinstance(what, ReplyMarkdown) and what.is_finished))
        text = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return _without_margins([line.rstrip(" ") for line in text.split("\n")])


def _without_margins(lines: list[str]) -> list[str]:
    while lines and not plain(lines[-1]).strip():
        lines.pop()
    while lines and not plain(lines[0]).strip():
        lines.pop(0)
    return lines


def plain(line: str) -> str:
    return _COLOURS.sub("", line)


class GrowingMarkdown:
    """Text that arrives in pieces. `finished` blocks are returned once; `open` is the rest so far."""

    def __init__(self) -> None:
        self.open = ""

    def add(self, text: str) -> None:
        self.open += text

    def finished(self) -> str:
        """Returns the text that can no longer change: all blocks but the last."""
        head, newline, _ = self.open.rpartition("\n")
        start = max(_starts(head), default=0) if newline else 0
        if not start:
            return ""
        lines = self.open.split("\n")
        self.open = "\n".join(lines[start:])
        return "\n".join(lines[:start])

    def rest(self) -> str:
        text, self.open = self.open, ""
        return text


class GrowingText(GrowingMarkdown):
    """The same for plain text: every complete line is finished."""

    def finished(self) -> str:
        head, newline, self.open = self.open.rpartition("\n")
        return head + newline


def _starts(text: str) -> list[int]:
    """Returns the lines at which its blocks begin."""
    return [token.map[0] for token in _PARSER.parse(text) if token.level == 0 and token.map]


def blocks(text: str) -> list[str]:
    """Splits the text into blocks, to render them one by one: rich puts more than one blank line between some."""
    lines = text.split("\n")
    return ["\n".join(lines[start:end]) for start, end in pairwise([*_starts(text), len(lines)])]


def visible(lines: Iterable[str]) -> str:
    """Returns the characters without spaces and colours, which are the same at every width."""
    return "".join("".join(plain(line).split()) for line in lines)


def unseen(lines: list[str], seen: str) -> list[str]:
    """Returns the part of the lines after `seen`: the rest of a text whose beginning was shown at another width.

    Markup that was closed since then is gone (`**bo` became `bo`). If the text looks entirely different, like a table,
    it is shown again from its start: better twice than not at all.
    """
    at = 0
    for number, line in enumerate(lines):
        text = plain(line)
        for place, character in enumerate(text):
            if character.isspace():
                continue
            while at < len(seen) and seen[at] != character and seen[at] in punctuation:
                at += 1
            if at == len(seen):
                return [text[place:] if text[:place].strip() else line, *lines[number + 1 :]]
            if seen[at] != character:
                return lines
            at += 1
    return []


def dim(text: str) -> Text:
    return Text(text, style="dim")


Render = Callable[[str], RenderableType]


def wrapped(text: str, width: int) -> str:
    """Wraps text of the chat itself between words.

    The terminal wraps a word that is longer than the width: only then can a path be copied whole.
    """
    return "\n".join(part for line in text.split("\n") for part in _wrapped_line(line, width))


def _wrapped_line(line: str, width: int) -> list[str]:
    first, *words = line.split(" ")
    parts, indent = [first], " " * (len(line) - len(line.lstrip(" ")))
    for word in words:
        longer = f"{parts[-1]} {word}"
        if cell_len(plain(longer)) <= width or not plain(parts[-1]).strip():
            parts[-1] = longer
        else:
            parts.append(indent + word)
    return parts
