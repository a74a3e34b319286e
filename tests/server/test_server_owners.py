"""Two owners with the same session id, run id or idempotency key never meet, on any route and any wire (T10, T36, F6)."""

import asyncio

import pytest

from holodeck.access.authenticator import Authenticator
from holodeck.access.hook import Hook
from holodeck.access.principal import OF_ONE_USER, Principal
from holodeck.core.owner import Owner
from holodeck.models.scripted import calls, says
from holodeck.runs.run_settings import WhenBusy
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.every_wire import QUESTIONS, SESSION, agui, rest
from tests.server.serving import Gate, ask, frames, read_to, served

ALL = ServerSettings(protocols=tuple(WIRES), remember_conversations=True)
SECRET = "the word is xyzzy"
ADA, EVE, OTHER_ADA = "default/ada", "default/eve", "other/ada"
PAIRS = pytest.mark.parametrize(("victim", "other"), [(ADA, EVE), (ADA, OTHER_ADA)], ids=["user", "tenant"])


async def who(headers, _address):
    """A hook: a header names tenant and user."""
    name = headers.get("x-test-principal", "")
    tenant, _, user = name.partition("/")
    return Principal(tenant=tenant, user=user, scopes=OF_ONE_USER, via="hook") if name else None


def hooked():
    return Authenticator(hook=Hook(who))


def by(principal: str) -> dict[str, str]:
    return {"X-Test-Principal": principal}


ON_WIRES = pytest.mark.parametrize("wire", QUESTIONS.values(), ids=QUESTIONS)


async def say(s, wire, text: str, principal: str, **headers) -> tuple[int, bytes]:
    path, body, own = wire(text, SESSION)
    async with s.post(body, path, **by(principal), **own, **headers) as answer:
        return answer.status, await answer.read()


@ON_WIRES
@PAIRS
@pytest.mark.req("T36")
async def test_the_same_ids_and_the_same_key_are_another_conversation(wire, victim, other):
    async with served(says("noted"), says("who are you?"), settings=ALL, access=hooked()) as s:
        assert (await say(s, wire, SECRET, victim, **{"Idempotency-Key": "k"}))[0] == 200
        status, body = await say(s, wire, "what is the word?", other, **{"Idempotency-Key": "k"})
        assert status == 200
        assert b"xyzzy" not in body
        assert len(s.model.prompts) == 2
        assert "xyzzy" not in str(s.model.prompts[1].messages)
        async with s.get(f"/sessions/{SESSION}", **by(victim)) as answer:
            assert [each["content"] for each in (await answer.json())["messages"]] == [SECRET, "noted"]


@ON_WIRES
@PAIRS
@pytest.mark.req("T36")
async def test_a_session_that_is_busy_for_one_is_free_for_the_other(wire, victim, other):
    gate = Gate()
    turns = says("a b", pause=gate), says("quick")
    async with served(*turns, settings=ALL, access=hooked(), when_busy=WhenBusy.REJECT) as s:
        path, body, _ = agui("hold")
        held = await s.post(body, path, **by(victim))
        await read_to(held, "TEXT_MESSAGE_CONTENT")
        assert (await say(s, wire, "hi", other))[0] == 200
        gate.open.set()
        assert b"RUN_FINISHED" in await held.read()


@PAIRS
async def test_anothers_session_answers_as_one_that_does_not_exist(victim, other):
    async with served(says("noted"), settings=ALL, access=hooked()) as s:
        await say(s, agui, SECRET, victim)
        for method, query in (("GET", ""), ("HEAD", ""), ("DELETE", "?from=x"), ("DELETE", "")):
            received = []
            for session in (SESSION, "01K9ZQ4W3V0000000000000000"):
                async with s.client.request(method, f"{s.url}/sessions/{session}{query}", headers=by(other)) as answer:
                    body = (await answer.text()).replace(session, "ID").replace(answer.headers["X-Request-ID"], "")
                    received.append((answer.status, body))
            assert received[0] == received[1], method
        async with s.get(f"/sessions/{SESSION}", **by(victim)) as answer:
            assert (await answer.json())["message_count"] == 2


@PAIRS
async def test_anothers_run_answers_as_one_that_does_not_exist(victim, other):
    gate = Gate()
    async with served(says("a b", pause=gate), settings=ALL, access=hooked()) as s:
        path, body, _ = agui(SECRET)
        held = await s.post(body, path, **by(victim))
        await read_to(held, "TEXT_MESSAGE_CONTENT")
        for method, suffix in (("GET", ""), ("GET", "/events"), ("GET", "/events?after=0"), ("POST", "/stop")):
            received = []
            for run in ("r", "q"):
                url = f"{s.url}/runs/{run}{suffix}"
                async with s.client.request(method, url, headers={**by(other), "Last-Event-ID": f"{run}:0"}) as answer:
                    text = (await answer.text()).replace(f"'{run}'", "ID").replace(answer.headers["X-Request-ID"], "")
                    received.append((answer.status, text))
            assert received[0] == received[1], suffix
            assert received[0][0] == 404
        async with s.post({}, f"/copilotkit/agent/default/stop/{SESSION}", **by(other)) as answer:
            assert await answer.json() == {"stopped": False}
        async with s.post(ask(thread=SESSION), "/copilotkit/agent/default/connect", **by(other)) as answer:
            assert await answer.read() == b""
        assert not s.run("r", Owner(*victim.split("/"))).log.ended
        gate.open.set()
        assert b"RUN_FINISHED" in await held.read()


