"""Clients that bring their own history, go back in it, or resume a run under its own id (SRV-07)."""

import asyncio
from typing import Any

import pytest

from holodeck.core.messages import text_of
from holodeck.core.owner import ANONYMOUS_OWNER
from holodeck.models.scripted import Turn, calls, says
from holodeck.runs.client_history import ClientHistory
from holodeck.server.options import ServerSettings
from holodeck.wires.agui.client_events import CLIENT_HEADER, TERMINAL
from holodeck.wires.agui.encode import PROTOBUF
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.serving import Gate, Served, ask, frames, read_to, served, types, until
from tests.wires.agui.protobuf_reader import read_stream

pytestmark = pytest.mark.req("SRV-07")

ROUTES = ("/awp", "/copilotkit/agent/default/run", "/copilotkit")
PAINT = {"name": "paint", "description": "Paints the page", "parameters": {"type": "object"}}


def user_message(id_: str, text: str) -> dict[str, Any]:
    return {"id": id_, "role": "user", "content": text}


def answered(id_: str, text: str = "", *calls: tuple[str, str]) -> dict[str, Any]:
    functions = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}} for call_id, name in calls
    ]
    return {"id": id_, "role": "assistant", "content": text, "toolCalls": functions}


def returned(id_: str, call_id: str, text: str) -> dict[str, Any]:
    return {"id": id_, "role": "tool", "toolCallId": call_id, "content": text}


async def run(s: Served, *messages: dict[str, Any], path: str = "/awp", **fields: Any) -> list[dict[str, Any]]:
    given = ask(messages=list(messages), **fields)
    body = {"method": "agent/run", "body": given} if path == "/copilotkit" else given
    async with s.post(body, path) as answer:
        assert answer.status == 200, await answer.text()
        return [data for _, data in frames(await answer.read())]


def shown(s: Served) -> list[str]:
    """What the model was shown last."""
    return [f"{type(each).__name__[0]}: {text_of(each.content)}" for each in s.model.prompts[-1].messages]


def notes(events: list[dict[str, Any]]) -> list[Any]:
    return [event["value"] for event in events if event.get("name") == "holodeck.history"]


async def session(s: Served, key: str = "t1") -> dict[str, Any]:
    async with s.get(f"/sessions/{key}") as answer:
        found: dict[str, Any] = await answer.json()
        return found


HISTORY = (
    user_message("u1", "my name is Ann"),
    answered("a1", "I look", ("c1", "paint"), ("c2", "delete_all")),
    returned("r1", "c1", "painted"),
    returned("r2", "c2", "deleted"),
    answered("a2", "Hello Ann"),
    user_message("u2", "what is my name?"),
)


async def test_the_history_of_an_unknown_thread_is_adopted() -> None:
    async with served(says("Ann"), tools=PlainTools(delete_all=echo)) as s:
        events = await run(s, *HISTORY, tools=[PAINT])
        assert shown(s) == ["U: my name is Ann", "A: I look", "T: painted", "A: Hello Ann", "U: what is my name?"]
        assert notes(events) == [{"adopted": 4, "left_out": 2}]
        stored = (await session(s))["messages"]
        assert [each.get("from_client", False) for each in stored] == [False, True, True, True, False, False]
        assert [call["name"] for call in stored[1]["tool_calls"]] == ["paint"]


async def test_a_deleted_thread_continues_where_the_client_is() -> None:
    async with served(says("hello"), says("you are Ann")) as s:
        first = await run(s, user_message("u1", "I am Ann"))
        answer = next(event["messageId"] for event in first if event["type"] == "TEXT_MESSAGE_START")
        async with s.client.delete(f"{s.url}/sessions/t1") as gone:
            assert gone.status == 204
        await run(s, user_message("u1", "I am Ann"), answered(answer, "hello"), user_message("u2", "who am I?"))
        assert shown(s) == ["U: I am Ann", "A: hello", "U: who am I?"]


async def test_a_result_of_a_tool_of_the_client_is_answered_on_an_unknown_thread() -> None:
    async with served(says("It is blue.")) as s:
        events = await run(
            s,
            user_message("u1", "blue please"),
            answered("a1", "", ("c1", "paint")),
            returned("r1", "c1", "painted"),
            tools=[PAINT],
        )
        assert events[-1]["type"] == "RUN_FINISHED"
        assert shown(s) == ["U: blue please", "A: ", "T: painted"]


