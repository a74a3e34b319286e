"""The body of a Messages request: messages, media, tools, thinking, caching."""

import base64
import json

import pytest

from holodeck.core.messages import AssistantMessage, MediaPart, TextPart, ToolCall, ToolMessage, UserMessage
from holodeck.models.anthropic.content_blocks import KEPT
from holodeck.models.anthropic.message_request import body_of
from holodeck.models.endpoint_settings import EndpointSettings, Reasoning
from holodeck.models.port import Prompt
from holodeck.models.restrictions import Restrictions
from holodeck.models.streamed import encoded
from tests.models.anthropic.asking_anthropic import LOOK, PROMPT, WITH_TOOLS
from tests.models.anthropic.message_streams import SIGNED

PNG = base64.b64encode(b"png").decode()


def body(prompt: Prompt = PROMPT, restrictions: Restrictions | None = None, **settings):
    given = EndpointSettings(**{"name": "m", "provider": "anthropic", "cache": "off", "temperature": None, **settings})
    return json.loads(encoded(body_of(given, prompt, restrictions or Restrictions())))


def sent(*messages):
    return body(Prompt(messages=messages))["messages"]


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


CALL = AssistantMessage(
    content="I look.",
    tool_calls=(ToolCall(id="a", name="look", arguments='{"n": 1}'), ToolCall(id="b", name="look", arguments="")),
)


def test_results_of_a_step_and_what_the_user_adds_are_one_message():
    messages = sent(
        UserMessage(content="Hi"),
        CALL,
        ToolMessage(call_id="a", name="look", content="one"),
        ToolMessage(call_id="b", name="look", content="broken", failed=True),
        UserMessage(content="Go on"),
    )
    assert messages == [
        {"role": "user", "content": [text("Hi")]},
        {
            "role": "assistant",
            "content": [
                text("I look."),
                {"type": "tool_use", "id": "a", "name": "look", "input": {"n": 1}},
                {"type": "tool_use", "id": "b", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [text("one")]},
                {"type": "tool_result", "tool_use_id": "b", "content": [text("broken")], "is_error": True},
                text("Go on"),
            ],
        },
    ]


def test_an_error_without_a_text_gets_one():
    """The API answers 400 for is_error without content."""
    result = sent(CALL, ToolMessage(call_id="a", name="look", content=" ", failed=True))[1]["content"]
    assert result == [{"type": "tool_result", "tool_use_id": "a", "content": [text("(no output)")], "is_error": True}]


def test_what_is_empty_is_left_out():
    messages = sent(
        UserMessage(content="Hi"),
        AssistantMessage(content=""),
        UserMessage(content=(TextPart(""), TextPart("there"))),
        AssistantMessage(tool_calls=CALL.tool_calls[:1], content=" "),
        ToolMessage(call_id="a", name="look", content=""),
    )
    assert messages[0] == {"role": "user", "content": [text("Hi"), text("there")]}
    assert [block["type"] for block in messages[1]["content"]] == ["tool_use"]
    assert messages[2]["content"] == [{"type": "tool_result", "tool_use_id": "a"}]
    assert "system" not in body(Prompt(system=" ", messages=PROMPT.messages))


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            MediaPart(mime_type="image/png", data=PNG),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        ),
        (
            MediaPart(mime_type="image/*", url="https://i.example/a"),
            {"type": "image", "source": {"type": "url", "url": "https://i.example/a"}},
        ),
        (
            MediaPart(mime_type="application/pdf", data="JVBERg==", filename="a.pdf"),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
                "title": "a.pdf",
            },
        ),
        (
            MediaPart(mime_type="text/csv; charset=utf-8", data=base64.b64encode("ä,b".encode()).decode()),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "ä,b"}},
        ),
        (MediaPart(mime_type="image/bmp", data="AA==", filename="a.bmp"), text("[image/bmp: a.bmp]")),
        (MediaPart(mime_type="audio/wav", data="AA=="), text("[audio/wav]")),
        (MediaPart(mime_type="text/plain", data="//8="), text("[text/plain]")),
    ],
)
def test_media(part, block):
    assert sent(UserMessage(content=(part,)))[0]["content"] == [block]
    result = sent(UserMessage(content="Hi"), CALL, ToolMessage(call_id="a", name="look", content=(part,)))[2]
    assert result["content"][0]["content"] == [block]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"n": 12345678901234567890123}', {"n": 12345678901234567890123}),
        ('{"n": ', {"INVALID_JSON": '{"n": '}),
        ("[1]", {"INVALID_JSON": "[1]"}),
        ('{"e": "\\ud83d\\ude00"}', {"e": "😀"}),
        ('{"e": "\\ud83d"}', {"INVALID_JSON": '{"e": "\\ud83d"}'}),
    ],
)
def test_arguments_of_every_kind_go_back_as_an_object(arguments, expected):
    call = AssistantMessage(tool_calls=(ToolCall(id="a", name="look", arguments=arguments),))
    assert sent(UserMessage(content="Hi"), call)[1]["content"][0]["input"] == expected


