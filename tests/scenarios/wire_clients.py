"""One client for each wire. Each sends a sentence to a real server and returns what it received, in the same form as all others."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from uuid import uuid4

from tests.server.every_wire import SESSION
from tests.server.serving import Served, ask
from tests.wires.agui.protobuf_reader import read_stream
from tests.wires.ai_sdk.ui_client import UiClient
from tests.wires.sse_parsers import whatwg

AGENT = "tester"
PROTOBUF = "application/vnd.ag-ui.event+proto"


class Call(NamedTuple):
    name: str
    arguments: dict[str, Any]
    status: str  # success or error


class Received(NamedTuple):
    """What a client knows at the end. None stands for what its wire does not send."""

    answer: str | None = None  # the last message of a run that did not fail
    text: str | None = None  # everything, paragraph by paragraph
    calls: tuple[Call, ...] = ()
    usage: tuple[int, int] | None = None
    error: str | None = None


Ask = Callable[[Served, str, str], Awaitable[Received]]
APPROVAL = Received(answer="May I?", text="May I?", calls=(Call("echo", {"a": 1}, "pending"),))
NO_APPROVAL = "A person must approve echo first, and Chat Completions cannot ask."
NO_APPROVAL += f" REST and AG-UI can approve it in session {SESSION}."


class WireClient(NamedTuple):
    """How to ask on a wire, and what is special about its answers: all tests read it here, none by the wire's name."""

    ask: Ask
    never: tuple[str, ...] = ()  # the fields of Received that its wire does not send
    not_with_error: tuple[str, ...] = ()  # those that a failed run lacks
    approval: Received = (
        APPROVAL  # received in SESSION if the model writes "May I?" and calls a tool that needs approval
    )

    def part_of(self, received: Received) -> Received:
        """The part that its wire sends of what happened."""
        missing = {*self.never, *(self.not_with_error if received.error else ())}
        return received._replace(**{name: Received._field_defaults[name] for name in missing})


def arguments(text: str) -> dict[str, Any]:
    try:
        return json.loads(text)
    except ValueError:
        return {"arguments": text}


def ordered(calls: list[Call]) -> tuple[Call, ...]:
    """Calls of one step run at the same time, and a wire may list them in the order in which they end."""
    return tuple(sorted(calls, key=str))


def named(body: bytes) -> list[tuple[str, dict[str, Any]]]:
    return [(frame.event, json.loads(frame.data)) for frame in whatwg(body)]


async def agui_sse(s: Served, text: str, session: str) -> Received:
    async with s.post(ask(text, thread=session)) as answer:
        return _of_agui([json.loads(frame.data) for frame in whatwg(await answer.read())])


async def agui_protobuf(s: Served, text: str, session: str) -> Received:
    async with s.post(ask(text, thread=session), Accept=PROTOBUF) as answer:
        assert answer.headers["Content-Type"] == PROTOBUF
        return _of_agui(read_stream(await answer.read()))


def _of_agui(events: list[dict[str, Any]]) -> Received:
    texts: dict[str, str] = {}
    calls: dict[str, list[Any]] = {}
    for event in events:
        match event["type"]:
            case "TEXT_MESSAGE_CONTENT":
                texts[event["messageId"]] = texts.get(event["messageId"], "") + event["delta"]
            case "TOOL_CALL_START":
                calls[event["toolCallId"]] = [event["toolCallName"], "", "pending"]
            case "TOOL_CALL_ARGS":
                calls[event["toolCallId"]][1] += event["delta"]
            case "TOOL_CALL_RESULT":
                calls[event["toolCallId"]][2] = "error" if event.get("metadata", {}).get("failed") else "success"
    last = events[-1]
    finished = last["type"] == "RUN_FINISHED"
    usage = last["usage"][0] if finished and "usage" in last else None
    return Received(
        answer=["", *texts.values()][-1] if finished else None,
        text="\n\n".join(texts.values()),
        calls=ordered([Call(name, arguments(given), status) for name, given, status in calls.values()]),
        usage=(int(usage["inputTokens"]), int(usage["outputTokens"])) if usage else None,
        error=None if finished else last["code"],
    )


async def rest_sync(s: Served, text: str, session: str) -> Received:
    async with s.post({"message": text, "session_id": session}, f"/agent/{AGENT}/chat") as answer:
        result = await answer.json(content_type=None)
        if answer.status != 200:
            assert (result["status"], answer.content_type) == (answer.status, "application/problem+json")
            return Received(error=result["type"].rpartition("/")[2])
    assert result["session_id"] == session
    return Received(
        answer=result["content"],
        calls=ordered([Call(each["name"], each["arguments"], each["status"]) for each in result["tool_calls"]]),
        usage=_counts(result["tokens_used"]),
    )


