"""The routes, over real sockets."""

import asyncio
import re
from unittest.mock import AsyncMock
from urllib.parse import quote

import pytest
from yarl import URL

from holodeck.core.owner import Owner
from holodeck.core.tools import ToolResult
from holodeck.errors import StorageFull, StoreRefused
from holodeck.models.scripted import Turn, calls, says
from holodeck.resilience.breaker import CircuitBreakerConfig
from holodeck.resilience.breakers import Dependency
from holodeck.runs.run_settings import WhenBusy
from holodeck.server import store_health
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from holodeck.tools.port import ToolsetHealth
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.serving import Gate, ask, frames, read_to, served, server_block, types, until

REFUSES = "CREATE TRIGGER damage BEFORE INSERT ON steps BEGIN SELECT raise(ABORT, 'as damage does'); END"
PROTOBUF = "application/vnd.ag-ui.event+proto"


@pytest.mark.req("SRV-05", "SRV-01")
async def test_a_run_is_streamed_from_start_to_end():
    turns = (calls(("echo", '{"a": 1}')), says("all done"))
    async with served(*turns, tools=PlainTools(echo=echo)) as s, s.post(ask(thread="t", run="r")) as answer:
        body = await answer.read()
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["Cache-Control"] == "no-cache"
        assert answer.headers["X-Accel-Buffering"] == "no"
        assert "Content-Encoding" not in answer.headers
        assert re.fullmatch(r"req_[0-9a-f]{12}", answer.headers["X-Request-ID"])
    events = types(body)
    assert events[0] == "RUN_STARTED"
    assert events[-1] == "RUN_FINISHED"
    assert {"TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT", "TEXT_MESSAGE_CONTENT"} <= {
        *events
    }
    assert [number for number, _ in frames(body)] == [f"r:{n}" for n in range(len(events))]


@pytest.mark.req("SRV-06")
async def test_protobuf_is_sent_to_who_names_it():
    async with served() as s:
        async with s.post(Accept=PROTOBUF) as answer:
            assert answer.headers["Content-Type"] == PROTOBUF
            assert int.from_bytes((await answer.read())[:4], "big") > 0
        async with s.post(Accept="*/*") as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"


@pytest.mark.req("ORC-09")
@pytest.mark.parametrize(
    ("given", "kept"),
    [("req_0123456789ab", True), ("req_0123456789AB", False), ("x", False), ("req_0123456789abc", False), ("", False)],
)
async def test_a_well_formed_request_id_is_kept_and_any_other_replaced(given, kept):
    async with served() as s, s.get("/health", **{"X-Request-ID": given}) as answer:
        ids = answer.headers.getall("X-Request-ID")
        assert len(ids) == 1
        assert re.fullmatch(r"req_[0-9a-f]{12}", ids[0])
        assert (ids[0] == given.strip()) is kept


async def test_a_run_can_be_looked_at_while_it_runs_and_after():
    gate = Gate()
    async with served(says("a b", pause=gate)) as s:
        async with s.post(ask(run="r", thread="t")) as answer:
            await answer.content.readuntil(b"\n\n")
            async with s.get("/runs/r") as shown:
                result = await shown.json()
            assert (result["state"], result["session_id"], result["readers"], result["finished_at"]) == (
                "running",
                "t",
                1,
                None,
            )
            gate.open.set()
            await answer.read()
        async with s.get("/runs/r") as shown:
            result = await shown.json()
        assert result["state"] == "finished"
        assert result["events"] == len(s.run("r").log)
        assert result["finished_at"] is not None


async def test_stopping_ends_the_run_and_the_stream():
    async with served(says("a b c", pause=Gate())) as s:
        async with s.post(ask(run="r")) as answer:
            await read_to(answer, "TEXT_MESSAGE_CONTENT")
            async with s.client.post(s.url + "/runs/r/stop") as stopped:
                assert await stopped.json() == {"stopped": True, "state": "cancelled"}
            rest = frames(await answer.read())
        assert rest[-1][1]["type"] == "RUN_FINISHED"
        assert rest[-1][1]["outcome"] == {"type": "cancelled"}
        async with s.client.post(s.url + "/runs/r/stop") as again:
            assert await again.json() == {"stopped": False, "state": "cancelled"}


