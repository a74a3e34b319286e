"""An endpoint that behaves: what is sent, what is remembered, connections, and the check."""

import asyncio

import pytest

from holodeck.agent.definition import AgentContext, AgentDefinition
from holodeck.agent.loop import run
from holodeck.core import events as e
from holodeck.core.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from holodeck.core.tools import ToolSchema
from holodeck.errors import ModelAuthFailed, ModelProtocolError, ModelRejected, ModelTimeout, ModelUnreachable
from holodeck.models import chat_completions_model
from holodeck.models.chunks import model_named
from holodeck.models.endpoint_settings import Deadlines, EndpointSettings, Reasoning
from holodeck.models.port import OutputSchema, Prompt
from holodeck.sessions.transcript import Transcript
from holodeck.telemetry.exposition import page
from holodeck.telemetry.metrics import Metrics
from holodeck.tools.catalogue import Catalogue
from holodeck.tools.functions import FunctionToolset
from tests.models.asking import HI, KEY, OK, PROMPT, SHORT, asking, fails, succeeds, unused_port
from tests.models.endpoint import (
    DONE,
    ModelEndpoint,
    Wire,
    chunk,
    close_at_once,
    frame,
    hang,
    status,
    stream,
    text_frames,
    tool_call_stream,
)
from tests.models.recording_listener import RecordingListener


@pytest.mark.req("AGT-02")
async def test_an_ordinary_answer():
    reply, listener, endpoint, _ = await succeeds(OK, temperature=0.5, max_tokens=10, extra={"seed": 1})
    assert reply.text == listener.words == "Hello world"
    assert reply.usage is not None
    assert reply.usage.total_tokens == 5
    (request,) = endpoint.requests
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.json == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "max_tokens": 10,
        "seed": 1,
    }


@pytest.mark.req("AGT-02", "A25")
async def test_a_turn_with_tools_goes_there_and_back_unchanged():
    signature = {"google": {"thought_signature": "c2ln"}}
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra_content": signature}
    first = stream(frame(chunk({"role": "assistant", "tool_calls": [call]}, finish="stop")), DONE)
    tools = (ToolSchema(name="f", description="Does f."),)
    async with ModelEndpoint(first, OK) as endpoint, asking(endpoint.url) as model:
        asked = await model.reply(Prompt(messages=PROMPT.messages, tools=tools), RecordingListener())
        history = (
            *PROMPT.messages,
            AssistantMessage(content=asked.text, tool_calls=asked.tool_calls, extra=asked.extra),
            ToolMessage(call_id="a", name="f", content="done"),
        )
        await model.reply(Prompt(messages=history, tools=tools), RecordingListener())
    assert endpoint.requests[1].json["messages"][1:] == [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "name": "f", "content": "done"},
    ]
    assert endpoint.requests[1].json["tools"][0]["function"]["name"] == "f"
    assert endpoint.connections == 1  # kept alive between the turns


@pytest.mark.parametrize(
    ("complaint", "sent_first", "sent_then"),
    [
        ({"error": {"message": "Unrecognized request argument supplied: stream_options"}}, "stream_options", None),
        (
            {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]},
            "stream_options",
            None,
        ),
        (
            {"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}},
            "max_tokens",
            "max_completion_tokens",
        ),
        ({"error": {"message": "Unsupported value: 'temperature' does not support 0.5."}}, "temperature", None),
    ],
)
@pytest.mark.req("AGT-02")
async def test_what_an_endpoint_does_not_know_is_left_out_and_remembered(complaint, sent_first, sent_then):
    async with (
        ModelEndpoint(status(400, complaint), OK) as endpoint,
        asking(endpoint.url, max_tokens=5, temperature=0.5) as model,
    ):
        await model.reply(PROMPT, RecordingListener())
        await model.reply(PROMPT, RecordingListener())
    assert len(endpoint.requests) == 3
    assert sent_first in endpoint.requests[0].json
    for request in endpoint.requests[1:]:
        assert sent_first not in request.json
        assert sent_then is None or request.json[sent_then] == 5