def test_ids_of_other_providers_fit():
    call = AssistantMessage(tool_calls=(ToolCall(id="functions.look:0", name="look", arguments="{}"),))
    result = ToolMessage(call_id="functions.look:0", name="look", content="x")
    messages = sent(UserMessage(content="Hi"), call, result)
    assert messages[1]["content"][0]["id"] == messages[2]["content"][0]["tool_use_id"] == "functions_look_0"


def test_calls_that_were_changed_or_dropped_since_are_sent_as_they_are_now():
    kept = {KEPT: {"content": [SIGNED, {"type": "tool_use", "caller": {"type": "x"}}]}}
    changed = AssistantMessage(tool_calls=(ToolCall(id="new", name="look", arguments='{"n": 2}'),), extra=kept)
    dropped = AssistantMessage(content="", extra=kept)
    assert sent(UserMessage(content="Hi"), changed)[1]["content"] == [
        SIGNED,
        {"type": "tool_use", "caller": {"type": "x"}, "id": "new", "name": "look", "input": {"n": 2}},
    ]
    assert len(sent(UserMessage(content="Hi"), dropped)) == 1  # the API refuses thoughts that nothing follows


def test_an_answer_that_came_as_a_call_goes_back_as_text():
    kept = {KEPT: {"content": [SIGNED, text("Here."), {"type": "tool_use"}]}}
    answered = AssistantMessage(content='{"n": 1}', extra=kept)
    assert sent(UserMessage(content="Hi"), answered)[1]["content"] == [SIGNED, text('{"n": 1}')]


@pytest.mark.parametrize("extra", [{KEPT: 1}, {KEPT: {"content": "x"}}, {KEPT: {"content": [1]}}, {"other": {}}])
def test_a_session_that_someone_edited_does_no_harm(extra):
    assert sent(UserMessage(content="Hi"), AssistantMessage(content="Yes", extra=extra))[1]["content"] == [text("Yes")]


# options


def test_options_under_their_names_here():
    request = body(
        WITH_TOOLS,
        temperature=0.5,
        top_p=0.9,
        max_tokens=100,
        stop=("END",),
        service_tier="auto",
        tool_choice="required",
        parallel_tool_calls=False,
        provider_tools=({"type": "web_search_20250305", "name": "web_search"},),
        extra={"top_k": 3, "metadata": {"user_id": "u"}},
    )
    assert request | {
        "temperature": 0.5, "top_p": 0.9, "max_tokens": 100, "stop_sequences": ["END"], "service_tier": "auto",
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True}, "top_k": 3, "metadata": {"user_id": "u"},
    } == request  # fmt: skip
    assert request["tools"] == [
        {
            "name": "look",
            "description": "Looks.",
            "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
        {"type": "web_search_20250305", "name": "web_search"},
    ]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
        ({"tool_choice": "look"}, {"type": "tool", "name": "look"}),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"parallel_tool_calls": True}, None),
    ],
)
def test_tool_choice(settings, expected):
    assert body(WITH_TOOLS, **settings).get("tool_choice") == expected
    assert "tool_choice" not in body(PROMPT, **settings)


