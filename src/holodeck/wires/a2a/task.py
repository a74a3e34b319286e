"""The events of a run → its task and the updates that clients see, in the JSON of 1.0.

The answer is one artifact of each run. Its last update repeats the whole text, since some clients keep only that
update. The final status has no message, since other clients would take it for the answer.
"""

from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from holodeck.core import events as e
from holodeck.core.json_values import JsonObject
from holodeck.core.messages import MediaPart, Part, TextPart, UserMessage, now, parts_of, text_of
from holodeck.core.tools import arguments_shown
from holodeck.errors import HoloDeckError
from holodeck.wires import sse
from holodeck.wires.reply import ReplyReader, excerpt, failure_of, time_text

SUBMITTED, WORKING, COMPLETED = "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"
FAILED, CANCELED, INPUT_REQUIRED = "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_INPUT_REQUIRED"
NEW_SESSION = {"sessionIsNew": True}  # metadata: the context that the client named is unknown, or has expired
TERMINAL = frozenset({COMPLETED, FAILED, CANCELED, "TASK_STATE_REJECTED"})
_decode = msgspec.json.Decoder().decode


class TaskReader(ReplyReader[JsonObject]):
    """Reads one run of a task from its first event on.

    `read` returns updates; `artifacts` and `status` are their sum.
    """

    def __init__(self, task_id: str, context_id: str, run_id: str, clock: Callable[[], datetime] = now) -> None:
        super().__init__()
        self._ids = {"taskId": task_id, "contextId": context_id}
        self._run_id, self._clock = run_id, clock
        self._text: list[str] = []
        self._statuses = 0
        self._artifacts: dict[str, JsonObject] = {}
        self.metadata: JsonObject = {}
        self.status: JsonObject = {"state": SUBMITTED, "timestamp": time_text(clock())}

    @property
    def artifacts(self) -> dict[str, JsonObject]:
        """The artifacts by id, in the order of their first updates.

        The text is joined here: joining it per token would be quadratic.
        """
        text = [{"text": "".join(self._text)}]
        return {key: {**each, "parts": text} if key == self._run_id else each for key, each in self._artifacts.items()}

    def run_started(self, event: e.RunStarted) -> Sequence[JsonObject]:
        shown = self._status(WORKING)
        if event.is_new_session:
            self.metadata = shown["statusUpdate"]["metadata"] = dict(NEW_SESSION)
        return (shown,)

    def text_added(self, event: e.TextAdded) -> Sequence[JsonObject]:
        delta = self._reply.add(event)
        if not delta:
            return ()
        appends = bool(self._text)
        self._text.append(delta)
        return (self._artifact(self._run_id, [{"text": delta}], append=appends),)

    def tool_call_ended(self, event: e.ToolCallEnded) -> Sequence[JsonObject]:
        line = f"{event.name} {excerpt(event.arguments)}".rstrip()
        return (self._status(WORKING, [{"text": line}, {"data": {"tool": event.name, "callId": event.call_id}}]),)

    def tool_finished(self, event: e.ToolFinished) -> Sequence[JsonObject]:
        failed = "failed: " if event.failed else ""
        line = f"{event.name}: {failed}{excerpt(text_of(event.content))}"
        about = {"tool": event.name, "callId": event.call_id, "failed": event.failed}
        shown = self._status(WORKING, [{"text": line}, {"data": about}])
        files = [each for each in parts_of(event.content) if isinstance(each, MediaPart)]
        if not files:
            return (shown,)
        file = self._artifact(f"{self._run_id}-{event.call_id}", [part_json(each) for each in files], last=True)
        return shown, file

    def run_finished(self, ending: e.RunFinished) -> Sequence[JsonObject]:
        error = failure_of(ending, self._reply.answer(ending))
        if ending.outcome is e.Outcome.CANCELLED:
            return *self._whole(), self._status(CANCELED)
        if error is not None:
            return *self._whole(), self._failure(error)
        if ending.outcome in (e.Outcome.INTERRUPTED, e.Outcome.CLIENT_TOOLS):
            return *self._whole(), self._status(INPUT_REQUIRED, question_parts(ending))
        output: list[JsonObject] = []
        if ending.output is not None:
            output = [self._artifact(f"{self._run_id}-output", [{"data": ending.output}], last=True)]
        return *self._whole(), *output, self._status(COMPLETED)

    def run_failed(self, ending: e.RunFailed) -> Sequence[JsonObject]:
        error = failure_of(ending, "")
        return () if error is None else (*self._whole(), self._failure(error))

    def _whole(self) -> Sequence[JsonObject]:
        if not self._text:
            return ()
        return (self._artifact(self._run_id, [{"text": "".join(self._text)}], last=True),)

    def _failure(self, error: HoloDeckError) -> JsonObject:
        return self._status(FAILED, [{"text": error.message}, {"data": {"code": error.code}}])

    def _status(self, state: str, parts: Sequence[JsonObject] = ()) -> JsonObject:
        self.status = {"state": state, "timestamp": time_text(self._clock())}
        if parts:
            self._statuses += 1
            message_id = f"{self._run_id}-{self._statuses}"
            self.status["message"] = {**self._ids, "messageId": message_id, "role": "ROLE_AGENT", "parts": parts}
        return {"statusUpdate": {**self._ids, "status": self.status}}

    def _artifact(
        self, artifact_id: str, parts: list[JsonObject], *, append: bool = False, last: bool = False
    ) -> JsonObject:
        artifact = {"artifactId": artifact_id, "name": "answer", "parts": parts}
        if not append:
            self._artifacts[artifact_id] = artifact
        return {"artifactUpdate": {**self._ids, "artifact": artifact, "append": append, "lastChunk": last}}