async def test_adoption_can_be_switched_off() -> None:
    async with served(says("who?"), client_history=ClientHistory.IGNORE) as s:
        events = await run(s, *HISTORY)
        assert (shown(s), notes(events)) == (["U: what is my name?"], [{"left_out": 7}])


@pytest.mark.parametrize("session", [None, "s1"])
async def test_messages_without_a_session_are_the_whole_conversation_whatever_is_adopted(session: str | None) -> None:
    messages = [{"role": each["role"], "content": each["content"]} for each in (HISTORY[0], *HISTORY[-2:])]
    headers = {} if session is None else {"X-Session-Id": session}
    async with served(
        says("Ann"), settings=ServerSettings(protocols=("openai",)), client_history=ClientHistory.IGNORE
    ) as s:
        async with s.post({"messages": messages}, "/v1/chat/completions", **headers) as answer:
            assert answer.status == 200, await answer.text()
        whole = [f"{each['role'][0].upper()}: {each['content']}" for each in messages]
        assert shown(s) == (whole if session is None else whole[-1:])


async def test_files_of_an_adopted_history_are_read() -> None:
    file = {"type": "document", "source": {"type": "data", "value": "eHl6enk=", "mimeType": "text/plain"}}
    async with served(says("xyzzy")) as s:
        question = {"id": "u1", "role": "user", "content": [{"type": "text", "text": "Read it"}, file]}
        await run(s, question, answered("a1", "I did"), user_message("u2", "what does it say?"))
        assert "xyzzy" in shown(s)[0]


@pytest.mark.parametrize("path", ROUTES)
async def test_regenerate_replaces_the_answer(path: str) -> None:
    async with served(says("one"), says("two")) as s:
        await run(s, user_message("u1", "tell me"), path=path)
        events = await run(s, user_message("u1", "tell me"), path=path)
        assert shown(s) == ["U: tell me"]
        assert notes(events) == [{"rewound": 1}]
        assert [each["content"] for each in (await session(s))["messages"]] == ["tell me", "two"]


async def test_an_edited_message_replaces_what_followed_it() -> None:
    async with served(says("one"), says("two"), says("three")) as s:
        await run(s, user_message("u1", "first"))
        await run(s, user_message("u2", "second"))
        await run(s, user_message("u1", "first, changed"))
        assert shown(s) == ["U: first, changed"]
        assert [each["content"] for each in (await session(s))["messages"]] == ["first, changed", "three"]


async def test_a_new_message_after_an_older_one_replaces_what_followed_it() -> None:
    async with served(says("one"), says("two"), says("three")) as s:
        first = await run(s, user_message("u1", "first"))
        answer = next(event["messageId"] for event in first if event["type"] == "TEXT_MESSAGE_START")
        await run(s, user_message("u2", "second"))
        await run(s, user_message("u1", "first"), answered(answer, "one"), user_message("u3", "another second"))
        assert shown(s) == ["U: first", "A: one", "U: another second"]


async def test_a_run_with_nothing_to_answer_changes_nothing() -> None:
    async with served(says("one"), says("two")) as s:
        first = await run(s, user_message("u1", "first"))
        answer = next(event["messageId"] for event in first if event["type"] == "TEXT_MESSAGE_START")
        await run(s, user_message("u2", "second"))
        before = (await session(s))["messages"]
        for messages in ([user_message("u1", "first"), answered(answer, "one")], []):
            events = await run(s, *messages)
            assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "invalid-request")
        assert (await session(s))["messages"] == before
        assert len(s.model.prompts) == 2