@pytest.mark.parametrize("name", chat_completions_model.OPTIONAL)
async def test_an_option_that_an_endpoint_refuses_is_left_out_from_then_on(name, caplog):
    caplog.set_level("INFO", logger="holodeck.models.streamed")
    complaint = {"error": {"message": f"Unsupported parameter: '{name}' is not supported with this model."}}
    prompt = Prompt(messages=PROMPT.messages, tools=(ToolSchema(name="f", description="Does f."),))
    options = {
        "reasoning": Reasoning(effort="high"), "verbosity": "low", "top_p": 0.5, "seed": 7, "stop": ("END",),
        "parallel_tool_calls": False, "tool_choice": "f", "service_tier": "flex",
    }  # fmt: skip
    async with (
        ModelEndpoint(status(400, complaint), OK) as endpoint,
        asking(endpoint.url, **options) as model,
    ):
        await model.reply(prompt, RecordingListener())
        await model.reply(prompt, RecordingListener())
    first, *others = (request.json for request in endpoint.requests)
    assert {key: first[key] for key in chat_completions_model.OPTIONAL} == {
        "reasoning_effort": "high", "verbosity": "low", "top_p": 0.5, "seed": 7, "stop": ["END"],
        "parallel_tool_calls": False, "tool_choice": {"type": "function", "function": {"name": "f"}},
        "service_tier": "flex",
    }  # fmt: skip
    assert len(others) == 2
    assert all(first == {**other, name: first[name]} and name not in other for other in others)
    assert [record.getMessage() for record in caplog.records if name in record.getMessage()] == [
        f"openai_compatible/m does not accept {name}; it is left out from now on"
    ]


@pytest.mark.parametrize("words", ["temperature is not supported", "stream_options", "max_completion_tokens"])
async def test_a_refusal_that_quotes_a_user_changes_nothing_for_other_users(words):
    """The endpoint refuses the request whatever is left out, so it was not about an option."""
    quoting = status(400, {"error": {"message": f"Blocked input: 'they say {words}'"}})
    async with (
        ModelEndpoint(quoting, quoting, OK) as endpoint,
        asking(endpoint.url, temperature=0.5, max_tokens=5) as model,
    ):
        with pytest.raises(ModelRejected):
            await model.reply(PROMPT, RecordingListener())
        await model.reply(PROMPT, RecordingListener())
    first, again, other = (request.json for request in endpoint.requests)
    assert again != first, "the request is tried without what the refusal seems to be about"
    assert other == first


async def test_a_refusal_that_quotes_a_user_does_not_change_how_answers_by_a_schema_are_asked_for():
    quoting = status(400, {"error": {"message": "Blocked input: 'response_format and tools'"}})
    prompt = Prompt(messages=PROMPT.messages, output=OutputSchema(name="o", schema={"type": "object"}))
    async with ModelEndpoint(quoting, quoting, quoting, OK) as endpoint, asking(endpoint.url) as model:
        with pytest.raises(ModelRejected):
            await model.reply(prompt, RecordingListener())
        await model.reply(prompt, RecordingListener())
    assert "response_format" in endpoint.requests[-1].json


def test_a_forced_tool_is_forced_once_a_turn():
    tools = (ToolSchema(name="f", description="Does f."),)
    asked = UserMessage(content="Hi")
    answered = (asked, AssistantMessage(tool_calls=(ToolCall(id="a", name="f", arguments="{}"),)),
                ToolMessage(call_id="a", name="f", content="done"))  # fmt: skip
    settings = EndpointSettings(name="m", tool_choice="required")
    assert settings.choice_of_tools(Prompt(messages=(asked,), tools=tools)) == "required"
    assert settings.choice_of_tools(Prompt(messages=answered, tools=tools)) == "auto"
    assert settings.choice_of_tools(Prompt(messages=(asked,))) is None


def test_gemini_takes_a_budget_of_thinking_under_its_own_name():
    settings = EndpointSettings(name="m", provider="gemini", reasoning=Reasoning(budget_tokens=500, summary="auto"))
    body = chat_completions_model.body_of(settings, PROMPT)
    thinking = {"thinking_budget": 500, "include_thoughts": True}
    assert body["extra_body"] == {"google": {"thinking_config": thinking}}


async def test_a_complaint_that_stays_is_an_error():
    complaint = {"error": {"message": "I do not like stream_options"}}
    _, _, endpoint, _ = await fails(ModelRejected, status(400, complaint))
    assert len(endpoint.requests) == 2


async def test_cancelling_closes_the_connection_at_once():
    async def respond(wire: Wire) -> None:
        await wire.head()
        await wire.send(HI)
        await wire.hang()

    async with ModelEndpoint(respond) as endpoint, asking(endpoint.url) as model:
        running = asyncio.create_task(model.reply(PROMPT, RecordingListener()))
        await endpoint.asked()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        async with asyncio.timeout(1):
            await endpoint.all_gone()


