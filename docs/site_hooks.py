"""Adapts the Markdown pages to MkDocs: they are written so that they also read well on GitHub and can be run by `tests/docs`."""
# ruff: noqa: INP001  a folder of pages, no package

import re
from pathlib import Path
from typing import Any

_FENCE = re.compile(r"^```(?P<language>\w+)[^\n`]*$", re.MULTILINE)
_REPOSITORY_FILE = re.compile(r"\[(?P<text>[^\]]+)\]\((?:\.\./)+(?P<file>[A-Z]+\.md)\)")
_REMOTE_SCRIPT = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"></script>')
_LOCAL_SCRIPT = f"<script>{(Path(__file__).parent / 'file-search.js').read_text(encoding='utf-8')}</script>"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Drops what tests read after a fence's language, and turns links to files outside docs/ into their names."""
    plain = _FENCE.sub(r"```\g<language>", markdown)
    return _REPOSITORY_FILE.sub(r"\g<text>", plain)


def on_post_page(output: str, **_: Any) -> str:
    """Replaces the script that the theme's offline plugin would load from another host."""
    return _REMOTE_SCRIPT.sub(lambda _match: _LOCAL_SCRIPT, output)


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for pages without Markdown, such as 404.html."""
    return on_post_page(output_content)