def test_a_client_may_want_one_call_at_a_time():
    wanted = Prompt(messages=PROMPT.messages, tools=(LOOK,), one_call_at_a_time=True)
    assert body(wanted, parallel_tool_calls=True)["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


SUMMARIZED = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("reasoning", "thinking", "effort", "tokens"),
    [
        (None, None, None, 16_000),
        (Reasoning(effort="none"), {"type": "disabled"}, None, 16_000),
        (Reasoning(effort="medium"), SUMMARIZED, "medium", 32_000),
        (Reasoning(effort="minimal"), SUMMARIZED, "low", 32_000),
        (Reasoning(effort="max"), SUMMARIZED, "max", 64_000),
        (Reasoning(effort="low", summary="none"), {"type": "adaptive", "display": "omitted"}, "low", 32_000),
        (Reasoning(summary="auto"), SUMMARIZED, None, 32_000),
        (Reasoning(budget_tokens=4000), {"type": "enabled", "budget_tokens": 4000}, None, 20_000),
        (
            Reasoning(budget_tokens=4000, effort="high", summary="auto"),
            {"type": "enabled", "budget_tokens": 4000, "display": "summarized"},
            "high",
            20_000,
        ),
    ],
)
def test_thinking(reasoning, thinking, effort, tokens):
    request = body(reasoning=reasoning)
    assert request.get("thinking") == thinking
    assert request.get("output_config", {}).get("effort") == effort
    assert request["max_tokens"] == tokens


def test_thinking_leaves_room_for_an_answer_where_an_endpoint_allows_less():
    request = body(restrictions=Restrictions(most_tokens=4096), reasoning=Reasoning(budget_tokens=8000))
    assert request["max_tokens"] == 4096
    assert request["thinking"]["budget_tokens"] == 4096 - 1024
    small = body(restrictions=Restrictions(most_tokens=1500), reasoning=Reasoning(budget_tokens=8000))
    assert "thinking" not in small


# caching


def marked(request) -> list[str]:
    """Where the request has cache breakpoints."""
    found = [f"tools.{n}" for n, tool in enumerate(request.get("tools", ())) if "cache_control" in tool]
    found += [f"system.{n}" for n, block in enumerate(request.get("system", ())) if "cache_control" in block]
    for number, message in enumerate(request["messages"]):
        found += [f"messages.{number}.{n}" for n, each in enumerate(message["content"]) if "cache_control" in each]
    return found


HISTORY = (
    UserMessage(content="Hi"),
    CALL,
    ToolMessage(call_id="a", name="look", content="one"),
    ToolMessage(call_id="b", name="look", content="two"),
    AssistantMessage(content="Seen."),
    UserMessage(content="And now?"),
)


def test_breakpoints_are_on_tools_system_and_the_last_two_turns():
    search = {"type": "web_search_20250305", "name": "web_search"}
    request = body(
        Prompt(system="Be brief.", messages=HISTORY, tools=(LOOK, LOOK)), cache="auto", provider_tools=(search,)
    )
    assert marked(request) == ["tools.1", "system.0", "messages.2.1", "messages.4.0"]
    assert request["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert search == {"type": "web_search_20250305", "name": "web_search"}


def test_breakpoints_of_the_file_count():
    own = {"type": "web_search_20250305", "name": "web_search", "cache_control": {"type": "ephemeral"}}
    prompt = Prompt(system="Be brief.", messages=HISTORY, tools=(LOOK,))
    assert len(marked(body(prompt, cache="auto", provider_tools=(own,)))) == 4


def test_an_hour_and_nothing():
    assert body(cache="1h")["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert marked(body(cache="off")) == []
    assert marked(body(Prompt(messages=PROMPT.messages), cache="auto")) == ["messages.0.0"]
