"""Streams as Responses endpoints send them, written down readably: one entry a shape, the expectations beside it.

The events are made by small functions, because the real ones repeat themselves: `item` sends what OpenAI sends for an
item, from `added` to `done`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holodeck.core.messages import MediaPart
from holodeck.core.usage import TokenUsage
from tests.models.expected_reply import ExpectedReply

ResponseEvent = dict[str, Any]
USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 20,
}
USED = TokenUsage(prompt_tokens=11, completion_tokens=9, reasoning_tokens=5, cached_tokens=4)


@dataclass
class Shape(ExpectedReply):
    events: Sequence[ResponseEvent | bytes]
    usage: TokenUsage | None = field(default=USED, kw_only=True)
    items: list[str] | None = None  # types of the items that are kept
    named: bool = True  # whether the SSE events have names
    oracle: bool = True  # whether the official SDK can read it

    @property
    def body(self) -> bytes:
        numbered = enumerate(self.events)
        return b"".join(_framed(event, number, named=self.named) for number, event in numbered)


def _framed(event: ResponseEvent | bytes, number: int, *, named: bool) -> bytes:
    if isinstance(event, bytes):
        return event
    data = json.dumps({"sequence_number": number, **event}, ensure_ascii=False).encode()
    name = b"event: %b\n" % event["type"].encode() if named and "type" in event else b""
    return b"%bdata: %b\n\n" % (name, data)


def ev(kind: str, **members: Any) -> ResponseEvent:
    return {"type": f"response.{kind}", **members}


def response(status: str = "completed", output: Sequence[ResponseEvent] = (), **members: Any) -> ResponseEvent:
    """A whole response object, with the members that the SDK wants."""
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status, "output": list(output),
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None, "incomplete_details": None,
        "usage": None, **members,
    }  # fmt: skip


CREATED = ev("created", response=response("in_progress"))
OPENING = [CREATED, ev("in_progress", response=response("in_progress"))]


def completed(*output: ResponseEvent, **members: Any) -> ResponseEvent:
    return ev("completed", response=response("completed", output, usage=USAGE, **members))


def message(text: str, id: str = "msg_1", annotations: Sequence[ResponseEvent] = (), **members: Any) -> ResponseEvent:  # noqa: A002
    part = {"type": "output_text", "text": text, "annotations": list(annotations), "logprobs": []}
    return {"id": id, "type": "message", "status": "completed", "role": "assistant", "content": [part], **members}


def text_events(
    index: int,
    *pieces: str,
    id: str = "msg_1",  # noqa: A002  OpenAI's word
    annotations: Sequence[ResponseEvent] = (),
) -> list[ResponseEvent]:
    """A message as OpenAI sends it, obfuscation and all."""
    whole = message("".join(pieces), id, annotations)
    opened = {**whole, "status": "in_progress", "content": []}
    at = {"item_id": id, "output_index": index, "content_index": 0}
    empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    return [
        ev("output_item.added", output_index=index, item=opened),
        ev("content_part.added", **at, part=empty),
        *(ev("output_text.delta", **at, delta=piece, logprobs=[], obfuscation="xyz") for piece in pieces),
        *(
            ev("output_text.annotation.added", **at, annotation_index=number, annotation=annotation)
            for number, annotation in enumerate(annotations)
        ),
        ev("output_text.done", **at, text="".join(pieces), logprobs=[]),
        ev("content_part.done", **at, part=whole["content"][0]),
        ev("output_item.done", output_index=index, item=whole),
    ]


def call(name: str, arguments: str, number: int = 1) -> ResponseEvent:
    return {
        "id": f"fc_{number}", "type": "function_call", "status": "completed", "call_id": f"call_{number}", "name": name,
        "arguments": arguments,
    }  # fmt: skip


def call_events(index: int, name: str, *pieces: str, number: int = 1) -> list[ResponseEvent]:
    whole = call(name, "".join(pieces), number)
    at = {"item_id": whole["id"], "output_index": index}
    return [
        ev("output_item.added", output_index=index, item={**whole, "status": "in_progress", "arguments": ""}),
        *(ev("function_call_arguments.delta", **at, delta=piece, obfuscation="q") for piece in pieces),
        ev("function_call_arguments.done", **at, arguments="".join(pieces), name=name),
        ev("output_item.done", output_index=index, item=whole),
    ]


def reasoning(*summaries: str, encrypted: str | None = "gAAAAA-secret", id: str = "rs_1") -> ResponseEvent:  # noqa: A002
    parts = [{"type": "summary_text", "text": text} for text in summaries]
    item = {"id": id, "type": "reasoning", "summary": parts}
    return item if encrypted is None else {**item, "encrypted_content": encrypted}


def reasoning_events(index: int, *summaries: Sequence[str], id: str = "rs_1") -> list[ResponseEvent]:  # noqa: A002
    """Each summary is a list of pieces."""
    events = [ev("output_item.added", output_index=index, item=reasoning(id=id, encrypted="gAAAAA-early"))]
    for number, pieces in enumerate(summaries):
        at = {"item_id": id, "output_index": index, "summary_index": number}
        whole = {"type": "summary_text", "text": "".join(pieces)}
        events += [
            ev("reasoning_summary_part.added", **at, part={"type": "summary_text", "text": ""}),
            *(ev("reasoning_summary_text.delta", **at, delta=piece, obfuscation="abc") for piece in pieces),
            ev("reasoning_summary_text.done", **at, text="".join(pieces)),
            ev("reasoning_summary_part.done", **at, part=whole),
        ]
    done = reasoning(*("".join(pieces) for pieces in summaries), id=id)
    return [*events, ev("output_item.done", output_index=index, item=done)]


def item_events(index: int, item: ResponseEvent, *between: str, **early: Any) -> list[ResponseEvent]:
    """An item of a tool that the provider runs: added, some progress, done."""
    at = {"item_id": item["id"], "output_index": index}
    return [
        ev("output_item.added", output_index=index, item={**item, "status": "in_progress", **early}),
        *(ev(kind, **at) for kind in between),
        ev("output_item.done", output_index=index, item=item),
    ]


CITATION = {"type": "url_citation", "start_index": 0, "end_index": 2, "title": "T", "url": "https://example.org/"}
SEARCH = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "tides"},
}
CODE = {
    "id": "ci_1", "type": "code_interpreter_call", "status": "completed", "code": "1+1", "container_id": "c",
    "outputs": [{"type": "logs", "logs": "2"}],
}  # fmt: skip
FILES = {
    "id": "fs_1", "type": "file_search_call", "status": "completed", "queries": ["q"],
    "results": [{"file_id": "f", "filename": "a.txt", "score": 0.5, "text": "t", "attributes": {}}],
}  # fmt: skip
IMAGE = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "aGk=", "output_format": "png"}
MCP_LIST = {
    "id": "mcpl_1", "type": "mcp_list_tools", "server_label": "docs",
    "tools": [{"name": "find", "input_schema": {}}, {"name": "read", "input_schema": {}}],
}  # fmt: skip
MCP_CALL = {
    "id": "mcp_1", "type": "mcp_call", "status": "completed", "server_label": "docs", "name": "find",
    "arguments": '{"q":"x"}', "output": "found", "error": None, "approval_request_id": None,
}  # fmt: skip
MCP_FAILED = {
    **MCP_CALL,
    "status": "failed",
    "output": None,
    "error": {"type": "mcp_protocol_error", "code": 1, "message": "no"},
}
APPROVAL = {"id": "mcpr_1", "type": "mcp_approval_request", "server_label": "docs", "name": "find", "arguments": "{}"}
CUSTOM = {
    "id": "ctc_1",
    "type": "custom_tool_call",
    "status": "completed",
    "call_id": "call_9",
    "name": "sql",
    "input": "SELECT 1",
}
LISTED = [
    {"stdout": "a.txt\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
    {"stdout": "", "stderr": "no x\n", "outcome": {"type": "exit", "exit_code": 2}},
]
SEARCH_OF_TOOLS = {
    "id": "tsc_1", "type": "tool_search_call", "status": "completed", "call_id": None, "execution": "server",
    "arguments": {"paths": ["look"]},
}  # fmt: skip
FOUND_TOOLS = {
    "id": "tso_1", "type": "tool_search_output", "status": "completed", "call_id": None, "execution": "server",
    "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}],
}  # fmt: skip
PROGRAM = {"id": "cm_1", "type": "program", "call_id": "call_7", "code": "text(2+2)", "fingerprint": "gA"}
RAN_PROGRAM = {"id": "co_1", "type": "program_output", "call_id": "call_7", "result": "4", "status": "completed"}
THOUGHT = {"id": "rs_9", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm, 42."}]}

SHAPES = {
    "openai: text": Shape([*OPENING, *text_events(0, "Hel", "lo ", "wörld 😀"), completed(message("Hello wörld 😀"))], text="Hello wörld 😀"),
    "openai: queued first": Shape(
        [CREATED, ev("queued", response=response("queued")), *text_events(0, "Hi"), completed(message("Hi"))], text="Hi"
    ),
    "openai: reasoning with two summaries, then text": Shape(
        [*OPENING, *reasoning_events(0, ["**Plan**", " it"], ["Check"]), *text_events(1, "Yes"), completed(reasoning("**Plan** it", "Check"), message("Yes"))],
        text="Yes", reasoning="**Plan** it\n\nCheck", items=["reasoning", "message"],
    ),
    "openai: reasoning without a summary, then a call": Shape(
        [*OPENING, *reasoning_events(0), *call_events(1, "f", '{"a"', ":1}"), completed(reasoning(), call("f", '{"a":1}'))],
        calls=[("call_1", "f", '{"a":1}')], finish="tool_calls", items=["reasoning", "function_call"],
    ),
    "openai: calls that interleave": Shape(
        [
            *OPENING,
            ev("output_item.added", output_index=0, item={**call("f", "", 1), "status": "in_progress"}),
            ev("output_item.added", output_index=1, item={**call("g", "", 2), "status": "in_progress"}),
            ev("function_call_arguments.delta", item_id="fc_1", output_index=0, delta='{"a"'),
            ev("function_call_arguments.delta", item_id="fc_2", output_index=1, delta="{"),
            ev("function_call_arguments.delta", item_id="fc_1", output_index=0, delta=":1}"),
            ev("function_call_arguments.delta", item_id="fc_2", output_index=1, delta="}"),
            ev("function_call_arguments.done", item_id="fc_2", output_index=1, arguments="{}", name="g"),
            ev("function_call_arguments.done", item_id="fc_1", output_index=0, arguments='{"a":1}', name="f"),
            ev("output_item.done", output_index=1, item=call("g", "{}", 2)),
            ev("output_item.done", output_index=0, item=call("f", '{"a":1}', 1)),
            completed(call("f", '{"a":1}', 1), call("g", "{}", 2)),
        ],
        calls=[("call_1", "f", '{"a":1}'), ("call_2", "g", "{}")], finish="tool_calls",
    ),
    "openai: text, then a call": Shape(
        [*OPENING, *text_events(0, "One moment."), *call_events(1, "f", "{}"), completed(message("One moment."), call("f", "{}"))],
        text="One moment.", calls=[("call_1", "f", "{}")], finish="tool_calls",
    ),
    "openai: commentary and final answer": Shape(
        [
            *OPENING, *text_events(0, "Looking. ", id="msg_1"), *text_events(1, "Done.", id="msg_2"),
            completed(message("Looking. ", "msg_1", phase="commentary"), message("Done.", "msg_2", phase="final_answer")),
        ],
        text="Looking. Done.", items=["message", "message"],
    ),
    "openai: web search with citations": Shape(
        [
            *OPENING, *item_events(0, SEARCH, "web_search_call.in_progress", "web_search_call.searching", "web_search_call.completed", action=None),
            *text_events(1, "Hi", annotations=[CITATION]), completed(SEARCH, message("Hi", annotations=[CITATION])),
        ],
        text="Hi", shown=[("web_search", '{"type": "search", "query": "tides"}', "completed")], items=["web_search_call", "message"],
    ),
    "openai: code interpreter": Shape(
        [
            *OPENING,
            ev("output_item.added", output_index=0, item={**CODE, "status": "in_progress", "code": "", "outputs": None}),
            ev("code_interpreter_call.in_progress", item_id="ci_1", output_index=0),
            ev("code_interpreter_call_code.delta", item_id="ci_1", output_index=0, delta="1+1"),
            ev("code_interpreter_call_code.done", item_id="ci_1", output_index=0, code="1+1"),
            ev("code_interpreter_call.interpreting", item_id="ci_1", output_index=0),
            ev("code_interpreter_call.completed", item_id="ci_1", output_index=0),
            ev("output_item.done", output_index=0, item=CODE),
            *text_events(1, "2"), completed(CODE, message("2")),
        ],
        text="2", shown=[("code_interpreter", '{"code": "1+1"}', "2")], items=["code_interpreter_call", "message"],
    ),
    "openai: file search": Shape(
        [*OPENING, *item_events(0, FILES, "file_search_call.in_progress", "file_search_call.searching", "file_search_call.completed", results=None), *text_events(1, "t"), completed(FILES, message("t"))],
        text="t", shown=[("file_search", '{"queries": ["q"]}', json.dumps(FILES["results"]))], items=["file_search_call", "message"],
    ),
    "openai: image with partial images": Shape(
        [
            *OPENING,
            ev("output_item.added", output_index=0, item={"id": "ig_1", "type": "image_generation_call", "status": "in_progress", "result": None}),
            ev("image_generation_call.in_progress", item_id="ig_1", output_index=0),
            ev("image_generation_call.generating", item_id="ig_1", output_index=0),
            ev("image_generation_call.partial_image", item_id="ig_1", output_index=0, partial_image_index=0, partial_image_b64="aGk="),
            ev("image_generation_call.completed", item_id="ig_1", output_index=0),
            ev("output_item.done", output_index=0, item=IMAGE), completed(IMAGE),
        ],
        shown=[("image_generation", "{}", (MediaPart(mime_type="image/png", data="aGk="),))], items=["image_generation_call"],
    ),
    "openai: MCP, list and call": Shape(
        [
            *OPENING,
            *item_events(0, MCP_LIST, "mcp_list_tools.in_progress", "mcp_list_tools.completed", tools=[]),
            ev("output_item.added", output_index=1, item={**MCP_CALL, "status": "in_progress", "arguments": "", "output": None}),
            ev("mcp_call.in_progress", item_id="mcp_1", output_index=1),
            ev("mcp_call_arguments.delta", item_id="mcp_1", output_index=1, delta='{"q":"x"}'),
            ev("mcp_call_arguments.done", item_id="mcp_1", output_index=1, arguments='{"q":"x"}'),
            ev("mcp_call.completed", item_id="mcp_1", output_index=1),
            ev("output_item.done", output_index=1, item=MCP_CALL),
            *text_events(2, "found"), completed(MCP_LIST, MCP_CALL, message("found")),
        ],
        text="found",
        shown=[("mcp_list_tools", '{"server_label": "docs"}', "find, read"), ("find", '{"q":"x"}', "found")],
        items=["mcp_list_tools", "mcp_call", "message"],
    ),
    "openai: MCP call that failed": Shape(
        [*OPENING, *item_events(0, MCP_FAILED, "mcp_call.failed", error=None), *text_events(1, "Sorry"), completed(MCP_FAILED, message("Sorry"))],
        text="Sorry", shown=[("find", '{"q":"x"}', "no")], items=["mcp_call", "message"],
    ),
    "openai: MCP call that wants an approval": Shape(
        [*OPENING, ev("output_item.added", output_index=0, item=APPROVAL), ev("output_item.done", output_index=0, item=APPROVAL), completed(APPROVAL)],
        items=["mcp_approval_request"], warnings=["provider-approval"],
    ),
    "openai: custom tool": Shape(
        [
            *OPENING, ev("output_item.added", output_index=0, item={**CUSTOM, "status": "in_progress", "input": ""}),
            ev("custom_tool_call_input.delta", item_id="ctc_1", output_index=0, delta="SELECT"),
            ev("custom_tool_call_input.delta", item_id="ctc_1", output_index=0, delta=" 1"),
            ev("custom_tool_call_input.done", item_id="ctc_1", output_index=0, input="SELECT 1"),
            ev("output_item.done", output_index=0, item=CUSTOM), completed(CUSTOM),
        ],
        calls=[("call_9", "sql", "SELECT 1")], finish="tool_calls",
    ),
    "openai: cut at the token limit": Shape(
        [
            *OPENING, *text_events(0, "Once upon"),
            ev("incomplete", response=response("incomplete", [message("Once upon")], usage=USAGE, incomplete_details={"reason": "max_output_tokens"})),
        ],
        text="Once upon", finish="length",
    ),
    "openai: cut inside a call": Shape(
        [
            *OPENING, ev("output_item.added", output_index=0, item={**call("f", ""), "status": "in_progress"}),
            ev("function_call_arguments.delta", item_id="fc_1", output_index=0, delta='{"a":'),
            ev("incomplete", response=response("incomplete", [{**call("f", '{"a":'), "status": "incomplete"}], usage=USAGE, incomplete_details={"reason": "max_output_tokens"})),
        ],
        finish="length", warnings=["tool-call-cut"],
    ),
    "openai: cut while thinking": Shape(
        [
            *OPENING, *reasoning_events(0, ["Hm"]),
            ev("incomplete", response=response("incomplete", [reasoning("Hm")], usage=USAGE, incomplete_details={"reason": "max_output_tokens"})),
        ],
        reasoning="Hm", finish="length", items=["reasoning"],
    ),
    "openai: thoughts as text": Shape(
        [
            *OPENING, ev("output_item.added", output_index=0, item={**THOUGHT, "content": []}),
            ev("reasoning_text.delta", item_id="rs_9", output_index=0, content_index=0, delta="Hm, "),
            ev("reasoning_text.delta", item_id="rs_9", output_index=0, content_index=0, delta="42."),
            ev("reasoning_text.done", item_id="rs_9", output_index=0, content_index=0, text="Hm, 42."),
            ev("output_item.done", output_index=0, item=THOUGHT), *text_events(1, "42"), completed(THOUGHT, message("42")),
        ],
        text="42", reasoning="Hm, 42.", items=["reasoning", "message"],
    ),
    "open responses: reasoning.delta": Shape(
        [CREATED, ev("reasoning.delta", item_id="rs_9", output_index=0, content_index=0, delta="Hm"), *text_events(1, "Hi"), completed(message("Hi"))],
        text="Hi", reasoning="Hm", items=["reasoning", "message"], oracle=False,
    ),
    "a thought in both forms is shown once": Shape(
        [
            *OPENING, ev("output_item.added", output_index=0, item=reasoning(id="rs_1")),
            ev("reasoning_summary_text.delta", item_id="rs_1", output_index=0, summary_index=0, delta="Short"),
            ev("reasoning_text.delta", item_id="rs_1", output_index=0, content_index=0, delta="Long"),
            ev("output_item.done", output_index=0, item={**reasoning("Short"), "content": [{"type": "reasoning_text", "text": "Long"}]}),
            *text_events(1, "Hi"), completed(message("Hi")),
        ],
        text="Hi", reasoning="Short", items=["reasoning", "message"], oracle=False,
    ),
    "unknown events and items": Shape(
        [
            *OPENING, ev("holodeck.new_thing", wonder=True), {"type": "vendor:trace", "x": 1},
            ev("output_item.added", output_index=0, item={"id": "x_1", "type": "future_item", "data": [1]}),
            ev("output_item.done", output_index=0, item={"id": "x_1", "type": "future_item", "data": [1]}),
            *text_events(1, "Hi"), completed({"id": "x_1", "type": "future_item", "data": [1]}, message("Hi")),
        ],
        text="Hi", items=["future_item", "message"], oracle=False,
    ),
    "gaps in the numbers, keepalives, comments": Shape(
        [*OPENING, b": keep-alive\n\n", b'event: keepalive\ndata: {"type":"keepalive","sequence_number":77}\n\n', *text_events(0, "Hi"), {**completed(message("Hi")), "sequence_number": 999}],
        text="Hi", oracle=False,
    ),
    "no names of events": Shape([*OPENING, *text_events(0, "Hi"), completed(message("Hi"))], text="Hi", named=False),
    "[DONE] at the end": Shape([*OPENING, *text_events(0, "Hi"), completed(message("Hi")), b"data: [DONE]\n\n"], text="Hi"),
    "[DONE] instead of completed": Shape([*OPENING, *text_events(0, "Hi"), b"data: [DONE]\n\n"], text="Hi", usage=None, oracle=False),
    "only completed": Shape([completed(reasoning("Hm"), message("Hi"))], text="Hi", reasoning="Hm", items=["reasoning", "message"], oracle=False),
    "only items that are done": Shape(
        [
            ev("output_item.done", output_index=0, item=reasoning("Hm")), ev("output_item.done", output_index=1, item=message("Hi")),
            ev("output_item.done", output_index=2, item=call("f", "{}")), completed(),
        ],
        text="Hi", reasoning="Hm", calls=[("call_1", "f", "{}")], finish="tool_calls", items=["reasoning", "message", "function_call"], oracle=False,
    ),
    "arguments only when done": Shape(
        [
            CREATED, ev("output_item.added", output_index=0, item={**call("f", ""), "status": "in_progress"}),
            ev("function_call_arguments.done", item_id="fc_1", output_index=0, arguments='{"a":1}'), completed(),
        ],
        calls=[("call_1", "f", '{"a":1}')], finish="tool_calls", oracle=False,
    ),
    "deltas without any item, text cut short until done": Shape(
        [CREATED, ev("output_text.delta", delta="Hel"), ev("output_text.done", text="Hello"), completed()],
        text="Hello", oracle=False,
    ),
    "every event has another item id (GitHub Copilot)": Shape(
        [
            CREATED,
            ev("output_item.added", output_index=0, item=message("", "a1", content=[])),
            ev("output_text.delta", item_id="a2", output_index=0, content_index=0, delta="Hel"),
            ev("output_text.delta", item_id="a3", output_index=0, content_index=0, delta="lo"),
            ev("output_item.done", output_index=0, item=message("Hello", "a4")),
            ev("output_item.added", output_index=1, item={**call("f", ""), "id": "b1"}),
            ev("function_call_arguments.delta", item_id="b2", output_index=1, delta="{}"),
            ev("output_item.done", output_index=1, item={**call("f", "{}"), "id": "b3"}),
            completed(message("Hello", "a5"), {**call("f", "{}"), "id": "b4"}),
        ],
        text="Hello", calls=[("call_1", "f", "{}")], finish="tool_calls", oracle=False,
    ),
    "every item has the index 0": Shape(
        [
            CREATED,
            ev("output_item.added", output_index=0, item={**call("f", "", 1)}), ev("output_item.added", output_index=0, item={**call("f", "", 2)}),
            ev("function_call_arguments.delta", item_id="fc_1", output_index=0, delta='{"a":1}'),
            ev("function_call_arguments.delta", item_id="fc_2", output_index=0, delta='{"a":2}'),
            completed(),
        ],
        calls=[("call_1", "f", '{"a":1}'), ("call_2", "f", '{"a":2}')], finish="tool_calls", oracle=False,
    ),
    "no ids, no indexes, no types": Shape(
        [
            CREATED, ev("output_item.added", item={"role": "assistant", "content": []}), ev("output_text.delta", delta="Hi"),
            ev("output_item.done", item={"role": "assistant", "content": [{"text": "Hi"}]}),
            ev("output_item.done", item={"name": "f", "arguments": "{}"}), {"type": "response.completed"},
        ],
        text="Hi", calls=[(None, "f", "{}")], finish="tool_calls", usage=None, oracle=False,
    ),
    "one JSON body instead of a stream": Shape(
        [json.dumps(response("completed", [reasoning("Hm"), message("Hi"), call("f", "{}")], usage=USAGE)).encode()],
        text="Hi", reasoning="Hm", calls=[("call_1", "f", "{}")], finish="tool_calls", items=["reasoning", "message", "function_call"], oracle=False,
    ),
    "parts of thoughts without deltas, other events of thinking": Shape(
        [
            CREATED, ev("reasoning.started"), ev("reasoning.search_queries", queries=["q"]),
            ev("reasoning_part.done", item_id="rs_9", output_index=0, content_index=0, part={"type": "reasoning_text", "text": "Hm"}),
            ev("output_text.delta", item_id="m", output_index=1, content_index=0, delta="Hi"), completed(),
        ],
        text="Hi", reasoning="Hm", items=["reasoning", "message"], oracle=False,
    ),
    "arguments as an object": Shape(
        [ev("output_item.done", output_index=0, item={**call("f", ""), "arguments": {"a": 1}}), completed()],
        calls=[("call_1", "f", '{"a": 1}')], finish="tool_calls", oracle=False,
    ),
    "no blank lines between events": Shape(
        [
            (b'data: {"type":"response.output_text.delta","delta":"H"}\ndata: {"type":"response.output_text.delta","delta":"i"}\n'
            b'data: {"type":"response.completed","response":{"status":"completed"}}\n\n'),
        ],
        text="Hi", usage=None, oracle=False,
    ),
    "arguments before their call": Shape(
        [
            ev("function_call_arguments.delta", item_id="fc_1", output_index=0, delta='{"a"'),
            ev("output_item.added", output_index=0, item={**call("f", ""), "status": "in_progress"}),
            ev("function_call_arguments.delta", item_id="fc_1", output_index=0, delta=":1}"), completed(),
        ],
        calls=[("call_1", "f", '{"a":1}')], finish="tool_calls", oracle=False,
    ),
    "a shell that the provider runs": Shape(
        [
            *item_events(0, {"id": "sh_1", "type": "shell_call", "call_id": "call_1", "status": "completed", "action": {"commands": ["ls", "ls x"]}}),
            ev("output_item.added", output_index=1, item={"id": "sho_1", "type": "shell_call_output", "call_id": "call_1", "output": []}),
            ev("output_item.done", output_index=1, item={"id": "sho_1", "type": "shell_call_output", "call_id": "call_1", "output": LISTED}),
            *text_events(2, "Hi"), completed(),
        ],
        text="Hi", shown=[("shell", '{"commands": ["ls", "ls x"]}', "a.txt\nno x\n[exit 2]")], items=["shell_call", "shell_call_output", "message"], oracle=False,
    ),
    "openai: a search for tools": Shape(
        [*item_events(0, SEARCH_OF_TOOLS), *item_events(1, FOUND_TOOLS), ev("output_text.delta", output_index=2, delta="Hi"), completed()],
        text="Hi", shown=[("tool_search", '{"paths": ["look"]}', "look")], items=["tool_search_call", "tool_search_output", "message"], oracle=False,
    ),
    "openai: a search for tools that is ours": Shape(
        [*item_events(0, {**SEARCH_OF_TOOLS, "execution": "client"}), completed()],
        shown=[("tool_search", '{"paths": ["look"]}', "The provider did not report a result.")], items=["tool_search_call"], oracle=False,
        warnings=["provider-tool"],
    ),
    "openai: a program of the model": Shape(
        [*item_events(0, PROGRAM), *item_events(1, RAN_PROGRAM), ev("output_text.delta", output_index=2, delta="4"), completed()],
        text="4", shown=[("program", '{"code": "text(2+2)"}', "4")], items=["program", "program_output", "message"], oracle=False,
    ),
    "xai: tools of its own as custom tools": Shape(
        [
            *item_events(0, {**CUSTOM, "name": "x_keyword_search", "input": '{"query": "ducks"}'}), ev("output_text.delta", output_index=1, delta="Hi"),
            completed(),
        ],
        text="Hi", shown=[("x_keyword_search", '{"query": "ducks"}', "The provider did not report a result.")], oracle=False,
    ),
    "vllm: the part of a thought is called text": Shape(
        [
            ev("output_item.added", output_index=0, item={"id": "msg_0", "type": "reasoning", "summary": [], "content": None}),
            ev("reasoning_text.delta", item_id="msg_0", output_index=0, content_index=0, delta="Hm"),
            ev("content_part.done", item_id="msg_0", output_index=0, content_index=0, part={"type": "output_text", "text": "Hm", "annotations": []}),
            ev("output_text.delta", output_index=1, delta="Hi"), completed(),
        ],
        text="Hi", reasoning="Hm", items=["reasoning", "message"], oracle=False,
    ),
    "nothing at all": Shape([*OPENING, completed()]),
    "two parts in one message": Shape(
        [
            *OPENING, ev("output_item.added", output_index=0, item=message("", content=[])),
            ev("output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta="A"),
            ev("output_text.delta", item_id="msg_1", output_index=0, content_index=1, delta="B"),
            ev("output_text.delta", item_id="msg_1", output_index=0, content_index=1, delta="C"),
            completed(),
        ],
        text="ABC", oracle=False,
    ),
    "halves of an emoji": Shape(
        [
            *OPENING,
            b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"\\ud83d"}\n\n',
            b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"\\ude00!"}\n\n',
            completed(),
        ],
        text="😀!", oracle=False,
    ),
}  # fmt: skip