async def test_connections_are_used_again_and_closed_at_the_end():
    async with ModelEndpoint(OK, tool_call_stream(("a", "f", "{}")), OK) as endpoint:
        async with asking(endpoint.url) as model:
            for _ in range(3):
                await model.reply(PROMPT, RecordingListener())
        assert endpoint.connections == 1
        async with asyncio.timeout(1):
            await endpoint.all_gone()


async def test_many_answers_at_once_do_not_wait_for_each_other():
    everybody = asyncio.Barrier(120)  # more than aiohttp's usual limit of 100 connections

    async def respond(wire: Wire) -> None:
        await everybody.wait()
        await wire.head()
        await wire.send(*text_frames("Hi"))
        await wire.end()

    async with ModelEndpoint(respond) as endpoint, asking(endpoint.url) as model:
        replies = await asyncio.gather(*(model.reply(PROMPT, RecordingListener()) for _ in range(120)))
    assert {reply.text for reply in replies} == {"Hi"}


async def test_ids_that_an_endpoint_uses_again_are_replaced():
    history = (
        UserMessage(content="Hi"),
        AssistantMessage(tool_calls=(ToolCall(id="call_0", name="f", arguments="{}"),)),
        ToolMessage(call_id="call_0", name="f", content="1"),
    )
    async with ModelEndpoint(tool_call_stream(("call_0", "f", "{}"))) as endpoint, asking(endpoint.url) as model:
        reply = await model.reply(Prompt(messages=history), RecordingListener())
    assert reply.tool_calls[0].id != "call_0"


CHECKS = {
    "list": (status(200, {"data": []}), None),
    "no such list": (status(404, {"error": "no such path"}), None),
    "a web server": (status(404, b"<html>no</html>"), ModelProtocolError),
    "odd": (status(200, b"hello", Content_Type="text/plain"), None),
    "limited": (status(429, b"{}"), None),
    "bad key": (status(401, b"{}"), ModelAuthFailed),
    "forbidden": (status(403, b"{}"), ModelAuthFailed),
    "gemini's bad key": (status(400, {"error": {"message": "API key not valid"}}), ModelAuthFailed),
    "no credit": (status(402, b"{}"), ModelRejected),
    "moved": (status(301, b"<html>moved</html>", Location="https://127.0.0.1/v1/models"), ModelRejected),
    "the proxy wants a password": (status(407, b"{}"), ModelRejected),
    "broken": (status(500, b"{}"), ModelUnreachable),
    "page": (status(200, b"<html>", Content_Type="text/html"), ModelProtocolError),
    "closed": (close_at_once, ModelUnreachable),
    "silent": (hang, ModelTimeout),
}


@pytest.mark.parametrize("case", CHECKS)
async def test_check_reports_whether_the_endpoint_is_there_and_takes_the_key(case):
    respond, error = CHECKS[case]
    deadlines = SHORT if error is ModelTimeout else Deadlines()  # others must not depend on how busy the machine is
    async with ModelEndpoint(respond) as endpoint, asking(endpoint.url, deadlines=deadlines) as model:
        if error is None:
            await model.check()
        else:
            with pytest.raises(error):
                await model.check()
    assert (endpoint.requests[0].method, endpoint.requests[0].path) == ("GET", "/v1/models")
    assert endpoint.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_a_gateway_with_a_page_instead_of_the_list_is_asked_an_empty_question():
    answers = status(404, b"<html>no</html>"), status(400, {"error": {"message": "messages is required"}})
    async with ModelEndpoint(*answers) as endpoint, asking(endpoint.url) as model:
        await model.check()
    assert (endpoint.requests[1].method, endpoint.requests[1].body) == ("POST", b"{}")


async def test_a_gateway_that_redirects_only_the_list_is_asked_an_empty_question():
    """FastAPI redirects a path to the one with a slash at its end."""
    answers = status(307, b"", Location="/v1/models/"), status(400, {"error": {"message": "messages is required"}})
    async with ModelEndpoint(*answers) as endpoint, asking(endpoint.url) as model:
        await model.check()
    assert (endpoint.requests[1].method, endpoint.requests[1].body) == ("POST", b"{}")


