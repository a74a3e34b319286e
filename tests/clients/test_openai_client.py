"""The official SDK of OpenAI against a real server: Chat Completions, plain and streamed, and what its helpers make of them."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from holodeck.core.usage import TokenUsage
from holodeck.errors import ModelUnreachable
from holodeck.models.scripted import Turn, calls, says
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.serving import Gate, Served, served, until
from tests.store_faults.fault_proxy import FaultProxy

ALL = ServerSettings(protocols=tuple(WIRES))
USAGE = TokenUsage(prompt_tokens=3, completion_tokens=2)
HELLO: Any = [{"role": "user", "content": "Hello"}]
PAINT: Any = {
    "type": "function",
    "function": {
        "name": "paint",
        "parameters": {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]},
    },
}
BLUE = calls(("paint", '{"colour": "blue"}'))


@asynccontextmanager
async def client_of(*turns: Turn, **options: Any) -> AsyncIterator[tuple[AsyncOpenAI, Served]]:
    async with (
        served(*turns, settings=ALL, **options) as s,
        AsyncOpenAI(base_url=f"{s.url}/v1", api_key="none", max_retries=2, timeout=60) as client,
    ):
        yield client, s


async def asked(client: AsyncOpenAI, *, streamed: bool) -> Any:
    answer: Any = await client.chat.completions.create(model="tester", messages=HELLO, stream=streamed)
    return [chunk async for chunk in answer] if streamed else answer


@pytest.mark.req("FAC-01")
async def test_a_plain_answer() -> None:
    async with client_of(says("Good morning", usage=USAGE)) as (client, _):
        answer = await client.chat.completions.create(model="tester", messages=HELLO)
    assert answer.choices[0].message.content == "Good morning"
    assert (answer.choices[0].finish_reason, answer.model) == ("stop", "tester")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (3, 2, 5)


@pytest.mark.req("FAC-01")
async def test_a_stream_with_its_usage() -> None:
    async with client_of(says("Good morning", usage=USAGE)) as (client, _):
        stream = await client.chat.completions.create(
            model="holodeck/tester", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    texts = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
    assert texts == ["Good", " morning"]
    assert [choice.finish_reason for choice in chunks[-2].choices] == ["stop"]
    assert chunks[-1].usage is not None
    assert (chunks[-1].choices, chunks[-1].usage.total_tokens) == ([], 5)
    assert len({chunk.id for chunk in chunks}) == 1


async def test_the_helper_of_the_sdk_reads_the_stream() -> None:
    async with (
        client_of(says("Good morning")) as (client, _),
        client.chat.completions.stream(model="tester", messages=HELLO) as stream,
    ):
        final = await stream.get_final_completion()
    assert (final.choices[0].message.content, final.choices[0].finish_reason) == ("Good morning", "stop")


async def test_without_a_session_the_clients_history_is_all_there_is() -> None:
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "I am Ann"},
        {"role": "assistant", "content": "Hello Ann"},
        {"role": "user", "content": "Who am I?"},
    ]
    async with client_of(says("Ann")) as (client, s):
        for _ in range(2):
            answer = await client.chat.completions.create(model="tester", messages=history)  # type: ignore[arg-type]
            shown = [message.content for message in s.model.prompts[-1].messages]
            assert shown == ["I am Ann", "Hello Ann", "Who am I?"]
        assert "Be brief." in s.model.prompts[-1].system
        run_id = answer.id.removeprefix("chatcmpl-")
        async with s.get(f"/sessions/{s.run(run_id).session_id}") as kept:
            assert kept.status == 404


@pytest.mark.parametrize("whole_history", [True, False])
async def test_a_session_continues_by_its_header(*, whole_history: bool) -> None:
    async with client_of(says("Hello Ann"), says("Ann")) as (client, s):
        mine = client.with_options(default_headers={"X-Session-Id": "ann-1"})
        first: Any = [{"role": "user", "content": "I am Ann"}]
        answered = await mine.chat.completions.with_raw_response.create(model="tester", messages=first)
        assert answered.headers["x-session-id"] == "ann-1"
        before = [*first, {"role": "assistant", "content": "something else"}] if whole_history else []
        again: Any = [*before, {"role": "user", "content": "Who am I?"}]
        stream = await mine.chat.completions.create(model="tester", messages=again, stream=True)
        assert stream.response.headers["x-session-id"] == "ann-1"
        assert [chunk async for chunk in stream]
        assert [message.content for message in s.model.prompts[-1].messages] == ["I am Ann", "Hello Ann", "Who am I?"]
        async with s.get("/sessions/ann-1") as session:
            assert (await session.json())["message_count"] == 4


@pytest.mark.parametrize("session", [None, "ann-1"])
@pytest.mark.parametrize("streamed", [True, False])
async def test_the_client_carries_out_its_own_tool(*, session: str | None, streamed: bool) -> None:
    headers = {"X-Session-Id": session} if session else {}
    async with client_of(BLUE, says("It is blue now.")) as (client, s):
        ask = client.with_options(default_headers=headers).chat.completions
        if streamed:
            async with ask.stream(model="tester", messages=HELLO, tools=[PAINT]) as stream:
                choice: Any = (await stream.get_final_completion()).choices[0]
        else:
            choice = (await ask.create(model="tester", messages=HELLO, tools=[PAINT])).choices[0]
        (asked,) = choice.message.tool_calls
        assert choice.finish_reason == "tool_calls"
        assert (asked.function.name, json.loads(asked.function.arguments)) == ("paint", {"colour": "blue"})
        call = {"id": asked.id, "type": "function", "function": {"name": "paint", "arguments": '{"colour": "blue"}'}}
        results: Any = [
            *HELLO,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": asked.id, "content": "painted"},
        ]
        answer = await ask.create(model="tester", messages=results, tools=[PAINT])
        assert answer.choices[0].message.content == "It is blue now."
        assert [message.content for message in s.model.prompts[-1].messages] == ["Hello", "", "painted"]


async def test_tools_of_the_server_are_never_tool_calls() -> None:
    tools = PlainTools(echo=echo)
    same_name: Any = {"type": "function", "function": {"name": "echo"}}
    async with client_of(calls(("echo", '{"a": 1}')), says("Done"), tools=tools) as (client, _):
        answer = await client.chat.completions.create(model="tester", messages=HELLO, tools=[same_name])
    message = answer.choices[0].message
    assert (message.content, message.tool_calls, answer.choices[0].finish_reason) == ("Done", None, "stop")
    assert message.model_extra is not None
    assert message.model_extra["reasoning_content"].startswith('→ echo {"a": 1}\n← echo ')
    assert [name for name, _, _ in tools.called] == ["echo"]


async def test_an_approval_is_named_and_nothing_is_carried_out() -> None:
    tools = PlainTools(approval=frozenset({"echo"}), echo=echo)
    async with client_of(calls(("echo", "{}")), tools=tools) as (client, _):
        answer = await client.chat.completions.create(model="tester", messages=HELLO)
    assert "A person must approve echo first" in (answer.choices[0].message.content or "")
    assert tools.called == []


async def test_models() -> None:
    async with client_of() as (client, _):
        assert [model.id async for model in client.models.list()] == ["tester"]
        assert (await client.models.retrieve("holodeck/tester")).id == "tester"
        with pytest.raises(openai.NotFoundError) as caught:
            await client.models.retrieve("gpt-5")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


async def test_what_cannot_be_served_is_refused_by_name() -> None:
    async with client_of() as (client, s):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="tester", messages=HELLO, n=2)
        assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "n")
        with pytest.raises(openai.NotFoundError) as missing:
            await client.chat.completions.create(model="gpt-5", messages=HELLO)
        assert missing.value.code == "model_not_found"
        assert missing.value.response.headers["content-type"] == "application/problem+json"
        assert s.model.prompts == []


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_run_that_failed_is_an_error_that_is_not_tried_again(*, streamed: bool) -> None:
    async with client_of(Turn(error=ModelUnreachable("The model cannot be reached."))) as (client, s):
        with pytest.raises(openai.APIError, match=r"The model cannot be reached\.") as caught:
            await asked(client, streamed=streamed)
        assert caught.value.type == "server_error"
        assert len(s.model.prompts) == 1
        if not streamed:
            assert isinstance(caught.value, openai.InternalServerError)
            assert caught.value.response.headers["x-should-retry"] == "false"


async def test_the_same_key_asks_once() -> None:
    async with client_of(says("once"), says("twice")) as (client, s):
        mine = client.with_options(default_headers={"Idempotency-Key": "a-uuid"})
        answers = [await mine.chat.completions.create(model="tester", messages=HELLO) for _ in range(2)]
        assert [answer.choices[0].message.content for answer in answers] == ["once", "once"]
        assert answers[0].id == answers[1].id
        with pytest.raises(openai.BadRequestError, match="was already used for a different request"):
            await mine.chat.completions.create(model="tester", messages=[{"role": "user", "content": "Another"}])
        assert len(s.model.prompts) == 1


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_request_that_the_sdk_repeats_joins_its_run(api: str) -> None:
    """The SDKs send a request again when its connection breaks: the tools must not act twice."""
    gate = Gate()
    async with client_of(says("once", pause=gate), says("twice"), says("thrice")) as (client, s):
        host, port = s.url.removeprefix("http://").split(":")

        async def ask(at: AsyncOpenAI) -> str | None:
            if api == "responses":
                return (await at.responses.create(model="tester", input="Hello")).output_text
            return (await at.chat.completions.create(model="tester", messages=HELLO)).choices[0].message.content

        async with FaultProxy((host, int(port))) as link:
            asking = asyncio.create_task(ask(client.with_options(base_url=f"http://127.0.0.1:{link.port}/v1")))
            await until(lambda: s.model.prompts)
            link.cut()
            link.heal()
            gate.open.set()
            assert await asking == "once"
        assert len(s.model.prompts) == 1
        assert await ask(client) == "twice", "the same words again are a new request"
        for run in s.server.runs.finished.until:
            run.ended = time.monotonic() - 60
        later = client.with_options(default_headers={"x-stainless-retry-count": "1"})
        assert await ask(later) == "thrice", "a run of a minute ago is not what was lost"
