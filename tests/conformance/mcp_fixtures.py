"""The agent as an MCP server with the tools that the conformance suite calls, in a process of its own.

    python -m tests.conformance.mcp_fixtures        prints its address, and serves until stdin closes

Tools with fixed answers show the envelope: headers, versions, results, errors. Those of the tasks extension are runs of a
real agent: what they do is in the message that its model gets.
"""

import asyncio
import json
import sys
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holodeck.core.tools import ToolResult
from holodeck.errors import InvalidRequest, ModelRejected
from holodeck.models.port import Listener, ModelReply, Prompt
from holodeck.models.scripted import ScriptedModel, calls, says
from holodeck.server.intake import server_of
from holodeck.server.mcp_calls import TOOLS, McpTool, ask, result_answer, server_info, update_task
from holodeck.server.options import ServerSettings
from holodeck.server.routes.mcp import LEGACY_METHODS, MODERN_METHODS, list_tools
from holodeck.wires import sse
from holodeck.wires.jsonrpc import INVALID_PARAMS, RpcError, notification, result_message
from holodeck.wires.mcp.call_progress import marked
from holodeck.wires.mcp.envelope import TASKS, McpCall, missing_capability
from tests.agent.agent_fixture import PlainTools
from tests.server.serving import served

Json = dict[str, Any]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SILENCE = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="
RESOURCE = {"uri": "test://embedded-resource", "mimeType": "text/plain", "text": "This is an embedded resource."}
TEXT = {"type": "text", "text": "This is a simple text response for testing."}
IMAGE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
FIXED: dict[str, Json] = {
    "test_simple_text": {"content": [TEXT]},
    "test_image_content": {"content": [IMAGE]},
    "test_audio_content": {"content": [{"type": "audio", "data": SILENCE, "mimeType": "audio/wav"}]},
    "test_embedded_resource": {"content": [{"type": "resource", "resource": RESOURCE}]},
    "test_multiple_content_types": {"content": [TEXT, IMAGE, {"type": "resource", "resource": RESOURCE}]},
    "test_error_handling": {"content": [{"type": "text", "text": "This tool fails on purpose."}], "isError": True},
    "test_logging_tool": {"content": [TEXT]},
}
NAME_FORM = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "What is your name?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
}
SAMPLE = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Capital of France?"}}],
        "maxTokens": 100,
    },
}
ROOTS = {"method": "roots/list", "params": {}}


def fixed(result: Json) -> McpTool:
    async def tool(request: Request, call: McpCall, _given: Json) -> Response:
        return result_answer(call, marked(result, call.caller, server_info(server_of(request))))

    return tool


async def progress(_request: Request, call: McpCall, _given: Json) -> Response:
    received = [
        notification("notifications/progress", {"progressToken": call.progress_token, "progress": n, "total": 100})
        for n in (0, 50, 100)
    ]
    result = marked({"content": [TEXT]}, call.caller, {"name": "tester", "version": "1"})
    frames = b"".join(map(sse.frame, [*received, result_message(call.id, result)]))
    return Response(frames, media_type=sse.CONTENT_TYPE)


async def missing_sampling(_request: Request, call: McpCall, _given: Json) -> Response:
    raise missing_capability({"sampling": {}}, "This tool needs sampling.", call.id)


def asks(*rounds: Json, state: bool = False) -> McpTool:
    """A tool that needs so many rounds of input; each round is what it asks for, by key."""

    async def tool(request: Request, call: McpCall, given: Json) -> Response:
        info = server_info(server_of(request))
        number = 0
        given_state = call.params.get("requestState")
        if given_state is not None:
            if given_state not in {f"round-{n}" for n in range(len(rounds))}:
                raise RpcError(INVALID_PARAMS, "This requestState is not ours.")
            number = int(given_state.removeprefix("round-"))
        answers = call.params.get("inputResponses") or {}
        if not isinstance(answers, dict) or not all(isinstance(each, dict) for each in answers.values()):
            raise InvalidRequest("inputResponses must be an object of objects", field="inputResponses")
        if answers and all(key in answers for key in rounds[number]):
            number += 1
        if number == len(rounds):
            return await fixed({"content": [{"type": "text", "text": f"Hello, {json.dumps(answers)}"}]})(
                request, call, given
            )
        asked: Json = {"resultType": "input_required", "inputRequests": rounds[number]}
        if state or number:
            asked["requestState"] = f"round-{number}"
        return result_answer(call, marked(asked, call.caller, info))

    return tool


async def by_capability(request: Request, call: McpCall, _given: Json) -> Response:
    wanted = {"sampling": SAMPLE, "elicitation": NAME_FORM, "roots": ROOTS}
    asked = {name: form for name, form in wanted.items() if name in call.caller.capabilities}
    result = {"resultType": "input_required", "inputRequests": asked}
    return result_answer(call, marked(result, call.caller, server_info(server_of(request))))