@PAIRS
async def test_a_question_to_one_cannot_be_answered_by_the_other(victim, other):
    tools = PlainTools(frozenset({"delete"}), delete=echo)
    turns = calls(("delete", "{}")), says("nothing to do")
    async with served(*turns, tools=tools, settings=ALL, access=hooked()) as s:
        _, body = await say(s, agui, "delete it", victim)
        (interrupt,) = frames(body)[-1][1]["outcome"]["interrupts"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
        async with s.post(ask(thread=SESSION, resume=resume), **by(other)) as answer:
            assert answer.status == 422
        rest_resume = {"session_id": SESSION, "resume": [{"interrupt_id": interrupt["id"], "approved": True}]}
        async with s.post(rest_resume, "/agent/tester/chat", **by(other)) as answer:
            assert answer.status == 422
        assert tools.called == []


async def test_a_request_without_a_principal_reaches_no_route_that_has_an_owner():
    async with served(settings=ALL, access=hooked()) as s:
        for wire in QUESTIONS.values():
            path, body, own = wire("hi", SESSION)
            async with s.post(body, path, **own) as answer:
                assert answer.status == 401, path
        for method, path in (
            ("GET", "/sessions/s"),
            ("DELETE", "/sessions/s"),
            ("GET", "/runs/r"),
            ("GET", "/runs/r/events"),
            ("POST", "/runs/r/stop"),
        ):
            async with s.client.request(method, s.url + path) as answer:
                assert answer.status == 401, path
        assert s.model.prompts == []


@pytest.mark.req("ACC-04", "ORC-11")
@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/chat/stream", {"input": "hi", "user_id": "eve"}, {}),
        ("/chat/stream", {"input": "hi"}, {"X-HoloDeck-User": "eve"}),
        ("/awp", ask(), {"X-HoloDeck-User": "eve"}),
        ("/agent/tester/chat", {"message": "hi"}, {"X-HoloDeck-User": "eve"}),
    ],
)
async def test_a_credential_cannot_name_another_user(path, body, headers):
    async with served(settings=ALL, access=hooked()) as s:
        async with s.post(body, path, **by(ADA), **headers) as answer:
            assert answer.status == 403
            assert (await answer.json(content_type=None))["reason"] == "user-mismatch"
        assert s.model.prompts == []


async def test_naming_oneself_is_fine():
    async with (
        served(settings=ALL, access=hooked()) as s,
        s.post({"input": "hi", "user_id": "ada"}, "/chat/stream", **by(ADA), **{"X-HoloDeck-User": "ada"}) as answer,
    ):
        assert answer.status == 200
        await answer.read()


async def test_without_credentials_a_request_may_name_its_user_and_read_its_run_again():
    async with served(settings=ALL) as s:
        async with s.post({"input": "hi", "user_id": "ann", "conversation_id": "c"}, "/chat/stream") as answer:
            await answer.read()
        (run,) = s.server.runs.of_session("c", owner=Owner("default", "ann"))
        for headers, status in (({}, 404), ({"X-HoloDeck-User": "ann"}, 200)):
            async with s.get(f"/runs/{run.run_id}/events", **headers) as answer:
                assert answer.status == status
            async with s.get("/sessions/c", **headers) as answer:
                assert answer.status == status


@pytest.mark.req("T36")
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
async def test_a_name_is_the_same_user_in_a_header_and_in_a_body(encoding):
    """Read as Latin-1 only, the UTF-8 of one name was another name, which another user could have."""
    async with served(settings=ALL) as s:
        async with s.post({"input": "hi", "user_id": "zoë", "conversation_id": "c1"}, "/chat/stream") as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()
        reader, writer = await s.connect()
        head = "GET /sessions/c1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-HoloDeck-User: zoë\r\n\r\n"
        writer.write(head.encode(encoding))
        answered = await asyncio.wait_for(reader.read(), 30)
        writer.close()
    assert answered.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("name", ["key:abc", "system:x", "x" * 256, "a\tb"])
async def test_a_reserved_name_is_refused(name):
    async with served(settings=ALL) as s, s.post(ask(), **{"X-HoloDeck-User": name}) as answer:
        assert answer.status == 422


async def test_two_names_in_one_request_are_refused():
    body = {"input": "hi", "user_id": "ann"}
    async with served(settings=ALL) as s, s.post(body, "/chat/stream", **{"X-HoloDeck-User": "bob"}) as answer:
        assert answer.status == 403


@pytest.mark.req("ACC-03")
async def test_many_owners_at_once_on_one_session_id_never_meet():
    async with served(says("ok"), settings=ALL, access=hooked()) as s:

        async def talk(number):
            for _ in range(3):
                assert (await say(s, rest, f"canary {number}.", f"default/u{number}"))[0] == 200

        await asyncio.gather(*(talk(number) for number in range(20)))
        for number in range(20):
            async with s.get(f"/sessions/{SESSION}", **by(f"default/u{number}")) as answer:
                contents = {each["content"] for each in (await answer.json())["messages"]}
                assert contents == {f"canary {number}.", "ok"}
