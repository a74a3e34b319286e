"""The wires as a fault sees them: how a question is put, and what a client heard, in the same words for all of them.

`read` also takes half an answer: what is there is told, what is missing is missing.
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
class Told:
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
    hear: Callable[[Told, bytes], None]
    headers: dict[str, str] = field(default_factory=dict)
    streams: bool = True
    names_runs: bool = False  # whether the client chooses the run's id

    def read(self, status: int, body: bytes, *, whole: bool = True) -> Told:
        told = Told(status=status, whole=whole)
        if status == 200:
            self.hear(told, body)
        else:
            _problem(told, body)
        return told


def _problem(told: Told, body: bytes) -> None:
    problem = json.loads(body or b"{}")
    told.ending = "failed"
    told.code = str(problem.get("type", "")).rpartition("/")[2] or None
    told.reason, told.retry_after = problem.get("reason"), problem.get("retry_after")
    if problem.get("status") != told.status:
        told.wrong = f"a problem of status {problem.get('status')} came with {told.status}"


def _agui(words: str, session: str, run: str) -> dict[str, Any]:
    message = {"id": f"m-{run}", "role": "user", "content": words}
    return {"threadId": session, "runId": run, "protocolVersion": "1.0", "messages": [message]}


def _hear_sse(told: Told, body: bytes) -> None:
    _hear_agui(told, [json.loads(frame.data) for frame in whatwg(body[: body.rfind(b"\n\n") + 2])])


def _hear_protobuf(told: Told, body: bytes) -> None:
    events, at = [], 0
    while at + _LENGTH <= len(body):
        size = int.from_bytes(body[at : at + _LENGTH], "big")
        if at + _LENGTH + size > len(body):
            break
        events.append(read_event(body[at + _LENGTH : at + _LENGTH + size]))
        at += _LENGTH + size
    _hear_agui(told, events)


def _hear_agui(told: Told, events: list[dict[str, Any]]) -> None:
    told.frames = events
    for event in events:
        match event["type"]:
            case "RUN_STARTED":
                told.run_id = event["runId"]
            case "TEXT_MESSAGE_CONTENT":
                told.text += event["delta"]
            case "TOOL_CALL_START":
                told.calls[event["toolCallId"]] = event["toolCallName"]
            case "TOOL_CALL_RESULT":
                told.results[event["toolCallId"]] = bool((event.get("metadata") or {}).get("failed"))
            case "RUN_FINISHED":
                outcome = (event.get("outcome") or {}).get("type")
                told.ending = "cancelled" if outcome == "cancelled" else "finished"
            case "RUN_ERROR":
                told.ending, told.code = "failed", event["code"]
                told.reason = (event.get("metadata") or {}).get("reason")
    if told.ending is not None:
        try:
            verify(events)
        except Refused as refusal:
            told.wrong = str(refusal)


def _rest(words: str, session: str, _run: str) -> dict[str, Any]:
    return {"message": words, "session_id": session}


def _hear_answer(told: Told, body: bytes) -> None:
    if not told.whole:
        return
    answer = json.loads(body)
    told.text, told.run_id, told.ending = answer["content"], answer["message_id"], "finished"
    for number, call in enumerate(answer["tool_calls"]):
        told.calls[str(number)] = call["name"]
        told.results[str(number)] = call["status"] == "error"


def _hear_rest(told: Told, body: bytes) -> None:
    for frame in whatwg(body[: body.rfind(b"\n\n") + 2]):
        data = json.loads(frame.data)
        told.frames.append(data)
        if told.ending is not None:
            told.wrong = f"{frame.event} after the end"
        match frame.event:
            case "stream_start":
                told.run_id = data["message_id"]
            case "message_delta":
                told.text += data["delta"]
            case "tool_call_start":
                told.calls[data["tool_call_id"]] = data["name"]
            case "tool_call_end":
                told.results[data["tool_call_id"]] = data["status"] == "error"
            case "stream_end":
                told.ending = "finished"
            case "error":
                told.ending, told.code = "failed", data["type"].rpartition("/")[2]
                told.reason = data.get("reason")
    if told.ending is not None and told.calls.keys() - told.results.keys():
        told.wrong = "a call was not ended"
    _undo_cancelled(told)


def _chat(words: str, session: str, _run: str) -> dict[str, Any]:
    return {"input": words, "conversation_id": session}


def _hear_chat(told: Told, body: bytes) -> None:
    done = False
    for number, frame in enumerate(whatwg(body[: body.rfind(b"\n\n") + 2])):
        data = json.loads(frame.data)
        told.frames.append(data)
        if done:
            told.wrong = f"{frame.event} after done"
        match frame.event:
            case "response_delta":
                told.text += data["delta"]
            case "tool_call" if data["status"] != "in_progress":
                told.calls[str(number)] = data["tool_name"]
                told.results[str(number)] = data["status"] == "failed"
            case "error" if not data["recoverable"]:
                told.ending, told.code = "failed", data["error_type"]
            case "done":
                done, told.ending = True, told.ending or "finished"
                if data["success"] is not (told.ending == "finished"):
                    told.wrong = "done and error contradict each other"
    if not done:
        told.ending = None
    _undo_cancelled(told)


def _undo_cancelled(told: Told) -> None:
    """Two wires know no stopped runs: they tell them as an error of that code."""
    if told.code == "cancelled":
        told.ending = "cancelled"


SSE = Wire("AG-UI SSE", "/awp", _agui, _hear_sse, {"Accept": "text/event-stream"}, names_runs=True)
PROTO = Wire("AG-UI protobuf", "/awp", _agui, _hear_protobuf, {"Accept": PROTOBUF}, names_runs=True)
REST = Wire("REST", f"/agent/{AGENT}/chat", _rest, _hear_answer, streams=False)
REST_STREAM = Wire("REST stream", f"/agent/{AGENT}/chat/stream", _rest, _hear_rest)
CHAT = Wire("chat-stream", "/chat/stream", _chat, _hear_chat)

WIRES = (SSE, PROTO, REST, REST_STREAM, CHAT)
STREAMS = tuple(wire for wire in WIRES if wire.streams)