class TestAResumeUnderTheRunsOwnId:
    """As CopilotKit sends it."""

    @staticmethod
    def tools() -> PlainTools:
        return PlainTools(frozenset({"delete"}), delete=echo)

    @staticmethod
    def resume(events: list[dict[str, Any]], *, payload: bool = True) -> list[dict[str, Any]]:
        interrupts = events[-1]["outcome"]["interrupts"]
        return [{"interruptId": each["id"], "status": "resolved", "payload": payload} for each in interrupts]

    @pytest.mark.parametrize("path", ROUTES)
    async def test_continues_the_run_and_readers_of_the_id_find_both_parts(self, path: str) -> None:
        tools = self.tools()
        async with served(calls(("delete", "{}")), says("gone"), tools=tools) as s:
            asked = await run(s, user_message("u1", "delete it"), run="r", path=path)
            answer = await run(s, user_message("u1", "delete it"), run="r", resume=self.resume(asked), path=path)
            assert answer[-1]["outcome"] == {"type": "success"}
            assert len(tools.called) == 1
            async with s.get("/runs/r/events") as whole:
                read = frames(await whole.read())
            assert [data for _, data in read] == [*asked, *answer]
            assert [number for number, _ in read] == [f"r:{n}" for n in range(len(read))]
            async with s.get("/runs/r") as about:
                assert (await about.json())["events"] == len(read)
            for after in (len(asked) - 2, len(asked) - 1, len(asked)):
                async with s.get("/runs/r/events", **{"Last-Event-ID": f"r:{after}"}) as rest:
                    assert frames(await rest.read()) == read[after + 1 :]
            async with s.get(f"/runs/r/events?after={len(read) - 1}") as nothing:
                assert nothing.status == 204

    async def test_is_accepted_once_and_a_repeat_joins_it(self) -> None:
        tools = self.tools()
        async with served(calls(("delete", "{}")), says("gone"), tools=tools) as s:
            asked = await run(s, user_message("u1", "delete it"), run="r")
            yes = ask(messages=[], run="r", resume=self.resume(asked))
            no = ask(messages=[], run="r", resume=self.resume(asked, payload=False))

            async def post(body: dict[str, Any]) -> tuple[int, bytes]:
                async with s.post(body) as answer:
                    return answer.status, await answer.read()

            together = await asyncio.gather(*(post(yes) for _ in range(5)))
            assert together == [together[0]] * 5
            assert together[0][0] == 200
            status, body = await post(no)
            assert (status, b"already used by another request" in body) == (422, True)
            assert len(tools.called) == 1

    async def test_the_first_request_joins_the_whole_run(self) -> None:
        async with served(calls(("delete", "{}")), says("gone"), tools=self.tools()) as s:
            first = ask("delete it", run="r", message="u1")
            async with s.post(first) as answer:
                asked = [data for _, data in frames(await answer.read())]
            rest = await run(s, run="r", resume=self.resume(asked))
            async with s.post(first) as answer:
                assert [data for _, data in frames(await answer.read())] == [*asked, *rest]
            assert len(s.model.prompts) == 2

    async def test_may_be_asked_again(self) -> None:
        tools = self.tools()
        async with served(calls(("delete", "{}")), calls(("delete", '{"a": 2}')), says("gone"), tools=tools) as s:
            asked = await run(s, user_message("u1", "delete both"), run="r")
            again = await run(s, run="r", resume=self.resume(asked))
            done = await run(s, run="r", resume=self.resume(again))
            assert done[-1]["outcome"] == {"type": "success"}
            async with s.get("/runs/r/events") as whole:
                assert [data for _, data in frames(await whole.read())] == [*asked, *again, *done]
            assert len(tools.called) == 2

    async def test_a_reader_follows_into_the_part_that_continues(self) -> None:
        gate = Gate()
        turns = calls(("delete", "{}")), Turn(text=["one ", "two"], pause=gate)
        async with served(*turns, tools=self.tools()) as s:
            asked = await run(s, user_message("u1", "delete it"), run="r")
            async with s.post(ask(messages=[], run="r", resume=self.resume(asked))) as continues:
                await read_to(continues, "one ")
                async with s.get("/runs/r/events") as reader:
                    await read_to(reader, "one ")
                    gate.open.set()
                    assert types(await reader.read())[-1] == "RUN_FINISHED"
                await continues.read()

    @pytest.mark.parametrize("other", [{"thread": "t2"}, {"resume": []}], ids=["another thread", "no answer"])
    async def test_anything_else_under_the_id_is_refused(self, other: dict[str, Any]) -> None:
        async with served(calls(("delete", "{}")), says("gone"), tools=self.tools()) as s:
            asked = await run(s, user_message("u1", "delete it"), run="r")
            fields = {"run": "r", "messages": [user_message("u2", "again")], "resume": self.resume(asked), **other}
            async with s.post(ask(**fields)) as answer:
                assert (answer.status, (await answer.json())["field"]) == (422, "runId")

    async def test_what_ended_is_forgotten_in_time(self) -> None:
        async with served(calls(("delete", "{}")), says("gone"), tools=self.tools(), replay_window=0.05) as s:
            asked = await run(s, user_message("u1", "delete it"), run="r")
            await until(lambda: not s.server.runs.of_session("t1", owner=ANONYMOUS_OWNER))
            answer = await run(s, run="r", resume=self.resume(asked))
            assert answer[-1]["outcome"] == {"type": "success"}
            await until(lambda: not s.server.runs.of_session("t1", owner=ANONYMOUS_OWNER))
            assert s.server.runs.find("r", owner=ANONYMOUS_OWNER) is None  # the store still has its message


