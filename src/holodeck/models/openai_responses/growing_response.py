"""A response assembled from the events of its stream, passed to the listener while it arrives.

OpenAI sends everything several times: as deltas, then whole when a part, an item and the response are done. Gateways leave
out one or the other. So each piece of text is kept beside what the listener got of it, and every "done" adds only what was
missing. Pure and synchronous; it knows nothing of HTTP, retries or time.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from holodeck.core.ids import new_call_id
from holodeck.core.json_values import clean_json
from holodeck.core.messages import Content, ToolCall
from holodeck.core.text import clean
from holodeck.core.usage import TokenUsage
from holodeck.errors import ContentFiltered
from holodeck.models.assembly import CallAssembly
from holodeck.models.chunks import DECODE_ERRORS, PINGS, InBandError, Malformed, model_named, present, usage_of
from holodeck.models.openai_responses import output_items
from holodeck.models.openai_responses.event_decoding import (
    TERMINAL,
    WITHOUT_CONTENT,
    ItemLookup,
    OutputItem,
    ResponseEvent,
    decode_event,
    decode_text,
)
from holodeck.models.openai_responses.output_items import CALLS, FOR_CLIENTS, REPORTED_APART, Item
from holodeck.models.pieces import TextPieces
from holodeck.models.port import Listener, ModelReply
from holodeck.models.response_body import GrowingAnswer

LARGEST_EVENT = 64_000_000  # an event may hold images, and the last one holds the whole response
KEEPALIVE = b"keepalive"  # OpenAI sends it while a model reasons without a summary: the idle timeout starts again
_PARTS = frozenset({"content_part", "reasoning_part", "reasoning_summary_part"})
_LENGTH = frozenset({"max_output_tokens", "max_tokens", "length"})
_NO_RESULT = "The provider did not report a result."
_THOUGHTS = {
    "reasoning_summary_text": "summary",
    "reasoning_summary": "summary",
    "reasoning_text": "content",
    "reasoning": "content",
}


class GrowingResponse(GrowingAnswer):
    def __init__(self, listener: Listener, *, taken_ids: Callable[[], set[str]] = set, debug: bool = False) -> None:
        super().__init__(listener, debug=debug)
        self._items = ItemLookup()
        self._calls = CallAssembly(listener, taken_ids)
        self._texts: list[TextPieces] = []
        self._thoughts: list[TextPieces] = []
        self._plain: tuple[Any, Any, Any] | None = None  # the part that the last text event belonged to
        self._writing: TextPieces | None = None  # the pieces of that part
        self._refused = False
        self._showed_tool = False
        self._usage: TokenUsage | None = None

    @property
    def started(self) -> bool:
        return self._showed_tool or self._calls.started or any(self._texts) or any(self._thoughts)

    def take(self, name: bytes, data: bytes) -> None:
        if self._writing is not None:
            try:
                text = decode_text(data)
            except DECODE_ERRORS:
                pass  # another kind of event
            else:
                if (text.item_id, text.output_index, text.content_index) == self._plain:
                    self._progress += 1
                    self._writing.add(text.delta)
                    return
        self._take_any(name, data)

    def reply(self) -> ModelReply:
        self._check_end()
        reason = self.finish_reason or "stop"
        for pieces in (*self._thoughts, *self._texts):
            pieces.end()
        self._close_shown()
        if reason == "content_filter" or self._refused:
            raise ContentFiltered("The model's provider refused to answer this (content filter).")
        carried_out = self._carried_out()
        made = self._calls.finish(cut=reason == "length")
        calls = tuple(call for call in made if call.id not in carried_out)
        for call in made:
            if call.id in carried_out:
                self._listener.call_answered(call.id, _NO_RESULT)
        if calls and reason == "stop":
            reason = "tool_calls"
        text = "".join(map(str, self._texts))
        return ModelReply(
            text=text,
            reasoning="\n\n".join(str(thought) for thought in self._thoughts if thought),
            tool_calls=calls,
            finish_reason=reason,
            usage=self._usage,
            model=self._model,
            extra=output_items.kept([self._whole(item) for item in self._items if item.call_id not in carried_out]),
        )

    def _carried_out(self) -> set[str]:
        """Ids of custom tool calls that the provider ran itself: its answer continues after them.

        xAI's searches on X arrive like this. A call that we have to run is followed only by other calls.
        """
        ids: set[str] = set()
        is_continued = False
        for item in reversed(list(self._items)):
            if item.kind == "custom_tool_call" and is_continued:
                ids.add(item.call_id)
            is_continued = is_continued or item.kind not in CALLS
        return ids - {""}

    # events

    def _take_any(self, name: bytes, data: bytes) -> None:
        if self._is_marker(data) or name in PINGS:
            self._progress += name == KEEPALIVE
            return
        try:
            event = decode_event(name, data)
        except Malformed:
            lines = data.strip().splitlines()
            if len(lines) == 1:
                raise
            for line in lines:  # a gateway that puts no blank lines between its events
                self._take_any(b"", line)
            return
        if (kind := event.type.encode(errors="replace")) in PINGS:
            self._progress += kind == KEEPALIVE
            return
        if self._debug:
            self._listener.raw(
                clean_json(
                    {key: value for key in event.__struct_fields__ if (value := getattr(event, key)) is not None}
                )
            )
        self._writing = None
        if event.type in TERMINAL:
            self._end(event)
        elif event.type not in WITHOUT_CONTENT and event.type.startswith("response."):
            self._progress += 1
            self._take_content(event, event.type.removeprefix("response."))

    def _take_content(self, event: ResponseEvent, kind: str) -> None:
        subject, _, action = kind.rpartition(".")
        if subject == "output_item" and isinstance(event.item, dict):
            item = self._items.of(event, output_items.kind_of(event.item), event.item)
            self._know(item, event.item, done=action == "done")
        elif subject == "output_text":
            self._take_text(event, action)
        elif subject == "output_text.annotation" and present(event.annotation):
            item = self._items.of(event, "message")
            item.annotations.setdefault(_index(event.content_index), []).append(event.annotation)
        elif subject in _PARTS and action == "done" and isinstance(event.part, dict):
            self._take_part(event, event.part)
        elif subject == "refusal":
            self._refused = True
            self._grow(self._text(event, "refusal"), event, action, event.refusal)
        elif subject in _THOUGHTS and action in ("delta", "done"):
            thought = self._thought(event, _THOUGHTS[subject])
            self._grow(thought, event, action, event.text)
        elif subject in ("function_call_arguments", "custom_tool_call_input"):
            self._take_arguments(event, subject, action)

    def _take_text(self, event: ResponseEvent, action: str) -> None:
        pieces = self._text(event, "output_text")
        self._grow(pieces, event, action, event.text)
        if action == "delta":
            self._plain = (event.item_id, event.output_index, event.content_index)
            self._writing = None if self._debug else pieces

    def _take_part(self, event: ResponseEvent, part: Item) -> None:
        """Takes a complete content part. In a reasoning item it is a thought."""
        kind = part.get("type")
        if kind == "output_text" and self._items.is_reasoning(event):
            kind = "reasoning_text"  # vLLM
        if kind == "output_text":
            _complete(self._text(event, "output_text"), part.get("text"))
        elif kind == "refusal":
            self._refused = True
            _complete(self._text(event, "refusal"), part.get("refusal"))
        elif kind in ("reasoning_text", "summary_text"):
            _complete(self._thought(event, "content" if kind == "reasoning_text" else "summary"), part.get("text"))

    def _take_arguments(self, event: ResponseEvent, subject: str, action: str) -> None:
        kind = "function_call" if subject == "function_call_arguments" else "custom_tool_call"
        item = self._items.of(event, kind)
        self._grow(self._arguments(item), event, action, event.arguments if kind == "function_call" else event.input)
        if isinstance(event.name, str) and event.name:
            self._call(item, name=event.name)

    def _grow(self, pieces: TextPieces, event: ResponseEvent, action: str, whole: Any) -> None:
        if action == "delta" and isinstance(event.delta, str):
            pieces.add(event.delta)
        elif action == "done":
            _complete(pieces, whole)

    def _end(self, event: ResponseEvent) -> None:
        """Ends the response. Its own status overrides the name of the event."""
        response = event.response if isinstance(event.response, dict) else {}
        status = response.get("status")
        if status not in ("completed", "incomplete", "failed", "cancelled"):
            status = TERMINAL[event.type]
        self._usage = usage_of(response.get("usage")) or self._usage
        self._model = model_named(response.get("model"))
        if status in ("failed", "cancelled"):
            error = response.get("error") or event.error
            raise InBandError(error if present(error) else {"message": f"the response was {status}"})
        output = response.get("output")
        if isinstance(output, list):
            self._take_output([item for item in output if isinstance(item, dict)])
        self.finish_reason = _incomplete(response) if status == "incomplete" else "stop"
        self.done = True

    def _take_output(self, output: list[Item]) -> None:
        """Merges the final output into the items already streamed: the n-th item of a kind is the n-th one received."""
        counted: dict[str, int] = {}
        for member in output:
            kind = output_items.kind_of(member)
            place = counted[kind] = counted.get(kind, -1) + 1
            alike = [item for item in self._items if item.kind == kind]
            known = self._items.by_id.get(str(member.get("id")))
            item = known if known in alike else alike[place] if place < len(alike) else self._items.new(kind)
            self._know(item, member, done=True)

    # items

    def _know(self, item: OutputItem, member: Item, *, done: bool) -> None:
        item.known = {**item.known, **{name: value for name, value in member.items() if value is not None}}
        if item.kind in CALLS:
            self._know_call(item, member, done=done)
        elif item.kind == "message" and done:
            self._know_message(item, member)
        elif item.kind == "reasoning" and done:
            self._know_thoughts(item, member)
        elif output_items.is_shown(member):
            self._show(item, done=done)
        elif item.kind in REPORTED_APART and done:
            self._take_result(item)
        elif item.kind == "mcp_approval_request" and done and not item.done:
            self._warn_of_approval(member)
        item.done = item.done or done

    def _know_message(self, item: OutputItem, member: Item) -> None:
        content = member.get("content")
        for place, part in enumerate(content if isinstance(content, list) else [content]):
            if isinstance(part, str):
                _complete(self._part(item, "output_text", place), part)
            elif isinstance(part, dict) and part.get("type") == "refusal":
                self._refused = True
                _complete(self._part(item, "refusal", place), part.get("refusal"))
            elif isinstance(part, dict):
                _complete(self._part(item, "output_text", place), part.get("text"))

    def _know_thoughts(self, item: OutputItem, member: Item) -> None:
        for kind in ("summary", "content"):
            parts = member.get(kind)
            for place, part in enumerate(parts if isinstance(parts, list) else []):
                if isinstance(part, dict) and present(part.get("text")):
                    _complete(self._part_of_thought(item, kind, place), part["text"])

    def _know_call(self, item: OutputItem, member: Item, *, done: bool) -> None:
        call_id = member.get("call_id") or (member.get("id") if done else None)
        self._call(item, name=member.get("name"), call_id=call_id)
        if done:
            whole = member.get("arguments" if item.kind == "function_call" else "input")
            if isinstance(whole, dict):
                whole = json.dumps(whole, ensure_ascii=False)
            _complete(self._arguments(item), whole)

    def _whole(self, item: OutputItem) -> Item:
        """The item's JSON. If the endpoint sent no complete one, it is built from the pieces."""
        whole = {"type": item.kind, **item.known}
        if item.kind == "message":
            parts = whole.get("content")
            if not (isinstance(parts, list) and parts and item.done):
                whole["content"] = self._parts_of(item)
            whole["role"] = "assistant"
        elif item.kind == "reasoning" and not item.done and item.parts:
            texts = [(kind, str(pieces)) for (kind, _), pieces in item.parts.items() if pieces]
            whole["summary"] = [{"type": "summary_text", "text": text} for kind, text in texts if kind == "summary"]
            whole["content"] = [{"type": "reasoning_text", "text": text} for kind, text in texts if kind == "content"]
        return whole

    def _parts_of(self, item: OutputItem) -> list[Item]:
        return [
            {"type": "output_text", "text": str(pieces), "annotations": item.annotations.get(place, [])}
            for (_, place), pieces in item.parts.items()
        ]

    # texts and thoughts

    def _text(self, event: ResponseEvent, kind: str) -> TextPieces:
        return self._part(self._items.of(event, "message"), kind, _index(event.content_index))

    def _part(self, item: OutputItem, kind: str, place: int) -> TextPieces:
        pieces = item.parts.get((kind, place))
        if pieces is None:
            pieces = item.parts[kind, place] = TextPieces(self._listener.text)
            self._texts.append(pieces)
        return pieces

    def _thought(self, event: ResponseEvent, kind: str) -> TextPieces:
        place = event.summary_index if kind == "summary" else event.content_index
        return self._part_of_thought(self._items.of(event, "reasoning"), kind, _index(place))

    def _part_of_thought(self, item: OutputItem, kind: str, place: int) -> TextPieces:
        """The pieces of a thought. It is shown once: as summary or as full text, whichever arrives first."""
        pieces = item.parts.get((kind, place))
        if pieces is None:
            item.thoughts = item.thoughts or kind
            if item.thoughts == kind:
                pieces = TextPieces(partial(self._emit_thought, len(self._thoughts)))
                self._thoughts.append(pieces)
            else:
                pieces = TextPieces(lambda _: None)
            item.parts[kind, place] = pieces
        return pieces

    def _emit_thought(self, number: int, delta: str) -> None:
        if len(self._thoughts[number].deltas) == 1 and any(self._thoughts[:number]):
            self._listener.reasoning("\n\n")
        self._listener.reasoning(delta)

    # calls

    def _call(self, item: OutputItem, *, name: Any = None, call_id: Any = None) -> None:
        """Takes the name and the id of a call; repetitions are ignored."""
        new_name = name if isinstance(name, str) and not item.name else ""
        new_id = call_id if isinstance(call_id, str) and not item.call_id else ""
        if new_name or new_id:
            item.name, item.call_id = item.name or new_name, item.call_id or new_id
            kind = {} if item.kind == "function_call" else {"type": item.kind}
            self._calls.add({"index": item.number, "id": new_id, "function": {"name": new_name}, **kind})

    def _arguments(self, item: OutputItem) -> TextPieces:
        pieces = item.parts.get(("arguments", 0))
        if pieces is None:
            pieces = item.parts["arguments", 0] = TextPieces(partial(self._emit_arguments, item))
        return pieces

    def _emit_arguments(self, item: OutputItem, delta: str) -> None:
        self._calls.add({"index": item.number, "function": {"arguments": delta}})

    def _show(self, item: OutputItem, *, done: bool) -> None:
        """Shows the listener a tool that the provider runs: its call and its result."""
        known = item.known
        if not item.shown:
            item.shown = str(known.get("id") or new_call_id())
            self._showed_tool = True
            self._listener.call_started(item.shown, clean(output_items.shown_name(known)))
        if done and item.kind not in REPORTED_APART.values() and not item.answered:
            self._finish_shown(item, *output_items.shown_result(known))

    def _take_result(self, result: OutputItem) -> None:
        """Takes the result of a provider's tool that arrives as a separate item."""
        of_call = result.known.get("call_id")
        for item in self._items:
            is_its = item.kind == REPORTED_APART[result.kind] and of_call in (None, item.known.get("call_id"))
            if is_its and item.shown and not item.answered:
                self._finish_shown(item, *output_items.shown_result(result.known))
                return

    def _finish_shown(self, item: OutputItem, result: Content, failed: bool) -> None:  # noqa: FBT001  as shown_result gives it
        arguments = clean(output_items.shown_arguments(item.known))
        self._listener.call_arguments(item.shown, arguments)
        self._listener.call_ended(
            ToolCall(id=item.shown, name=output_items.shown_name(item.known), arguments=arguments)
        )
        self._listener.call_answered(item.shown, result, failed=failed)
        item.answered = True

    def _close_shown(self) -> None:
        kinds = {item.kind for item in self._items}
        asked = {item.kind for item in self._items if item.known.get("execution") == "client"}
        for kind in sorted((FOR_CLIENTS & kinds) | asked):
            if f"{kind}_output" not in kinds:
                self._listener.warning("provider-tool", f"The model asks for {kind}, which HoloDeck does not support.")
        for item in self._items:
            if item.shown and not item.answered:
                self._finish_shown(item, _NO_RESULT, failed=False)

    def _warn_of_approval(self, member: Item) -> None:
        name = clean(str(member.get("name", "a tool")))
        self._listener.warning(
            "provider-approval",
            f"The provider waits for an approval of {name}, which HoloDeck cannot give: set require_approval: never for "
            "the tool, or add the MCP server under tools instead of model.provider_tools.",
        )


def _complete(pieces: TextPieces, whole: Any) -> None:
    """Adds the missing end of a text. A text that differs from the pieces so far is ignored."""
    if not isinstance(whole, str):
        return
    pieces.end()
    sent, whole = str(pieces), clean(whole)
    if len(whole) > len(sent) and whole.startswith(sent):
        pieces.add(whole[len(sent) :])


def _incomplete(response: Item) -> str:
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    if isinstance(reason, str) and reason and reason not in _LENGTH:
        return clean(reason)
    return "length"


def _index(value: Any) -> int:
    return value if type(value) is int else 0