@pytest.mark.req("SRV-20", "D14")
@pytest.mark.parametrize("last", ["", "r:0", "all"])
async def test_a_reader_of_a_run_that_a_stopping_server_has_left_is_sent_to_the_next_one(last):
    """204 would be the end for an EventSource, and so would any other status but 200."""
    gate = Gate()
    async with served(says("a b c", pause=gate)) as s:
        async with s.post(ask(run="r")) as answer:
            await read_to(answer, "TEXT_MESSAGE_CONTENT")
            run = s.run("r")
            s.server.runs.is_closing = True
            run.log.cut()
            known = {"Last-Event-ID": f"r:{run.next_number - 1}" if last == "all" else last} if last else {}
            async with s.get("/runs/r/events", Accept="text/event-stream", **known) as browser:
                assert (browser.status, browser.content_type) == (200, "text/event-stream")
                assert await browser.read() == b"retry: 1000\n\n"
            async with s.get("/runs/r/events", **known) as other:
                assert (other.status, other.headers["Retry-After"]) == (503, "5")
                assert (await other.json(content_type=None))["type"].endswith("/shutting-down")
        gate.open.set()


@pytest.mark.req("SRV-11")
async def test_sessions_are_shown_and_forgotten():
    async with served(calls(("echo", "{}")), says("fine"), tools=PlainTools(echo=echo)) as s:
        async with s.post(ask("what?", thread="über/s 1")) as answer:
            await answer.read()
        path = "/sessions/" + quote("über/s 1", safe="")
        async with s.get(path) as shown:
            result = await shown.json()
        assert [message["role"] for message in result["messages"]] == ["user", "assistant", "tool", "assistant"]
        assert (result["session_id"], result["message_count"]) == ("über/s 1", 4)
        assert "extra" not in result["messages"][1]
        for _ in range(2):
            async with s.client.delete(URL(s.url + path, encoded=True)) as gone:
                assert gone.status == 204
        async with s.get(path) as shown:
            assert shown.status == 404
            assert (await shown.json())["type"].endswith("/session-not-found")


async def test_forgetting_a_session_stops_what_runs_on_it():
    async with served(says("a b", pause=Gate())) as s, s.post(ask(thread="t", run="r")) as answer:
        await read_to(answer, "TEXT_MESSAGE_CONTENT")
        async with s.client.delete(s.url + "/sessions/t") as gone:
            assert gone.status == 204
        assert types(await answer.read())[-1] == "RUN_FINISHED"
        async with s.get("/runs/r") as shown:
            assert shown.status == 404


@pytest.mark.req("SRV-16")
async def test_two_requests_on_one_session_take_turns():
    gate = Gate()
    async with served(says("first", pause=gate), says("second")) as s:
        async with s.post(ask(thread="t", run="one")) as one:
            await read_to(one, "TEXT_MESSAGE_CONTENT")
            waiting = asyncio.create_task(s.post(ask(thread="t", run="two")).__aenter__())
            await until(lambda: s.server.runs.busy == 2)
            async with s.get("/runs/two") as shown:
                assert (await shown.json())["state"] == "queued"
            gate.open.set()
            await one.read()
            two = await waiting
            assert types(await two.read())[-1] == "RUN_FINISHED"
        async with s.get("/sessions/t") as shown:
            roles = [message["role"] for message in (await shown.json())["messages"]]
        assert roles == ["user", "assistant", "user", "assistant"]


@pytest.mark.req("SRV-16")
async def test_a_busy_session_may_also_be_refused():
    gate = Gate()
    async with served(says("first", pause=gate), when_busy=WhenBusy.REJECT) as s, s.post(ask(thread="t")) as one:
        await read_to(one, "TEXT_MESSAGE_CONTENT")
        async with s.post(ask(thread="t")) as two:
            assert (two.status, two.headers["Retry-After"]) == (409, "2")
            assert (await two.json())["type"].endswith("/session-busy")
        gate.open.set()
        await one.read()


class Fragile(PlainTools):
    """Tools on a server that can go away."""

    def __init__(self):
        super().__init__()
        self.ready = True

    def health(self):
        return [
            ToolsetHealth(name="todo", ready=self.ready, required=True, detail="" if self.ready else "exited with 1"),
            ToolsetHealth(name="extra", ready=False, required=False),
        ]


