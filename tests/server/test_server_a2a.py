"""A2A over raw HTTP: versions, errors, tasks over several runs, lists, cancelling, subscriptions, notifications."""

import asyncio
import base64
import hmac
import json
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from holodeck.config.limit_schema import AddressLimits, ServerLimits
from holodeck.core.owner import Owner
from holodeck.errors import InvalidRequest, StoreUnavailable
from holodeck.models.scripted import Turn, calls, says
from holodeck.runs.middleware import EventMiddleware, hide_tools
from holodeck.server import a2a_calls, push_sender
from holodeck.server.options import PushSettings, ServerSettings
from holodeck.server.wires import WIRES
from holodeck.sessions.values import MemoryValues
from holodeck.wires.a2a.request import PushConfig
from tests.agent.agent_fixture import Deletions, PlainTools, echo
from tests.server.keyed import keyed
from tests.server.serving import Gate, Served, ask, read_to, served, server_block, until
from tests.server.webhook import Webhook, listening
from tests.wires.sse_parsers import whatwg

pytestmark = pytest.mark.req("SRV-27")

ALL = ServerSettings(protocols=tuple(WIRES))
V1, V03 = {"A2A-Version": "1.0"}, {"A2A-Version": "0.3"}
Json = dict[str, Any]


def message(text: str = "Hi", **more: Any) -> Json:
    return {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}], **more}


async def rpc(s: Served, method: str, params: Json, version: str | None = "1.0") -> Json:
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    async with s.post(body, "/a2a", **({"A2A-Version": version} if version else {})) as answer:
        result: Json = json.loads(await answer.read())
        assert (answer.status, result["id"]) == (200, 7)
        return result


async def sent(s: Served, text: str = "Hi", **more: Any) -> Json:
    result = await rpc(s, "SendMessage", {"message": message(text, **more)})
    task: Json = result["result"]["task"]
    return task


async def http(s: Served, method: str, path: str, body: Json | None = None, **headers: str) -> tuple[int, Json]:
    given = {**V1, **({"Content-Type": "application/json"} if body is not None else {}), **headers}
    data = None if body is None else json.dumps(body)
    async with s.client.request(method, f"{s.url}/a2a{path}", data=data, headers=given) as answer:
        return answer.status, json.loads(await answer.read())


def nested(levels: int) -> Json:
    """As many objects, each in the one before it."""
    value: Json = {}
    for _ in range(levels):
        value = {"a": value}
    return value


DELETE = calls(("delete", '{"name": "a"}'))


async def test_the_card() -> None:
    async with served(settings=ALL) as s:
        async with s.get("/.well-known/agent-card.json") as answer:
            card = await answer.json()
            etag = answer.headers["ETag"]
            assert "max-age" in answer.headers["Cache-Control"]
        async with s.get("/.well-known/agent-card.json", **{"If-None-Match": etag}) as answer:
            assert answer.status == 304
        for other in ("/.well-known/agent.json", "/a2a/.well-known/agent-card.json"):
            async with s.get(other) as answer:
                assert await answer.json() == card, "older clients, and those whose base URL is that of the bindings"
    assert [each["protocolBinding"] for each in card["supportedInterfaces"]] == ["JSONRPC", "HTTP+JSON"] * 2
    assert (card["url"], card["protocolVersion"]) == (f"{s.url}/a2a", "0.3.0")
    assert card["capabilities"]["pushNotifications"] is False


async def test_the_extended_card_names_the_tools() -> None:
    async with served(settings=ALL, tools=Deletions().tools) as s:
        _, card = await http(s, "GET", "/extendedAgentCard")
        result = await rpc(s, "GetExtendedAgentCard", {})
    assert [each["name"] for each in card["skills"]] == ["tester", "delete"]
    assert result["result"] == card


