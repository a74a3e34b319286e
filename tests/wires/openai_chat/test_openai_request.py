"""Bodies of Chat Completions: what of them becomes a run, and what is refused by name."""

import json
from typing import Any

import pytest

from holodeck.core.messages import AssistantMessage, MediaPart, TextPart, ToolMessage, UserMessage, text_of
from holodeck.core.request import RunOptions
from holodeck.errors import InvalidRequest
from holodeck.wires.openai_chat.error_form import chat_problem, model_not_found, retry_headers
from holodeck.wires.openai_chat.parameters import INSTRUCTIONS
from holodeck.wires.openai_chat.request import HARMLESS, decode

HELLO = {"role": "user", "content": "Hello"}
CALL = {"id": "c1", "type": "function", "function": {"name": "paint", "arguments": '{"colour": "blue"}'}}


def body(*messages: Any, **members: Any) -> bytes:
    return json.dumps({"messages": messages or [HELLO], **members}).encode()


def test_every_role_has_its_meaning() -> None:
    chat = decode(
        body(
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
            HELLO,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "painted"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            {"role": "user", "content": "Why?"},
        )
    )
    wanted = chat.run
    first, asked, result, refused, last = wanted.messages
    assert (first.content, refused.content, last.content) == ("Hello", "No.", "Why?")
    assert isinstance(first, UserMessage)
    assert isinstance(asked, AssistantMessage)
    assert [(call.id, call.name, call.arguments) for call in asked.tool_calls] == [
        ("c1", "paint", '{"colour": "blue"}')
    ]
    assert isinstance(result, ToolMessage)
    assert (result.call_id, result.name, result.content) == ("c1", "paint", "painted")
    assert wanted.context == ((INSTRUCTIONS, "Be brief."), (INSTRUCTIONS, "Be kind."))


def test_parts_are_texts_images_and_files() -> None:
    content = [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://127.0.0.1/a.png", "detail": "low"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,BBBB", "filename": "a.pdf"}},
        {"type": "file", "file": {"file_data": "CCCC"}},
    ]
    (message,) = decode(body({"role": "user", "content": content})).run.messages
    assert message.content == (
        TextPart("Look"),
        MediaPart(mime_type="image/png", data="AAAA"),
        MediaPart(mime_type="image/*", url="https://127.0.0.1/a.png"),
        MediaPart(mime_type="application/pdf", data="BBBB", filename="a.pdf"),
        MediaPart(mime_type="application/octet-stream", data="CCCC"),
    )


def test_options_are_read() -> None:
    parameters = {"type": "object", "properties": {"colour": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "paint", "description": "Paints", "parameters": parameters}}
    chat = decode(
        body(
            model="tester",
            stream=True,
            stream_options={"include_usage": True},
            tools=[tool, {"type": "function", "function": {"name": "bare"}}],
            metadata={"session_id": "s1"},
            temperature=0.5,
            max_tokens=10,
            user="ann",
        )
    )
    assert (chat.model, chat.stream, chat.include_usage, chat.session_id) == ("tester", True, True, "s1")
    assert [(each.name, each.on_client) for each in chat.run.client_tools] == [("paint", True), ("bare", True)]
    assert [each.parameters for each in chat.run.client_tools] == [parameters, {"type": "object", "properties": {}}]


@pytest.mark.parametrize("parameter", HARMLESS)
def test_what_would_change_the_answer_is_refused_by_name(parameter: str) -> None:
    for value in (None, *HARMLESS[parameter]):
        assert decode(body(**{parameter: value})).run.messages
    with pytest.raises(InvalidRequest) as caught:
        decode(body(**{parameter: {"type": "json_schema"}}))
    problem = chat_problem(caught.value)
    assert (problem.status, problem.error.param, problem.error.code) == (400, parameter, "unsupported_parameter")
    assert parameter in problem.error.message


OPEN_WEBUI: dict[str, Any] = {
    "model": "tester",
    "stream": True,
    "stream_options": {"include_usage": True},
    "user": {"id": "u1", "name": "Ann", "role": "user"},
    "logit_bias": {},
    "metadata": {"chat_id": "c1", "variables": {"{{USER_NAME}}": "Ann"}},
    "features": {"web_search": False},
    "background_tasks": {"title_generation": True},
}
LIBRECHAT: dict[str, Any] = {
    "model": "tester",
    "stream": True,
    "user": "u1",
    "store": False,
    "n": 1,
    "temperature": 1,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "stop": ["||>", "\nUser:"],
    "tools": [],
    "tool_choice": None,
    "parallel_tool_calls": True,
    "response_format": {"type": "text"},
}