@pytest.mark.req("SRV-10")
@pytest.mark.parametrize("path", ["/health", "/ready", "/health/agent"])
async def test_health_reports_the_truth(path):
    tools = Fragile()
    async with served(tools=tools) as s:
        async with s.get(path) as answer:
            result = await answer.json()
            assert answer.status == 200
        assert (result["status"], result["agent_name"], result["agent_ready"]) == ("healthy", "tester", True)
        assert result["active_sessions"] == 0
        assert result["uptime_seconds"] >= 0
        assert "reasons" not in result
        tools.ready = False
        async with s.get(path) as answer:
            result = await answer.json()
            assert (answer.status, result["status"], result["agent_ready"]) == (503, "unhealthy", False)
            assert result["reasons"] == ["The tool server 'todo' is not available: exited with 1."]
        if path == "/health/agent":
            assert result["tool_servers"][0] == {
                "name": "todo", "ready": False, "required": True, "detail": "exited with 1",
            }  # fmt: skip


@pytest.mark.req("SRV-10")
async def test_strangers_that_ask_for_the_health_do_not_make_the_store_count_each_time(monkeypatch):
    counts = []
    async with served() as s:
        count = s.server.store.count

        async def counted():
            counts.append(1)
            return await count()

        monkeypatch.setattr(s.server.store, "count", counted)
        monkeypatch.setattr(store_health, "CHECK_SECONDS", 3600)
        for _ in range(5):
            async with s.get("/health") as answer:
                assert (await answer.json())["active_sessions"] == 0
        monkeypatch.setattr(store_health, "CHECK_SECONDS", 0)
        await s.server.store.create("new", owner=Owner("", "ada"))
        async with s.get("/health") as answer:
            assert (await answer.json())["active_sessions"] == 1
    assert len(counts) == 2


@pytest.mark.req("SRV-10", "D10")
async def test_a_server_that_cannot_store_runs_is_not_ready_until_it_can(monkeypatch, tmp_path):
    monkeypatch.setattr(store_health, "CHECK_SECONDS", 0)
    file = SqliteFile(tmp_path / "sessions.db")
    records = SqliteRunStore(file, "tester")
    store = SqliteSessionStore(file, "tester", runs=records)

    async def limit(pages):
        await file.write(lambda connection: connection.execute(f"PRAGMA max_page_count={pages}").fetchone())

    async with served(says("x" * 200_000), says("hi"), store=store, records=records) as s:

        async def statuses():
            answers = [await s.get(path) for path in ("/health", "/ready")]
            return [answer.status for answer in answers]

        assert await statuses() == [200, 200]
        (used,) = await file.read(lambda connection: connection.execute("PRAGMA page_count").fetchone())
        await limit(used)
        async with s.post(ask()) as answer:
            assert b"storage-full" in await answer.read()
        assert await statuses() == [503, 503]
        assert await statuses() == [503, 503], "nothing can be stored yet"
        async with s.get("/health/agent") as answer:
            assert (await answer.json())["reasons"] == ["The disk that holds the sessions is full."]
        await limit(1_000_000)
        assert await statuses() == [200, 200], "although no run has shown it"


@pytest.mark.req("SRV-10", "D10")
@pytest.mark.parametrize("is_whole_table", [True, False])
async def test_a_server_is_not_ready_if_damage_keeps_it_from_storing_any_session(monkeypatch, tmp_path, is_whole_table):
    """Damage that only some sessions meet does not count: the others are served."""
    monkeypatch.setattr(store_health, "CHECK_SECONDS", 0)
    file = SqliteFile(tmp_path / "sessions.db")
    records = SqliteRunStore(file, "tester")
    store = SqliteSessionStore(file, "tester", runs=records)
    async with served(says("hi"), store=store, records=records) as s:
        await (await s.post(ask(thread="t", run="r1"))).read()
        if is_whole_table:
            await file.write(lambda connection: connection.execute(REFUSES).rowcount)
        with monkeypatch.context() as refused:
            if not is_whole_table:
                refused.setattr(store, "open", AsyncMock(side_effect=StoreRefused("A page is damaged.")))
            async with s.post(ask(thread="t", run="r2")) as answer:
                assert b"store-refused" in await answer.read()
        async with s.get("/ready") as answer:
            assert answer.status == (503 if is_whole_table else 200)
        assert [each.owner.user for each in await store.all_sessions()] == ["anonymous"], "it leaves nothing"


