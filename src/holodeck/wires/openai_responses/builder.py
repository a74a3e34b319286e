"""The events of a run → the output items of a response, and the frames that show them grow.

The frames depend on the events alone: a stream that is read again has the same frames with the same numbers, which is
how clients resume. Tools of the server are `mcp_call` items, which every client shows and none runs. A tool that needs
approval is an `mcp_approval_request` at the end; the run that has the answer shows its call. Calls of the client's own
tools are certain only when the run ends and waits for them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from holodeck.core import events as e
from holodeck.core.messages import text_of
from holodeck.core.text import clean
from holodeck.core.usage import TokenUsage
from holodeck.errors import HoloDeckError, RateLimited
from holodeck.wires import sse
from holodeck.wires.openai_responses.echo import RequestEcho
from holodeck.wires.openai_responses.input_list import item_id
from holodeck.wires.openai_responses.request import PREFIX
from holodeck.wires.reply import ReplyReader, error_of

_GAP = 100_000_000
"""A jump of this size in the event numbers means a crash. Clients may have seen frames that were lost in it."""

ResponseStatus: TypeAlias = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
Frame: TypeAlias = bytes
"""A frame up to its number: `event`, and `data` without the closing brace."""


class ResponseHead(msgspec.Struct, frozen=True, kw_only=True):
    """The constant members of a response object. The id is the run's, with OpenAI's prefix."""

    id: str
    created_at: int  # seconds since 1970
    model: str
    conversation: str | None = None  # the session, if it is stored
    echo: RequestEcho = RequestEcho()
    names_conversation: bool = False  # the client has named the conversation


@dataclass(frozen=True, kw_only=True)
class ToolsSeen:
    """What a response has to know of tools besides their calls.

    `client_tools` are the names of the client's own tools. `client_calls` are ids of its calls whose names are no
    longer known. `asked` are the questions of the previous run, by the ids of their calls: this run may have the
    answers.
    """

    client_tools: Collection[str] = ()
    client_calls: Collection[str] = ()
    asked: Mapping[str, e.Interrupt] = field(default_factory=dict)
    needs_approval: Callable[[str], bool] = lambda _name: False
    label_of: Callable[[str], str] = lambda _name: "holodeck"


@dataclass(slots=True)
class _Open:
    """An unfinished item: its index, and its text so far."""

    index: int
    item: dict[str, Any]
    before_delta: bytes = b""
    pieces: list[str] = field(default_factory=list)

    @property
    def place(self) -> dict[str, Any]:
        return {"item_id": self.item["id"], "output_index": self.index}


class ResponseBuilder(ReplyReader[Frame]):
    """Reads one run from its first event on, in order."""

    def __init__(
        self,
        head: ResponseHead,
        tools: ToolsSeen | None = None,
        *,
        completed_at: Callable[[], int | None] = lambda: None,
    ) -> None:
        super().__init__()
        self._head, self._tools, self._completed_at = head, tools or ToolsSeen(), completed_at
        self.status: ResponseStatus = "queued"
        self.error: HoloDeckError | None = None  # set if the run failed
        self.output: list[dict[str, Any]] = []
        self._incomplete: str | None = None
        self._usage: TokenUsage | None = None
        self._is_new = False  # the conversation that the client named is unknown, has expired, or is empty
        self._used_ids: dict[str, int] = {}
        self._text: _Open | None = None
        self._reasoning: _Open | None = None
        self._calls: dict[str, _Open] = {}
        self._unshown: dict[str, tuple[str, str]] = {}  # calls that have no item yet: name and arguments

    @property
    def ended(self) -> bool:
        return self.status not in ("queued", "in_progress")

    def read(self, event: e.Event) -> Sequence[Frame]:
        """Returns the frames that show this event: none for events that the protocol cannot show."""
        return () if self.ended else super().read(event)

    def response(self) -> dict[str, Any]:
        """The response object as it is now."""
        head, failed = self._head, self.error
        return {
            "id": head.id,
            "object": "response",
            "created_at": head.created_at,
            "completed_at": self._completed_at() if self.status == "completed" else None,
            "status": self.status,
            "incomplete_details": None if self._incomplete is None else {"reason": self._incomplete},
            "model": head.model,
            "output": self.output,
            "error": None if failed is None else response_error(failed),
            "usage": None if self._usage is None else usage_of(self._usage),
            "conversation": None if head.conversation is None else {"id": head.conversation},
            **{name: getattr(head.echo, name) for name in head.echo.__struct_fields__},
            **({"holodeck": {"session_is_new": True}} if self._is_new else {}),
        }

    # the run

    def run_started(self, event: e.RunStarted) -> Sequence[Frame]:
        if self.status != "queued":
            return ()
        self._is_new = event.is_new_session and self._head.names_conversation
        kinds = ["response.created", "response.queued"] if self._head.echo.background else []
        waiting = [self._whole(kind) for kind in kinds]
        self.status = "in_progress"
        return [*(waiting or [self._whole("response.created")]), self._whole("response.in_progress")]

    def run_finished(self, ending: e.RunFinished) -> Sequence[Frame]:
        frames = self._close_calls()
        for call_id in dict.fromkeys(ending.pending_calls):
            frames += self._function_call(call_id)
        for interrupt in {each.id: each for each in ending.interrupts}.values():
            frames += self._approval(interrupt)
        self._usage = ending.usage
        return [*frames, self._whole(self._ended_as(ending))]

    def run_failed(self, ending: e.RunFailed) -> Sequence[Frame]:
        """Sends `error` last: the SDKs raise at it. Without it a client that reads only the text would miss the failure."""
        frames = self._close_calls()
        self._usage, self.status, self.error = ending.usage, "failed", error_of(ending)
        about = {**response_error(self.error), "param": None}
        last = {"code": about["code"], "message": about["message"], "param": None, "error": about}
        return [*frames, self._whole("response.failed"), _start("error", last)]

    def _ended_as(self, ending: e.RunFinished) -> str:
        if ending.outcome is e.Outcome.CANCELLED:
            self.status = "cancelled"  # no event of this name exists
            return "response.incomplete"
        if ending.outcome is e.Outcome.MAX_ITERATIONS or ending.finish_reason == "length":
            self.status, self._incomplete = "incomplete", "max_output_tokens"
            return "response.incomplete"
        self.status = "completed"
        return "response.completed"

    # text and reasoning

    def text_started(self, event: e.TextStarted) -> Sequence[Frame]:
        item = {"type": "message", "role": "assistant", "status": "in_progress", "content": []}
        opened, added = self._open(self._own_id("msg", event.message_id), item)
        place = {**opened.place, "content_index": 0}
        opened.before_delta = _start("response.output_text.delta", {**place, "logprobs": []}) + b',"delta":'
        self._text = opened
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        return [added, _start("response.content_part.added", {**place, "part": part})]

    def text_added(self, event: e.TextAdded) -> Sequence[Frame]:
        delta, opened = self._reply.add(event), self._text
        if not delta or opened is None:
            return ()
        opened.pieces.append(delta)
        return (opened.before_delta + sse.json_bytes(delta),)

    def text_ended(self, _event: e.TextEnded) -> Sequence[Frame]:
        opened, self._text = self._text, None
        if opened is None:
            return ()
        text, place = "".join(opened.pieces), {**opened.place, "content_index": 0}
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        return [
            _start("response.output_text.done", {**place, "text": text, "logprobs": []}),
            _start("response.content_part.done", {**place, "part": part}),
            self._done(opened, status="completed", content=[part]),
        ]

    def reasoning_started(self, event: e.ReasoningStarted) -> Sequence[Frame]:
        item = {"type": "reasoning", "summary": [], "status": "in_progress"}
        opened, added = self._open(f"rs_{event.message_id}", item)
        place = {**opened.place, "summary_index": 0}
        opened.before_delta = _start("response.reasoning_summary_text.delta", place) + b',"delta":'
        self._reasoning = opened
        part = {"type": "summary_text", "text": ""}
        return [added, _start("response.reasoning_summary_part.added", {**place, "part": part})]

    def reasoning_added(self, event: e.ReasoningAdded) -> Sequence[Frame]:
        opened = self._reasoning
        if not event.delta or opened is None:
            return ()
        opened.pieces.append(event.delta)
        return (opened.before_delta + sse.json_bytes(event.delta),)

    def reasoning_ended(self, _event: e.ReasoningEnded) -> Sequence[Frame]:
        opened, self._reasoning = self._reasoning, None
        if opened is None:
            return ()
        text, place = "".join(opened.pieces), {**opened.place, "summary_index": 0}
        part = {"type": "summary_text", "text": text}
        return [
            _start("response.reasoning_summary_text.done", {**place, "text": text}),
            _start("response.reasoning_summary_part.done", {**place, "part": part}),
            self._done(opened, status="completed", summary=[part]),
        ]

    # tools

    def tool_call_started(self, event: e.ToolCallStarted) -> Sequence[Frame]:
        if self._is_client(event.call_id, event.name) or self._tools.needs_approval(event.name):
            return ()
        return self._show_call(event.call_id, event.name)

    def tool_arguments_added(self, event: e.ToolArgumentsAdded) -> Sequence[Frame]:
        opened = self._calls.get(event.call_id)
        return () if opened is None or not event.delta else (opened.before_delta + sse.json_bytes(event.delta),)

    def tool_call_ended(self, event: e.ToolCallEnded) -> Sequence[Frame]:
        opened = self._calls.get(event.call_id)
        if opened is None:
            self._unshown[event.call_id] = event.name, event.arguments
            return ()
        opened.item["arguments"] = event.arguments
        return (_start("response.mcp_call_arguments.done", {**opened.place, "arguments": event.arguments}),)

    def tool_finished(self, event: e.ToolFinished) -> Sequence[Frame]:
        if self._is_client(event.call_id, event.name):
            return ()
        frames: list[Frame] = []
        if event.call_id not in self._calls:
            question = self._tools.asked.get(event.call_id)
            if question is None and event.call_id not in self._unshown:
                return ()  # a call of the previous run that the client carried out
            frames += self._late_call(event, question)
        opened, text = self._calls.pop(event.call_id), text_of(event.content)
        if event.failed:
            error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
            done = self._done(opened, status="failed", error=error)
        else:
            done = self._done(opened, status="completed", output=text)
        kind = "response.mcp_call.failed" if event.failed else "response.mcp_call.completed"
        return [*frames, _start(kind, opened.place), done]

    def _is_client(self, call_id: str, name: str) -> bool:
        return name in self._tools.client_tools or call_id in self._tools.client_calls

    def _show_call(self, call_id: str, name: str, **more: Any) -> list[Frame]:
        item = {
            "type": "mcp_call",
            "name": name,
            "server_label": self._tools.label_of(name),
            "arguments": "",
            "status": "in_progress",
            "output": None,
            "error": None,
            "approval_request_id": None,
            **more,
        }
        opened, added = self._open(f"mcp_{call_id}", item)
        opened.before_delta = _start("response.mcp_call_arguments.delta", opened.place) + b',"delta":'
        self._calls[call_id] = opened
        return [added, _start("response.mcp_call.in_progress", opened.place)]

    def _late_call(self, event: e.ToolFinished, question: e.Interrupt | None) -> list[Frame]:
        """Shows the call of a result that was not shown before: a person had to approve it."""
        more = {} if question is None else {"approval_request_id": question.id}
        arguments = self._unshown[event.call_id][1] if question is None else question.arguments
        frames = self._show_call(event.call_id, event.name, **more)
        opened = self._calls[event.call_id]
        opened.item["arguments"] = arguments
        return [*frames, _start("response.mcp_call_arguments.done", {**opened.place, "arguments": arguments})]

    def _close_calls(self) -> list[Frame]:
        """Ends calls that have no result when the run ends."""
        left, self._calls = self._calls, {}
        return [self._done(opened, status="incomplete") for opened in left.values()]

    def _function_call(self, call_id: str) -> list[Frame]:
        if call_id not in self._unshown:
            return []
        name, arguments = self._unshown[call_id]
        item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": "", "status": "in_progress"}
        opened, added = self._open(self._own_id("fc", call_id), item)
        kind, place = "response.function_call_arguments", opened.place
        return [
            added,
            _start(f"{kind}.delta", {**place, "delta": arguments}),
            _start(f"{kind}.done", {**place, "name": name, "arguments": arguments}),
            self._done(opened, status="completed", arguments=arguments),
        ]

    def _approval(self, asked: e.Interrupt) -> list[Frame]:
        item = {
            "id": asked.id,
            "type": "mcp_approval_request",
            "name": asked.tool,
            "server_label": self._tools.label_of(asked.tool),
            "arguments": asked.arguments,
        }
        place = {"output_index": len(self.output), "item": item}
        self.output.append(item)
        return [_start("response.output_item.added", place), _start("response.output_item.done", place)]

    # items and frames

    def _own_id(self, prefix: str, own_id: str) -> str:
        return item_id(prefix, self._head.id.removeprefix(PREFIX), own_id)

    def _open(self, item_id: str, item: dict[str, Any]) -> tuple[_Open, Frame]:
        """Adds an item to the output. A repeated id, as of a reopened text, gets a number."""
        again = self._used_ids[item_id] = self._used_ids.get(item_id, -1) + 1
        item = {"id": f"{item_id}_{again}" if again else item_id, **item}
        opened = _Open(len(self.output), item)
        self.output.append(item)
        return opened, _start("response.output_item.added", {"output_index": opened.index, "item": item})

    def _done(self, opened: _Open, **members: Any) -> Frame:
        opened.item.update(members)
        return _start("response.output_item.done", {"output_index": opened.index, "item": opened.item})

    def _whole(self, kind: str) -> Frame:
        return _start(kind, {"response": self.response()})


def _start(kind: str, members: dict[str, Any]) -> Frame:
    return b"event: %b\ndata: %b" % (kind.encode(), sse.json_bytes({"type": kind, **members})[:-1])


def response_error(error: HoloDeckError) -> dict[str, Any]:
    code = "rate_limit_exceeded" if isinstance(error, RateLimited) else "server_error"
    return {"code": code, "message": clean(error.message), "type": error.code}


def usage_of(usage: TokenUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens or 0,
            "cache_write_tokens": usage.cache_write_tokens or 0,
        },
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
    }


class ResponseEncoder(sse.FrameEncoder):
    """The frames of a response, numbered. The last one is always `data: [DONE]`.

    Frames have no `id` line: clients resume by `sequence_number`, which counts frames and not events.
    """

    def __init__(self, builder: ResponseBuilder, *, after: int = -1) -> None:
        """Leaves out frames up to the number `after`: the client has them."""
        self._builder, self._read, self._after = builder, builder.read, after
        self._number = 0
        self._done = False

    def encode_many(self, batch: Iterable[tuple[int | None, e.Event]]) -> bytes:
        out: list[bytes] = []
        for n, event in batch:
            if n is not None and n - self._number > _GAP:
                self._number = n
            for frame in self._read(event):
                if self._number > self._after:
                    out.append(b'%b,"sequence_number":%d}\n\n' % (frame, self._number))
                self._number += 1
        if self._builder.ended and not self._done:
            self._done = True
            out.append(sse.DONE)
        return b"".join(out)