async def rest_stream(s: Served, text: str, session: str) -> Received:
    async with s.post({"message": text, "session_id": session}, f"/agent/{AGENT}/chat/stream") as answer:
        frames = named(await answer.read())
    words = "".join(data["delta"] for name, data in frames if name == "message_delta")
    calls: dict[str, list[Any]] = {}
    for name, data in frames:
        match name:
            case "tool_call_start":
                calls[data["tool_call_id"]] = [data["name"], "", "pending"]
            case "tool_call_args":
                calls[data["tool_call_id"]][1] += data["args_delta"]
            case "tool_call_end":
                calls[data["tool_call_id"]][2] = data["status"]
    kind, last = frames[-1]
    finished = kind == "stream_end"
    return Received(
        answer=words.rpartition("\n\n")[2] if finished else None,
        text=words,
        calls=ordered([Call(name, arguments(given), status) for name, given, status in calls.values()]),
        usage=_counts(last["tokens_used"]) if finished else None,
        error=None if finished else last["type"].rpartition("/")[2],
    )


def _counts(received: dict[str, int] | None) -> tuple[int, int] | None:
    if received is None:
        return None
    assert received["total_tokens"] == received["prompt_tokens"] + received["completion_tokens"]
    return received["prompt_tokens"], received["completion_tokens"]


async def chat_stream(s: Served, text: str, session: str) -> Received:
    async with s.post({"input": text, "conversation_id": session}, "/chat/stream") as answer:
        frames = named(await answer.read())
        assert {data["request_id"] for _, data in frames} == {answer.headers["X-Request-ID"]}
    ended = {"completed": "success", "failed": "error"}
    calls = [data for name, data in frames if name == "tool_call" and data["status"] in ended]
    errors = [data["error_type"] for name, data in frames if name == "error" and not data["recoverable"]]
    kind, last = frames[-1]
    assert kind == "done"
    return Received(
        answer=last["final_output"] if last["success"] else None,
        text="".join(data["delta"] for name, data in frames if name == "response_delta"),
        calls=ordered([Call(each["tool_name"], each["arguments"], ended[each["status"]]) for each in calls]),
        error=errors[0] if errors else None,
    )


async def openai_sync(s: Served, text: str, session: str) -> Received:
    asked = {"messages": [{"role": "user", "content": text}]}
    async with s.post(asked, "/v1/chat/completions", **{"X-Session-Id": session}) as answer:
        result = await answer.json(content_type=None)
        if answer.status != 200:
            assert (result["status"], answer.headers["x-should-retry"]) == (answer.status, "false")
            return Received(error=result["type"].rpartition("/")[2])
    (choice,) = result["choices"]
    assert "tool_calls" not in choice["message"]
    words = choice["message"]["content"]
    return Received(answer=words.rpartition("\n\n")[2], text=words, usage=_counts(result.get("usage")))


async def openai_stream(s: Served, text: str, session: str) -> Received:
    messages = [{"role": "user", "content": text}]
    asked = {"messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    async with s.post(asked, "/v1/chat/completions", **{"X-Session-Id": session}) as answer:
        *frames, done = [frame.data for frame in whatwg(await answer.read())]
    assert done == "[DONE]"
    chunks = [json.loads(frame) for frame in frames]
    choices = [choice for chunk in chunks for choice in chunk.get("choices", ())]
    assert all("tool_calls" not in choice["delta"] for choice in choices)
    words = "".join(choice["delta"].get("content", "") for choice in choices)
    error = chunks[-1].get("error")
    return Received(
        answer=None if error else words.rpartition("\n\n")[2],
        text=words,
        usage=_counts(chunks[-1].get("usage")),
        error=error and error["code"],
    )


async def ai_sdk(s: Served, text: str, session: str) -> Received:
    asked = {
        "id": session,
        "messages": [{"id": str(uuid4()), "role": "user", "parts": [{"type": "text", "text": text}]}],
    }
    async with s.post(asked, "/ai-sdk/chat") as answer:
        assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
        *frames, done = [frame.data for frame in whatwg(await answer.read())]
    assert done == "[DONE]"
    message = UiClient()
    for frame in frames:
        message.read(json.loads(frame))
    texts = [part["text"] for part in message.parts if part["type"] == "text"]
    status = {"output-available": "success", "output-error": "error", "approval-requested": "pending"}
    usage = message.metadata.get("usage")
    (error,) = [note["data"]["code"] for note in message.notes if note["type"] == "data-error"] or [None]
    return Received(
        answer=None if error else ["", *texts][-1],
        text="\n\n".join(texts),
        calls=ordered([Call(each["toolName"], each["input"], status[each["state"]]) for each in message.tools()]),
        usage=(usage["inputTokens"], usage["outputTokens"]) if usage else None,
        error=error,
    )


async def mcp(s: Served, text: str, session: str) -> Received:
    params = {"name": "ask", "arguments": {"message": text, "session": session}}
    async with s.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, "/mcp") as answer:
        (frame,) = whatwg(await answer.read())
    result = json.loads(frame.data)["result"]
    about = result["structuredContent"]
    assert about["session"] == session
    assert result["isError"] == ("error" in about)
    calls = [Call(each["name"], each["arguments"], each["status"]) for each in about["tool_calls"]]
    return Received(answer=about.get("answer"), calls=ordered(calls), error=about.get("error"))