@pytest.mark.req("SRV-10")
async def test_a_readiness_check_leaves_no_more_than_one_session_in_a_store_that_deletes_none(monkeypatch):
    """A probe asks every few seconds, for as long as the disk is nearly full."""
    monkeypatch.setattr(store_health, "CHECK_SECONDS", 0)
    async with served() as s:
        store, health = s.server.store, s.server.store_health
        health.note(StorageFull.code)
        with monkeypatch.context() as full:
            full.setattr(store, "delete", AsyncMock(side_effect=StorageFull("The disk is full.")))
            for _ in range(3):
                assert isinstance(await health.sessions(), StorageFull)
        assert await store.count() == 1
        assert await health.sessions() == 0


@pytest.mark.req("SRV-10")
async def test_a_run_that_is_refused_because_it_cannot_be_stored_is_noted(monkeypatch):
    async with served() as s:
        monkeypatch.setattr(s.server.runs, "start", AsyncMock(side_effect=StorageFull("The disk is full.")))
        monkeypatch.setattr(s.server.store.values, "put", AsyncMock(side_effect=StorageFull("The disk is full.")))
        async with s.post(ask()) as answer:
            assert answer.status == 507
        async with s.get("/ready") as answer:
            assert answer.status == 503


@pytest.mark.req("SRV-03", "SRV-10")
async def test_before_it_is_ready_the_server_says_so():
    async with served(ready=False) as s:
        for path in ("/awp", "/copilotkit/agent/default/run"):
            async with s.post(path=path) as answer:
                assert answer.status == 503
                assert answer.headers["Retry-After"] == "1"
                assert (await answer.json())["type"].endswith("/not-ready")
        async with s.get("/ready") as answer:
            assert (answer.status, (await answer.json())["agent_ready"]) == (503, False)
        async with s.get("/docs") as answer:
            assert answer.status == 200
        await s.server.start()
        s.server.serve()
        async with s.post() as answer:
            assert types(await answer.read())[-1] == "RUN_FINISHED"


@pytest.mark.req("SRV-20")
async def test_while_it_shuts_down_new_runs_are_refused_and_running_ones_finish():
    gate = Gate()
    async with served(says("a b", pause=gate)) as s, s.post(ask(run="r")) as answer:
        await read_to(answer, "TEXT_MESSAGE_CONTENT")
        draining = asyncio.create_task(s.server.drain(10))
        await until(lambda: s.server.state == "shutting_down")
        async with s.get("/ready") as ready:
            assert ready.status == 503
        async with s.post(ask(thread="other")) as refused:
            assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
            assert (await refused.json())["type"].endswith("/shutting-down")
        gate.open.set()
        assert types(await answer.read())[-1] == "RUN_FINISHED"
        await draining


@pytest.mark.req("SRV-20", "D01")
async def test_what_does_not_finish_in_time_gets_an_ending():
    async with served(says("a b", pause=Gate())) as s, s.post(ask(run="r")) as answer:
        await read_to(answer, "TEXT_MESSAGE_CONTENT")
        await s.server.drain(0.05)
        ending = frames(await answer.read())[-1][1]
        assert (ending["type"], ending["code"]) == ("RUN_ERROR", "shutting-down")


@pytest.mark.req("SRV-19")
async def test_the_documentation_needs_nothing_from_elsewhere():
    async with served() as s:
        for path, kind in {
            "/docs": "text/html",
            "/docs/docs.js": "text/javascript",
            "/docs/docs.css": "text/css",
        }.items():
            async with s.get(path) as answer:
                text = await answer.text()
                assert answer.status == 200
                assert answer.headers["Content-Type"].startswith(kind)
                assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
                assert "unsafe" not in answer.headers["Content-Security-Policy"]
                assert not re.search(r"https?://|<script>|<style>| on\w+=|style=", text)
        async with s.get("/docs/../secrets.py") as answer:
            assert answer.status == 404
        async with s.get("/docs/docs.py") as answer:
            assert answer.status == 404


