"""A model endpoint that speaks three APIs: chat completions, Responses and Anthropic's Messages, each as its provider does.

It answers with a burst of N tokens, where the model is called `fake-N`. Only the CPU of its client is measured, so it need not
be fast. Prints the port it listens on.
"""

import asyncio
import json
from functools import cache
from typing import Any

from fake_server import HEAD, chunk, serve_replies

WORD = " @0123456789"  # as long as every token of fake_llm

Event = dict[str, Any]


def chat(tokens: int) -> list[bytes]:
    def event(delta: Event, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        chunk = {"id": "chatcmpl-fake00000000000000000000000000", "object": "chat.completion.chunk"}
        more = {
            "created": 1760000000,
            "model": "fake",
            "service_tier": "default",
            "system_fingerprint": "fp_fake000000",
        }
        return _frame({**chunk, **more, "choices": [choice]})

    words = [event({"content": WORD})] * tokens
    return [event({"role": "assistant", "content": ""}), *words, event({}, "stop"), b"data: [DONE]\n\n"]


def messages(tokens: int) -> list[bytes]:
    start = {"id": "msg_fake", "type": "message", "role": "assistant", "model": "fake", "content": []}
    usage = {"input_tokens": 10, "output_tokens": 1}
    word = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": WORD}}
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": tokens}}
    return [
        _named({"type": "message_start", "message": {**start, "stop_reason": None, "usage": usage}}),
        _named({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        *[_named(word)] * tokens,
        _named({"type": "content_block_stop", "index": 0}),
        _named(stop),
        _named({"type": "message_stop"}),
    ]


def responses(tokens: int) -> list[bytes]:
    text = WORD * tokens
    item = {"id": "msg_fake", "type": "message", "role": "assistant"}
    part = {"type": "output_text", "annotations": [], "logprobs": []}
    place = {"item_id": "msg_fake", "output_index": 0, "content_index": 0}
    done = {**item, "status": "completed", "content": [{**part, "text": text}]}
    usage = {"input_tokens": 10, "output_tokens": tokens, "total_tokens": 10 + tokens}
    events: list[Event] = [
        {"type": "response.created", "response": _response("in_progress")},
        {"type": "response.in_progress", "response": _response("in_progress")},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *({"type": "response.output_text.delta", **place, "delta": WORD, "logprobs": []} for _ in range(tokens)),
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": {**part, "text": text}},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": {**_response("completed"), "output": [done], "usage": usage}},
    ]
    return [_named({**event, "sequence_number": number}) for number, event in enumerate(events)]


def _response(status: str) -> Event:
    return {
        "id": "resp_fake",
        "object": "response",
        "created_at": 1760000000,
        "status": status,
        "model": "fake",
        "output": [],
    }


def _frame(event: Event) -> bytes:
    return b"data: %b\n\n" % json.dumps(event, separators=(",", ":")).encode()


def _named(event: Event) -> bytes:
    return b"event: %b\n%b" % (event["type"].encode(), _frame(event))


APIS = {b"/chat/completions": chat, b"/messages": messages, b"/responses": responses}


@cache
def reply(path: bytes, tokens: int) -> bytes:
    events = next(make for end, make in APIS.items() if path.endswith(end))(tokens)
    return HEAD + b"".join(map(chunk, events)) + b"0\r\n\r\n"


if __name__ == "__main__":
    asyncio.run(serve_replies(reply))
