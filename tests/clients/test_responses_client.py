"""The official SDK of OpenAI against a real server: Responses, plain and streamed, in the background, resumed, branched."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from holodeck.core.owner import ANONYMOUS_OWNER
from holodeck.core.usage import TokenUsage
from holodeck.errors import ModelUnreachable
from holodeck.models.scripted import Turn, calls, says
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from tests.agent.agent_fixture import PlainTools, echo
from tests.runs.test_runs import Gate
from tests.server.serving import Served, served

ALL = ServerSettings(protocols=tuple(WIRES))
PAINT: Any = {"type": "function", "name": "paint", "parameters": {"type": "object"}, "strict": False}
HELLO: Any = [{"role": "user", "content": "Hello"}]


class Paint(BaseModel):
    colour: str


@asynccontextmanager
async def client_of(*turns: Turn, **options: Any) -> AsyncIterator[tuple[AsyncOpenAI, Served]]:
    async with (
        served(*turns, settings=ALL, **options) as s,
        AsyncOpenAI(base_url=f"{s.url}/v1", api_key="none", max_retries=2, timeout=60) as client,
    ):
        yield client, s


async def ask(client: AsyncOpenAI, text: Any = "Hello", **options: Any) -> Any:
    return await client.responses.create(model="tester", input=text, **options)


async def read_into(events: list[Any], stream: Any) -> None:
    async for event in stream:
        events.append(event)  # noqa: PERF401  those before an error count


async def texts(s: Served, session: str) -> list[str]:
    stored = await s.server.store.read(session, owner=ANONYMOUS_OWNER)
    assert stored is not None
    return [str(message.content) for message in stored.messages]


@pytest.mark.req("SRV-24", "FAC-02")
async def test_a_plain_answer() -> None:
    usage = TokenUsage(prompt_tokens=3, completion_tokens=2)
    async with client_of(says("Good morning", usage=usage)) as (client, s):
        answer = await ask(client, metadata={"a": "b"})
        assert (answer.output_text, answer.status, answer.model) == ("Good morning", "completed", "tester")
        assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.metadata) == (3, 2, {"a": "b"})
        assert await texts(s, answer.conversation.id) == ["Hello", "Good morning"]
        assert await client.responses.retrieve(answer.id) == answer


async def test_a_stream_by_the_sdks_helper_and_raw() -> None:
    async with client_of(says("Good morning")) as (client, _):
        async with client.responses.stream(model="tester", input="Hello") as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert (final.output_text, kinds[0], kinds[-1]) == ("Good morning", "response.created", "response.completed")
        raw = [event async for event in await ask(client, stream=True)]
        assert [event.sequence_number for event in raw] == list(range(len(raw)))


async def test_server_tools_are_shown_and_not_the_clients_to_run() -> None:
    turns = calls(("echo", '{"text": "hi"}')), says("done")
    async with client_of(*turns, tools=PlainTools(echo=echo)) as (client, _):
        answer = await ask(client)
    assert [(item.type, item.status) for item in answer.output] == [("mcp_call", "completed"), ("message", "completed")]


async def test_tools_of_the_client() -> None:
    async with client_of(calls(("paint", '{"colour":"blue"}')), says("It is blue.")) as (client, s):
        first = await ask(client, tools=[PAINT], tool_choice="required", parallel_tool_calls=False)
        (call,) = first.output
        assert (call.type, call.name, call.arguments) == ("function_call", "paint", '{"colour":"blue"}')
        assert (s.model.prompts[0].tool_choice, s.model.prompts[0].one_call_at_a_time) == ("required", True)
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "painted"}
        second = await ask(client, [result], previous_response_id=first.id, tools=[PAINT])
        assert second.output_text == "It is blue."
        assert second.previous_response_id == first.id
        assert await texts(s, first.conversation.id) == ["Hello", "", "painted", "It is blue."]
        items = await client.responses.input_items.list(second.id)
        assert [item.type for item in items.data] == ["function_call_output"]


async def test_the_parsing_helpers() -> None:
    """Arguments of the client's tools are parsed; a form of the answer that the agent file has not is refused by name."""
    turns = [calls(("Paint", '{"colour":"blue"}'))] * 3
    async with client_of(*turns) as (client, _):
        tool: Any = openai.pydantic_function_tool(Paint)
        parsed = await client.chat.completions.parse(model="tester", messages=HELLO, tools=[tool])
        (call,) = parsed.choices[0].message.tool_calls or ()
        assert call.function.parsed_arguments == Paint(colour="blue")
        function = {"type": "function", **tool["function"]}
        response = await client.responses.parse(model="tester", input="Hello", tools=[function])
        (item,) = response.output
        assert item.type == "function_call"
        assert item.parsed_arguments == {"colour": "blue"}
        async with client.chat.completions.stream(model="tester", messages=HELLO, tools=[tool]) as stream:
            final = await stream.get_final_completion()
        assert (final.choices[0].message.tool_calls or ())[0].function.parsed_arguments == Paint(colour="blue")
        for asking, param in (
            (client.chat.completions.parse(model="tester", messages=HELLO, response_format=Paint), "response_format"),
            (client.responses.parse(model="tester", input="Hello", text_format=Paint), "text.format"),
        ):
            with pytest.raises(openai.BadRequestError) as refused:
                await asking
            assert (refused.value.code, refused.value.param) == ("unsupported_parameter", param)