@pytest.mark.req("SRV-19")
async def test_openapi_describes_every_route_and_its_problems():
    async with served(settings=ServerSettings(protocols=("ag-ui",))) as s, s.get("/openapi.json") as answer:
        result = await answer.json()
    assert {
        "/awp", "/awp/capabilities", "/runs/{run_id}", "/runs/{run_id}/events", "/runs/{run_id}/stop", "/runs/{run_id}/continue",
        "/runs/{run_id}/ticket",
        "/sessions", "/sessions/{id}", "/sessions/{id}/events",
        "/health", "/ready", "/health/agent", "/metrics", "/copilotkit", "/copilotkit/info", "/copilotkit/agent/{agent_id}/run",
        "/copilotkit/agent/{agent_id}/connect", "/copilotkit/agent/{agent_id}/stop/{thread_id}",
        "/me", "/.well-known/oauth-protected-resource",
    } == set(result["paths"])  # fmt: skip
    assert "HTTPValidationError" not in result["components"]["schemas"]
    references = set(re.findall(r"#/components/schemas/(\w+)", str(result)))
    assert references <= set(result["components"]["schemas"])
    assert result["paths"]["/awp"]["post"]["requestBody"]["content"]["application/json"]["schema"]["required"]
    posted = {path: each["post"] for path, each in result["paths"].items() if "post" in each}
    assert {path for path, each in posted.items() if "requestBody" not in each} == {
        "/runs/{run_id}/stop",
        "/runs/{run_id}/continue",
        "/runs/{run_id}/ticket",
    }
    protobuf = {path for path, each in posted.items() if PROTOBUF in each["responses"]["200"]["content"]}
    assert protobuf == {"/awp", "/runs/{run_id}/continue"}  # CopilotKit's clients are not asked what they accept
    assert result["components"]["schemas"]["RunResponse"]["properties"]["created_at"]["format"] == "date-time"


async def test_a_head_is_answered_as_a_get_without_its_body():
    async with served() as s:
        async with s.post(ask(run="r")) as answer:
            await answer.read()
        for path in (
            "/",
            "/health",
            "/metrics",
            "/docs",
            "/awp/capabilities",
            "/runs/r",
            "/runs/r/events",
            "/sessions/t1",
        ):
            async with s.get(path) as whole, s.client.head(s.url + path) as head:
                assert (head.status, head.content_type) == (200, whole.content_type), path
                assert await head.read() == b"", path
        async with s.client.head(s.url + "/awp") as refused:
            assert (refused.status, refused.headers["Allow"]) == (405, "POST")
        async with s.client.put(s.url + "/health") as refused:
            assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")
            assert (await refused.json())["detail"] == "PUT is not allowed at /health; use GET, HEAD."
        for path, detail in {
            "/helth": "There is nothing at /helth. Did you mean /health?",
            "/nothing/like/it": "There is nothing at /nothing/like/it.",
        }.items():
            async with s.get(path) as missing:
                assert (missing.status, (await missing.json())["detail"]) == (404, detail)
        headers = {"Content-Type": "application/json"}
        async with s.client.post(s.url + "/awp", data=b"{'threadId': 1}", headers=headers) as refused:
            detail = "The body is not valid JSON: object keys must be strings (byte 1)"
            assert (refused.status, (await refused.json())["detail"]) == (400, detail)


async def test_a_slash_at_the_end_of_an_address_changes_nothing():
    async with served(settings=ServerSettings(protocols=tuple(WIRES))) as s:
        for path, status in {"/awp/": 200, "/agent/tester/chat/": 200, "/agent/else/chat//": 404, "//": 404}.items():
            body = {"message": "hi"} if "chat" in path else ask()
            async with s.post(body, path) as answer:
                assert answer.status == status, path
                await answer.read()
        async with s.post(ask(thread="t", run="r")) as answer:
            await answer.read()
        for path in ("/runs/r/", "/runs/r/events/", "/sessions/t/", "/awp/capabilities/", "/"):
            async with s.get(path) as answer:
                assert answer.status == 200, path


async def test_capabilities_promise_what_the_server_does():
    async with served() as s, s.get("/awp/capabilities") as received:
        promised = await received.json()
        assert promised["transport"]["resumable"] is True
        assert promised["multimodal"]["input"] == dict.fromkeys(("image", "pdf", "file"), True) | {
            "audio": False,
            "video": False,
        }
        assert "maxExecutionTime" not in promised["execution"]  # no run has a time limit unless the file says so


async def test_posting_the_same_run_twice_runs_it_once():
    async with served(says("only once"), says("twice")) as s:
        body = ask(run="r")
        answers = []
        for _ in range(2):
            async with s.post(body) as answer:
                answers.append(await answer.read())
        assert answers[0] == answers[1]
        assert len(s.model.prompts) == 1


async def test_more_runs_than_allowed_are_refused_with_the_time_to_wait():
    from holodeck.server.options import ServerSettings

    gate = Gate()
    async with served(says("a", pause=gate), settings=ServerSettings(block=server_block(max_concurrent=1))) as s:
        async with s.post(ask(thread="a")) as one:
            await read_to(one, "TEXT_MESSAGE_CONTENT")
            async with s.post(ask(thread="b")) as two:
                assert (two.status, two.headers["Retry-After"]) == (503, "2")
            gate.open.set()
            await one.read()
        await until(lambda: s.server.runs.busy == 0)
        async with s.post(ask(thread="b")) as two:
            assert two.status == 200
            await two.read()


