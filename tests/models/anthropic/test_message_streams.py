"""Every shape of a Messages stream: what it means, wherever it is cut, and that the official SDK agrees."""

import json
from typing import get_args

import anthropic
import pytest
from anthropic.types.beta import BetaContentBlock

from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.errors import ModelTruncated
from holodeck.models.anthropic.content_blocks import KEPT
from holodeck.models.anthropic.message_answer import MessageAnswer
from holodeck.models.anthropic.message_request import messages_of
from holodeck.models.chunks import InBandError, Malformed
from holodeck.models.port import ModelReply
from holodeck.models.response_body import AnswerStream
from tests.models.anthropic.message_streams import SHAPES, Shape, block, delta, end, start, stop, text_block
from tests.models.endpoint import ModelEndpoint, stream
from tests.models.expected_reply import read_cut
from tests.models.recording_listener import RecordingListener

every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
FINISH = {"stop": ("end_turn", "stop_sequence"), "tool_calls": ("tool_use",)}


def read(body: bytes, *cuts: int) -> tuple[ModelReply, RecordingListener]:
    listener = RecordingListener()
    return read_cut(AnswerStream(MessageAnswer(listener)), body, *cuts), listener


@every_shape
def test_what_a_stream_means(shape: Shape):
    reply, listener = read(shape.body)
    shape.check(reply, listener)
    assert shape.model in (None, reply.model)
    assert reply.extra.get(KEPT, {}).get("content") == shape.kept
    ours = [call for call in listener.ended if call.id in {each.id for each in reply.tool_calls}]
    assert [call.arguments for call in ours] == [arguments for _, _, arguments in shape.calls]
    assert len(listener.ended) == len(shape.calls) + len(shape.shown)


@every_shape
def test_a_stream_cut_in_two_anywhere_means_the_same(shape: Shape):
    body = shape.body
    whole, listener = read(body)
    minted = any(call_id is None for call_id, _, _ in shape.calls)
    for cut in range(len(body)):
        reply, again = read(body, cut)
        assert again.words == listener.words
        assert (reply.text, reply.usage, reply.finish_reason) == (whole.text, whole.usage, whole.finish_reason), cut
        assert minted or reply == whole, cut


@every_shape
def test_a_stream_that_ends_anywhere_is_never_a_silent_success(shape: Shape):
    body = shape.body
    whole, _ = read(body)
    for cut in range(len(body)):
        listener = RecordingListener()
        answer = AnswerStream(MessageAnswer(listener))
        try:
            answer.feed(body[:cut])
            reply = answer.end()
        except (ModelTruncated, InBandError, Malformed):
            assert whole.text.startswith(listener.words), cut
            assert whole.reasoning.startswith(listener.thoughts), cut
        else:
            assert (reply.text, len(reply.tool_calls)) == (whole.text, len(whole.tool_calls)), cut
            assert reply.finish_reason == whole.finish_reason, cut


@every_shape
def test_what_is_kept_goes_back_in_its_order(shape: Shape):
    reply, _ = read(shape.body)
    message = AssistantMessage(content=reply.text, tool_calls=reply.tool_calls, extra=reply.extra)
    sent = messages_of([UserMessage(content="Hi"), message])[1:]
    calls = iter(reply.tool_calls)
    expected = [
        {**block, "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
        if block["type"] == "tool_use" and (call := next(calls))
        else block
        for block in shape.kept or []
    ]
    if shape.kept is None:
        expected = [{"type": "text", "text": shape.text}] if shape.text else []
        expected += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
            for call in reply.tool_calls
        ]
    if expected and expected[-1]["type"] == "thinking":
        expected = []  # the API refuses thoughts that nothing follows
    assert [_plain(block) for each in sent for block in each["content"]] == expected


def _plain(block):
    is_call = block["type"] == "tool_use" and not isinstance(block["input"], dict)
    return {**block, "input": json.loads(bytes(block["input"]))} if is_call else block


@pytest.mark.parametrize("shape", [pytest.param(s, id=name) for name, s in SHAPES.items() if s.sdk])
async def test_the_official_sdk_agrees(shape: Shape):
    reply, _ = read(shape.body)
    async with ModelEndpoint(stream(*shape.frames)) as endpoint:
        base = endpoint.url.removesuffix("/v1")
        client = anthropic.AsyncAnthropic(api_key="k", base_url=base, max_retries=0)
        async with client, client.beta.messages.stream(model="m", max_tokens=9, messages=[]) as theirs:
            message = await theirs.get_final_message()
    assert "".join(block.text for block in message.content if block.type == "text") == reply.text
    assert "".join(block.thinking for block in message.content if block.type == "thinking") == reply.reasoning
    assert [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"] == [
        (call.id, call.name, json.loads(call.arguments)) for call in reply.tool_calls
    ]
    if reply.finish_reason in FINISH:
        assert message.stop_reason in FINISH[reply.finish_reason]
    usage = message.usage
    cached, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    assert reply.usage is not None
    assert usage.input_tokens + cached + written == reply.usage.prompt_tokens
    assert usage.output_tokens == reply.usage.completion_tokens
    kept = [block for block in reply.extra.get(KEPT, {}).get("content", ()) if block["type"] != "tool_use"]
    if kept:
        whole = [block.to_dict() for block in message.content if block.type != "tool_use"]
        assert kept == whole


def _samples() -> dict[str, dict]:
    """One block of each kind that Anthropic's own package knows, with every text that its model must have."""
    results = {"tool_use_id": "srvtoolu_0", "content": {"type": "x_result", "text": "found"}}
    values = {
        "id": "id_1", "name": "look", "input": {}, "server_name": "s", "file_id": "file_1", "data": "AA", "text": "",
        "thinking": "", "signature": "s", "mcp_server_name": "s", "tools": [], "encrypted_content": "e",
        "from": {"model": "a"}, "to": {"model": "b"}, "trigger": {"type": "refusal"}, "is_error": False, **results,
    }  # fmt: skip
    kinds = get_args(get_args(BetaContentBlock)[0])
    names = {each: {field.alias or name for name, field in each.model_fields.items()} for each in kinds}
    return {
        (kind := get_args(each.model_fields["type"].annotation)[0]): {"type": kind}
        | {name: value for name, value in values.items() if name in names[each]}
        for each in kinds
    }


@pytest.mark.parametrize("kind", _samples())
def test_every_kind_of_block_is_read_and_kept(kind):
    sample = _samples()[kind]
    opening = {"type": "content_block_start", "index": 0, "content_block": sample}
    shape = Shape([start(), opening, stop(0), *text_block(1, "Hi."), *end()])
    reply, _ = read(shape.body)
    assert reply.text == "Hi."
    assert bool(reply.tool_calls) is (kind == "tool_use")
    kept = reply.extra.get(KEPT, {}).get("content", [])
    # An empty text says nothing, and a call of the provider's without a result is refused by the API.
    is_dropped = kind in ("text", "server_tool_use", "mcp_tool_use")
    assert (kind in [block["type"] for block in kept if block.get("text") != "Hi."]) is not is_dropped


def test_thinking_that_is_not_shown_is_a_sign_of_life():
    answer = MessageAnswer(RecordingListener())
    answer.take_event(start())
    answer.take_event(block(0, "thinking", thinking="", signature=""))
    before = answer.progress
    for tokens in (40, 90):
        answer.take(b"", json.dumps(delta(0, "thinking_delta", thinking="", estimated_tokens=tokens)).encode())
    assert answer.progress == before + 2
    answer.take(b"", json.dumps(delta(0, "thinking_delta", thinking="")).encode())
    assert answer.progress == before + 2
