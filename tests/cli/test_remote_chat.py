"""`holodeck chat --url`: the terminal as a client of a running server, on a real terminal and through pipes."""

import asyncio
import json
from pathlib import Path
from typing import Any

from holodeck.core.messages import MediaPart, TextPart
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.tools import ToolResult
from holodeck.errors import ShuttingDown
from holodeck.models.scripted import Turn, calls, says
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from tests.agent.agent_fixture import PlainTools
from tests.cli.chatting import chat
from tests.cli.process import Result, holodeck
from tests.ports import free_port
from tests.server.keyed import keyed
from tests.server.serving import Gate, Served, ask, served, until

ALL = ServerSettings(protocols=tuple(WIRES))


async def piped(folder: Path, *arguments: str, stdin: str = "", **variables: str) -> Result:
    return await asyncio.to_thread(holodeck, "chat", *arguments, folder=folder, stdin=stdin, **variables)


class Wipes:
    def __init__(self) -> None:
        self.wiped: list[Any] = []
        self.tools = PlainTools(frozenset({"wipe"}), wipe=self.wipe)

    async def wipe(self, arguments: dict[str, Any], _context: object) -> ToolResult:
        self.wiped.append(arguments)
        return ToolResult(content="gone")


async def stored(s: Served, session: str) -> list[Any]:
    found = await s.server.store.read(session, owner=ME)
    return [] if found is None else [message.content for message in found.messages if message.content]


async def test_a_conversation_on_a_terminal(tmp_path: Path) -> None:
    """History, answers, an approval, Ctrl+C, commands: on one session of the server."""
    gate, wipes = Gate(), Wipes()
    turns = says("Hello from before"), calls(("wipe", '{"what": "a"}')), says("Wiped."), says("Once upon", pause=gate)
    async with served(*turns, says("Goodbye."), tools=wipes.tools, settings=ALL) as s:
        async with s.post(ask("earlier question", thread="shared")) as answer:
            await answer.read()
        async with chat(tmp_path, "--session", "shared", "--url", s.url) as terminal:
            await terminal.prompt()
            await terminal.wait_for("tester at http://127.0.0.1")
            await terminal.wait_for("> earlier question")
            await terminal.wait_for("Hello from before")
            terminal.enter("wipe it")
            await terminal.wait_for("allow?")
            terminal.enter("y")
            await terminal.wait_for("Wiped.")
            assert wipes.wiped == [{"what": "a"}]
            await terminal.prompt()
            terminal.enter("tell me")
            await terminal.wait_for("Once")
            terminal.interrupt()
            await terminal.wait_for("(stopped)")
            await until(lambda: not s.server.runs.active)
            gate.open.set()
            await terminal.prompt()
            terminal.enter("/nonsense")
            await terminal.wait_for("/nonsense is not a command")
            terminal.enter("/histroy")
            await terminal.wait_for("did you mean /history?")
            terminal.enter("/history")
            await terminal.wait_for(lambda: terminal.text.count("Wiped.") == 2)
            await terminal.wait_for(
                lambda: terminal.text.count("(stopped)") == 2
            )  # the answer in the history is marked
            terminal.enter("bye")
            await terminal.wait_for("Goodbye.")
            terminal.type("\x04")
            assert await terminal.exit_code() == 0
            assert terminal.echoes()
        assert (await stored(s, "shared"))[-2:] == ["bye", "Goodbye."]


async def test_a_conversation_that_the_server_does_not_have_is_reported_as_new(tmp_path: Path) -> None:
    """An id without a conversation, one that is deleted while the chat runs, and an answer that was cut before it."""
    cut = Turn(text=["half of it"], error=ShuttingDown("The server stops."))
    new = "(there is no conversation with this id, or it has expired; your first message begins it)"
    gone = "! the server no longer has this conversation: it was deleted or has expired; a new one was started"
    async with served(says("one"), says("two"), says("three"), cut, settings=ALL) as s:
        async with chat(tmp_path, "--session", "t", "--url", s.url, columns=120) as terminal:
            await terminal.wait_for(new)
            for question, answer in (("first", "one"), ("second", "two")):
                await terminal.prompt()
                terminal.enter(question)
                await terminal.wait_for(answer)
            await terminal.prompt()
            assert gone not in terminal.text
            await s.server.store.delete("t", owner=ME)
            terminal.enter("third")
            await terminal.wait_for(gone)
        async with s.post(ask("cut it", thread="t")) as answer:
            await answer.read()
        async with chat(tmp_path, "--session", "t", "--url", s.url, columns=120) as terminal:
            await terminal.wait_for("(the last answer was cut when the server stopped; /retry asks again, or send a")
            assert new not in terminal.text


async def test_a_question_that_waits_since_before_is_asked_at_the_start(tmp_path: Path) -> None:
    wipes = Wipes()
    async with served(calls(("wipe", '{"what": "a"}')), says("Left it."), tools=wipes.tools, settings=ALL) as s:
        async with s.post(ask("wipe", thread="t")) as answer:
            await answer.read()
        async with chat(tmp_path, "--session", "t", "--url", s.url) as terminal:
            await terminal.wait_for('wipe(what="a")')
            terminal.enter("n")
            await terminal.wait_for("Left it.")
            terminal.enter("exit")
            assert await terminal.exit_code() == 0
    assert wipes.wiped == []


