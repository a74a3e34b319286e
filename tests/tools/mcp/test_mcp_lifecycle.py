"""How servers start, stop, die and come back (rows B01 to B03, B07, B08, B10, B15; T01, T26)."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import uvloop

from holodeck.errors import StartError
from holodeck.tools import mcp_server, stdio
from holodeck.tools.mcp_server import pause_before_attempt
from holodeck.tools.mcp_settings import McpSettings
from holodeck.tools.mcp_toolset import McpToolset
from tests.tools.mcp.rogue_client import Rogue, rogue_settings, until


def messages(caplog, event: str) -> list[dict]:
    return [record.details for record in caplog.records if record.message == event]


@pytest.mark.req("B01")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"command": "no-such-command-here"}, "the command 'no-such-command-here' was not found. Install it"),
        (
            {"command": "npx -y it"},
            "'npx -y it' was not found. Put the arguments into a list: `command: npx` and `args: [-y, it]`.",
        ),
        ({"command": "./missing"}, "there is no './missing'"),
        ({"command": __file__}, "is not executable"),
        ({"cwd": Path("/no/such/folder")}, "its working folder 'folder' does not exist"),
    ],
)
async def test_a_command_that_cannot_run_is_named(tmp_path, changes, words):
    toolset = McpToolset(rogue_settings(tmp_path / "journal", required=True, **changes))
    with pytest.raises(StartError, match="The tool server 'rogue' cannot be started") as caught:
        await toolset.start()
    assert words in caught.value.message


@pytest.mark.req("B01")
async def test_a_required_server_that_exits_at_once_stops_the_start_with_its_last_words(tmp_path):
    toolset = McpToolset(rogue_settings(tmp_path / "journal", "exit=3", required=True))
    with pytest.raises(StartError) as caught:
        await toolset.start()
    assert f"no database here. Run `{sys.executable}` with its `args` in a terminal to see why." in caught.value.message
    toolset = McpToolset(rogue_settings(tmp_path / "journal", "exit=3", "needs=1", required=True))
    with pytest.raises(StartError) as caught:
        await toolset.start()
    assert caught.value.message.endswith("exited with code 3: pip install 'a[b]'.")


@pytest.mark.req("T28")
async def test_last_words_do_not_reveal_what_the_server_was_given(rogue):
    server = await rogue("exit=3", env={"DATABASE": "database here", "SHORT": "no"})
    assert server.health.detail == "failed: exited with code 3: no ***"
    assert "database" not in (await server.call("echo")).text


@pytest.mark.req("B01", "SRV-10")
async def test_a_server_that_is_not_required_is_missed_but_not_waited_for(rogue):
    server = await rogue("exit=3")
    assert server.toolset.schemas() == ()
    assert not server.health.ready
    assert server.health.detail == "failed: exited with code 3: no database here"
    assert (await server.call("echo")).failed


@pytest.mark.req("B01")
async def test_a_server_that_failed_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(mcp_server, "pause_before_attempt", lambda *_, **__: 0.0)
    command = tmp_path / "later"
    settings = rogue_settings(tmp_path / "journal")
    toolset = McpToolset(rogue_settings(tmp_path / "journal", command=str(command)))
    await toolset.start()
    try:
        assert not toolset.health()[0].ready
        command.symlink_to(settings.command)
        await until(lambda: toolset.health()[0].ready)
        assert toolset.schemas()
    finally:
        await toolset.close()


@pytest.mark.req("B02")
async def test_a_server_that_does_not_answer_in_time_is_given_up(tmp_path):
    toolset = McpToolset(rogue_settings(tmp_path / "journal", "mute", start_timeout=0.3, required=True))
    with pytest.raises(StartError, match=r"did not answer in 0\.3 s"):
        await toolset.start()


@pytest.mark.req("B02")
async def test_closing_does_not_wait_for_a_slow_start(tmp_path):
    toolset = McpToolset(rogue_settings(tmp_path / "journal", "mute", start_timeout=60, required=True))
    start = asyncio.create_task(toolset.start())
    await until(lambda: "initialize" in (tmp_path / "journal").read_text())
    await toolset.close()
    await start
    assert toolset.health()[0].detail == "closed"


@pytest.mark.req("B03")
async def test_noise_before_and_between_messages_is_ignored(rogue, caplog):
    server = await rogue("banner=1000")
    assert not (await server.call("echo")).failed
    shown = messages(caplog, "mcp_noise_on_stdout")
    assert [entry["line"] for entry in shown] == [f"Welcome to rogue {n} \ufffd" for n in range(3)]


@pytest.mark.req("B07")
async def test_a_server_that_ignores_everything_is_killed_with_its_children(rogue, monkeypatch):
    monkeypatch.setattr(stdio, "GRACE", 0.5)
    server = await rogue("stubborn")
    child = psutil.Process(await server.pid())
    grandchild = psutil.Process(int((await server.call("grandchild")).text))
    async with asyncio.timeout(20):
        await server.toolset.close()
    await until(lambda: not child.is_running() and not _alive(grandchild))


def _alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE  # there may be no process to reap an orphan in a container
    except psutil.NoSuchProcess:
        return False


@pytest.mark.req("B07")
async def test_a_polite_server_leaves_at_the_end_of_its_input(rogue):
    server = await rogue()
    await server.toolset.close()
    await server.toolset.close()
    assert server.seen("end of input") == 1
    assert (await server.call("echo")).failed


async def test_closing_ends_a_call_that_is_running(rogue):
    server = await rogue()
    call = asyncio.create_task(server.call("hang"))
    await until(lambda: server.seen("tools/call hang ."))
    await server.toolset.close()
    assert (await call).failed


PARENT = """
import asyncio, sys
from pathlib import Path
from holodeck.tools import mcp_server
from holodeck.tools.mcp_toolset import McpToolset
from holodeck.tools.mcp_settings import McpSettings