@pytest.mark.parametrize("client", ["a page", TERMINAL])
async def test_the_terminal_is_not_sent_what_it_does_not_show(client: str) -> None:
    async with served(says("one"), says("two")) as s:
        await run(s, user_message("u1", "first"))
        async with s.post(ask(messages=[user_message("u2", "second")]), **{CLIENT_HEADER: client}) as answer:
            events = types(await answer.read())
        assert events[-1] == "RUN_FINISHED"
        assert ("MESSAGES_SNAPSHOT" in events) == (client != TERMINAL)
        assert shown(s) == ["U: first", "A: one", "U: second"]


@pytest.mark.parametrize("accept", ["text/event-stream", PROTOBUF])
async def test_a_history_that_is_too_long_to_be_copied_is_sent_whole(accept: str) -> None:
    """It is handed to the socket as it is: before the model answers, and with all events to a reader who comes later."""
    gate, words = Gate(), "word \u00e9 " * 6000
    async with served(says("one"), says("two", pause=gate)) as s:
        await run(s, user_message("u1", words))
        async with s.post(ask(messages=[user_message("u2", "more")], run="r"), Accept=accept) as answer:
            gate.open.set()
            live = await answer.read()
        async with s.get("/runs/r/events", Accept=accept) as again:
            assert await again.read() == live
        events = read_stream(live) if accept == PROTOBUF else [data for _, data in frames(live)]
        snapshots = [event["messages"] for event in events if event["type"] == "MESSAGES_SNAPSHOT"]
        assert [each["content"] for each in snapshots[-1]] == [words, "one", "more"]
        assert events[-1]["type"] == "RUN_FINISHED"


@pytest.mark.req("SRV-16")
@pytest.mark.parametrize("tool", [False, True])
async def test_a_message_that_waits_for_an_answer_does_not_take_that_answer_back(*, tool: bool) -> None:
    """The client did not have the answer when it sent the message: it did not go back."""
    gate = Gate()
    turns = (calls(("echo", "{}")), says("one", pause=gate)) if tool else (says("one", pause=gate),)
    async with served(*turns, says("two"), tools=PlainTools(echo=echo)) as s:
        first = asyncio.create_task(run(s, user_message("u1", "first"), runId="r1"))
        await until(lambda: len(s.model.prompts) == len(turns))
        second = asyncio.create_task(run(s, user_message("u1", "first"), user_message("u2", "second"), runId="r2"))
        await until(lambda: s.server.runs.find("r2", owner=ANONYMOUS_OWNER))
        gate.open.set()
        await first
        assert notes(await second) == []
        texts = [each.get("content") for each in (await session(s))["messages"] if each["role"] != "tool"]
        assert [text for text in texts if text] == ["first", "one", "second", "two"]