@pytest.mark.parametrize(("approve", "made"), [(True, "completed"), (False, "failed")])
@pytest.mark.parametrize("streamed", [False, True])
async def test_an_approval(*, approve: bool, made: str, streamed: bool) -> None:
    turns = calls(("echo", '{"text": "hi"}')), says("done")
    async with client_of(*turns, tools=PlainTools(echo=echo, approval=frozenset({"echo"}))) as (client, _):
        first = await ask(client)
        (question,) = first.output
        assert (question.type, question.name, question.arguments) == ("mcp_approval_request", "echo", '{"text": "hi"}')
        reply: Any = [{"type": "mcp_approval_response", "approval_request_id": question.id, "approve": approve}]
        second = await ask(client, reply, previous_response_id=first.id, stream=streamed)
        if streamed:
            second = [event async for event in second][-1].response
        call, message = second.output
        assert (call.type, call.status, call.approval_request_id, call.arguments) == ("mcp_call", made, question.id, '{"text": "hi"}')  # fmt: skip
        assert message.content[0].text == "done"
        assert (await client.responses.retrieve(second.id)).output == second.output
        with pytest.raises(openai.BadRequestError, match="no open interrupt") as refused:
            await ask(client, reply, conversation=first.conversation.id)
        assert refused.value.param == "input"


async def test_the_last_response_is_continued_and_an_earlier_one_branches() -> None:
    async with client_of(says("one"), says("two"), says("three"), says("four")) as (client, s):
        first = await ask(client, "1")
        second = await ask(client, "2", previous_response_id=first.id)
        other = await ask(client, "3", previous_response_id=first.id)
        assert second.conversation == first.conversation
        assert other.conversation != first.conversation
        assert await texts(s, other.conversation.id) == ["1", "one", "3", "three"]
        assert await texts(s, first.conversation.id) == ["1", "one", "2", "two"]
        last = await ask(client, "4", conversation=first.conversation.id)
        assert await texts(s, last.conversation.id) == ["1", "one", "2", "two", "4", "four"]


async def test_two_that_continue_the_same_response_together_do_not_mix() -> None:
    gate = Gate()
    async with client_of(says("one"), says("two", pause=gate), says("three")) as (client, s):
        first = await ask(client, "1")
        held = asyncio.create_task(ask(client, "2", previous_response_id=first.id))
        while not s.server.runs.queue.busy((ANONYMOUS_OWNER, first.conversation.id)):
            await asyncio.sleep(0.01)
        other = await ask(client, "3", previous_response_id=first.id)
        gate.open.set()
        second = await held
        assert await texts(s, second.conversation.id) == ["1", "one", "2", "two"]
        assert await texts(s, other.conversation.id) == ["1", "one", "3", "three"]