async def main():
    toolset = McpToolset(McpSettings(name="rogue", command=sys.executable, args=tuple(sys.argv[1:])))
    await toolset.start()
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.req("B08")
def test_children_die_when_we_are_killed(tmp_path):
    settings = rogue_settings(tmp_path / "journal", "stubborn")
    with subprocess.Popen([sys.executable, "-c", PARENT, *settings.args], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        children = psutil.Process(parent.pid).children()
        assert len(children) == 1
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    for child in children:
        child.wait(20)


@pytest.mark.req("B10")
async def test_bytes_without_end_cost_the_server_its_life(rogue, monkeypatch):
    monkeypatch.setattr(stdio, "ENDLESS", 20_000_000)
    server = await rogue()
    pid = await server.pid()
    assert (await server.call("endless")).failed
    assert await server.pid() != pid


@pytest.mark.req("B15", "ORC-04")
async def test_tools_come_and_go_with_list_changed(rogue):
    server = await rogue()
    await server.call("change", {"add": "fresh", "remove": "image"})
    await until(lambda: "fresh" in server.names())
    assert "image" not in server.names()
    gone = await server.call("image")
    assert gone.failed
    assert "no longer offers" in gone.text
    assert not (await server.call("fresh")).failed


@pytest.mark.req("B15", "T26")
async def test_a_tool_that_changes_its_description_is_withdrawn(rogue, caplog):
    server = await rogue()
    await server.call("change", {"describe": "echo"})
    await until(lambda: "echo" not in server.names())
    assert messages(caplog, "tool_changed") == [{"server": "rogue", "tool": "echo"}]
    assert (await server.call("echo")).failed


@pytest.mark.req("B15", "T26")
async def test_a_tool_that_changes_over_a_restart_is_withdrawn_too(rogue):
    server = await rogue("describe")
    assert "echo" in server.names()
    await server.call("crash")
    await server.pid()
    assert "echo" not in server.names()
    assert "pid" in server.names()


@pytest.mark.req("ORC-04")
async def test_names_that_no_provider_takes_are_refused(rogue, caplog):
    long = "x" * 65
    server = await rogue(f"names=good-one,bad name,{long},echo,../etc")
    assert "good-one" in server.names()
    refused = [entry["tool"] for entry in messages(caplog, "tool_refused")]
    assert refused == ["bad name", long, "echo", "../etc"]


async def test_calls_stop_waiting_for_a_server_that_does_not_come_back(rogue, monkeypatch):
    monkeypatch.setattr(mcp_server, "pause_before_attempt", lambda *_, **__: 0.0)
    server = await rogue("exit_after_first")
    assert (await server.call("crash")).failed
    result = await server.call("echo")
    assert result.failed
    assert result.retryable
    assert "is not available (failed: exited with code 9)" in result.text
    assert server.toolset.schemas() == ()


@pytest.mark.parametrize(
    ("was_ready", "pauses"),
    [(False, [1, 2, 4, 8, 16, 30, 30]), (True, [0, 1, 2, 4, 8, 16, 30])],
)
@pytest.mark.req("B05")
def test_attempts_come_slower_and_slower(was_ready, pauses):
    assert [pause_before_attempt(n, was_ready=was_ready) for n in range(1, 8)] == pauses
    assert pause_before_attempt(100_000, was_ready=was_ready) == 30


@pytest.mark.req("T01")
async def test_a_child_sees_the_allowed_environment_and_what_is_named(rogue, monkeypatch, tmp_path):
    monkeypatch.setenv("GEMINI_API_KEY", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    server = await rogue(env={"TODO_DB": "x.db"}, cwd=tmp_path)
    environment = json.loads((await server.call("environment")).text)
    environment.pop("LC_CTYPE", None)  # Python sets it for itself
    allowed = {"PATH", "HOME", "LANG", "TZ", "USER", "TMPDIR", "LC_TIME", "TODO_DB"}
    assert set(environment) <= allowed
    assert environment["TODO_DB"] == "x.db"
    assert environment["LC_TIME"] == "C"
    assert (await server.call("cwd")).text == str(tmp_path)


@pytest.mark.req("T01")
async def test_a_command_beside_our_interpreter_is_found_without_path(rogue, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    server = await rogue(command=Path(sys.executable).name)
    assert not (await server.call("echo")).failed


def test_it_all_works_under_uvloop(tmp_path):
    async def scenario() -> None:
        toolset = McpToolset(rogue_settings(tmp_path / "journal"))
        await toolset.start()
        server = Rogue(toolset, tmp_path / "journal")
        try:
            pid = await server.pid()
            assert (await server.call("crash")).failed
            assert await server.pid() != pid
            assert "too_large" in (await server.call("big", {"size": 5_000_000})).text
            assert (await server.call("flood_stderr", {"megabytes": 1})).text == "done"
        finally:
            await toolset.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


def test_settings_need_a_command_or_a_url():
    with pytest.raises(ValueError, match="give it either a command"):
        McpSettings(name="both", command="x", url="http://127.0.0.1")
    assert "hunter2" not in repr(McpSettings(name="a", url="http://127.0.0.1", headers={"authorization": "hunter2"}))


async def test_a_start_waits_only_a_while_for_a_server_that_is_not_required(tmp_path, monkeypatch):
    monkeypatch.setattr(mcp_server, "OPTIONAL_WAIT", 0.1)
    toolset = McpToolset(rogue_settings(tmp_path / "journal", "mute", start_timeout=600))
    await toolset.start()
    assert toolset.schemas() == ()
    (health,) = toolset.health()
    assert (health.ready, health.detail) == (False, "starting")
    await toolset.close()
