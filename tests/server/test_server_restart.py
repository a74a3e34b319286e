"""What a server knows after a restart, and a replica of what another one learned: all of it is in the store."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from holodeck.models.scripted import Turn, calls, says
from holodeck.server.options import PushSettings, ServerSettings
from holodeck.server.wires import WIRES
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.keyed import KeyHolders, keyed
from tests.server.serving import Gate, Served, ask, frames, read_to, served, server_block, types, until
from tests.server.test_completion_sessions import ask as complete
from tests.server.test_server_a2a import followers, message, rpc
from tests.server.test_server_log_lines import logged
from tests.server.test_server_mcp import FORMS, TASKS, Deletions, body_of, called, sent, task_when
from tests.server.webhook import Webhook, listening

ALL = ServerSettings(protocols=tuple(WIRES))


def on_file(path: Path) -> dict[str, Any]:
    file = SqliteFile(path, durable=False)
    records = SqliteRunStore(file, "tester")
    return {"store": SqliteSessionStore(file, "tester", runs=records), "records": records}


@asynccontextmanager
async def started(path: Path, *turns: Turn, **options: Any) -> AsyncIterator[Served]:
    async with served(*turns, **{"settings": ALL, **on_file(path), **options}) as s:
        yield s


def copy_of(path: Path) -> Path:
    """The file as a process leaves it that is killed now."""
    copy = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


def _pieces_in(path: Path) -> int:
    """How many pieces of logs the file has."""
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM pieces").fetchone()
    return int(count)


def _logs_in(path: Path) -> bytes:
    """The copies of logs that the file has."""
    with closing(sqlite3.connect(path)) as connection:
        return b"".join(bytes(body) for (body,) in connection.execute("SELECT body FROM pieces"))


@pytest.mark.req("SRV-26", "ACC-07")
async def test_approvals_that_were_given_one_by_one(tmp_path: Path) -> None:
    tool, both, file = Deletions(), {**TASKS, **FORMS}, tmp_path / "sessions.db"
    both_calls = calls(("delete", '{"name": "a"}'), ("delete", '{"name": "b"}'))
    yes = {"action": "accept", "content": {"decision": "approve", "arguments": '{"name": "c"}'}}

    async def update(s: Served, task_id: str, form: str) -> None:
        params = {"taskId": task_id, "inputResponses": {form: yes}}
        assert (await sent(s, body_of("tasks/update", params, capabilities=both)))[0] == 200

    async with started(file, both_calls, tools=tool.tools) as s:
        asked = await called(s, {"message": "delete them"}, capabilities=both)
        task_id, (first, second) = asked["requestState"], asked["inputRequests"]
        await update(s, task_id, first)
    async with started(file, says("gone"), tools=tool.tools) as s:
        left = await task_when(s, task_id, "input_required", both)
        assert ([*left["inputRequests"]], tool.deleted) == ([second], [])
        await update(s, task_id, second)
        done = await task_when(s, task_id, "completed", both)
    assert (done["result"]["content"][0]["text"], tool.deleted) == ("gone", ["c", "c"])


@pytest.mark.req("SRV-27")
@pytest.mark.parametrize("continues", [True, False], ids=["it goes on", "it is ended"])
async def test_the_end_of_a_run_that_a_crash_cut_is_pushed(tmp_path: Path, *, continues: bool) -> None:
    hook, gate, file = Webhook(failures=0), Gate(), tmp_path / "sessions.db"
    async with listening(hook) as port:
        push = PushSettings(permit=lambda _: True)
        settings = ServerSettings(protocols=("a2a",), block=server_block(push_to=["*"]), push=push)
        login = {"token": "t0ken", "authentication": {"scheme": "Bearer", "credentials": "s3cret"}}
        config = {"url": f"http://127.0.0.1:{port}/hook", **login}
        async with started(file, says("a b", pause=gate), settings=settings) as s:
            options = {"taskPushNotificationConfig": config, "returnImmediately": True}
            task = (await rpc(s, "SendMessage", {"message": message(), "configuration": options}))["result"]["task"]
            await until(lambda: hook.calls)
            file = copy_of(file)
        hook.calls.clear()
        async with started(file, says("after all"), settings=settings, continues=continues) as s:
            await until(lambda: hook.calls and not followers())
            found = (await rpc(s, "GetTask", {"id": task["id"]}))["result"]
            listed = await rpc(s, "ListTaskPushNotificationConfigs", {"taskId": task["id"]})
    headers, body = hook.calls[-1]
    status = json.loads(body)["statusUpdate"]
    assert (status["taskId"], status["status"]["state"]) == (task["id"], found["status"]["state"])
    assert found["status"]["state"] == ("TASK_STATE_COMPLETED" if continues else "TASK_STATE_FAILED")
    assert (headers["authorization"], headers["x-a2a-notification-token"]) == ("Bearer s3cret", "t0ken")
    assert listed["result"]["configs"] == [], "the task has ended"


@pytest.mark.req("ORC-08", "SRV-27")
@pytest.mark.parametrize("continues", [True, False], ids=["it goes on", "it is ended"])
async def test_the_log_names_a_run_that_a_crash_cut_and_its_model(tmp_path: Path, *, continues: bool) -> None:
    gate, file = Gate(), tmp_path / "sessions.db"
    async with started(file, says("a b", pause=gate)) as s:
        sent_at_once = {"message": message(), "configuration": {"returnImmediately": True}}
        task = (await rpc(s, "SendMessage", sent_at_once))["result"]["task"]
        await until(lambda: _pieces_in(file))
        file = copy_of(file)
    with logged(tmp_path) as lines:
        async with started(file, says("after all"), continues=continues) as s:
            await until(lambda: s.run(task["id"]).log.ended)
    of_run = [line for line in lines if line["details"].get("run_id") == task["id"]]
    (ending,) = [line for line in of_run if line["details"].get("outcome") or not line["details"].get("recoverable", 1)]
    wanted = ("run_completed", None) if continues else ("error_occurred", "interrupted")
    assert (ending["event"], ending["details"].get("error_type")) == wanted
    named = [line for line in of_run if "model" in line["details"]]
    assert {line["details"]["model"] for line in named} == {s.model.name}
    assert [line["event"] for line in named] == (
        ["model_called", "model_result", "run_completed"] if continues else ["error_occurred"]
    )


ASK = {"message": "hi", "session_id": "s"}
CHAT = {"messages": [{"role": "user", "content": "hi"}], "metadata": {"session_id": "s"}}
CALL = {"name": "ask", "arguments": {"message": "hi", "session": "s"}}
WHOLE_ANSWERS = {
    "rest": ("/agent/tester/chat", ASK, '"tool_calls":[{"name":"echo","arguments":{"a":1},"status":"success"}]'),
    "chat completions": ("/v1/chat/completions", CHAT, "→ echo"),
    "responses": ("/v1/responses", {"input": "hi", "conversation": "s"}, '"type":"mcp_call","name":"echo"'),
    "mcp": (
        "/mcp",
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL},
        '"tool_calls":[{"name":"echo","arguments":{"a":1},"status":"success"}]',
    ),
}


@pytest.mark.req("SRV-27", "C08")
@pytest.mark.parametrize("wire", WHOLE_ANSWERS)
async def test_the_answer_of_a_run_that_survived_a_crash_names_the_tools_that_ran_before_it(
    tmp_path: Path, wire: str
) -> None:
    path, body, named = WHOLE_ANSWERS[wire]
    headers, file, tools = (
        {"Idempotency-Key": "k", "Accept": "application/json"},
        tmp_path / "s.db",
        PlainTools(echo=echo),
    )
    async with started(file, calls(("echo", '{"a":1}')), says("half of it", pause=Gate()), tools=tools) as s:
        asking = asyncio.create_task(s.post(body, path, **headers).__aenter__())
        await until(lambda: len(s.model.prompts) == 2 and b"half" in _logs_in(file))
        file = copy_of(file)
        asking.cancel()
    async with started(file, says("all of it"), tools=tools) as s, s.post(body, path, **headers) as answer:
        text = await answer.text()
    assert (answer.status, "all of it" in text, named in text) == (200, True, True), text


@pytest.mark.req("SRV-27")
async def test_a_task_that_worked_is_not_shown_as_submitted_when_another_process_continues_it(tmp_path: Path) -> None:
    gate, file = Gate(), tmp_path / "sessions.db"
    async with started(file, says("a b", pause=gate)) as s:
        options = {"returnImmediately": True}
        task = (await rpc(s, "SendMessage", {"message": message(), "configuration": options}))["result"]["task"]
        await until(lambda: _pieces_in(file))
        file = copy_of(file)
    async with started(file, says("after all", pause=gate)) as s:
        await until(lambda: s.model.prompts)
        found = (await rpc(s, "GetTask", {"id": task["id"]}))["result"]
        assert found["status"]["state"] == "TASK_STATE_WORKING"
        (listed,) = (await rpc(s, "ListTasks", {"status": "TASK_STATE_WORKING"}))["result"]["tasks"]
        assert listed["id"] == task["id"]
        gate.open.set()
        await until(lambda: s.run(task["id"]).log.ended)


@pytest.mark.req("SRV-27")
async def test_addresses_of_a_task_that_waits_are_called_when_it_continues(tmp_path: Path) -> None:
    hook, tool, file = Webhook(failures=0), Deletions(), tmp_path / "sessions.db"
    async with listening(hook) as port:
        push = PushSettings(permit=lambda _: True)
        settings = ServerSettings(protocols=("a2a",), block=server_block(push_to=["*"]), push=push)
        options = {"taskPushNotificationConfig": {"url": f"http://127.0.0.1:{port}/hook", "token": "t0ken"}}
        async with started(file, calls(("delete", '{"name": "a"}')), tools=tool.tools, settings=settings) as s:
            task = (await rpc(s, "SendMessage", {"message": message(), "configuration": options}))["result"]["task"]
            assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        hook.calls.clear()
        async with started(file, says("kept"), tools=tool.tools, settings=settings) as s:
            listed = await rpc(s, "ListTaskPushNotificationConfigs", {"taskId": task["id"]})
            assert "t0ken" not in json.dumps(listed), "not even its owner reads a secret again"
            await rpc(s, "SendMessage", {"message": message("do not", taskId=task["id"], messageId="m2")})
            await until(lambda: b"TASK_STATE_COMPLETED" in b"".join(body for _, body in hook.calls))
            await s.server.store.delete(task["contextId"], owner=s.run(task["id"]).owner)
    with closing(sqlite3.connect(file)) as connection:
        (left,) = connection.execute("SELECT count(*) FROM kept_values WHERE kind = 'push'").fetchone()
    assert left == 0, "the task has ended, and its session is deleted"


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_a_task_of_a2a_is_not_flushed_for_its_id_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """With the message before its client gets its id, and with the ending; with both at once if the answer comes at once."""
    monkeypatch.setattr("holodeck.stores.sqlite_runs.FIRST_COMMIT_SECONDS", 200)
    stores, flushed = on_file(tmp_path / "sessions.db"), list[bool]()
    async with served(says("done"), settings=ALL, **stores) as s, asyncio.timeout(60):
        file = stores["store"].file
        write = file.write

        def noted(job: Any, *, synced: bool = True, changes: bool = True) -> Any:
            flushed.append(synced and changes)
            return write(job, synced=synced, changes=changes)

        monkeypatch.setattr(file, "write", noted)
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message()}}
        async with s.post(body, "/a2a", **{"A2A-Version": "1.0"}) as answer:
            assert "done" in await answer.text()
    assert flushed.count(True) in (1, 2)


def log_copies(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as file:
        return b"".join(body for (body,) in file.execute("SELECT body FROM pieces"))


@pytest.mark.req("D03b", "C08")
async def test_a_request_that_comes_again_after_a_crash_gets_the_whole_run(tmp_path: Path) -> None:
    """AG-UI's client refuses a stream that does not begin with RUN_STARTED. It has the history: one snapshot is enough."""
    file, gate = tmp_path / "sessions.db", Gate()
    async with started(file, says("one"), Turn(text=(" ", "never shown"), pause=gate)) as s:
        async with s.post(ask("hi", message="u1")) as answer:
            events = [event for _, event in frames(await answer.read())]
        (reply,) = [event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START"]
        body = ask("more", run="r2")
        body["messages"][:0] = [
            {"id": "u1", "role": "user", "content": "hi"},
            {"id": reply, "role": "assistant", "content": "one"},
        ]
        async with s.post(body) as answer:
            assert "MESSAGES_SNAPSHOT" not in types(await read_to(answer, "STEP_STARTED"))
            await until(lambda: log_copies(file).count(b"StepStarted") == 2)
            file = copy_of(file)
    async with started(file, says("after all")) as s, s.post(body) as answer:
        again = types(await answer.read())
    assert (again[0], again[-1], again.count("RUN_STARTED")) == ("RUN_STARTED", "RUN_FINISHED", 1)
    assert again.count("MESSAGES_SNAPSHOT") == 1


@pytest.mark.req("SRV-26")
async def test_a_task_that_an_mcp_client_was_given_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holodeck.server.mcp_calls.QUICK_SECONDS", 0.0)
    file, gate = tmp_path / "sessions.db", Gate()
    async with started(file, says("never shown", pause=gate)) as s:
        task = await called(s, {"message": "go"}, capabilities=TASKS)
        file = copy_of(file)
    async with started(file, says("after all")) as s:
        done = await task_when(s, task["taskId"], "completed", TASKS)
    assert done["result"]["content"][0]["text"] == "after all"


async def test_a_conversation_is_recognised_by_its_messages(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    async with started(file, says("one")) as s:
        assert await complete(s, "1", store=True) == ("one", session := (await only_session(s)))
    async with started(file, says("two")) as s:
        assert await complete(s, "1", "one", "2", store=True) == ("two", session)
        assert [each.content for each in s.model.prompts[0].messages] == ["1", "one", "2"]


async def only_session(s: Served) -> str:
    async with s.get("/sessions") as answer:
        (found,) = (await answer.json())["sessions"]
        return str(found["session_id"])


async def test_tickets_and_sign_ins_of_the_page(tmp_path: Path) -> None:
    file, holders = tmp_path / "sessions.db", KeyHolders(tmp_path / "keys.json")
    ann = holders.headers(user="ann")
    async with keyed(tmp_path, says("hello"), holders=holders, **on_file(file)) as (s, _):
        async with s.post(ask(run="r"), **ann) as answer:
            await read_to(answer, "RUN_FINISHED")
        async with s.post(b"", "/runs/r/ticket", **ann) as answer:
            ticket = (await answer.json())["ticket"]
        used, unused = s.server.access.page.new_code(), s.server.access.page.new_code()
        async with s.post({"code": used}, "/playground/session") as answer:
            token = (await answer.json())["token"]
    async with keyed(tmp_path, holders=holders, **on_file(file)) as (s, _):
        async with s.get(f"/runs/r/events?ticket={ticket}") as answer:
            assert (answer.status, types(await answer.read())[-1]) == (200, "RUN_FINISHED")
        async with s.get(f"/runs/other/events?ticket={ticket}") as answer:
            assert answer.status == 401
        async with s.get("/me", Authorization=f"Bearer {token}") as answer:
            assert (answer.status, (await answer.json())["user"]) == (200, "system:playground")
        statuses = []
        for code in (used, unused, unused):
            async with s.post({"code": code}, "/playground/session") as answer:
                statuses.append(answer.status)
        assert statuses == [401, 200, 401], "each code once, at whichever process"


async def test_replicas_sign_with_one_secret(tmp_path: Path) -> None:
    """Both start on an empty store: one makes the secret, the other takes it."""
    file, holders = tmp_path / "sessions.db", KeyHolders(tmp_path / "keys.json")
    ann = holders.headers(user="ann")
    async with (
        keyed(tmp_path, says("hello"), holders=holders, **on_file(file)) as (one, _),
        keyed(tmp_path, holders=holders, **on_file(file)) as (other, _),
    ):
        async with one.post(ask(run="r"), **ann) as answer:
            await answer.read()
        async with one.post(b"", "/runs/r/ticket", **ann) as answer:
            ticket = (await answer.json())["ticket"]
        async with asyncio.timeout(30), other.get(f"/runs/r/events?ticket={ticket}") as answer:
            assert (answer.status, types(await answer.read())[-1]) == (200, "RUN_FINISHED")