async def greet(request: Request, call: McpCall, given: Json) -> Response:
    return await fixed({"content": [{"type": "text", "text": f"Hello, {given['name']}!"}]})(request, call, given)


def run_of(kind: str) -> McpTool:
    async def tool(request: Request, call: McpCall, given: Json) -> Response:
        if kind == "fail" and not call.caller.takes_tasks:
            raise missing_capability({"extensions": {TASKS: {}}}, "This tool is a task only.", call.id)
        return await ask(request, call, {"message": json.dumps({"kind": kind, **given})})

    return tool


async def name_then_task(request: Request, call: McpCall, given: Json) -> Response:
    """Asks for a name first, then works with it as a task."""
    answers = call.params.get("inputResponses")
    if not answers:
        return await asks({"user_name": NAME_FORM})(request, call, given)
    name = answers["user_name"]["content"]["name"]
    return await run_of("slow")(request, call, {"says": f"computed for {name}"})


async def confirmed(request: Request, call: McpCall) -> Response:
    """`tasks/update` with the suite's own form, which asks for `confirm`, in the words of ours."""
    given = call.params.get("inputResponses", {})
    decided = {"action": "accept", "content": {"decision": "approve"}}
    answers = {key: decided if "confirm" in each.get("content", {}) else each for key, each in given.items()}
    params = {**call.params, "inputResponses": answers}
    return await update_task(request, msgspec.structs.replace(call, params=params))


class FixtureModel(ScriptedModel):
    """Does what the message asks for. Every task takes longer than the second within which an answer is given at once."""

    def __init__(self) -> None:
        super().__init__([])

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        last = prompt.messages[-1]
        content = last.content if isinstance(last.content, str) else ""
        wish: Json = json.loads(content) if content.startswith("{") else {"kind": "done"}
        seconds = wish.get("seconds", 1)
        if wish["kind"] != "done" and seconds:
            await asyncio.sleep(0.5 + seconds)
        match wish["kind"]:
            case "fail":
                raise ModelRejected("The job fails on purpose.")
            case "confirm":
                turn = calls(("delete", '{"name": "a"}'))
            case "multi":
                turn = calls(("delete", '{"name": "a"}'), ("delete", '{"name": "b"}'))
            case _:
                turn = says(wish.get("says", "computed"))
        self.turns, self.prompts = [turn], []
        return await super().reply(prompt, listener)


async def delete(arguments: Json, _context: object) -> ToolResult:
    return ToolResult(content=f"deleted {arguments['name']}")


FIXTURES: dict[str, McpTool] = {
    **{name: fixed(result) for name, result in FIXED.items()},
    "test_tool_with_progress": progress,
    "test_missing_capability": missing_sampling,
    "test_streaming_elicitation": asks({"user_name": NAME_FORM}),
    "test_input_required_result_elicitation": asks({"user_name": NAME_FORM}),
    "test_input_required_result_sampling": asks({"capital_question": SAMPLE}),
    "test_input_required_result_list_roots": asks({"client_roots": ROOTS}),
    "test_input_required_result_request_state": asks({"confirm": NAME_FORM}, state=True),
    "test_input_required_result_multiple_inputs": asks(
        {"user_name": NAME_FORM, "greeting": SAMPLE, "client_roots": ROOTS}, state=True
    ),
    "test_input_required_result_multi_round": asks({"step1": NAME_FORM}, {"step2": NAME_FORM}, state=True),
    "test_input_required_result_tampered_state": asks({"confirm": NAME_FORM}, state=True),
    "test_input_required_result_capabilities": by_capability,
    "greet": greet,
    "slow_compute": run_of("slow"),
    "test_tool_with_task": name_then_task,
    "failing_job": run_of("fail"),
    "confirm_delete": run_of("confirm"),
    "multi_input": run_of("multi"),
}


async def listed(request: Request, call: McpCall) -> Response:
    """The agent's own tools and the fixtures."""
    answer = json.loads(bytes((await list_tools(request, call)).body))["result"]
    schema = {"type": "object", "properties": {}}
    fixtures = [{"name": name, "description": "A fixture", "inputSchema": schema} for name in FIXTURES]
    answer["tools"] = [*fixtures, *answer["tools"]]
    return result_answer(call, answer)


async def main() -> None:
    TOOLS.update(FIXTURES)
    MODERN_METHODS.update({"tools/list": listed, "tasks/update": confirmed})
    LEGACY_METHODS["tools/list"] = listed
    tools = PlainTools(frozenset({"delete"}), delete=delete)
    async with served(model=FixtureModel(), tools=tools, settings=ServerSettings(protocols=("mcp",))) as s:
        sys.stdout.write(f"{s.url}/mcp\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
