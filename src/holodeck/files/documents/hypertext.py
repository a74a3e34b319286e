"""HTML of e-mails and books as Markdown: headings, lists, tables, links, code. Scripts and styles are not text.

Python's own parser reads it: tolerant, without recursion, and it never fetches anything.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser

from holodeck.files.documents import markdown

_WHITE = re.compile(r"\s+")
_SILENT = {"script", "style", "head", "template", "noscript"}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BREAKS = {
    *("p", "div", "section", "article", "header", "footer", "main", "aside", "nav", "blockquote", "figure", "hr"),
    *("ul", "ol", "dl", "dt", "dd", "address", "form", "fieldset", "body", "html", "figcaption"),
    *("td", "th", "tr", "table"),
}


def blocks(html: str) -> Iterator[str]:
    parser = _Markdown()
    parser.feed(html)
    parser.close()
    return iter(parser.finished())


class _Markdown(HTMLParser):
    """Collects blocks. `_silent` and `_lists` are counts and stacks, so that tags which are never closed do little harm."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._blocks: list[str] = []
        self._pieces: list[str] = []
        self._silent: list[str] = []
        self._lists: list[str] = []
        self._dress = ""  # the tag that the current block belongs to
        self._rows: list[list[str]] | None = None
        self._links: list[str] = []

    def finished(self) -> list[str]:
        self._close_block()
        if self._rows:
            self._blocks.append(markdown.table(self._rows))
        return [block for block in self._blocks if block]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent.append(tag)
        if self._silent:
            return
        if tag in {"br", "img", "a"}:
            self._inline(tag, dict(attrs))
        elif tag in {"ul", "ol"}:
            self._close_block()
            self._lists.append(tag)
        elif tag in _HEADINGS or tag in {"li", "pre"}:
            self._close_block()
            self._dress = tag
        elif tag in _BREAKS and self._dress != "li":
            self._close_block()
        if tag == "table" and self._rows is None:
            self._rows = []
        elif tag == "tr" and self._rows is not None:
            self._rows.append([])

    def _inline(self, tag: str, attributes: dict[str, str | None]) -> None:
        if tag == "br":
            self._pieces.append("\n")
        elif tag == "img":
            description = " ".join((attributes.get("alt") or "").split())
            self._pieces.append(f"[Image: {description}]" if description else "[Image]")
        else:
            target = attributes.get("href") or ""
            self._links.append(target if markdown.is_address(target) else "")
            self._pieces.append("[" if self._links[-1] else "")

    def handle_endtag(self, tag: str) -> None:
        if self._silent:
            if tag == self._silent[-1]:
                self._silent.pop()
            return
        if tag == "a" and self._links:
            target = self._links.pop()
            self._pieces.append(f"]({target})" if target else "")
        elif tag == "table" and self._rows is not None:
            self._close_block()
            rows, self._rows = self._rows, None
            self._blocks.append(markdown.table(rows))
        elif tag in {"ul", "ol"}:
            self._close_block()
            if self._lists:
                self._lists.pop()
        elif tag in _HEADINGS or tag in {"li", "pre"} or (tag in _BREAKS and self._dress != "li"):
            self._close_block()

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self._pieces.append(data if self._dress == "pre" else _WHITE.sub(" ", data))

    def _close_block(self) -> None:
        text, dress = "".join(self._pieces), self._dress
        self._pieces, self._dress = [], ""
        if not text.strip():
            return
        if self._rows is not None:
            if not self._rows:
                self._rows.append([])
            self._rows[-1].append(text)
        elif dress == "pre":
            self._blocks.append(f"```\n{text.strip(chr(10))}\n```")
        elif dress in _HEADINGS:
            self._blocks.append(markdown.heading(_HEADINGS[dress], text))
        elif dress == "li":
            marker = "1." if self._lists and self._lists[-1] == "ol" else "-"
            self._blocks.append(markdown.item(max(len(self._lists) - 1, 0), text, marker=marker))
        else:
            self._blocks.append("\n".join(" ".join(line.split()) for line in text.strip().split("\n")))
