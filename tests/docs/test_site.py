"""The documentation site: it builds without a warning, loads nothing from other hosts, and its search works from a folder."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.snippets import ROOT
from tests.playground.webdriver import chromium

SEARCHED_FOR = (
    "Docker", "deploy", "image", "Anthropic", "log level", "Kubernetes", "API key", "structured output",
    "reverse proxy", "scaling", "function calling", "multi-agent", "privacy", "timeout", "rate limit", "OAuth", "oauth2-proxy",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_no_page_loads_anything_from_another_host(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|iframe)[^>]+src=\"?(https?:[^\s\">]+)", page.read_text(encoding="utf-8"))
        styles = re.findall(r"<link[^>]+href=\"?(https?:[^\s\">]+)[^>]+stylesheet", page.read_text(encoding="utf-8"))
        assert loaded + styles == [], page.name


@pytest.mark.parametrize("words", SEARCHED_FOR)
def test_words_that_people_look_for_are_in_the_index(site, words):
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    documents = json.loads(index[index.index("{") : index.rindex("}") + 1])["docs"]
    assert any(words.lower() in f"{each['title']} {each['text']}".lower() for each in documents)


def test_the_reference_has_signatures_and_descriptions(site):
    text = re.sub(r"<[^>]+>", "", (site / "reference.html").read_text(encoding="utf-8"))
    for name in ("run_agent", "ask_sync", "ScriptedModel", "user_id"):
        assert name in text


async def test_the_search_finds_a_page_without_a_web_server(site, tmp_path):
    with chromium(tmp_path, "--allow-file-access-from-files") as browser:
        await browser.open((site / "index.html").as_uri())
        await browser.run("document.querySelector('#__search').click()")
        await browser.run(
            "const box = document.querySelector('.md-search__input'); box.focus(); box.value = 'Kubernetes';"
            "box.dispatchEvent(new Event('input', {bubbles: true})); box.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}))"
        )
        found = await browser.run_async(
            "const done = arguments[0]; const look = () => { const link = document.querySelector('.md-search-result__link');"
            "link ? done(link.href) : setTimeout(look, 50); }; look();"
        )
    assert "deploy.html" in found
