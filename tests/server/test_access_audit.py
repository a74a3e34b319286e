"""What the log and the metrics say about credentials and the decisions of people: who, what, and not too many lines."""

from holodeck.access.principal import ADMIN, METRICS
from holodeck.models.scripted import calls, says
from holodeck.telemetry.logs import event_log
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.keyed import keyed
from tests.server.serving import Gate, ask, frames, read_to

SESSION = "01K9ZQ4W3V8N2R5T7Y9A1C3E5G"


async def test_an_admin_sees_the_users_of_its_tenant_and_that_is_logged(tmp_path, caplog):
    """A49."""
    async with keyed(tmp_path) as (s, holders):
        ann = holders.headers(user="ann", tenant="acme")
        key_id, keyed_user = holders.create(tenant="acme")
        admin = holders.headers(ADMIN, user="root", tenant="acme")
        await s.server.access.refresh()
        for headers in (ann, keyed_user):
            async with s.post(ask(thread=SESSION), **headers) as answer:
                await answer.read()
        for name in ("ann", f"key:{key_id}"):
            async with s.get(f"/sessions/{SESSION}", **admin, **{"X-HoloDeck-User": name}) as answer:
                assert answer.status == 200
        async with s.get(f"/sessions/{SESSION}", **admin) as answer:
            assert answer.status == 404
        lines = [record.details for record in caplog.records if record.message == "admin_access"]
        assert [(line["user"], line["owner"], line["object"]) for line in lines] == [
            ("root", "ann", SESSION),
            ("root", f"key:{key_id}", SESSION),
        ]


async def test_a_thousand_wrong_keys_are_a_few_lines(tmp_path, caplog):
    """A13."""
    async with keyed(tmp_path, attempts=30) as (s, holders):
        good = holders.headers(user="ann")
        await s.server.access.refresh()
        statuses = []
        for _ in range(100):
            async with s.get("/me", Authorization="Bearer hdk_wrong") as answer:
                statuses.append(answer.status)
        assert statuses == [401] * 30 + [429] * 70
        async with s.get("/me", Authorization="Bearer hdk_wrong") as answer:
            assert (await answer.json(content_type=None))["reason"] == "address-failures"
            assert int(answer.headers["Retry-After"]) > 0
        async with s.get("/me", **good) as answer:
            assert answer.status == 200
        lines = [record for record in caplog.records if record.message == "auth_refused"]
        assert [line.details["reason"] for line in lines] == ["malformed", "limited"]
        s.server.gate.audit._sum_up((lines[0].details["address"], "malformed"))
        assert caplog.records[-1].details["count"] == 29


async def test_a_missing_scope_is_logged_with_its_principal(tmp_path, caplog):
    async with keyed(tmp_path) as (s, holders):
        headers = holders.headers(METRICS, user="ann", tenant="acme")
        await s.server.access.refresh()
        async with s.get("/sessions/x", **headers) as answer:
            assert answer.status == 403
        (line,) = [record.details for record in caplog.records if record.message == "auth_denied"]
        assert (line["user"], line["tenant"], line["scope"]) == ("ann", "acme", "sessions:read")


async def test_metrics_name_no_users(tmp_path):
    """A52."""
    async with keyed(tmp_path, says("x")) as (s, holders):
        watcher = holders.headers(METRICS)
        users = [holders.headers(user=f"user-{n}", tenant=f"tenant-{n}") for n in range(20)]
        await s.server.access.refresh()
        for _ in range(2):
            async with s.get("/me", **users[0]) as answer, s.get("/metrics", **watcher) as figures:
                before = len(await figures.text())
        for headers in users:
            async with s.get("/me", **headers) as answer:
                assert answer.status == 200
        async with s.get("/metrics", **watcher) as answer:
            page = await answer.text()
        assert "user-" not in page
        assert "tenant-" not in page
        assert "holodeck_auth_total" in page
        assert len(page) < before + 50


async def test_decisions_of_people_are_logged(tmp_path, caplog):
    caplog.set_level("INFO")
    gate, tools = Gate(), PlainTools(frozenset({"delete"}), delete=echo)
    turns = calls(("delete", "{}")), says("a b", pause=gate)
    async with keyed(tmp_path, *turns, tools=tools) as (s, holders):
        headers = holders.headers(user="ann", tenant="acme")
        await s.server.access.refresh()
        async with s.post(ask("delete it", thread=SESSION), **headers) as answer:
            (interrupt,) = frames(await answer.read())[-1][1]["outcome"]["interrupts"]
        resume = [{"interruptId": "unknown", "status": "resolved", "payload": {"approved": True}}]
        async with s.post(ask(thread=SESSION, resume=resume), **headers) as answer:
            assert answer.status == 422, "nothing is decided, and no line says so"
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
        running = await s.post(ask(thread=SESSION, run="r", resume=resume), **headers)
        await read_to(running, "TEXT_MESSAGE_CONTENT")
        async with s.post(b"", "/runs/r/stop", **headers) as answer:
            assert (await answer.json())["stopped"]
        await running.read()
        async with s.client.delete(f"{s.url}/sessions/{SESSION}", headers=headers) as answer:
            assert answer.status == 204
    assert [record.message for record in caplog.records].count("approval_decided") == 1
    lines = {record.message: record.details for record in caplog.records if hasattr(record, "details")}
    assert lines["approval_decided"] == {"owner": "ann", "interrupt_id": interrupt["id"], "approved": True}
    assert lines["run_stopped"] == {"owner": "ann", "run_id": "r"}
    assert lines["session_deleted"] == {"owner": "ann", "session_id": SESSION}


STOPS = {  # path → body
    "/copilotkit/agent/default/stop/t": {},
    "/copilotkit": {"method": "agent/stop", "params": {"agentId": "default", "threadId": "t"}},
    "/runs/r/stop": {},
    "/v1/responses/r/cancel": {},
    "/ai-sdk/chat/t/stop": {},
    "/a2a": {"jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": {"id": "r"}},
    "/a2a/tasks/r:cancel": {},
}


async def test_a_stop_is_logged_on_every_wire(tmp_path, caplog):
    caplog.set_level("INFO")
    gate = Gate()
    async with keyed(tmp_path, *(says("a b", pause=gate) for _ in STOPS)) as (s, holders):
        ann = holders.headers(user="ann")
        await s.server.access.refresh()
        for path, body in STOPS.items():
            caplog.clear()
            running = await s.post(ask(thread="t", run="r"), **ann)
            await read_to(running, "TEXT_MESSAGE_CONTENT")
            async with s.post(body, path, **ann, **{"A2A-Version": "1.0"}) as answer:
                assert answer.status == 200, (path, await answer.text())
            await running.read()
            lines = [record.details for record in caplog.records if record.message == "run_stopped"]
            assert lines == [{"owner": "ann", "run_id": "r"}], path
            async with s.client.delete(f"{s.url}/v1/responses/r", headers=ann) as answer:
                assert answer.status == 200, "the next run has the same id"


async def test_requests_of_a_client_that_guesses_are_logged_for_debugging_only(tmp_path):
    lines = []
    async with keyed(tmp_path, attempts=3) as (s, _):
        event_log.connect(lines.append)
        try:
            for _ in range(20):
                async with s.get("/me", Authorization="Bearer hdk_wrong") as answer:
                    await answer.read()
        finally:
            event_log.connect(lambda _line: None)
    assert [line["event"] for line in lines].count("request_completed") == 3
