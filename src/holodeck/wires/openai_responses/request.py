"""The body of `POST /v1/responses` → RunRequest.

As in Chat Completions, the decoder refuses parameters that would change what the answer means, and ignores those that
only tune the sampling. It ignores items that repeat the server's own answers (`mcp_call`, `reasoning`, …): the session
has them. A client without a session may refer to stored items (`item_reference`): the caller looks them up.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from holodeck.core import messages as m
from holodeck.core.request import Resume, RunOptions, RunRequest
from holodeck.errors import InvalidRequest
from holodeck.wires import body as read
from holodeck.wires.client_values import UNKNOWN_TYPE, media
from holodeck.wires.openai_chat import parameters
from holodeck.wires.openai_chat.error_form import unsupported
from holodeck.wires.openai_responses.echo import RequestEcho, echoed

MAX_ITEMS = 10_000
PREFIX = "resp_"

HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "max_tool_calls": (),
    "prompt": (),
    "top_logprobs": (0,),
}
"""Refused parameters, and the values with which they are harmless. `null` always is."""


class ResponsesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A client's request. The messages of `run` are its input; their files are not read yet."""

    run: RunRequest
    model: str | None = None
    stream: bool = False
    conversation: str | None = None
    echo: RequestEcho = RequestEcho()
    references: tuple[str, ...] = ()  # ids of stored items that the input refers to


def decode(
    body: bytes, max_text: int = read.MAX_TEXT, stored: Mapping[str, dict[str, Any]] | None = None
) -> ResponsesRequest:
    """Reads a body. Raises InvalidRequest with the member's path, or PayloadTooLarge.

    `stored` has the items that the input refers to, by their ids.
    """
    raw = read.parse(body)
    for parameter, harmless in HARMLESS.items():
        parameters.check_supported(raw.get(parameter), parameter, harmless)
    wanted = raw.get("text")
    if wanted is not None:
        parameters.check_supported(read.table(wanted, "text").get("format"), "text.format", ({"type": "text"},))
    given = _Input(max_text, stored or {})
    given.read(raw.get("input"))
    if given.resume:
        read.refuse_repeated_names(body)
    if raw.get("instructions") is not None:
        given.instructions.insert(0, read.short_text(raw["instructions"], "instructions", max_text))
    tools = parameters.function_tools(raw.get("tools"))
    previous = read.optional(read.valid_id, raw.get("previous_response_id"), "previous_response_id")
    run = RunRequest(
        parent_run_id=None if previous is None else previous.removeprefix(PREFIX),
        messages=tuple(given.messages),
        resume=tuple(given.resume),
        client_tools=tools,
        context=parameters.as_context(given.instructions),
        options=RunOptions(
            tool_choice=parameters.tool_choice(raw.get("tool_choice"), raw.get("tool_choice")),
            max_output_tokens=parameters.token_limit(raw.get("max_output_tokens"), "max_output_tokens"),
            one_call_at_a_time=parameters.one_call_at_a_time(raw),
        ),
        detached=parameters.flag(raw.get("background"), "background"),
        throw_away=raw.get("store") is not None and not parameters.flag(raw["store"], "store"),
        only_adds=True,
    )
    conversation = _conversation(raw.get("conversation"))
    _check_state(run, conversation)
    return ResponsesRequest(
        run=run,
        model=read.optional(read.name, raw.get("model"), "model"),
        stream=parameters.flag(raw.get("stream"), "stream"),
        conversation=conversation,
        echo=echoed(raw, tools),
        references=tuple(given.references),
    )


def _check_state(run: RunRequest, conversation: str | None) -> None:
    if run.parent_run_id is not None and conversation is not None:
        raise InvalidRequest(
            "previous_response_id and conversation exclude each other: send one.", field="previous_response_id"
        )
    if not run.throw_away:
        return
    if run.detached:
        raise InvalidRequest("A response in the background is stored: leave out store: false.", field="background")
    for field, value in (("previous_response_id", run.parent_run_id), ("conversation", conversation)):
        if value is not None:
            raise unsupported(field, f"{field} is a stored conversation: leave out store: false, or send all input.")


def _conversation(value: Any) -> str | None:
    if isinstance(value, dict):
        return read.valid_id(value.get("id"), "conversation.id")
    return read.optional(read.valid_id, value, "conversation")