async def test_in_the_background() -> None:
    gate = Gate()
    async with client_of(says("Good morning", pause=gate)) as (client, _):
        begun = await ask(client, background=True)
        assert begun.status in ("queued", "in_progress")
        assert (await client.responses.retrieve(begun.id)).status in ("queued", "in_progress")
        gate.open.set()
        stream = await client.responses.retrieve(begun.id, stream=True)
        events = [event async for event in stream]
        assert events[-1].type == "response.completed"
        done = await client.responses.retrieve(begun.id)
        assert (done.status, done.output_text) == ("completed", "Good morning")


@pytest.mark.req("FAC-02")
async def test_a_stream_is_resumed_after_any_event() -> None:
    async with client_of(says("one two three")) as (client, _):
        events = [event async for event in await ask(client, stream=True)]
        response_id: str = events[0].response.id
        for seen in range(len(events)):
            again = await client.responses.retrieve(response_id, stream=True, starting_after=seen)
            assert [event async for event in again] == events[seen + 1 :]
        async with client.responses.stream(response_id=response_id, starting_after=3) as stream:
            assert [event.sequence_number async for event in stream] == [n for n in range(len(events)) if n > 3]


async def test_a_client_that_leaves_comes_back_to_its_stream() -> None:
    gate = Gate()
    async with client_of(says("one two", pause=gate)) as (client, _):
        stream = await ask(client, stream=True)
        first = await anext(aiter(stream))
        await stream.close()
        gate.open.set()
        rest = await client.responses.retrieve(first.response.id, stream=True, starting_after=0)
        assert [event async for event in rest][-1].response.output_text == "one two"


async def test_cancelling_is_idempotent() -> None:
    async with client_of(says("one two", pause=Gate())) as (client, _):
        begun = await ask(client, background=True)
        for _ in range(2):
            assert (await client.responses.cancel(begun.id)).status == "cancelled"
        assert (await client.responses.retrieve(begun.id)).status == "cancelled"