@pytest.mark.req("SRV-10")
async def test_a_server_without_its_model_says_when_the_model_is_tried_again():
    async with served(says("hi")) as s:
        breaker = s.server.agent.breakers.of(
            Dependency.MODEL, "m", CircuitBreakerConfig(failure_threshold=1, recovery_timeout=3600)
        )
        admission = breaker.admit()
        admission.failed("down")
        for path in ("/health", "/ready", "/health/agent"):
            async with s.get(path) as answer:
                assert answer.status == 503
                assert 3000 < int(answer.headers["Retry-After"]) <= 3600


async def test_runs_whose_files_are_still_being_read_count_as_runs():
    settings = ServerSettings(protocols=tuple(WIRES), block=server_block(max_concurrent=2))
    async with served(settings=settings) as s:
        whole = asyncio.Event()

        async def read_slowly(uploads, *, tenant):  # as a document of many pages
            await whole.wait()
            return []

        s.server.files.read = read_slowly
        file = {"filename": "a.txt", "content": "aGk=", "mime_type": "text/plain"}
        body = {"message": "hi", "files": [file]}

        async def ask_with_file():
            async with s.post(body, "/agent/tester/chat") as answer:
                return answer.status

        asked = [asyncio.create_task(ask_with_file()) for _ in range(2)]
        await until(lambda: s.server.arriving == 2)
        async with s.post({"message": "hi"}, "/agent/tester/chat") as third:
            assert third.status == 503
        whole.set()
        assert await asyncio.gather(*asked) == [200, 200]
        assert s.server.arriving == 0


@pytest.mark.req("SRV-21")
async def test_the_chain_applies_to_every_reader_also_to_one_that_comes_back():
    from holodeck.runs.middleware import EventMiddleware, hide_tools

    async def secret(arguments, context):
        return ToolResult(content="hidden")

    turns = (calls(("secret", '{"a": 1}')), says("done now"))
    tools = PlainTools(secret=secret)
    async with served(*turns, tools=tools, middleware=lambda: EventMiddleware([hide_tools(["secret"])])) as s:
        async with s.post(ask(run="r")) as answer:
            whole = await answer.read()
        assert not any(name.startswith("TOOL_CALL") for name in types(whole))
        for after in range(len(s.run("r").log) - 1):
            async with s.get(f"/runs/r/events?after={after}") as answer:
                events = frames(await answer.read())
            expected = [frame for frame in frames(whole) if int(frame[0].rpartition(":")[2]) > after]
            assert events == expected


@pytest.mark.req("C06")
async def test_silence_is_filled_with_comments():
    gate = Gate()
    async with served(says("a b", pause=gate), block=server_block(keepalive=0.05)) as s, s.post() as answer:
        await answer.content.readuntil(b": keepalive\n\n")
        await answer.content.readuntil(b": keepalive\n\n")
        gate.open.set()
        assert types(await answer.read())[-1] == "RUN_FINISHED"


async def test_an_empty_reply_still_has_its_ending():
    async with served(Turn()) as s, s.post() as answer:
        assert types(await answer.read())[-1] == "RUN_ERROR"


@pytest.mark.parametrize("stripped", [True, False], ids=["a proxy that strips the path", "a proxy that keeps it"])
async def test_everything_works_under_a_path(*, stripped: bool) -> None:
    before = "" if stripped else "/agents/one"
    async with served(says("hi"), settings=ServerSettings(root_path="/agents/one")) as s:
        async with s.post(ask(), f"{before}/awp") as answer:
            assert "RUN_FINISHED" in await answer.text()
        async with s.get(f"{before}/openapi.json") as answer:
            assert (await answer.json())["servers"] == [{"url": "/agents/one"}]
        async with s.get(f"{before}/") as answer:
            links = (await answer.json())["links"]
        assert (links["playground"], links["ag-ui"]) == ("/agents/one/", "/agents/one/awp")
        async with s.get(f"{before}/docs") as answer:
            assert 'src="/agents/one/docs/docs.js"' in await answer.text()
        async with s.get("/agents/onemore/awp") as answer:
            assert answer.status == 404