@pytest.mark.parametrize(
    ("method", "version", "code"),
    [
        ("SendMessage", None, -32009),
        ("SendMessage", "9.9", -32009),
        ("message/send", "1.0", -32009),
        ("tasks/get", None, -32602),
        ("GetTask", "1.0", -32602),
        ("GetTask", "1.0.7", -32602),
        ("Nothing", "1.0", -32601),
        ("tasks/list", None, -32601),
    ],
)
async def test_a_version_and_its_methods(method: str, version: str | None, code: int) -> None:
    async with served(settings=ALL) as s:
        assert (await rpc(s, method, {}, version))["error"]["code"] == code


async def test_a_request_without_a_version_is_refused_with_the_header_to_send() -> None:
    async with served(settings=ALL) as s, s.get("/a2a/tasks") as answer:
        refusal = (await answer.json())["error"]["message"]
    assert "names no version. Send the header A2A-Version: 1.0; HTTP+JSON of 0.3 is below /a2a/v1." in refusal


async def test_errors_have_the_same_details_on_both_bindings() -> None:
    async with served(settings=ALL) as s:
        for method, path, status, name in (
            ("GET", "/nothing", 404, "NOT_FOUND"),
            ("DELETE", "/tasks/nothing", 405, "UNIMPLEMENTED"),
        ):
            found, body = await http(s, method, path)
            assert (found, body["error"]["status"]) == (status, name)
        result = (await rpc(s, "GetTask", {"id": "nothing"}))["error"]
        status, body = await http(s, "GET", "/tasks/nothing")
    assert (result["code"], status, body["error"]["status"]) == (-32001, 404, "NOT_FOUND")
    assert result["data"] == body["error"]["details"]
    assert result["data"][0]["reason"] == "TASK_NOT_FOUND"


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"message": []},
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": []}},
        {"message": {"role": "ROLE_USER", "parts": [{"text": "x"}]}},
        {"message": message(parts=[{"text": "a", "url": "http://a"}])},
        {"message": message(parts=[{}])},
        {"message": message(role="ROLE_AGENT")},
        {"message": message(), "configuration": {"historyLength": -1}},
        {"message": message(), "configuration": nested(500)},
        {"message": message(parts=[{"data": {"interruptId": "i", "approved": "yes"}}])},
        {"message": message(parts=[{"data": {"interruptId": "i", "approved": True}}])},
    ],
)
async def test_bad_messages_are_invalid_params(params: Json) -> None:
    async with served(settings=ALL) as s:
        assert (await rpc(s, "SendMessage", params))["error"]["code"] == -32602
        status, _ = await http(s, "POST", "/message:send", params)
        assert (status, s.model.prompts) == (400, [])


async def test_a_time_that_is_not_text_is_invalid() -> None:
    async with served(settings=ALL) as s:
        refused = await rpc(s, "ListTasks", {"statusTimestampAfter": "\ud800"})
    assert refused["error"]["code"] == -32602


async def test_a_body_in_chunks_is_read() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"message": '
        yield json.dumps(message()).encode() + b"}"

    given = {**V1, "Content-Type": "application/json"}
    async with served(says("Hello"), settings=ALL) as s:
        async with s.client.post(f"{s.url}/a2a/message:send", data=chunks(), headers=given) as answer:
            assert (answer.status, (await answer.json())["task"]["artifacts"][0]["parts"]) == (200, [{"text": "Hello"}])
        async with s.client.post(f"{s.url}/a2a/message:send", headers={**given, "Content-Length": "0"}) as answer:
            assert answer.status == 400


async def test_a_client_that_takes_no_text_is_warned() -> None:
    options = {"acceptedOutputModes": ["image/png"]}
    async with served(settings=ALL) as s:
        result = await rpc(s, "SendMessage", {"message": message(), "configuration": options})
    assert result["error"]["code"] == -32005