@pytest.mark.parametrize("first_page", ["has left", "reads"])
async def test_only_a_page_that_has_left_the_answer_takes_its_message_back(first_page: str) -> None:
    """An edit while the agent answers looks like a message of a second page that has not seen the first one's."""
    gate, is_left = Gate(), first_page == "has left"
    async with served(says("hello"), says("first answer", pause=gate), says("second answer")) as s:
        events = await run(s, user_message("u1", "hi"))
        answer = next(event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START")
        known = (user_message("u1", "hi"), answered(answer, "hello"))
        first = asyncio.create_task(run(s, *known, user_message("u2", "first"), runId="r2"))
        await until(lambda: len(s.model.prompts) == 2)
        if is_left:
            first.cancel()
            await until(lambda: s.run("r2").readers == 0)
        second = asyncio.create_task(run(s, *known, user_message("u3", "second"), runId="r3"))
        await until(lambda: s.server.runs.find("r3", owner=ANONYMOUS_OWNER))
        gate.open.set()
        await asyncio.gather(first, second, return_exceptions=True)
        texts = [each["content"] for each in (await session(s))["messages"]]
        kept = [] if is_left else ["first", "first answer"]
        assert texts == ["hi", "hello", *kept, "second", "second answer"]
        assert ("MESSAGES_SNAPSHOT" in [event["type"] for event in second.result()]) is not is_left


async def test_the_text_on_another_wire_is_not_taken_back_by_a_client_that_does_not_know_it() -> None:
    settings = ServerSettings(protocols=("ag-ui", "rest"))
    async with served(*[says(f"answer {i}") for i in range(4)], settings=settings) as s:
        events = await run(s, user_message("u1", "hi"))
        answer = next(event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START")
        known = (user_message("u1", "hi"), answered(answer, "answer 0"))
        async with s.post({"message": "over REST", "session_id": "t1"}, "/agent/tester/chat") as received:
            assert received.status == 200
        events = await run(s, *known, user_message("u2", "again"))
        assert notes(events) == []
        assert [each["content"] for each in (await session(s))["messages"]] == [
            *("hi", "answer 0", "over REST", "answer 1", "again", "answer 2")
        ]
        assert "over REST" in str(next(each for each in events if each["type"] == "MESSAGES_SNAPSHOT"))
        events = await run(s, *known, user_message("u3", "instead"))  # it was shown all of it, so now it goes back
        assert notes(events) == [{"rewound": 4}]
        assert [each["content"] for each in (await session(s))["messages"]] == ["hi", "answer 0", "instead", "answer 3"]


@pytest.mark.parametrize("stops", [True, False])
async def test_regenerate_replaces_an_answer_that_is_still_being_written(*, stops: bool) -> None:
    gate = Gate()
    async with served(says("one", pause=gate), says("two")) as s:
        first = asyncio.create_task(run(s, user_message("u1", "tell me"), runId="r1"))
        await until(lambda: len(s.model.prompts) == 1)
        second = asyncio.create_task(run(s, user_message("u1", "tell me"), runId="r2"))
        await until(lambda: s.server.runs.find("r2", owner=ANONYMOUS_OWNER))
        if stops:
            s.server.runs.stop(s.run("r1"))
        gate.open.set()
        await asyncio.gather(first, second)
        assert [each["content"] for each in (await session(s))["messages"]] == ["tell me", "two"]


class TestAnIdThatStandsForTwoMessages:
    """A client chooses the ids of its messages and of its tools' results."""

    async def test_a_result_with_the_id_of_a_message_gets_its_own(self) -> None:
        async with served(calls(("paint", "{}")), says("blue"), says("red")) as s:
            events = await run(s, user_message("u1", "blue please"), tools=[PAINT])
            call = next(event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START")
            await run(s, returned("u1", call, "painted"), tools=[PAINT])
            stored = (await session(s))["messages"]
            assert [each["role"] for each in stored] == ["user", "assistant", "tool", "assistant"]
            assert len({each["id"] for each in stored}) == 4
            await run(s, user_message("u1", "red please"), tools=[PAINT])
            assert [each["content"] for each in (await session(s))["messages"]] == ["red please", "red"]

    async def test_a_message_with_the_id_of_the_step_that_waits_is_not_new(self) -> None:
        async with served(calls(("paint", "{}")), says("blue")) as s:
            events = await run(s, user_message("u1", "blue please"), tools=[PAINT])
            step = next(event["parentMessageId"] for event in events if event["type"] == "TOOL_CALL_START")
            await run(s, user_message("u1", "blue please"), user_message(step, "I am your step"), tools=[PAINT])
            stored = (await session(s))["messages"]
            assert len({each["id"] for each in stored}) == len(stored)

    async def test_two_messages_of_one_request_with_one_id_are_one(self) -> None:
        def chat(*texts: str) -> dict[str, Any]:
            given = [{"id": "m", "role": "user", "parts": [{"type": "text", "text": text}]} for text in texts]
            return {"id": "t1", "messages": given, "trigger": "submit-message"}

        settings = ServerSettings(protocols=("ai-sdk",))
        async with served(says("one"), says("two"), settings=settings) as s:
            for texts in (("first", "second"), ("first", "second", "third")):
                async with s.post(chat(*texts), "/ai-sdk/chat") as answer:
                    assert answer.status == 200, await answer.text()
                    await answer.read()
            stored = (await session(s))["messages"]
            assert len({each["id"] for each in stored}) == len(stored)
            assert [each["content"] for each in stored if each["role"] == "user"] == ["first"]
