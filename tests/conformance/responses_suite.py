"""Runs the compliance suite of Open Responses against the agent: `make conformance-responses CONFORMANCE=folder`.

No registry has the suite: `CONFORMANCE` names a folder that holds it as `open-responses`. Its tests over WebSocket and of
`/responses/compact` are left out: the server offers neither.
"""

import asyncio
import os
import shutil
import sys
from pathlib import Path

from holodeck.core.usage import TokenUsage
from holodeck.models.port import Listener, ModelReply, Prompt
from holodeck.models.scripted import ScriptedModel, Turn, calls, says
from holodeck.server.options import ServerSettings
from tests.server.serving import served

ROOT = Path(__file__).parents[2]
COPY = ROOT / "build" / "open-responses"
TESTS = (
    "basic-response", "assistant-phase", "response-output-phase-schema", "streaming-response", "system-prompt", "tool-calling",
    "image-input", "multi-turn",
)  # fmt: skip
SECONDS = 600
USAGE = TokenUsage(prompt_tokens=3, completion_tokens=5)


class ObligingModel(ScriptedModel):
    """Calls the client's tool if there is one, else answers."""

    def __init__(self) -> None:
        super().__init__([])

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        asked = [tool.name for tool in prompt.tools if tool.on_client]
        turn: Turn = calls((asked[0], '{"location": "San Francisco, CA"}')) if asked else says("A red heart: 1, 2, 3.")
        return await ScriptedModel([Turn(text=turn.text, calls=turn.calls, usage=USAGE)]).reply(prompt, listener)


def suite_folder() -> Path | None:
    """Where the suite is on this machine."""
    given = os.environ.get("CONFORMANCE")
    folder = None if not given else Path(given) / "open-responses"
    return folder if folder is not None and folder.is_dir() else None


async def run_suite(folder: Path) -> tuple[int, str]:
    """The exit code of the suite and what it printed."""
    if not (COPY / "node_modules" / ".bin" / "bun").exists():
        shutil.copytree(folder, COPY, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
        await _done("npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
    async with served(model=ObligingModel(), settings=ServerSettings(protocols=("responses",))) as s:
        return await _done(
            str(COPY / "node_modules" / ".bin" / "bun"), "run", "bin/compliance-test.ts",
            "--base-url", f"{s.url}/v1", "--api-key", "none", "--model", "tester", "--filter", ",".join(TESTS),
        )  # fmt: skip


async def _done(*command: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=COPY, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(SECONDS):
        output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


def main() -> int:
    folder = suite_folder()
    if folder is None:
        sys.stdout.write("CONFORMANCE must name a folder that holds open-responses, the suite of openresponses.org.\n")
        return 2
    code, output = asyncio.run(run_suite(folder))
    sys.stdout.write(output)
    return code


if __name__ == "__main__":
    sys.exit(main())