@pytest.mark.req("T15")
async def test_a_long_list_lets_other_requests_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of a thousand tasks in memory held the event loop for 0.4 s."""
    turns, begun = 0, []
    listed = a2a_calls._listed

    async def noted(*given: Any) -> Any:
        begun.append(turns)
        return await listed(*given)

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with served(*[says("ok")] * 5, settings=ALL) as s:
        for number in range(5):
            await sent(s, contextId=f"chat-{number}")
        monkeypatch.setattr(a2a_calls, "_listed", noted)
        counting = asyncio.create_task(count_turns())
        _, page = await http(s, "GET", "/tasks")
        counting.cancel()
    assert page["totalSize"] == len(begun) == 5
    assert len(set(begun)) == 5, "each task in a turn of its own"


@pytest.mark.parametrize("status", ["", "&status=TASK_STATE_COMPLETED"], ids=["all", "those of a state"])
async def test_only_the_tasks_of_a_page_are_read(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    """Each page of a list read all tasks, up to a thousand, with their logs."""
    read, listed = [], a2a_calls._listed

    async def noted(*given: Any) -> Any:
        read.append(given[1])
        return await listed(*given)

    async with served(*[says("ok")] * 5, settings=ALL) as s:
        made = [(await sent(s, contextId=f"chat-{number}"))["id"] for number in range(5)]
        monkeypatch.setattr(a2a_calls, "_listed", noted)
        _, page = await http(s, "GET", f"/tasks?pageSize=2{status}")
        _, last = await http(s, "GET", f"/tasks?pageSize=2&pageToken=4{status}")
        _, none = await http(s, "GET", "/tasks?status=TASK_STATE_WORKING")
    assert [each["id"] for each in page["tasks"]] == [made[4], made[3]]
    assert (page["totalSize"], page["nextPageToken"], none["totalSize"]) == (5, "2", 0)
    assert ([each["id"] for each in last["tasks"]], last["nextPageToken"]) == ([made[0]], "")
    assert read == [made[4], made[3], made[0]]


async def test_two_tasks_in_one_context() -> None:
    async with served(says("one"), says("two"), settings=ALL) as s:
        first = await sent(s, "first", contextId="chat-1")
        second = await sent(s, "second", contextId="chat-1")
        listed = (await rpc(s, "ListTasks", {"contextId": "chat-1", "includeArtifacts": True}))["result"]
        _, page = await http(s, "GET", "/tasks?contextId=chat-1&pageSize=1")
        _, rest = await http(s, "GET", f"/tasks?contextId=chat-1&pageSize=1&pageToken={page['nextPageToken']}")
    assert first["id"] != second["id"]
    assert first["contextId"] == second["contextId"] == "chat-1"
    assert [each["id"] for each in listed["tasks"]] == [second["id"], first["id"]]
    assert listed["tasks"][0]["artifacts"][0]["parts"] == [{"text": "two"}], "and nothing of the first task"
    assert ([each["id"] for each in page["tasks"]], page["totalSize"]) == ([second["id"]], 2)
    assert ([each["id"] for each in rest["tasks"]], rest["nextPageToken"]) == ([first["id"]], "")
    assert [each.content for each in s.model.prompts[-1].messages] == ["first", "one", "second"]


async def test_a_task_over_two_runs() -> None:
    tool = Deletions()
    async with served(DELETE, says("gone"), tools=tool.tools, settings=ALL) as s:
        asked = await sent(s, "delete it")
        assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        question = asked["status"]["message"]["parts"][1]["data"]
        answer = {"parts": [{"data": {"interruptId": question["interruptId"], "approved": True}}]}
        wrong = await rpc(s, "SendMessage", {"message": message(**answer, taskId=asked["id"], contextId="other")})
        assert wrong["error"]["code"] == -32602
        done = await sent(s, **answer, taskId=asked["id"])
        again = (await rpc(s, "GetTask", {"id": asked["id"]}))["result"]
        late = await rpc(s, "SendMessage", {"message": message(taskId=asked["id"])})
    assert (done["id"], done["status"]["state"], tool.deleted) == (asked["id"], "TASK_STATE_COMPLETED", ["a"])
    assert again == done
    assert [each["role"] for each in done["history"]] == ["ROLE_USER", "ROLE_AGENT"]
    assert late["error"]["code"] == -32004, "it has ended"


async def test_words_to_a_task_that_waits_do_not_approve() -> None:
    tool = Deletions()
    async with served(DELETE, says("as you wish"), tools=tool.tools, settings=ALL) as s:
        asked = await sent(s, "delete it")
        done = await sent(s, "yes, go on", taskId=asked["id"])
    assert (done["id"], done["status"]["state"], tool.deleted) == (asked["id"], "TASK_STATE_COMPLETED", [])


async def test_a_task_that_waits_can_be_canceled() -> None:
    tool = Deletions()
    async with served(DELETE, says("well"), tools=tool.tools, settings=ALL) as s:
        asked = await sent(s, "delete it", contextId="chat-1")
        canceled = (await rpc(s, "CancelTask", {"id": asked["id"]}))["result"]
        twice = await rpc(s, "CancelTask", {"id": asked["id"]})
        question = asked["status"]["message"]["parts"][1]["data"]
        resume = {"session_id": "chat-1", "resume": [{"interrupt_id": question["interruptId"], "approved": True}]}
        async with s.post(resume, "/agent/tester/chat") as answer:
            assert answer.status == 422, "what was withdrawn cannot be approved any more"
        await sent(s, "something else", contextId="chat-1")
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    assert (twice["error"]["code"], tool.deleted) == (-32002, [])


async def test_a_task_that_works_can_be_canceled_and_takes_no_message() -> None:
    async with served(Turn(text=["never"], pause=Gate()), settings=ALL) as s:
        result = await rpc(s, "SendMessage", {"message": message(), "configuration": {"returnImmediately": True}})
        task = result["result"]["task"]
        busy = await rpc(s, "SendMessage", {"message": message(taskId=task["id"])})
        _, canceled = await http(s, "POST", f"/tasks/{task['id']}:cancel")
    assert busy["error"]["code"] == -32602
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_subscription_begins_with_the_task_and_follows_it(method: str) -> None:
    gate = Gate()
    async with served(Turn(text=["Once", " upon"], pause=gate), settings=ALL) as s:
        result = await rpc(s, "SendMessage", {"message": message(), "configuration": {"returnImmediately": True}})
        task_id = result["result"]["task"]["id"]
        await until(lambda: len(s.run(task_id).log) > 3)
        async with s.client.request(method, f"{s.url}/a2a/tasks/{task_id}:subscribe", headers=V1) as answer:
            seen = await read_to(answer, '"task"')
            gate.open.set()
            frames = [json.loads(frame.data) for frame in whatwg(seen + await answer.read())]
        after = await rpc(s, "SubscribeToTask", {"id": task_id})
    assert frames[0]["task"]["artifacts"][0]["parts"] == [{"text": "Once"}]
    assert frames[1]["artifactUpdate"]["artifact"]["parts"] == [{"text": " upon"}]
    assert frames[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert after["error"]["code"] == -32004


async def test_a_subscription_continues_over_an_approval() -> None:
    async with served(DELETE, says("gone"), tools=Deletions().tools, settings=ALL) as s:
        asked = await sent(s, "delete it")
        async with s.client.get(f"{s.url}/a2a/tasks/{asked['id']}:subscribe", headers=V1) as answer:
            seen = await read_to(answer, '"task"')
            question = asked["status"]["message"]["parts"][1]["data"]
            parts = [{"data": {"interruptId": question["interruptId"], "approved": True}}]
            await sent(s, parts=parts, taskId=asked["id"])
            frames = [json.loads(frame.data) for frame in whatwg(seen + await answer.read())]
    assert frames[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert {each["statusUpdate"]["taskId"] for each in frames if "statusUpdate" in each} == {asked["id"]}


@pytest.mark.req("T17")
async def test_a_subscription_takes_a_slot() -> None:
    gate = Gate()
    limits = ServerLimits(address=AddressLimits(streams=1))
    async with served(
        Turn(text=["Once"], pause=gate), settings=ServerSettings(protocols=("a2a",), block=server_block(limits=limits))
    ) as s:
        result = await rpc(s, "SendMessage", {"message": message(), "configuration": {"returnImmediately": True}})
        path = f"/a2a/tasks/{result['result']['task']['id']}:subscribe"
        await until(lambda: s.server.answering == 0)
        async with s.get(path, **V1) as first:
            seen = await read_to(first, '"task"')
            async with s.get(path, **V1) as second:
                assert second.status == 429
            gate.open.set()
            assert b"TASK_STATE_COMPLETED" in seen + await first.read()
        await until(lambda: s.server.answering == 0)


async def test_a_run_of_another_wire_is_a_task() -> None:
    async with served(says("Hello"), settings=ALL) as s:
        async with s.post(ask("Hi", thread="chat-1", run="run-1")) as answer:
            await answer.read()
        task = (await rpc(s, "GetTask", {"id": "run-1"}))["result"]
    assert (task["contextId"], task["artifacts"][0]["parts"]) == ("chat-1", [{"text": "Hello"}])


@pytest.mark.req("T10")
async def test_a_list_has_the_tasks_of_its_owner_only(tmp_path: Path) -> None:
    async with keyed(tmp_path, says("Hello")) as (s, holders):
        ann, eve = (holders.headers(user=name, tenant="acme") for name in ("ann", "eve"))
        await s.server.access.refresh()
        body = {"message": message(contextId="chat-1")}
        async with s.post(body, "/a2a/message:send", **V1, **ann) as answer:
            task = (await answer.json())["task"]
        for headers, seen in ((ann, [task["id"]]), (eve, [])):
            async with s.get("/a2a/tasks?contextId=chat-1", **V1, **headers) as answer:
                assert [each["id"] for each in (await answer.json())["tasks"]] == seen


class SlowWebhook(Webhook):
    """A client that answers the first call late, and those of artifacts never."""

    def __init__(self) -> None:
        super().__init__(failures=0)
        self.may_answer = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        await self.may_answer.wait()
        if b"artifactUpdate" in await request.read():
            await asyncio.Event().wait()
        return await super().take(request)


def followers() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("push ")]


def pushing_to(port: int) -> ServerSettings:
    push = PushSettings(permit=lambda _: True, wait=0.01)
    return ServerSettings(protocols=("a2a",), block=server_block(push_to=[f"http://127.0.0.1:{port}"]), push=push)


async def test_push_notifications() -> None:
    hook = Webhook()
    async with listening(hook) as port, served(says("Hello"), settings=pushing_to(port)) as s:
        config = {"url": f"http://127.0.0.1:{port}/hook", "token": "t0ken"}
        login = {"authentication": {"scheme": "Bearer", "credentials": "s3cret"}}
        params = {"message": message(), "configuration": {"taskPushNotificationConfig": {**config, **login}}}
        task = (await rpc(s, "SendMessage", params))["result"]["task"]
        await until(lambda: len(hook.calls) == 3 and not followers())
        listed = (await rpc(s, "ListTaskPushNotificationConfigs", {"taskId": task["id"]}))["result"]
        assert listed["configs"] == [], "the task has ended"
        await rpc(s, "CreateTaskPushNotificationConfig", {"taskId": task["id"], **config, **login})
        listed = (await rpc(s, "ListTaskPushNotificationConfigs", {"taskId": task["id"]}))["result"]
        elsewhere = {"taskId": task["id"], "url": "http://169.254.169.254/latest"}
        refused = await rpc(s, "CreateTaskPushNotificationConfig", elsewhere)
        (known,) = listed["configs"]
        for _ in range(2):
            status, _ = await http(s, "DELETE", f"/tasks/{task['id']}/pushNotificationConfigs/{known['id']}")
            assert status == 200
        status, _ = await http(s, "GET", f"/tasks/{task['id']}/pushNotificationConfigs/{known['id']}")
        assert status == 404
    updates = [json.loads(body) for _, body in hook.calls]
    assert [next(iter(each)) for each in updates] == ["statusUpdate", "artifactUpdate", "statusUpdate"]
    assert updates[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    headers, body = hook.calls[-1]
    assert (headers["authorization"], headers["x-a2a-notification-token"]) == ("Bearer s3cret", "t0ken")
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = base64.b64encode(hmac.new(b"t0ken", signed, sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"
    assert "s3cret" not in json.dumps(listed)
    assert refused["error"]["code"] == -32602


async def test_a_store_that_cannot_be_read_for_a_moment_ends_no_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    hook, read, failures = Webhook(failures=0), MemoryValues.of_topic, [StoreUnavailable("away")] * 2

    async def of_topic(values: MemoryValues, kind: str, topic: str, *, owner: Owner) -> Any:
        if failures and asyncio.current_task() in followers():
            raise failures.pop()
        return await read(values, kind, topic, owner=owner)

    monkeypatch.setattr(MemoryValues, "of_topic", of_topic)
    async with listening(hook) as port, served(says("Hello"), settings=pushing_to(port)) as s:
        options = {"taskPushNotificationConfig": {"url": f"http://127.0.0.1:{port}/hook"}}
        await rpc(s, "SendMessage", {"message": message(), "configuration": options})
        await until(lambda: not followers())
    updates = [next(iter(json.loads(body))) for _, body in hook.calls]
    assert (failures, updates) == ([], ["statusUpdate", "artifactUpdate", "statusUpdate"])


async def test_clients_of_0_3_are_sent_the_task_and_manage_addresses_over_both_bindings() -> None:
    hook = Webhook(failures=0)
    async with listening(hook) as port, served(says("Hello"), settings=pushing_to(port)) as s:
        config = {"url": f"http://127.0.0.1:{port}/hook", "token": "t0ken"}
        config["authentication"] = {"schemes": ["Bearer", "Basic"], "credentials": "s3cret"}
        old = {"kind": "message", "messageId": "m1", "role": "user", "parts": [{"kind": "text", "text": "Hi"}]}
        params = {"message": old, "configuration": {"pushNotificationConfig": config}}
        task = (await rpc(s, "message/send", params, None))["result"]
        await until(lambda: len(hook.calls) == 2 and not followers())
        path = f"/v1/tasks/{task['id']}/pushNotificationConfigs"
        await http(s, "POST", path, {"pushNotificationConfig": {**config, "id": "c1"}}, **V03)
        asked = {"parent": f"tasks/{task['id']}", "config_id": "c2", "config": {"push_notification_config": config}}
        _, made = await http(s, "POST", path, asked, **V03)
        _, listed = await http(s, "GET", path, **V03)
        named = await rpc(s, "tasks/pushNotificationConfig/list", {"id": task["id"]}, None)
        for id_ in ("c1", "c2"):
            assert await http(s, "DELETE", f"{path}/{id_}", **V03) == (200, {})
        status, gone = await http(s, "GET", f"{path}/c1", **V03)
    states = [(shown["kind"], shown["status"]["state"]) for shown in (json.loads(body) for _, body in hook.calls)]
    assert states == [("task", "working"), ("task", "completed")]
    assert json.loads(hook.calls[-1][1])["artifacts"][0]["parts"] == [{"kind": "text", "text": "Hello"}]
    headers = hook.calls[-1][0]
    assert (headers["authorization"], headers["content-type"]) == ("Bearer s3cret", "application/json")
    shown = {"id": "c2", "url": config["url"], "authentication": {"schemes": ["Bearer"]}}
    assert made == {"name": f"tasks/{task['id']}/pushNotificationConfigs/c2", "pushNotificationConfig": shown}
    assert [each["pushNotificationConfig"]["id"] for each in listed["configs"]] == ["c1", "c2"]
    assert [each["pushNotificationConfig"] for each in named["result"]][1] == shown
    assert (status, gone["type"]) == (404, "TaskNotFoundError")


@pytest.mark.req("T14")
async def test_a_message_with_an_address_that_may_not_be_called_starts_nothing() -> None:
    async with served(
        says("Hello"), settings=ServerSettings(protocols=("a2a",), block=server_block(push_to=["hooks.example.com"]))
    ) as s:
        options = {"taskPushNotificationConfig": {"url": "http://169.254.169.254/latest"}}
        for method in ("SendMessage", "SendStreamingMessage"):
            refused = await rpc(s, method, {"message": message(), "configuration": options})
            assert refused["error"]["code"] == -32602
        listed = (await rpc(s, "ListTasks", {}))["result"]
    assert (listed["tasks"], s.model.prompts) == ([], [])


@pytest.mark.parametrize("kept", [100, 4], ids=["the time is over", "the log is gone"])
async def test_a_client_that_is_too_slow_gets_the_last_status(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    monkeypatch.setattr(push_sender, "AFTER_END_SECONDS", 0.0 if kept == 100 else 3600.0)
    hook = SlowWebhook()
    turn = says(" ".join(["word"] * 20) if kept == 4 else "Hello")
    async with listening(hook) as port:
        push = PushSettings(permit=lambda _: True)
        options = {"taskPushNotificationConfig": {"url": f"http://127.0.0.1:{port}/hook"}}
        settings = ServerSettings(protocols=("a2a",), block=server_block(push_to=["*"]), push=push)
        async with served(turn, settings=settings, max_log_events=kept) as s:
            sent = await rpc(s, "SendMessage", {"message": message(), "configuration": options})
            hook.may_answer.set()
            await asyncio.wait_for(asyncio.gather(*followers()), 50)
            listed = (await rpc(s, "ListTaskPushNotificationConfigs", {"taskId": sent["result"]["task"]["id"]}))[
                "result"
            ]
            assert listed["configs"] == []
    assert b"TASK_STATE_COMPLETED" in hook.calls[-1][1]


@pytest.mark.req("T14")
async def test_an_address_whose_host_the_operator_has_taken_out_is_not_called() -> None:
    values, ann = MemoryValues(), Owner("acme", "ann")
    for host in ("a", "b"):
        wide = push_sender.PushSender(["*"], PushSettings(), values)
        await wide.add(ann, "t", PushConfig(url=f"https://{host}.example.com/hook", id=host))
    narrow = push_sender.PushSender(["b.example.com"], PushSettings(), values)
    assert list(await narrow.of_task(ann, "t")) == ["b"]


async def test_an_owner_with_many_tasks_takes_no_addresses_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_sender, "MAX_OWNER_CONFIGS", 3)
    sender = push_sender.PushSender(["*"], PushSettings(), MemoryValues())
    config = PushConfig(url="https://example.com/hook", id="c")
    ann, eve = Owner("acme", "ann"), Owner("acme", "eve")
    await sender.add(ann, "a", config)
    for number in range(5):
        await sender.add(eve, f"e{number}", config)
    assert [n for n in range(5) if await sender.of_task(eve, f"e{n}")] == [2, 3, 4]
    assert await sender.of_task(ann, "a") == {"c": config}
    for number in range(push_sender.MAX_CONFIGS - 1):
        monkeypatch.setattr(push_sender, "MAX_OWNER_CONFIGS", 100)
        await sender.add(ann, "a", PushConfig(url=config.url, id=str(number)))
    await sender.add(ann, "a", config)
    with pytest.raises(InvalidRequest, match="at most 10"):
        await sender.add(ann, "a", PushConfig(url=config.url, id="one too many"))


async def test_only_so_many_runs_of_one_owner_have_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_sender, "MAX_OWNER_FOLLOWERS", 1)
    gate = Gate()
    push = PushSettings(attempts=1)
    options = {"taskPushNotificationConfig": {"url": "http://127.0.0.1:1/hook"}, "returnImmediately": True}
    settings = ServerSettings(protocols=("a2a",), block=server_block(push_to=["*"]), push=push)
    async with served(says("a b", pause=gate), says("a b", pause=gate), settings=settings) as s:
        for _ in range(2):
            answer = await rpc(s, "SendMessage", {"message": message(), "configuration": options})
            assert "result" in answer
        assert len(followers()) == 1
        gate.open.set()
        await asyncio.wait_for(asyncio.gather(*followers()), 50)


@pytest.mark.req("T14")
async def test_a_named_host_with_a_private_address_is_not_called() -> None:
    hook = Webhook(failures=0)
    async with listening(hook) as port:
        push = PushSettings(attempts=2, wait=0.001)
        async with served(
            says("Hello"),
            settings=ServerSettings(
                protocols=("a2a",), block=server_block(push_to=[f"http://localhost:{port}"]), push=push
            ),
        ) as s:
            options = {"taskPushNotificationConfig": {"url": f"http://localhost:{port}/hook"}}
            result = await rpc(s, "SendMessage", {"message": message(), "configuration": options})
            assert result["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
            await asyncio.wait_for(asyncio.gather(*followers()), 30)
    assert hook.calls == []


DISGUISED = (
    "127.0.0.1", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0.0.0.0", "0", "[::1]", "[::]",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "LOCALHOST.",
)  # fmt: skip


@pytest.mark.req("T14")
async def test_no_form_of_a_private_address_is_called_where_any_host_is_allowed() -> None:
    hook = Webhook(failures=0)
    async with listening(hook) as port:
        push = PushSettings(attempts=1)
        async with served(
            *(says("Hello") for _ in DISGUISED),
            settings=ServerSettings(protocols=("a2a",), block=server_block(push_to=["*"]), push=push),
        ) as s:
            for host in DISGUISED:
                options = {"taskPushNotificationConfig": {"url": f"http://{host}:{port}/hook"}}
                answer = await rpc(s, "SendMessage", {"message": message(), "configuration": options})
                assert ("result" in answer) or answer["error"]["code"] == -32602, host
            await asyncio.wait_for(asyncio.gather(*followers()), 60)
    assert hook.calls == []


@pytest.mark.req("T14")
async def test_a_redirect_is_not_followed_and_a_token_cannot_begin_a_header() -> None:
    elsewhere = Webhook(failures=0)

    class Redirects(Webhook):
        async def take(self, request: web.Request) -> web.Response:
            await super().take(request)
            return web.Response(status=307, headers={"Location": f"http://127.0.0.1:{port}/hook"})

    hook = Redirects(failures=0)
    async with listening(elsewhere) as port, listening(hook) as here:
        push = PushSettings(permit=lambda _: True, attempts=1)
        async with served(
            says("Hello"), settings=ServerSettings(protocols=("a2a",), block=server_block(push_to=["*"]), push=push)
        ) as s:
            config = {"url": f"http://127.0.0.1:{here}/hook"}
            for token in ("a\r\nX-Evil: 1", "a\nb", "\u20ac"):
                bad = {
                    "message": message(),
                    "configuration": {"taskPushNotificationConfig": {**config, "token": token}},
                }
                assert (await rpc(s, "SendMessage", bad))["error"]["code"] == -32602
            await rpc(s, "SendMessage", {"message": message(), "configuration": {"taskPushNotificationConfig": config}})
            await asyncio.wait_for(asyncio.gather(*followers()), 60)
    assert (len(hook.calls), elsewhere.calls) == (3, [])


@pytest.mark.req("SRV-21")
async def test_what_a_middleware_hides_is_not_sent() -> None:
    hook = Webhook(failures=0)
    turns = [calls(("echo", '{"of": "the boss"}')), says("done")]
    async with listening(hook) as port:
        push = PushSettings(permit=lambda _: True)
        settings = ServerSettings(protocols=("a2a",), block=server_block(push_to=["*"]), push=push)
        options = {"taskPushNotificationConfig": {"url": f"http://127.0.0.1:{port}/hook"}}
        middleware = lambda: EventMiddleware([hide_tools(["echo"])])  # noqa: E731  a factory, as the agent file makes one
        async with served(*turns, tools=PlainTools(echo=echo), settings=settings, middleware=middleware) as s:
            await rpc(s, "SendMessage", {"message": message(), "configuration": options})
            await until(lambda: b"TASK_STATE_COMPLETED" in b"".join(body for _, body in hook.calls))
    assert b"the boss" not in b"".join(body for _, body in hook.calls)


async def test_without_named_hosts_there_are_no_notifications() -> None:
    async with served(settings=ALL) as s:
        options = {"taskPushNotificationConfig": {"url": "https://example.com/hook"}}
        result = await rpc(s, "SendMessage", {"message": message(), "configuration": options})
        assert (result["error"]["code"], s.model.prompts) == (-32003, [])