@pytest.mark.parametrize("sent", [OPEN_WEBUI, LIBRECHAT], ids=["Open WebUI", "LibreChat"])
def test_chat_pages_are_served_with_the_parameters_that_they_add(sent: dict[str, Any]) -> None:
    answer = {"role": "assistant", "content": None, "refusal": None, "tool_calls": None, "function_call": None}
    pieces = {"role": "user", "content": [{"type": "text", "text": "Why?"}], "name": "Ann"}
    chat = decode(body(HELLO, answer, HELLO, {**answer, "content": "", "reasoning_content": "Hm.", "tool_calls": []}, pieces, **sent))  # fmt: skip
    assert [text_of(each.content) for each in chat.run.messages] == ["Hello", "", "Hello", "", "Why?"]
    assert (chat.stream, chat.session_id, chat.store, chat.run.options) == (True, None, False, RunOptions())


def test_one_tool_at_a_time_is_an_option() -> None:
    assert decode(body(parallel_tool_calls=False)).run.options == RunOptions(one_call_at_a_time=True)


BAD: dict[str, tuple[bytes, str | None]] = {
    "parallel calls that are a text": (body(parallel_tool_calls="no"), "parallel_tool_calls"),
    "no JSON": (b"{", None),
    "no object": (b"[]", None),
    "no messages": (b"{}", "messages"),
    "messages that are no list": (b'{"messages": {}}', "messages"),
    "only instructions": (body({"role": "system", "content": "Be brief."}), "messages"),
    "an answer last": (body(HELLO, {"role": "assistant", "content": "Hi"}), "messages"),
    "a role of old": (body({"role": "function", "name": "f", "content": "1"}), "messages[0].role"),
    "content that is a number": (body({"role": "user", "content": 1}), "messages[0].content"),
    "sound": (body({"role": "user", "content": [{"type": "input_audio"}]}), "messages[0].content[0].type"),
    "a stored file": (body({"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}), "messages[0].content[0].file"),
    "an image in an answer": (
        body({"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}}]}, HELLO),
        "messages[0].content",
    ),
    "a file of this machine": (
        body({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}),
        "messages[0].content[0].image_url.url",
    ),
    "a data URL without base64": (
        body({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png,x"}}]}),
        "messages[0].content[0].image_url.url",
    ),
    "a result without a call": (body({"role": "tool", "content": "1"}), "messages[0].tool_call_id"),
    "a call without a name": (body({"role": "assistant", "tool_calls": [{"id": "c1", "function": {}}]}, HELLO), "messages[0].tool_calls[0].function.name"),
    "a tool of another type": (body(tools=[{"type": "custom", "custom": {"name": "x"}}]), "tools[0].type"),
    "a tool with a bad name": (body(tools=[{"type": "function", "function": {"name": "a b"}}]), "tools[0].function.name"),
    "two tools of one name": (body(tools=[{"type": "function", "function": {"name": "a"}}] * 2), "tools[1].function.name"),
    "stream that is a text": (body(stream="yes"), "stream"),
    "options that are a list": (body(stream_options=[]), "stream_options"),
    "a session without a name": (body(metadata={"session_id": ""}), "metadata.session_id"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_400_with_the_member(name: str) -> None:
    given, param = BAD[name]
    with pytest.raises(InvalidRequest) as caught:
        decode(given)
    problem = chat_problem(caught.value, "req_1")
    assert (problem.status, problem.error.type, problem.error.param) == (400, "invalid_request_error", param)
    assert (problem.instance, problem.error.message) == ("req_1", problem.detail)


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="5 characters; 4 are allowed"):
        decode(body(), max_text=4)


def test_an_error_has_both_forms() -> None:
    result = json.loads(chat_problem(model_not_found("There is no model 'x' here.")).to_json())
    assert (result["status"], result["type"]) == (404, "https://holodeck.dev/errors/agent-not-found")
    assert result["error"] == {
        "message": "There is no model 'x' here.",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


def test_only_what_had_no_effect_may_be_sent_again() -> None:
    error = model_not_found("none")
    assert retry_headers(error, begun=False) == {}
    assert retry_headers(error, begun=True) == {"X-Should-Retry": "false"}
