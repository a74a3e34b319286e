"""The examples of docs/workflows.md with the engines themselves, DBOS and a Temporal server. `make workflows`.

A step that an engine makes again is the same run, also if the agent's server was killed in between.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.store_faults.fault_rig import ExecutedNode

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv" / "workflows" / "bin" / "python"
AGENT = """\
name: assistant
model: {provider: demo}
tools:
  - {name: todo, type: mcp, command: holodeck-todo, args: [--db, todo.sqlite3], bind: {user_id: "{user_id}", timezone: "{timezone}"}}
"""

pytestmark = [
    pytest.mark.skipif(not os.environ.get("WORKFLOWS"), reason="make workflows"),
    pytest.mark.timeout(240),
]


@pytest.mark.parametrize("engine", ["dbos", "temporal"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["server lives", "server is killed"])
async def test_a_step_whose_answer_was_lost_is_made_again_and_runs_once(engine, is_killed, tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    server = ExecutedNode(tmp_path, HOLODECK_BANNER="1", PATH=path)
    try:
        await server.start()
        driver = await asyncio.create_subprocess_exec(
            PYTHON,
            Path(__file__).with_name("engine_driver.py"),
            engine,
            ROOT / "docs" / "workflows.md",
            server.url,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert driver.stdout is not None
        assert await asyncio.wait_for(driver.stdout.readline(), 120) == b"lost\n", await driver.communicate(b"")
        if is_killed:
            await server.restart()
        out, err = await asyncio.wait_for(driver.communicate(b"\n"), 120)
        assert driver.returncode == 0, err.decode()[-2000:]
        assert b"order 17" in out.lower(), out
        sessions = (await server.get("/sessions"))["sessions"]
        assert len(sessions) == 1, "the step was carried out twice"
    finally:
        await server.kill()