async def test_scripts_ask_and_get_answers_events_and_exit_codes(tmp_path: Path) -> None:
    wipes = Wipes()
    turns = [says("one"), says("two"), calls(("wipe", "{}")), says("three"), says("four"), says("read it")]
    async with served(*turns, tools=wipes.tools, settings=ALL) as s:
        url = ("--url", s.url)
        first = await piped(tmp_path, *url, "--session", "t", "hello there")
        assert (first.code, first.out, first.err) == (0, "one\n", "")
        events = await piped(tmp_path, *url, "--session", "t", "--json", stdin="again\n")
        kinds = [json.loads(line)["type"] for line in events.out.splitlines()]
        assert (events.code, kinds[0], kinds[-1]) == (0, "RunStarted", "RunFinished")
        waits = await piped(tmp_path, *url, "--session", "t", "-q", "wipe it")
        assert (waits.code, wipes.wiped) == (5, [])
        assert "wipe was not run: it needs approval" in waits.err
        unsent = await piped(tmp_path, *url, "--session", "t", "-q", "never mind")
        assert (unsent.code, len(s.model.prompts)) == (5, 3)
        assert (
            "wipe was not run: it needs approval; answer on a terminal or with --lines; no message was sent"
            in unsent.err
        )
        lines = await piped(tmp_path, *url, "--session", "t", "--lines", "-q", stdin="n\nnever mind\n")
        assert (lines.code, lines.out) == (0, "? wipe()\nthree\nfour\n")
        (tmp_path / "notes.txt").write_text("the meeting is at nine")
        read = await piped(tmp_path, *url, "-a", "notes.txt", "When?", stdin="and piped text")
        assert (read.code, read.out) == (0, "read it\n")
        asked = s.model.prompts[-1].messages[-1].content
        shown = "".join(part.text for part in asked if isinstance(part, TextPart))
        assert not any(isinstance(part, MediaPart) for part in asked)
        assert all(text in shown for text in ("When?", "the meeting is at nine", "and piped text", "notes.txt"))
        assert (await stored(s, "t"))[:4] == ["hello there", "one", "again", "two"]


async def test_what_is_wrong_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    away = await piped(tmp_path, "--url", f"http://127.0.0.1:{free_port()}", "hi")
    assert (away.code, away.err.count("\n")) == (2, 1)
    assert "cannot be reached; is the server running?" in away.err
    for arguments, words in {
        ("--url", "ftp://there", "hi"): "is not the address of a server; write http://host:port",
        ("--url", "localhost:1", "hi"): "localhost:1 is not the address of a server; did you mean http://localhost:1?",
        ("--url", "http://127.0.0.1:1", "--sesion", "t"): "--session",
        ("--url", "http://127.0.0.1:1", "--demo", "hi"): "leave out --demo",
        ("--url", "http://127.0.0.1:1", "--resume", "last"): "--session ID continues one",
        ("--url", "http://127.0.0.1:1", "agent.yaml", "hi"): "leave out agent.yaml",
        ("--key-file", "empty", "hi"): "--key-file is for --url",
        ("--url", "http://127.0.0.1:1", "--key-file", "empty", "hi"): "empty must contain one key",
        ("--url", "http://127.0.0.1:1", "--key-file", "none", "hi"): "none cannot be read: No such file",
        ("--url", "http://127.0.0.1:1", "-a", "none", "hi"): "There is no file none",
    }.items():
        result = await piped(tmp_path, *arguments)
        assert (result.code, words in result.err) == (2, True), result
    async with served(settings=ServerSettings(protocols=("rest",))) as s:
        off = await piped(tmp_path, "--url", s.url, "hi")
        assert (off.code, "--protocol ag-ui" in off.err) == (4, True), off
        nowhere = await piped(tmp_path, "--url", f"{s.url}/elsewhere", "hi")
        assert (nowhere.code, nowhere.err.count("\n")) == (2, 1), nowhere
        assert f"There is no agent at {s.url}/elsewhere; did you mean {s.url}?" in nowhere.err


async def test_a_key_comes_from_the_environment_or_a_file_and_is_never_shown(tmp_path: Path) -> None:
    async with keyed(tmp_path, says("hello"), says("again")) as (s, holders):
        key_id, headers = holders.create(user="ann")
        await s.server.access.refresh()
        key = headers["Authorization"].removeprefix("Bearer ")
        none = await piped(tmp_path, "--url", s.url, "hi")
        assert (none.code, "The server requires a key; set HOLODECK_API_KEY" in none.err) == (2, True)
        good = await piped(tmp_path, "--url", s.url, "--session", "t", "hi", HOLODECK_API_KEY=key)
        assert (good.code, good.out) == (0, "hello\n")
        (tmp_path / "key").write_text(f"{key}\n")
        file = await piped(tmp_path, "--url", s.url, "--session", "t", "--key-file", "key", "hi")
        assert (file.code, file.out) == (0, "again\n")
        holders.revoke(key_id)
        await s.server.access.refresh()
        bad = await piped(tmp_path, "--url", s.url, "--key-file", "key", "hi")
        assert (bad.code, "does not accept this key: " in bad.err) == (2, True)
        assert key not in f"{none.err}{good.err}{file.err}{bad.err}"
