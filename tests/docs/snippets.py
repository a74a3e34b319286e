"""Fenced blocks of Markdown pages, and what their info strings say.

```bash                    run; the `output` block after it is what it prints
```bash server             a server: started, and kept for the rest of the page
```text output             … is any number of characters; times, days, ids and durations may be others
```yaml                    a whole agent file, or some blocks of one
```python file=tools/x.py  written to the page's folder first
```bash no-run: reason     only parsed; where the reason is tests/clients/test_documented_clients.py, that test runs it
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLIENT_TEST = "tests/clients/test_documented_clients.py"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_CHANGING = (  # what differs between two runs of the same thing, and what it is called here
    (r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)", "<time>"),
    (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{1,2} [A-Z][a-z]{2}", "<day>"),
    (r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "<ulid>"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uuid>"),
    (r"\breq_[0-9a-f]{12}\b", "<request>"),
    (r"\d+\.\d\d s\b", "<seconds>"),
    (r'("uptime_seconds":|"duration_ms": ?)[\d.]+', r"\1<number>"),
    (r'((todo_id=|\\?"id\\?":) ?\\?")[2-9a-z]{8}\b', r"\1<todo>"),
)


@dataclass(frozen=True)
class Snippet:
    page: Path
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str | None:
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), None)

    @property
    def needs_a_client(self) -> bool:
        """Whether it is run where the packages of clients are installed."""
        return CLIENT_TEST in self.words

    @property
    def runs(self) -> bool:
        return "no-run:" not in self.words


def snippets(page: Path) -> list[Snippet]:
    text = page.read_text(encoding="utf-8")
    return [_snippet(page, text, match) for match in _FENCE.finditer(text)]


def _snippet(page: Path, text: str, match: re.Match[str]) -> Snippet:
    language, *words = match["info"].split()
    return Snippet(page, text.count("\n", 0, match.start()) + 1, language, tuple(words), match["text"])


def settled(text: str) -> str:
    """A text without what differs from run to run."""
    for pattern, name in _CHANGING:
        text = re.sub(pattern, name, text)
    return text


def missing_line(expected: str, printed: str) -> str | None:
    """The first line of `expected` that does not come, in its turn, in `printed`; None if all do."""
    lines = iter(settled(printed).splitlines())
    for wanted in filter(None, map(str.rstrip, settled(expected).splitlines())):
        pattern = re.compile(".*".join(map(re.escape, wanted.split("…"))))
        if not any(pattern.fullmatch(line.rstrip()) for line in lines):
            return wanted
    return None