async def test_check_of_a_port_where_no_one_listens():
    async with asking(f"http://127.0.0.1:{unused_port()}/v1") as model:
        with pytest.raises(ModelUnreachable):
            await model.check()


REFUSED_MEMBERS = {
    "groq": "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property 'reasoning_content' is unsupported)]",
    "cerebras": "messages.1.assistant.reasoning_content: property 'messages.1.assistant.reasoning_content' is unsupported",
    "mistral": '{"type":"extra_forbidden","loc":["body","messages",1,"assistant","reasoning_content"],"msg":"Extra inputs are not permitted"}',
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED_MEMBERS.values(), ids=REFUSED_MEMBERS)
async def test_thoughts_of_another_model_that_an_endpoint_refuses_are_left_out(words, caplog):
    caplog.set_level("INFO")
    signature = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    call = ToolCall(id="a", name="f", arguments="{}", extra=signature)
    asked = AssistantMessage(content="", tool_calls=(call,), extra={"reasoning_content": "Hm."})
    found = ToolMessage(call_id="a", name="f", content="1")
    prompt = Prompt(messages=(UserMessage(content="Hi"), asked, found))
    async with ModelEndpoint(status(400, {"message": words}), OK) as endpoint, asking(endpoint.url) as model:
        await model.reply(prompt, RecordingListener())
        await model.reply(prompt, RecordingListener())
    first, *others = [request.json["messages"][1] for request in endpoint.requests]
    assert first["reasoning_content"] == "Hm."
    assert all("reasoning_content" not in each for each in others)
    assert all(each["tool_calls"] == first["tool_calls"] for each in others)
    assert len(others) == 2
    assert "does not accept messages[].reasoning_content" in caplog.text


MISSED = {
    "gemini": ("Function call is missing a thought_signature in functionCall parts.", "extra_content"),
    "vertex": ("function call `f` in the 2. content block is missing a `thought_signature`", "extra_content"),
    "deepseek": ("The `reasoning_content` in the thinking mode must be passed back to the API.", "reasoning_content"),
    "kimi": ("thinking is enabled but reasoning_content is missing in assistant tool call message at index 1", "reasoning_content"),
}  # fmt: skip


@pytest.mark.parametrize(("words", "member"), MISSED.values(), ids=MISSED)
async def test_what_an_endpoint_misses_in_calls_of_another_model_is_filled_in(words, member):
    calls = tuple(ToolCall(id=name, name="f", arguments="{}") for name in "ab")
    results = [ToolMessage(call_id=name, name="f", content="1") for name in "ab"]
    prompt = Prompt(messages=(UserMessage(content="Hi"), AssistantMessage(tool_calls=calls), *results))
    refusal = status(400, {"error": {"message": words, "type": "invalid_request_error"}})
    async with ModelEndpoint(refusal, OK) as endpoint, asking(endpoint.url) as model:
        await model.reply(prompt, RecordingListener())
        await model.reply(prompt, RecordingListener())
    first, *others = [request.json["messages"][1] for request in endpoint.requests]
    assert len(others) == 2
    assert member not in str(first)
    for each in others:
        signed = ["extra_content" in call for call in each["tool_calls"]]
        assert (each.get("reasoning_content"), signed) == (
            (None, [True, False]) if member == "extra_content" else ("", [False, False])
        )


async def test_a_signature_that_gemini_refuses_is_dropped_and_later_ones_are_not(caplog):
    def signed(call_id: str, signature: str) -> list[AssistantMessage | ToolMessage]:
        extra = {"extra_content": {"google": {"thought_signature": signature}}}
        call = ToolCall(id=call_id, name="f", arguments="{}", extra=extra)
        return [AssistantMessage(tool_calls=(call,)), ToolMessage(call_id=call_id, name="f", content="1")]

    history = [UserMessage(content="Hi"), *signed("a", "b3RoZXI=")]
    refusal = status(400, [{"error": {"message": "Corrupted thought signature.", "status": "INVALID_ARGUMENT"}}])
    async with ModelEndpoint(refusal, OK) as endpoint, asking(endpoint.url) as model:
        await model.reply(Prompt(messages=history), RecordingListener())
        await model.reply(Prompt(messages=[*history, *signed("b", "b3du")]), RecordingListener())
    sent = [
        [call["extra_content"]["google"]["thought_signature"] for message in request.json["messages"] for call in message.get("tool_calls", ())]
        for request in endpoint.requests
    ]  # fmt: skip
    skipped = "skip_thought_signature_validator"
    assert sent == [["b3RoZXI="], [skipped], [skipped, "b3du"]]
    assert "refused the signatures of 1 earlier replies" in caplog.text
    assert "b3RoZXI=" not in caplog.text