async def test_a_deleted_response_is_gone_and_its_conversation_stays() -> None:
    async with client_of(says("one")) as (client, s):
        answer = await ask(client)
        await client.responses.delete(answer.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(answer.id)
        assert await texts(s, answer.conversation.id) == ["Hello", "one"]


async def test_a_response_whose_log_is_gone_can_be_read_and_not_streamed() -> None:
    async with client_of(calls(("echo", '{"text": "hi"}')), says("done"), tools=PlainTools(echo=echo)) as (client, s):
        answer = await ask(client)
        s.server.runs.forget(s.run(answer.id.removeprefix("resp_")))
        again = await client.responses.retrieve(answer.id)
        assert (again.output_text, again.status, [item.type for item in again.output]) == ("done", "completed", ["mcp_call", "message"])  # fmt: skip
        with pytest.raises(openai.APIStatusError) as gone:
            await client.responses.retrieve(answer.id, stream=True)
        assert gone.value.status_code == 410
        assert (await ask(client, "2", previous_response_id=answer.id)).conversation == answer.conversation


async def test_input_items() -> None:
    async with client_of(says("one")) as (client, _):
        answer = await ask(client, [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])
        items = await client.responses.input_items.list(answer.id)
        assert [item.content[0].text for item in items.data] == ["b", "a"]  # type: ignore[union-attr]
        page = await client.responses.input_items.list(answer.id, order="asc", limit=1)
        rest = await client.responses.input_items.list(answer.id, order="asc", after=page.data[0].id)
        assert (page.has_more, [item.content[0].text for item in rest.data]) == (True, ["b"])  # type: ignore[attr-defined, union-attr]


async def test_a_conversation_is_made_read_and_forgotten() -> None:
    turns = calls(("echo", '{"text": "hi"}')), says("done"), calls(("paint", "{}")), calls(("ask", "{}"))
    tools = PlainTools(frozenset({"ask"}), echo=echo, ask=echo)
    async with client_of(*turns, tools=tools) as (client, s):
        made = await client.conversations.create(metadata={"topic": "demo"})
        assert (await client.conversations.retrieve(made.id)).metadata == {"topic": "demo"}
        first = await ask(client, conversation=made.id)
        painting = await ask(client, "Paint", conversation=made.id, tools=[PAINT])
        result: Any = {"type": "function_call_output", "call_id": painting.output[0].call_id, "output": "painted"}
        asking = await ask(client, [result], conversation=made.id)
        listed = [item async for item in client.conversations.items.list(made.id, order="asc", limit=2)]
        assert [(item.type, getattr(item, "role", None)) for item in listed] == [
            ("message", "user"),
            ("mcp_call", None),
            ("message", "assistant"),
            ("message", "user"),
            ("function_call", None),
            ("function_call_output", None),
            ("mcp_approval_request", None),
        ]
        answered = {item.id: item for item in listed}
        for item in (*first.output, *painting.output, *asking.output):
            assert answered[item.id].type == item.type
        one: Any = await client.conversations.items.retrieve(listed[1].id, conversation_id=made.id)
        assert (one.name, one.output, one.status) == ("echo", first.output[0].output, "completed")
        assert (await client.conversations.update(made.id, metadata={"topic": "other"})).metadata == {"topic": "other"}
        with pytest.raises(openai.BadRequestError) as wrong:
            await client.conversations.create(items=HELLO)
        assert (wrong.value.param, wrong.value.code) == ("items", "unsupported_parameter")
        with pytest.raises(openai.APIStatusError, match="POST is not allowed"):
            await client.conversations.items.create(made.id, items=HELLO)
        assert (await client.conversations.delete(made.id)).deleted
        for gone in (client.conversations.retrieve(made.id), client.conversations.delete(made.id)):
            with pytest.raises(openai.NotFoundError, match="There is no session"):
                await gone
        assert await s.server.store.read(made.id, owner=ANONYMOUS_OWNER) is None


async def test_nothing_is_kept_with_store_false() -> None:
    async with client_of(says("one")) as (client, s):
        history = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ]
        answer = await ask(client, history, store=False)
        assert (answer.output_text, answer.conversation) == ("one", None)
        assert [message.content for message in s.model.prompts[0].messages] == ["a", "b", "c"]
        assert await s.server.store.count() == 0


