"""The events of a run → chunks of one UI message. The last frame is always `data: [DONE]`.

The client ends a stream at an unknown chunk type, at a null in an optional member, and at a result without a call. So
the encoder omits unknown values, and sends the call along with a result if an earlier run made the call.

Tools of the server are `dynamic` and `providerExecuted`: the client shows them and does not try to run them. Events
without a chunk type become data parts: custom events, state and activities; the client updates the last two in place by
their id. Notes (warnings, changes of the history) are `transient`: the client's `onData` gets them, the message does
not.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from holodeck.core import events as e
from holodeck.core.json_patch import PatchError, apply_patch
from holodeck.core.json_values import decoded
from holodeck.core.messages import Content, TextPart, text_of
from holodeck.core.tools import arguments_shown
from holodeck.core.usage import TokenUsage
from holodeck.wires import sse
from holodeck.wires.ai_sdk.request import UiAnswer
from holodeck.wires.reply import EventReader, failure_of, token_counts

UiChunk: TypeAlias = dict[str, Any]
HEADERS: Mapping[str, str] = {"x-vercel-ai-ui-message-stream": "v1"}
STATE = "state"  # the id of the data part that holds the state
OURS = "holodeck."  # prefix of custom events that are our own notes
PREDICT_STATE = "PredictState"  # AG-UI's: meaningless to other clients

_encode_text = msgspec.json.Encoder().encode
_FINISH_REASONS = {"stop": "stop", "length": "length", "content_filter": "content-filter", "tool_calls": "tool-calls"}
_PROVIDER = {"dynamic": True, "providerExecuted": True}


class UiMessageEncoder(EventReader[UiChunk], sse.FrameEncoder):
    """Writes one run for one reader, as the assistant message `message_id` or as the next part of it.

    `answer` is what it has to know of the request. `before` are chunks of the same message that earlier runs wrote: a
    client that reconnects rebuilds the message.
    """

    def __init__(self, message_id: str, answer: UiAnswer | None = None) -> None:
        self.message_id = message_id
        self.before: Sequence[UiChunk] = ()
        self._answer = answer or UiAnswer()
        self._shown_calls: set[str] = set()
        self._started = self._has_text = False
        self._state: Any = None
        self._patch: list[dict[str, Any]] = []  # changes since the client was last sent the whole state
        self._activities: dict[str, tuple[str, dict[str, Any]]] = {}
        self._heads: dict[type[e.Event], dict[str, bytes]] = {kind: {} for kind in _DELTA_MEMBERS}

    def encode_many(self, batch: Iterable[tuple[int | None, e.Event]]) -> bytes:
        out: list[bytes] = []
        for _, event in batch:
            heads = self._heads.get(type(event))
            if heads is None:
                out += map(_frame, self.read(event))
                if type(event) in e.ENDINGS:
                    out.append(sse.DONE)
                continue
            key, delta = msgspec.structs.astuple(event)
            head = heads.get(key) or self._head(heads, event, key)
            try:
                out.append(b"%b%b}\n\n" % (head, _encode_text(delta)))
            except UnicodeEncodeError:  # half a surrogate pair
                out.append(b"%b%b}\n\n" % (head, sse.json_bytes(delta)))
        return b"".join(out)

    def _head(self, heads: dict[str, bytes], event: Any, key: str) -> bytes:
        """Builds everything before the delta of such a frame, once for each text, reasoning and call."""
        self._has_text |= type(event) is e.TextAdded
        kind, id_member, delta_member = _DELTA_MEMBERS[type(event)]
        begun = sse.json_bytes({"type": kind, id_member: key})[:-1]
        heads[key] = head = b'data: %b,"%b":' % (begun, delta_member.encode())
        return head

    def run_started(self, event: e.RunStarted) -> Sequence[UiChunk]:
        if self._started:  # a later part of the same run
            return ()
        self._started = True
        self._shown_calls.update(
            chunk["toolCallId"] for chunk in self.before if chunk["type"] == "tool-input-available"
        )
        model = {"model": event.model} if event.model else {}
        new = {"sessionIsNew": True} if event.is_new_session else {}
        metadata = {"session": event.session_id, "run": event.run_id} | model | new
        return ({"type": "start", "messageId": self.message_id, "messageMetadata": metadata}, *self.before)

    def step_started(self, _event: e.StepStarted) -> Sequence[UiChunk]:
        return ({"type": "start-step"},)

    def step_finished(self, _event: e.StepFinished) -> Sequence[UiChunk]:
        return (*self._changed_state(), {"type": "finish-step"})

    def text_started(self, event: e.TextStarted) -> Sequence[UiChunk]:
        return ({"type": "text-start", "id": event.message_id},)

    def text_ended(self, event: e.TextEnded) -> Sequence[UiChunk]:
        return ({"type": "text-end", "id": event.message_id},)

    def reasoning_started(self, event: e.ReasoningStarted) -> Sequence[UiChunk]:
        return ({"type": "reasoning-start", "id": event.message_id},)

    def reasoning_ended(self, event: e.ReasoningEnded) -> Sequence[UiChunk]:
        return ({"type": "reasoning-end", "id": event.message_id},)

    def tool_call_started(self, event: e.ToolCallStarted) -> Sequence[UiChunk]:
        self._shown_calls.add(event.call_id)
        chunk = {"type": "tool-input-start", "toolCallId": event.call_id, "toolName": event.name}
        return (chunk | self._who(event.name),)

    def tool_call_ended(self, event: e.ToolCallEnded) -> Sequence[UiChunk]:
        return (self._input(event.call_id, event.name, arguments_shown(event.arguments)),)

    def tool_finished(self, event: e.ToolFinished) -> Sequence[UiChunk]:
        """Leaves out an output that the client itself sent, unless it rebuilds the message."""
        if event.call_id in self._answer.settled and not event.failed and not self.before:
            return ()
        call = self._missing_call(event.call_id, event.name)
        if event.call_id in self._answer.denied:
            return (*call, {"type": "tool-output-denied", "toolCallId": event.call_id})
        on_client = event.name in self._answer.client_tools
        output = output_chunk(event.call_id, event.content, failed=event.failed, on_client=on_client)
        return (*call, output | self._who(event.name))

    def _missing_call(self, call_id: str, name: str, arguments: str | None = None) -> Iterable[UiChunk]:
        """Returns the call itself, if this run did not make it."""
        if call_id in self._shown_calls:
            return ()
        self._shown_calls.add(call_id)
        known = self._answer.open_calls.get(call_id)
        given = arguments_shown(arguments or "{}") if known is None else known.input
        return (self._input(call_id, name, given),)

    def _input(self, call_id: str, name: str, given: Any) -> UiChunk:
        return input_chunk(call_id, name, given) | self._who(name)

    def _who(self, name: str) -> UiChunk:
        return {} if name in self._answer.client_tools else _PROVIDER

    def state_replaced(self, event: e.StateReplaced) -> Sequence[UiChunk]:
        self._state, self._patch = event.state, []
        return (self._whole_state(),)

    def state_patched(self, event: e.StatePatched) -> Sequence[UiChunk]:
        """Sends the patch now, for `onData`, and the whole state at the end of the step: patches may come per token."""
        self._patch += event.patch
        return ({"type": "data-state-delta", "data": event.patch, "transient": True},)

    def _changed_state(self) -> Iterable[UiChunk]:
        if not self._patch:
            return ()
        self._state, self._patch = _patched(self._state, self._patch), []
        return (self._whole_state(),)

    def _whole_state(self) -> UiChunk:
        return {"type": "data-state", "id": STATE, "data": self._state}

    def activity_shown(self, event: e.ActivityShown) -> Sequence[UiChunk]:
        self._activities[event.message_id] = event.kind, event.content
        return (_activity(event.message_id, event.kind, event.content),)

    def activity_patched(self, event: e.ActivityPatched) -> Sequence[UiChunk]:
        _, content = self._activities.get(event.message_id, (event.kind, {}))
        self._activities[event.message_id] = event.kind, _patched(content, event.patch)
        return (_activity(event.message_id, *self._activities[event.message_id]),)

    def custom_sent(self, event: e.CustomSent) -> Sequence[UiChunk]:
        if event.name == PREDICT_STATE:
            return ()
        if event.name.startswith(OURS):
            return (_note(event.name.removeprefix(OURS), event.value),)
        return ({"type": f"data-{event.name}", "data": event.value},)

    def warning_raised(self, event: e.WarningRaised) -> Sequence[UiChunk]:
        return (_note("warning", {"code": event.code, "message": event.message}),)

    def history_compacted(self, event: e.HistoryCompacted) -> Sequence[UiChunk]:
        return (_note("history", {"messages": event.messages, "summarized": event.summarized}),)

    def run_finished(self, ending: e.RunFinished) -> Sequence[UiChunk]:
        chunks: list[UiChunk] = [*self._changed_state()]
        if ending.outcome is e.Outcome.CANCELLED:
            chunks.append({"type": "abort", "reason": "The run was stopped."})
        for waiting in ending.interrupts if ending.outcome is e.Outcome.INTERRUPTED else ():
            chunks += self._missing_call(waiting.call_id, waiting.tool, waiting.arguments)
            chunks.append(approval_chunk(waiting.id, waiting.call_id, waiting.message))
        metadata: UiChunk = {"outcome": ending.outcome.value}
        if ending.warning:
            metadata["warning"] = ending.warning
        if ending.output is not None:
            metadata["output"] = ending.output
        stopped = ending.outcome is e.Outcome.CANCELLED
        error = None if stopped else failure_of(ending, "text" if self._has_text else "")
        if error is not None:  # nothing to show: a page would seem to wait
            chunks += _error(error.code, error.message, error.reason, retryable=error.retryable)
        finish = {"type": "finish", "finishReason": _finish_reason(ending) if error is None else "error"}
        return (*chunks, finish | {"messageMetadata": metadata | _usage(ending.usage)})

    def run_failed(self, ending: e.RunFailed) -> Sequence[UiChunk]:
        later = {} if ending.retry_after is None else {"retryAfter": ending.retry_after}
        metadata = {"outcome": "failed"} | _usage(ending.usage)
        return (
            *_error(ending.code, ending.message, ending.reason, retryable=ending.retryable, **later),
            {"type": "finish", "finishReason": "error", "messageMetadata": metadata},
        )


def _frame(chunk: UiChunk) -> bytes:
    """Makes a frame that the AI SDK's parser accepts.

    The parser ends the stream at a member `__proto__`, and at a `constructor` that is an object with a member
    `prototype`. A tool may put both into any value.
    """
    frame = sse.frame(chunk)
    return sse.frame(_harmless(chunk)) if any(name in frame for name in _FORBIDDEN_NAMES) else frame


def _harmless(value: Any) -> Any:
    """Returns the value with such names in brackets."""
    if isinstance(value, dict):
        return {f"[{key}]" if _is_forbidden(key, item) else key: _harmless(item) for key, item in value.items()}
    return [_harmless(item) for item in value] if isinstance(value, list | tuple) else value


def _is_forbidden(name: str, value: Any) -> bool:
    return name == "__proto__" or (name == "constructor" and isinstance(value, dict) and "prototype" in value)


def input_chunk(call_id: str, name: str, given: Any) -> UiChunk:
    return {"type": "tool-input-available", "toolCallId": call_id, "toolName": name, "input": given}


def output_chunk(call_id: str, content: Content, *, failed: bool, on_client: bool) -> UiChunk:
    if failed:
        return {"type": "tool-output-error", "toolCallId": call_id, "errorText": text_of(content)}
    return {"type": "tool-output-available", "toolCallId": call_id, "output": output_of(content, on_client=on_client)}


def approval_chunk(interrupt_id: str, call_id: str, message: str) -> UiChunk:
    return {"type": "tool-approval-request", "approvalId": interrupt_id, "toolCallId": call_id, "reason": message}


def output_of(content: Content, *, on_client: bool) -> Any:
    """Returns what the model reads of a result: its text, or its parts if they include files.

    A client's tool returned a JSON value, and the client gets that value back.
    """
    if isinstance(content, str):
        value = decoded(content) if on_client else None
        return value if isinstance(value, dict | list) else content
    return [{"type": "text", "text": part.text} if isinstance(part, TextPart) else file_part(part) for part in content]


def file_part(part: Any) -> UiChunk:
    """Encodes a file as a part of a UI message. Its bytes are in the URL."""
    url = part.url if part.data is None else part.data_url
    named = {"filename": part.filename} if part.filename else {}
    return {"type": "file", "mediaType": part.mime_type, "url": url or ""} | named


def _note(name: str, data: Any) -> UiChunk:
    return {"type": f"data-{name}", "data": data, "transient": True}


def _error(code: str, message: str, reason: str | None, **more: Any) -> tuple[UiChunk, UiChunk]:
    """Sends the details first: the client stops at `error`, which holds only a text."""
    known = {"code": code, "message": message} | ({} if reason is None else {"reason": reason})
    return _note("error", known | more), {"type": "error", "errorText": message}


def _activity(message_id: str, kind: str, content: Any) -> UiChunk:
    return {"type": "data-activity", "id": message_id, "data": {"kind": kind, "content": content}}


def _patched(value: Any, patch: Any) -> Any:
    try:
        return apply_patch(value, patch)
    except PatchError:  # it does not fit our value; the next whole value replaces it
        return value


def _finish_reason(ending: e.RunFinished) -> str:
    """Returns the reason, never `interrupted`: with it the client would not send a person's answer by itself."""
    if ending.outcome in {e.Outcome.INTERRUPTED, e.Outcome.CLIENT_TOOLS}:
        return "tool-calls"
    return _FINISH_REASONS.get(ending.finish_reason, "other") if ending.outcome is e.Outcome.COMPLETED else "other"


def _usage(usage: TokenUsage | None) -> UiChunk:
    return {} if usage is None else {"usage": token_counts(usage)}


_FORBIDDEN_NAMES = b'"__proto__":', b'"constructor":'
_DELTA_MEMBERS: dict[type[e.Event], tuple[str, str, str]] = {
    e.TextAdded: ("text-delta", "id", "delta"),
    e.ReasoningAdded: ("reasoning-delta", "id", "delta"),
    e.ToolArgumentsAdded: ("tool-input-delta", "toolCallId", "inputTextDelta"),
}
