"""A reader who follows a page from top to bottom: types its commands, saves its files, runs its programs.

What a page takes for granted is here: the commands on PATH, keys in the environment, a model at Ollama's address.
"""

import asyncio
import contextlib
import io
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import yaml

from holodeck.config.build import build_agent
from holodeck.config.load import load_config
from tests.cli.process import environment
from tests.docs.snippets import ROOT, Snippet
from tests.models.anthropic.message_streams import Shape, end, start, text_block, thought
from tests.models.endpoint import ModelEndpoint, Wire, status, stream, text_stream, tool_call_stream
from tests.ports import free_port

KEYS = (
    "GEMINI_API_KEY", "OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AWS_BEARER_TOKEN_BEDROCK",
    "VERTEX_ACCESS_TOKEN", "DOCS_TOKEN", "PGPASSWORD", "DATABASE_URL", "VALKEY_URL",
)  # fmt: skip
ASKED_FOR = {"weather": '{"city": "Oslo"}', "add_task": '{"title": "Water the plants"}'}  # tool → arguments
MODEL_ADDRESS = "http://localhost:11434"
SERVER_ADDRESS = re.compile(r"\b(localhost|127\.0\.0\.1):8000\b")
READY_SECONDS = 20


async def answer(wire: Wire) -> None:
    """Calls the first tool it is offered, then repeats the result; repeats a message in Anthropic's API."""
    if wire.request.method == "GET":
        await status(200, {"data": []})(wire)
    elif wire.request.path.endswith("/messages"):
        asked = wire.request.json["messages"][-1]["content"][-1]["text"]
        await stream(*Shape([start(), *thought(0, "Hm. "), *text_block(1, "Here you are: ", asked), *end()]).frames)(
            wire
        )
    else:
        await _answer_chat(wire)


async def _answer_chat(wire: Wire) -> None:
    request = wire.request.json
    tools = [tool["function"]["name"] for tool in request.get("tools", ())]
    last = request["messages"][-1]
    if tools and last["role"] == "user":
        await tool_call_stream(("call_1", tools[0], ASKED_FOR[tools[0]]))(wire)
    else:
        repeated = f" {_text(last['content'])}"
        await text_stream("Here you are:", repeated, usage={"prompt_tokens": 9, "completion_tokens": 4})(wire)


def _text(content: str | list[dict[str, str]]) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


@contextlib.contextmanager
def local_model() -> Iterator[str]:
    """A model endpoint in a thread of its own, as Ollama would be a process of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def wait_for(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(10)

    endpoint = ModelEndpoint(answer)
    wait_for(endpoint.__aenter__())
    try:
        yield endpoint.url
    finally:
        wait_for(endpoint.__aexit__())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Newcomer:
    def __init__(self, folder: Path, model_url: str) -> None:
        self.folder = folder
        self._model_url = model_url
        self._port = free_port()
        self._server: subprocess.Popen[bytes] | None = None
        commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = environment(folder, PATH=commands, TZ="UTC", **dict.fromkeys(KEYS, "a-key"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def follow(self, snippet: Snippet) -> str:
        """What the snippet printed."""
        text = snippet.text
        if snippet.file:
            path = self.folder / snippet.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._here(text), encoding="utf-8")
        match snippet.language:
            case "bash" if "server" in snippet.words:
                return self._serve(text)
            case "bash":
                return self._type(text)
            case "python" if not snippet.file:
                return self._run(text)
            case "python":
                compile(text, snippet.where, "exec")
            case "yaml" if not snippet.file or snippet.file.endswith("agent.yaml"):
                self._load(snippet)
        return ""

    def _here(self, text: str) -> str:
        return SERVER_ADDRESS.sub(rf"\1:{self._port}", text.replace(MODEL_ADDRESS, self._model_url.removesuffix("/v1")))

    def _type(self, commands: str) -> str:
        done = subprocess.run(
            ["bash", "-c", self._here(commands)],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
            check=False,
        )
        return done.stdout.replace(f":{self._port}", ":8000")

    def _run(self, program: str) -> str:
        """In this process, with its own event loop: starting Python for each program would take longer than all else."""
        printed = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed):
            exec(compile(self._here(program), "snippet", "exec"), {"__name__": "__main__"})
        return printed.getvalue()

    def _load(self, snippet: Snippet) -> None:
        """Builds what the file describes; nothing is connected."""
        text = snippet.text
        keys = yaml.safe_load(text)
        rest = {"name": "name: doc", "model": "model: {provider: demo}"}
        text += "".join(f"\n{line}" for key, line in rest.items() if key not in keys)
        file = self.folder / f"snippet-{snippet.line}.yaml"
        file.write_text(text, encoding="utf-8")
        config = load_config(file, environment=self.environment)
        assert config.warnings == (), snippet.where
        build_agent(config)

    def _serve(self, command: str) -> str:
        self._stop()
        self._server = subprocess.Popen(
            ["bash", "-c", f"exec {command.strip()} --port {self._port}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert self._server.stderr is not None
        text_block, banner = b"", self._server.stderr.fileno()
        while b"Ctrl+C" not in text_block:
            ready, _, _ = select.select([banner], [], [], READY_SECONDS)
            piece = os.read(banner, 4096) if ready else b""
            assert piece, f"the server did not come up: {text_block!r}"
            text_block += piece
        return text_block.decode().replace(f":{self._port}", ":8000")

    def _stop(self) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGTERM)
            _, _ = self._server.communicate(timeout=15)
            assert self._server.returncode == 0
            self._server = None


def targets_of_makefile() -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