async def test_a_run_of_another_wire_is_a_response_too() -> None:
    async with client_of(says("one"), says("two")) as (client, s):
        async with s.post({"message": "hi"}, "/agent/tester/chat") as answer:
            result = await answer.json()
        found = await client.responses.retrieve(f"resp_{result['message_id']}")
        assert (found.output_text, found.conversation.id) == ("one", result["session_id"])  # type: ignore[union-attr]
        continued = await ask(client, "and?", previous_response_id=found.id)
        assert await texts(s, result["session_id"]) == ["hi", "one", "and?", "two"]
        assert continued.conversation.id == result["session_id"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_model_that_fails_is_asked_once(*, streamed: bool) -> None:
    async with client_of(Turn(error=ModelUnreachable("no"))) as (client, s):
        if streamed:
            events: list[Any] = []
            with pytest.raises(openai.APIError, match="no"):
                await read_into(events, await ask(client, stream=True))
            assert (events[-1].type, events[-1].response.status) == ("response.failed", "failed")
        else:
            with pytest.raises(openai.APIStatusError, match="no"):
                await ask(client)
        assert len(s.model.prompts) == 1, "the SDK repeats a request that fails with 5xx, unless the server forbids it"


async def test_unknown_and_foreign_things_are_named_in_the_sdks_own_errors() -> None:
    async with client_of() as (client, s):
        for wrong, kind, param in (
            ({"previous_response_id": "resp_nothing"}, openai.NotFoundError, "previous_response_id"),
            ({"tools": [{"type": "web_search"}]}, openai.BadRequestError, "tools[0].type"),
            ({"tool_choice": {"type": "function", "name": "x"}}, openai.BadRequestError, "tool_choice"),
        ):
            with pytest.raises(kind) as refused:
                await ask(client, **wrong)
            assert refused.value.param == param
        with pytest.raises(openai.NotFoundError) as refused:
            await client.responses.create(model="gpt-9", input="x")
        assert refused.value.param == "model"
        for call in (client.responses.retrieve, client.responses.cancel, client.responses.delete):
            with pytest.raises(openai.NotFoundError, match="There is no response 'resp_nothing'"):
                await call("resp_nothing")
        assert s.model.prompts == []


def refer(item: Any) -> Any:
    return {"type": "item_reference", "id": item.id}


@pytest.mark.parametrize("streams", [False, True])
async def test_a_client_refers_to_the_answers_that_it_got(*, streams: bool) -> None:
    """As `@ai-sdk/openai` continues a conversation, unless the application sets `store: false`."""
    async with client_of(says("It is cold."), says("Yes.")) as (client, s):
        if streams:
            events: list[Any] = []
            await read_into(events, await ask(client, "How is it?", stream=True))
            first = next(event.response for event in events if event.type == "response.completed")
        else:
            first = await ask(client, "How is it?")
        await ask(client, [{"role": "user", "content": "How is it?"}, refer(first.output[0]), *HELLO])
        shown = [str(message.content) for message in s.model.prompts[-1].messages]
    assert shown == ["How is it?", "It is cold.", "Hello"]


async def test_a_session_is_read_once_for_all_references_to_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a small request could make the server read a long session hundreds of times."""
    texts = "one", "two", "three"
    async with client_of(*map(says, texts), says("Yes.")) as (client, s):
        store, whole = s.server.store, []
        answers = [await ask(client)]
        for _ in texts[1:]:
            answers.append(await ask(client, previous_response_id=answers[-1].id))
        read = store.read

        async def counted(session_id: str, **options: Any) -> Any:
            if options.get("last") is None:
                whole.append(session_id)
            return await read(session_id, **options)

        monkeypatch.setattr(store, "read", counted)
        await ask(client, [*(refer(each.output[0]) for each in answers), *HELLO])
        shown = [str(message.content) for message in s.model.prompts[-1].messages]
    assert shown == [*texts, "Hello"]
    assert len(whole) == len(set(whole))


async def test_a_client_refers_to_the_calls_that_it_carried_out() -> None:
    async with client_of(calls(("paint", "{}"), ("paint", "{}")), says("Done.")) as (client, s):
        first = await ask(client, tools=[PAINT])
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": f"result of {item.call_id}"}
            for item in first.output
        ]
        await ask(client, [*HELLO, *map(refer, first.output), *results], tools=[PAINT])
        *_, made, one, other = s.model.prompts[-1].messages
    assert [call.name for call in made.tool_calls] == ["paint", "paint"]
    assert [one.content, other.content] == ["result of c1", "result of c2"]


async def test_a_reference_to_what_is_not_stored_is_refused() -> None:
    async with client_of(says("It is cold.")) as (client, _):
        first = await ask(client, store=False)
        for missing in (refer(first.output[0]), {"type": "item_reference", "id": "msg_1"}):
            with pytest.raises(openai.NotFoundError, match="send the item itself"):
                await ask(client, [*HELLO, missing, *HELLO])


async def test_an_approval_without_its_conversation_is_refused_with_the_reason() -> None:
    """The AI SDK's provider also refers to the question."""
    tools = PlainTools(echo=echo, approval=frozenset({"echo"}))
    async with client_of(calls(("echo", '{"text": "hi"}')), tools=tools) as (client, _):
        asked = await ask(client)
        reply = {"type": "mcp_approval_response", "approval_request_id": asked.output[-1].id, "approve": True}
        with pytest.raises(openai.BadRequestError, match="no open interrupt"):
            await ask(client, [*HELLO, refer(asked.output[-1]), reply])
