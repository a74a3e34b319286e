"""The wires as a fault sees them: how a question is put, and what a client received, in the same words for all of them.

`read` also takes half an answer: what is there is read, what is missing is missing.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.faults.server_process import AGENT
from tests.wires.agui.client_rules import Refused, verify
from tests.wires.agui.protobuf_reader import read_event
from tests.wires.sse_parsers import whatwg

PROTOBUF = "application/vnd.ag-ui.event+proto"
_LENGTH = 4


@dataclass
class ClientView:
    """What one client knows of one run."""

    status: int = 0
    text: str = ""
    calls: dict[str, str] = field(default_factory=dict)  # id → name
    results: dict[str, bool] = field(default_factory=dict)  # id → whether it failed
    ending: str | None = None  # finished, cancelled or failed
    code: str | None = None
    reason: str | None = None
    run_id: str | None = None
    retry_after: float | None = None
    whole: bool = True  # the HTTP answer had its proper end
    wrong: str | None = None  # what the wire's own rules forbid
    frames: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Wire:
    name: str
    path: str
    body: Callable[[str, str, str], dict[str, Any]]  # words, session, run → body
    parse: Callable[[ClientView, bytes], None]
    headers: dict[str, str] = field(default_factory=dict)
    streams: bool = True
    names_runs: bool = False  # whether the client chooses the run's id

    def read(self, status: int, body: bytes, *, whole: bool = True) -> ClientView:
        view = ClientView(status=status, whole=whole)
        if status == 200:
            self.parse(view, body)
        else:
            _problem(view, body)
        return view


def _problem(view: ClientView, body: bytes) -> None:
    problem = json.loads(body or b"{}")
    view.ending = "failed"
    view.code = str(problem.get("type", "")).rpartition("/")[2] or None
    view.reason, view.retry_after = problem.get("reason"), problem.get("retry_after")
    if problem.get("status") != view.status:
        view.wrong = f"a problem of status {problem.get('status')} came with {view.status}"


def _agui(words: str, session: str, run: str) -> dict[str, Any]:
    message = {"id": f"m-{run}", "role": "user", "content": words}
    return {"threadId": session, "runId": run, "protocolVersion": "1.0", "messages": [message]}


def _parse_sse(view: ClientView, body: bytes) -> None:
    _parse_agui(view, [json.loads(frame.data) for frame in whatwg(body[: body.rfind(b"\n\n") + 2])])


def _parse_protobuf(view: ClientView, body: bytes) -> None:
    events, at = [], 0
    while at + _LENGTH <= len(body):
        size = int.from_bytes(body[at : at + _LENGTH], "big")
        if at + _LENGTH + size > len(body):
            break
        events.append(read_event(body[at + _LENGTH : at + _LENGTH + size]))
        at += _LENGTH + size
    _parse_agui(view, events)


def _parse_agui(view: ClientView, events: list[dict[str, Any]]) -> None:
    view.frames = events
    for event in events:
        match event["type"]:
            case "RUN_STARTED":
                view.run_id = event["runId"]
            case "TEXT_MESSAGE_CONTENT":
                view.text += event["delta"]
            case "TOOL_CALL_START":
                view.calls[event["toolCallId"]] = event["toolCallName"]
            case "TOOL_CALL_RESULT":
                view.results[event["toolCallId"]] = bool((event.get("metadata") or {}).get("failed"))
            case "RUN_FINISHED":
                outcome = (event.get("outcome") or {}).get("type")
                view.ending = "cancelled" if outcome == "cancelled" else "finished"
            case "RUN_ERROR":
                view.ending, view.code = "failed", event["code"]
                view.reason = (event.get("metadata") or {}).get("reason")
    if view.ending is not None:
        try:
            verify(events)
        except Refused as refusal:
            view.wrong = str(refusal)


def _rest(words: str, session: str, _run: str) -> dict[str, Any]:
    return {"message": words, "session_id": session}


def _parse_answer(view: ClientView, body: bytes) -> None:
    if not view.whole:
        return
    answer = json.loads(body)
    view.text, view.run_id, view.ending = answer["content"], answer["message_id"], "finished"
    for number, call in enumerate(answer["tool_calls"]):
        view.calls[str(number)] = call["name"]
        view.results[str(number)] = call["status"] == "error"


def _parse_rest(view: ClientView, body: bytes) -> None:
    for frame in whatwg(body[: body.rfind(b"\n\n") + 2]):
        data = json.loads(frame.data)
        view.frames.append(data)
        if view.ending is not None:
            view.wrong = f"{frame.event} after the end"
        match frame.event:
            case "stream_start":
                view.run_id = data["message_id"]
            case "message_delta":
                view.text += data["delta"]
            case "tool_call_start":
                view.calls[data["tool_call_id"]] = data["name"]
            case "tool_call_end":
                view.results[data["tool_call_id"]] = data["status"] == "error"
            case "stream_end":
                view.ending = "finished"
            case "error":
                view.ending, view.code = "failed", data["type"].rpartition("/")[2]
                view.reason = data.get("reason")
    if view.ending is not None and view.calls.keys() - view.results.keys():
        view.wrong = "a call was not ended"
    _undo_cancelled(view)


def _chat(words: str, session: str, _run: str) -> dict[str, Any]:
    return {"input": words, "conversation_id": session}


def _parse_chat(view: ClientView, body: bytes) -> None:
    done = False
    for number, frame in enumerate(whatwg(body[: body.rfind(b"\n\n") + 2])):
        data = json.loads(frame.data)
        view.frames.append(data)
        if done:
            view.wrong = f"{frame.event} after done"
        match frame.event:
            case "response_delta":
                view.text += data["delta"]
            case "tool_call" if data["status"] != "in_progress":
                view.calls[str(number)] = data["tool_name"]
                view.results[str(number)] = data["status"] == "failed"
            case "error" if not data["recoverable"]:
                view.ending, view.code = "failed", data["error_type"]
            case "done":
                done, view.ending = True, view.ending or "finished"
                if data["success"] is not (view.ending == "finished"):
                    view.wrong = "done and error contradict each other"
    if not done:
        view.ending = None
    _undo_cancelled(view)


def _undo_cancelled(view: ClientView) -> None:
    """Two wires have no stopped runs: they send an error of that code."""
    if view.code == "cancelled":
        view.ending = "cancelled"


SSE = Wire("AG-UI SSE", "/awp", _agui, _parse_sse, {"Accept": "text/event-stream"}, names_runs=True)
PROTO = Wire("AG-UI protobuf", "/awp", _agui, _parse_protobuf, {"Accept": PROTOBUF}, names_runs=True)
REST = Wire("REST", f"/agent/{AGENT}/chat", _rest, _parse_answer, streams=False)
REST_STREAM = Wire("REST stream", f"/agent/{AGENT}/chat/stream", _rest, _parse_rest)
CHAT = Wire("chat-stream", "/chat/stream", _chat, _parse_chat)

WIRES = (SSE, PROTO, REST, REST_STREAM, CHAT)
STREAMS = tuple(wire for wire in WIRES if wire.streams)