async def test_what_an_endpoint_continues_to_miss_is_an_error():
    await fails(ModelRejected, status(400, {"error": {"message": "missing a thought_signature"}}))


async def test_members_of_calls_and_results_that_an_endpoint_refuses_are_left_out():
    call = ToolCall(id="a", name="f", arguments="{}", extra={"extra_content": {"google": {}}})
    found = ToolMessage(call_id="a", name="f", content="1")
    prompt = Prompt(messages=(UserMessage(content="Hi"), AssistantMessage(tool_calls=(call,)), found))
    refusals = [
        status(422, {"detail": f"messages.{place}: unexpected property"}) for place in ("1.extra_content", "2.name")
    ]
    async with ModelEndpoint(*refusals, OK) as endpoint, asking(endpoint.url) as model:
        await model.reply(prompt, RecordingListener())
    _, asked, result = endpoint.requests[-1].json["messages"]
    assert asked["tool_calls"] == [{"type": "function", "id": "a", "function": {"name": "f", "arguments": "{}"}}]
    assert result == {"role": "tool", "tool_call_id": "a", "content": "1"}


async def test_tools_that_a_gateway_runs_are_sent_as_they_are():
    search = {"type": "openrouter:web_search", "parameters": {"max_uses": 1}}
    _, _, endpoint, _ = await succeeds(OK, provider_tools=(search,))
    assert endpoint.requests[0].json["tools"] == [search]


@pytest.mark.parametrize(
    ("asked", "reported", "named"),
    [
        ("openrouter/auto", "anthropic/claude-sonnet-5", "openai_compatible/anthropic/claude-sonnet-5"),
        ("model-router", "gpt-5-nano-2025-08-07", "openai_compatible/gpt-5-nano-2025-08-07"),
        ("gpt-4o", "gpt-4o-mini", "openai_compatible/gpt-4o-mini"),
        ("gpt-4o", "gpt-4o-2024-08-06", ""),
        ("mistral-small-latest", "mistral-small-2506", ""),
        ("llama3.2", "llama3.2:latest", ""),
        ("llama3.2:1b", "llama3.2:3b", "openai_compatible/llama3.2:3b"),
        ("xai/grok-4", "spacexai/grok-4", ""),
        ("qwen", "/models/qwen.gguf", ""),
        ("m", "", ""),
    ],
)
async def test_a_reply_names_the_model_that_answered_if_it_is_another_one(asked, reported, named):
    body = stream(
        frame(chunk({"content": "Hi"}, model=reported)), frame(chunk({}, finish="stop", model=reported)), DONE
    )
    reply, *_ = await succeeds(body, name=asked, provider="openai_compatible")
    assert reply.model == named


async def test_a_routed_run_names_the_model_in_events_and_metrics():
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "cost": 0.25}
    body = stream(frame(chunk({"content": "Hi"}, model="a/b")), frame(chunk(finish="stop", usage=usage)), DONE)
    events: list[e.Event] = []
    async with (
        ModelEndpoint(body) as endpoint,
        asking(endpoint.url, name="openrouter/auto") as model,
        AgentDefinition(name="a", model=model, tools=Catalogue.of(FunctionToolset([]))) as agent,
    ):
        await run(agent, AgentContext(conversation=Transcript(), input=[UserMessage(content="Hi")]), events.append)
    (step,) = [event for event in events if isinstance(event, e.StepFinished)]
    (ending,) = [event for event in events if isinstance(event, e.RunFinished)]
    assert step.model == ending.model == "openai_compatible/a/b"
    metrics = Metrics()
    count = metrics.run(events)
    for event in events:
        count(event)
    assert b'holodeck_cost_total{model="openai_compatible/a/b"} 0.25' in page(metrics.figures())


@pytest.mark.parametrize("path", ["/srv/weights/small", "C:\\weights\\small", "./small", "small-Q4.gguf"])
def test_the_path_of_a_file_is_not_the_name_of_a_model(path):
    """llama.cpp names its file: clients and metrics would show a folder of the model's machine."""
    assert model_named(path) == ""
    assert model_named("meta-llama/llama-4") == "meta-llama/llama-4"