def question_parts(ending: e.RunFinished) -> list[JsonObject]:
    """Describes what a person has to decide, in words and as data.

    The answer is data with `interruptId` and `approved`.
    """
    if not ending.interrupts:
        return [{"text": "The agent waits for a tool of the client that started this run."}]
    words = "\n".join(f"{each.message} ({each.tool} {each.arguments})" for each in ending.interrupts)
    asked = [
        {
            "interruptId": each.id,
            "tool": each.tool,
            "arguments": arguments_shown(each.arguments),
            "message": each.message,
            **({} if each.expires_at is None else {"expiresAt": time_text(each.expires_at)}),
        }
        for each in ending.interrupts
    ]
    return [{"text": words}, *({"data": each} for each in asked)]


def task_json(
    *,
    task_id: str,
    context_id: str,
    status: JsonObject,
    artifacts: Sequence[JsonObject],
    history: Sequence[JsonObject],
    history_length: int | None = None,
    metadata: JsonObject | None = None,
) -> JsonObject:
    task: JsonObject = {"id": task_id, "contextId": context_id, "status": status}
    task |= {"metadata": metadata} if metadata else {}
    shown = history if history_length is None else history[max(0, len(history) - history_length) :]
    return task | ({"artifacts": list(artifacts)} if artifacts else {}) | ({"history": list(shown)} if shown else {})


def message_json(message: UserMessage, task_id: str, context_id: str) -> JsonObject:
    parts = [part_json(each) for each in parts_of(message.content)] or [{"text": ""}]
    ids = {"messageId": message.id, "taskId": task_id, "contextId": context_id}
    return {**ids, "role": "ROLE_USER", "parts": parts}


def part_json(part: Part) -> JsonObject:
    if isinstance(part, TextPart):
        return {"text": part.text}
    about: JsonObject = {"mediaType": part.mime_type} | ({"filename": part.filename} if part.filename else {})
    if part.mime_type == "application/json" and part.data is not None:
        try:
            return {"data": _decode(b64decode(part.data)), **about}
        except (ValueError, msgspec.DecodeError, RecursionError):
            pass  # not JSON after all: shown as a file
    return {"url": part.url, **about} if part.data is None else {"raw": part.data, **about}


class TaskEncoder(sse.FrameEncoder):
    """The updates of a task as server-sent events. `wrap` turns an update into the form of the client's binding."""

    def __init__(self, reader: TaskReader, wrap: Callable[[dict[str, Any]], Any]) -> None:
        self._read, self._wrap = reader.read, wrap

    def encode_many(self, batch: Iterable[tuple[int | None, e.Event]]) -> bytes:
        return b"".join([sse.frame(self._wrap(update)) for _, event in batch for update in self._read(event)])