class _Input:
    """Collects messages, answers and calls from the items of an input."""

    def __init__(self, max_text: int, stored: Mapping[str, dict[str, Any]]) -> None:
        self._max_text, self._stored = max_text, stored
        self.references: list[str] = []
        self.messages: list[m.Message] = []
        self.resume: list[Resume] = []
        self.instructions: list[str] = []
        self._names: dict[str, str] = {}  # tool names by call id

    def read(self, value: Any) -> None:
        if isinstance(value, str):
            self.messages.append(m.UserMessage(content=read.short_text(value, "input", self._max_text)))
        else:
            for path, raw in read.tables(value, "input", MAX_ITEMS):
                self._item(raw, path)
        last = self.messages[-1] if self.messages else None
        if isinstance(last, m.AssistantMessage) or (last is None and not self.resume):
            wrong = "must end with a message of the user or the result of a tool" if value else "is missing or empty"
            raise InvalidRequest(f"input {wrong}", field="input")

    def _item(self, raw: dict[str, Any], path: str) -> None:
        kind = raw.get("type", "message" if "role" in raw else None)
        if kind == "message":
            self._message(raw, path)
        elif kind == "function_call":
            self._call(raw, path)
        elif kind == "function_call_output":
            call_id = read.name(raw.get("call_id"), f"{path}.call_id")
            content = parameters.content_of(raw.get("output"), f"{path}.output", self._max_text, _part)
            self.messages.append(m.ToolMessage(call_id=call_id, name=self._names.get(call_id, ""), content=content))
        elif kind == "mcp_approval_response":
            self._approval(raw, path)
        elif kind == "item_reference" or (kind is None and "id" in raw):
            self.references.append(read.name(raw.get("id"), f"{path}.id"))
            if found := self._stored.get(self.references[-1]):
                self._item(found, path)
        elif not isinstance(kind, str):
            raise InvalidRequest(f"{path}.type must be a string", field=f"{path}.type")

    def _message(self, raw: dict[str, Any], path: str) -> None:
        role, where = read.text(raw.get("role"), f"{path}.role"), f"{path}.content"
        content = parameters.content_of(raw.get("content"), where, self._max_text, _part)
        if role == "user":
            self.messages.append(m.UserMessage(content=content))
        elif role == "assistant":
            self.messages.append(m.AssistantMessage(content=m.text_of(content)))
        elif role in {"system", "developer"}:
            self.instructions.append(m.text_of(content))
        else:
            raise unsupported(f"{path}.role", f"{path}.role must be user, assistant, system or developer.")

    def _call(self, raw: dict[str, Any], path: str) -> None:
        """Reads a call of a client's tool. Consecutive calls are one message, as the model made them."""
        call = m.ToolCall(
            id=read.name(raw.get("call_id"), f"{path}.call_id"),
            name=read.name(raw.get("name"), f"{path}.name"),
            arguments=read.text(raw.get("arguments"), f"{path}.arguments"),
        )
        self._names[call.id] = call.name
        last = self.messages[-1] if self.messages else None
        if isinstance(last, m.AssistantMessage):
            self.messages[-1] = msgspec.structs.replace(last, tool_calls=(*last.tool_calls, call))
        else:
            self.messages.append(m.AssistantMessage(tool_calls=(call,)))

    def _approval(self, raw: dict[str, Any], path: str) -> None:
        approved = read.decided(raw.get("approve"), f"{path}.approve")
        asked = read.name(raw.get("approval_request_id"), f"{path}.approval_request_id")
        why = read.refusal_reason(raw.get("reason"), f"{path}.reason")
        self.resume.append(Resume(interrupt_id=asked, approved=approved, reason=why))


def _part(raw: dict[str, Any], path: str, max_text: int) -> m.Part:
    kind = raw.get("type")
    if kind in ("input_text", "output_text", "text", "refusal"):  # a tuple: a client's value may be unhashable
        member = "refusal" if kind == "refusal" else "text"
        return m.TextPart(read.short_text(raw.get(member), f"{path}.{member}", max_text))
    if kind == "input_image":
        return _addressed(raw.get("image_url"), f"{path}.image_url", "image/*")
    if kind == "input_file" and raw.get("file_data") is not None:
        return parameters.file_data(raw["file_data"], path, raw.get("filename"))
    if kind == "input_file":
        filename = read.optional(read.name, raw.get("filename"), f"{path}.filename")
        return _addressed(raw.get("file_url"), f"{path}.file_url", UNKNOWN_TYPE, filename)
    raise unsupported(f"{path}.type", f"{path}.type must be input_text, input_image or input_file.")


def _addressed(url: Any, path: str, mime_type: str, filename: str | None = None) -> m.MediaPart:
    if url is None:
        raise unsupported(path, f"{path} must hold the file or its address: this server keeps no uploaded files.")
    return media(url, path, mime_type, filename)
