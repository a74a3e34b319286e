"""The events of a run → progress notifications and the result of the call, as a stream or as a task.

Frames of a stream have no `id` line: the protocol has no way to resume it. A task is a run whose status the client
polls (the extension `io.modelcontextprotocol/tasks`).
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from holodeck.core import events as e
from holodeck.core.messages import text_of
from holodeck.core.tools import arguments_shown
from holodeck.errors import HoloDeckError
from holodeck.wires import sse
from holodeck.wires.jsonrpc import JsonRpcId, notification, result_message
from holodeck.wires.mcp.agent_tools import CONTINUE, WAIT
from holodeck.wires.mcp.approvals import input_requests
from holodeck.wires.mcp.envelope import SERVER_INFO_KEY, Caller
from holodeck.wires.reply import PARAGRAPH, ReplyReader, approval_asked, error_of, excerpt, failure_of, time_text

INPUT_REQUIRED = "input_required"
MAX_CALLS = 200  # tool calls that a result lists
POLL_MILLISECONDS = 2_000
NEW_SESSION = (
    "The session {} is unknown or has expired, so this began a new one: the agent remembers no earlier messages."
)
WORKING, COMPLETED, CANCELLED = "working", "completed", "cancelled"


class AnswerReader(ReplyReader[str]):
    """Turns a run's events into lines of progress and the tool's result. `server_info` names the agent in every result."""

    def __init__(self, caller: Caller, server_info: dict[str, str]) -> None:
        super().__init__()
        self._caller, self._server_info = caller, server_info
        self._calls: dict[str, dict[str, Any]] = {}
        self._is_new = False  # the session that the caller named is unknown, or has expired
        self.result: dict[str, Any] | None = None  # known when the run has ended

    def run_started(self, event: e.RunStarted) -> Sequence[str]:
        self._is_new = self._is_new or event.is_new_session
        return ()

    def text_added(self, event: e.TextAdded) -> Sequence[str]:
        self._reply.add(event)
        return ()

    def tool_call_ended(self, event: e.ToolCallEnded) -> Sequence[str]:
        if len(self._calls) < MAX_CALLS:
            call = {"name": event.name, "arguments": arguments_shown(event.arguments), "status": "pending"}
            self._calls[event.call_id] = call
        return (f"→ {event.name} {excerpt(event.arguments)}".rstrip(),)

    def tool_finished(self, event: e.ToolFinished) -> Sequence[str]:
        if event.call_id in self._calls or len(self._calls) < MAX_CALLS:
            call = self._calls.setdefault(event.call_id, {"name": event.name})
            call["status"] = "error" if event.failed else "success"
        failed = "failed: " if event.failed else ""
        return (f"← {event.name} {failed}{excerpt(text_of(event.content))}".rstrip(),)

    def run_finished(self, ending: e.RunFinished) -> Sequence[str]:
        answer = self._reply.answer(ending)
        error = failure_of(ending, answer)
        if error is not None:
            self.result = self._failed(ending, error)
        elif ending.outcome is e.Outcome.INTERRUPTED:
            self.result = self._waiting(ending, answer)
        else:
            more = {} if ending.output is None else {"output": ending.output}
            self.result = self._complete(answer, {**self._about("completed", ending), "answer": answer, **more})
        return ()

    def run_failed(self, ending: e.RunFailed) -> Sequence[str]:
        self.result = self._failed(ending, error_of(ending))
        return ()

    def _failed(self, ending: e.Ending, error: HoloDeckError) -> dict[str, Any]:
        """Reports a failure as a failed tool, not as a protocol error: the client's model can read it and react."""
        about = {**self._about("failed", ending), "error": error.code}
        return {**self._complete(error.message, about), "isError": True}

    def _waiting(self, ending: e.RunFinished, answer: str) -> dict[str, Any]:
        if self._caller.is_modern and self._caller.answers_forms:
            forms = {"inputRequests": input_requests(ending.interrupts), "requestState": ending.run_id}
            return marked({**forms, "resultType": INPUT_REQUIRED}, self._caller, self._server_info)
        approvals = [approval_asked(each) for each in ending.interrupts]
        tools = ", ".join(each.tool for each in ending.interrupts)
        asked = (
            f"A person must approve {tools} first. Show them what it would do, then call `{CONTINUE}` with the session "
            f"{ending.session_id} and their decisions on: {', '.join(each.id for each in ending.interrupts)}."
        )
        about = {**self._about("waiting", ending), "answer": answer, "approvals": approvals}
        return self._complete(answer + (PARAGRAPH if answer else "") + asked, about)

    def _about(self, status: str, ending: e.Ending) -> dict[str, Any]:
        about = about_run(status, ending.session_id, ending.run_id, list(self._calls.values()))
        return about | {"session_is_new": True} if self._is_new else about

    def _complete(self, text: str, structured: dict[str, Any]) -> dict[str, Any]:
        result = tool_result(text, structured)
        if self._is_new:  # calling models read the text
            result["content"].append({"type": "text", "text": NEW_SESSION.format(structured["session"])})
        return marked(result, self._caller, self._server_info)


def about_run(status: str, session: str, run: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    return {"status": status, "session": session, "run": run, "tool_calls": calls}


def tool_result(text: str, structured: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "structuredContent": structured, "isError": False}


def still_working(session: str, run: str, caller: Caller, server_info: dict[str, str]) -> dict[str, Any]:
    """The result of a call that took longer than clients wait. The run continues."""
    text = f"The agent is still working. Call `{WAIT}` with the run {run} to get its answer."
    return marked(tool_result(text, about_run("working", session, run, [])), caller, server_info)


def marked(result: dict[str, Any], caller: Caller, server_info: dict[str, str]) -> dict[str, Any]:
    """Adds the members that every result of the caller's era has."""
    if not caller.is_modern:
        return result
    return {"resultType": "complete", **result, "_meta": {SERVER_INFO_KEY: server_info}}


class ProgressEncoder(sse.FrameEncoder):
    """Sends progress while the run continues, then the response as the last frame.

    Progress uses the token that the client gave, and always rises.
    """

    def __init__(self, request_id: JsonRpcId, reader: AnswerReader, progress_token: str | int | None = None) -> None:
        self._id, self._reader, self._token = request_id, reader, progress_token
        self._sent = 0

    @property
    def keepalive(self) -> bytes:
        """Sends progress without an event: some clients give up a minute after the last progress."""
        return self._progress(WORKING) or sse.KEEPALIVE

    def encode_many(self, batch: Iterable[tuple[int | None, e.Event]]) -> bytes:
        return b"".join([self._frames(event) for _, event in batch])

    def _frames(self, event: e.Event) -> bytes:
        lines, result = self._reader.read(event), self._reader.result
        if lines:
            return b"".join(map(self._progress, lines))
        return b"" if result is None else sse.frame(result_message(self._id, result))

    def _progress(self, line: str) -> bytes:
        if self._token is None:
            return b""
        self._sent += 1
        params = {"progressToken": self._token, "progress": self._sent, "message": line}
        return sse.frame(notification("notifications/progress", params))


def task(
    *, task_id: str, status: str, created_at: datetime, updated_at: datetime, ttl_seconds: float
) -> dict[str, Any]:
    return {
        "taskId": task_id,
        "status": status,
        "createdAt": time_text(created_at),
        "lastUpdatedAt": time_text(updated_at),
        "ttlMs": max(1, round(ttl_seconds * 1000)),
        "pollIntervalMs": POLL_MILLISECONDS,
    }