async def responses_sync(s: Served, text: str, session: str) -> Received:
    async with s.post({"input": text, "conversation": session}, "/v1/responses") as answer:
        result = await answer.json(content_type=None)
        if answer.status != 200:
            assert (result["status"], answer.headers["x-should-retry"]) == (answer.status, "false")
            return Received(error=result["type"].rpartition("/")[2])
    return _of_response(result)


async def responses_stream(s: Served, text: str, session: str) -> Received:
    async with s.post({"input": text, "conversation": session, "stream": True}, "/v1/responses") as answer:
        *frames, done = [frame.data for frame in whatwg(await answer.read())]
    assert done == "[DONE]"
    last = [json.loads(frame) for frame in frames[-2:]]
    return _of_response(last[0 if last[-1]["type"] == "error" else -1]["response"])


def _of_response(received: dict[str, Any]) -> Received:
    items, ended = received["output"], {"completed": "success", "failed": "error"}
    text = "".join(item["content"][0]["text"] for item in items if item["type"] == "message")
    calls = [item for item in items if item["type"] in ("mcp_call", "mcp_approval_request")]
    error, usage = received["error"], received["usage"]
    return Received(
        answer=None if error else text.rpartition("\n\n")[2],
        text=text,
        calls=ordered(
            [
                Call(each["name"], arguments(each["arguments"]), ended.get(each.get("status", ""), "pending"))
                for each in calls
            ]
        ),
        usage=(usage["input_tokens"], usage["output_tokens"]) if usage else None,
        error=error and error["type"],
    )


async def a2a_sync(s: Served, text: str, session: str) -> Received:
    message = {"messageId": str(uuid4()), "contextId": session, "role": "ROLE_USER", "parts": [{"text": text}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    async with s.post(body, "/a2a", **{"A2A-Version": "1.0"}) as answer:
        task = (await answer.json())["result"]["task"]
    return _of_task(task["status"], [part for each in task.get("artifacts", ()) for part in each["parts"]])


async def a2a_old_stream(s: Served, text: str, session: str) -> Received:
    message = {
        "messageId": str(uuid4()),
        "contextId": session,
        "role": "user",
        "parts": [{"kind": "text", "text": text}],
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": {"message": message}}
    async with s.post(body, "/a2a") as answer:
        frames = [json.loads(frame.data)["result"] for frame in whatwg(await answer.read())]
    assert (frames[0]["kind"], frames[-1]["final"]) == ("task", True)
    pieces = [frame for frame in frames if frame["kind"] == "artifact-update"]
    received = "".join(part["text"] for each in pieces if not each["lastChunk"] for part in each["artifact"]["parts"])
    assert received == "".join(
        part["text"] for each in pieces if each["lastChunk"] for part in each["artifact"]["parts"]
    )
    return _of_task(frames[-1]["status"], [{"text": received}])


def _of_task(status: dict[str, Any], parts: list[dict[str, Any]]) -> Received:
    text = "".join(part["text"] for part in parts)
    if status["state"] in {"TASK_STATE_COMPLETED", "completed"}:
        return Received(answer=text.rpartition("\n\n")[2], text=text)
    (data,) = [part["data"] for part in status["message"]["parts"] if "data" in part]
    return Received(text=text, error=data.get("code", "input-required"))


NOT_ASKED = Received(text="May I?", calls=(Call("echo", {"a": 1}, "error"),), error="approval-needed")
ANNOUNCED = Received(answer=NO_APPROVAL, text=f"May I?\n\n{NO_APPROVAL}")
INPUT_REQUIRED = Received(text="May I?", error="input-required")

CLIENTS: dict[str, WireClient] = {
    "ag-ui sse": WireClient(agui_sse),
    "ag-ui protobuf": WireClient(agui_protobuf),
    "rest": WireClient(rest_sync, never=("text",), not_with_error=("calls",)),
    "rest stream": WireClient(rest_stream),
    "chat-stream": WireClient(chat_stream, never=("usage",), approval=NOT_ASKED),
    # tools are lines of reasoning, for people
    "openai": WireClient(openai_sync, never=("calls",), not_with_error=("text",), approval=ANNOUNCED),
    "openai stream": WireClient(openai_stream, never=("calls",), approval=ANNOUNCED),
    "responses": WireClient(responses_sync, not_with_error=("text", "calls")),
    "responses stream": WireClient(responses_stream),
    "ai-sdk": WireClient(ai_sdk),
    "mcp": WireClient(mcp, never=("text", "usage")),
    # tools are lines of the status, for people
    "a2a": WireClient(a2a_sync, never=("calls", "usage"), approval=INPUT_REQUIRED),
    "a2a 0.3 stream": WireClient(a2a_old_stream, never=("calls", "usage"), approval=INPUT_REQUIRED),
}
