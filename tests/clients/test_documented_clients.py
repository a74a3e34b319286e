"""Examples of the documentation that need other projects' packages, run against the agent of docs/clients.md."""

import asyncio
import os
import re
import signal
import subprocess
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.clients.driving import CLIENTS_PYTHON, HERE, NODE_22, SECONDS, missing, python
from tests.docs.snippets import PAGES, ROOT, Snippet, missing_line, snippets
from tests.ports import free_port
from tests.server.forked import Forked

ADDRESS = re.compile(r"(127\.0\.0\.1|localhost):8000")
PAGE = ROOT / "docs" / "clients.md"


def examples() -> list[tuple[Snippet, str]]:
    """Each example of all pages, and what it prints, if the page shows it."""
    found: list[tuple[Snippet, str]] = []
    for page in PAGES:
        source: Snippet | None = None
        for snippet in snippets(page):
            if snippet.needs_a_client:
                found.append((snippet, ""))
            elif "output" in snippet.words and source is not None and source.needs_a_client:
                found[-1] = source, snippet.text
            source = snippet
    return found


@asynccontextmanager
async def careful(folder: Path) -> AsyncIterator[int]:
    """The port of a server with the page's agent."""
    (agent,) = [snippet for snippet in snippets(PAGE) if snippet.file == "agent.yaml"]
    (folder / "agent.yaml").write_text(agent.text)
    port = free_port()
    words = ("serve", "--protocol", "all", "--port", str(port))
    server = await Forked.start(*words, folder=folder, environment=os.environ, stdout=DEVNULL, stderr=PIPE)
    try:
        async with asyncio.timeout(SECONDS):
            assert server.stderr is not None
            while b"Ctrl+C" not in (line := await server.stderr.readline()):
                assert line, "the server did not start"
        yield port
    finally:
        server.send_signal(signal.SIGTERM)
        await asyncio.wait_for(server.wait(), SECONDS)
        await server.communicate()


def run_python(some: list[Snippet], port: int) -> dict[str, str]:
    given = [{"name": each.where, "code": ADDRESS.sub(f"127.0.0.1:{port}", each.text)} for each in some]
    return {result["name"]: result["printed"] for result in python("documented_driver.py", given)}


def run(command: list[str], code: str, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        input=code,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.stdout + done.stderr


def run_javascript(snippet: Snippet, port: int) -> str:
    if not NODE_22.exists():
        missing("the npm package node")
    code = ADDRESS.sub(f"127.0.0.1:{port}", snippet.text)
    return run([str(NODE_22), "--input-type=module", "-"], code, HERE)


def run_llm(snippet: Snippet, models: Snippet, port: int, folder: Path) -> str:
    (folder / "extra-openai-models.yaml").write_text(ADDRESS.sub(f"127.0.0.1:{port}", models.text))
    path = f"{CLIENTS_PYTHON.parent}{os.pathsep}{os.environ['PATH']}"
    return run(["bash", "-ec", snippet.text], "", folder, LLM_USER_PATH=str(folder), PATH=path)


@pytest.mark.timeout(400)
async def test_every_example_prints_what_the_page_shows(tmp_path: Path) -> None:
    shown = examples()
    by_language = {kind: [each for each, _ in shown if each.language == kind] for kind in ("python", "js", "bash")}
    (models,) = [each for each, _ in shown if each.language == "yaml"]
    async with careful(tmp_path) as port:
        other = [
            *(asyncio.to_thread(run_javascript, each, port) for each in by_language["js"]),
            *(asyncio.to_thread(run_llm, each, models, port, tmp_path) for each in by_language["bash"]),
        ]
        of_python = asyncio.to_thread(run_python, by_language["python"], port)
        printed, *texts = await asyncio.gather(of_python, *other)
        printed |= zip((each.where for each in by_language["js"] + by_language["bash"]), texts, strict=True)
    assert len(printed) > 8
    for snippet, expected in shown:
        if snippet.language == "yaml":
            continue
        text = printed[snippet.where]
        assert text, f"{snippet.where} prints nothing"
        assert "Traceback" not in text, f"{snippet.where}:\n{text}"
        wanted = missing_line(expected, text)
        assert wanted is None, f"{snippet.where} did not print {wanted!r} but:\n{text}"
