"""Tool calls assembled from deltas, in every dialect.

A call is identified by its index and its id together, because endpoints get one of the two wrong: Gemini sends no index,
gateways in front of it send index 0 for every call, Ollama sends no id. The rules, in order:

1. An id that is known continues its call, unless a name comes with another index: that is a second call.
2. An id that is new is a new call. Two ids are never merged, whatever their index.
3. Without an id, the index finds the latest call that has it; without either, the latest call is meant, or, in a list
   with several entries, the call that had the same place in the list before (Moonshot).
4. A name begins a new call if the call of rule 3 already has arguments, and either the name differs or those arguments
   are complete JSON.

Members that are not understood are kept on the call. Nothing here knows of HTTP, SSE or the rest of the reply.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from holodeck.core.ids import new_call_id
from holodeck.core.json_values import clean_json
from holodeck.core.messages import ToolCall
from holodeck.core.text import clean
from holodeck.errors import ModelProtocolError
from holodeck.models.chunks import merged, present
from holodeck.models.pieces import TextPieces
from holodeck.models.port import Listener

_KNOWN = frozenset({"id", "index", "function", "type", "name", "arguments"})
_FUNCTION = frozenset({"name", "arguments"})
_KINDS = (None, "", "function")


class _GrowingCall:
    """A call under assembly. `id` is fixed when the call is announced to the listener."""

    __slots__ = ("arguments", "extra", "fresh", "given_id", "id", "index", "name", "saw_arguments", "started")

    def __init__(self, index: int | None, given_id: str | None) -> None:
        self.index = index
        self.given_id = given_id
        self.id = ""
        self.name = ""
        self.fresh: list[str] = []  # deltas of the arguments that the listener has not seen
        self.arguments = TextPieces(self.fresh.append)
        self.extra: dict[str, Any] = {}
        self.saw_arguments = False
        self.started = False

    def has_whole_arguments(self) -> bool:
        # The end first: with an endpoint that repeats the name, this is asked for every delta.
        end = next((piece for piece in reversed(self.arguments.deltas) if not piece.isspace()), "")
        return end.rstrip().endswith("}") and is_object(str(self.arguments))


class CallIds:
    """Gives every call of a conversation an id of its own. `taken` returns those of earlier turns.

    Some endpoints start again at call_0 with every reply, others send no ids.
    """

    def __init__(self, taken: Callable[[], set[str]]) -> None:
        self._find_taken = taken
        self._taken: set[str] | None = None

    def settled(self, given: str | None) -> str:
        if self._taken is None:
            self._taken = self._find_taken()
        settled = given if given and given not in self._taken else new_call_id()
        self._taken.add(settled)
        return settled


class CallAssembly:
    """Assembles calls from deltas: notifies the listener as they grow, returns them at the end of the reply."""

    def __init__(self, listener: Listener, taken_ids: Callable[[], set[str]] = set) -> None:
        self._listener = listener
        self._ids = CallIds(taken_ids)
        self._calls: list[_GrowingCall] = []
        self._by_index: dict[int, _GrowingCall] = {}
        self._by_id: dict[str, _GrowingCall] = {}
        self._by_position: dict[int, _GrowingCall] = {}  # calls of the last list with several entries

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def started(self) -> bool:
        return any(call.started for call in self._calls)

    def add(self, member: dict[str, Any], position: int = 0, entries: int = 1) -> None:
        """Adds one entry of `delta.tool_calls`. `position` is its place in that list, which has `entries` of them."""
        function = member.get("function")
        if not isinstance(function, dict):
            function = member  # some endpoints put name and arguments beside the id
        name = _text(function.get("name"))
        index, given_id = _index(member.get("index")), _text(member.get("id"))
        is_bare = index is None and given_id is None and name is None
        call = self._by_position.get(position) if entries > 1 and is_bare else None
        if call is None:
            call = self._find(index, given_id, name, position)
        if entries > 1:
            self._by_position[position] = call
        if name and name != call.name and not call.started:  # many endpoints repeat the name, a few send it in pieces
            call.name += name
        if extra := extra_members(member):
            call.extra = merged(call.extra, extra)
        arguments = function.get("arguments")
        if arguments is not None:
            call.saw_arguments = True
            call.arguments.add(arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))
            self._emit_arguments(call)

    def finish(self, *, cut: bool) -> tuple[ToolCall, ...]:
        """Ends every call that is whole. With `cut` (finish_reason length) the others are dropped with a warning."""
        return tuple([made for call in self._calls if (made := self._finish(call, cut=cut))])

    def _finish(self, call: _GrowingCall, *, cut: bool) -> ToolCall | None:
        call.arguments.end()
        self._emit_arguments(call)
        if cut and not (call.name and call.has_whole_arguments()):
            self._listener.warning(
                "tool-call-cut",
                f"The model's answer reached its length limit inside a call of {call.name or 'a tool'}.",
            )
            return None
        if not call.name and not call.arguments:
            return None  # an empty entry: some endpoints end the list with one
        if not call.name:
            raise ModelProtocolError("The model endpoint sent a tool call without the tool's name.")
        self._start(call)
        made = ToolCall(id=call.id, name=call.name, arguments=str(call.arguments), extra=call.extra)
        self._listener.call_ended(made)
        return made

    def _find(self, index: int | None, given_id: str | None, name: str | None, position: int) -> _GrowingCall:
        if given_id is not None and (known := self._by_id.get(given_id)):
            other_index = index is not None and known.index is not None and index != known.index
            return self._new(index, None) if other_index and name else known
        latest = self._by_index.get(index) if index is not None else next(reversed(self._calls), None)
        if latest is None:
            return self._new(index, given_id)
        if given_id is not None:
            return self._with_id(latest, index, given_id, name)
        return self._new(index, None) if self._begins_another(latest, index, name, position) else latest

    def _with_id(self, latest: _GrowingCall, index: int | None, given_id: str, name: str | None) -> _GrowingCall:
        """Returns the call of an unknown id: a new one, unless the latest call has no id yet."""
        named_twice = bool(name and latest.name) and (latest.saw_arguments or name != latest.name)
        if latest.given_id is not None or named_twice:
            return self._new(index, given_id)
        latest.given_id = given_id
        self._by_id[given_id] = latest
        return latest

    def _begins_another(self, latest: _GrowingCall, index: int | None, name: str | None, position: int) -> bool:
        if not (name and latest.name):
            return False
        if index is None and (position or (latest.saw_arguments and name != latest.name)):
            return True
        return bool(latest.arguments) and (name != latest.name or latest.has_whole_arguments())

    def _new(self, index: int | None, given_id: str | None) -> _GrowingCall:
        call = _GrowingCall(index, given_id)
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        if given_id is not None:
            self._by_id[given_id] = call
        return call

    def _emit_arguments(self, call: _GrowingCall) -> None:
        # The name may come in pieces, so the call is announced when its arguments begin. If the name comes
        # late, `_start` passes on all arguments at once. The call does not know us: that cycle would keep the run's log.
        for delta in call.fresh:
            if call.started:
                self._listener.call_arguments(call.id, delta)
            elif call.name:
                self._start(call)
        call.fresh.clear()

    def _start(self, call: _GrowingCall) -> None:
        if call.started:
            return
        call.started = True
        call.id = self._ids.settled(call.given_id)
        self._listener.call_started(call.id, call.name)
        if call.arguments:
            self._listener.call_arguments(call.id, str(call.arguments))


def is_object(arguments: str) -> bool:
    """Whether the text is one whole JSON object."""
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def extra_members(member: dict[str, Any]) -> dict[str, Any]:
    """The unknown members of a tool call; those inside `function` are kept under that name."""
    function, kind = member.get("function"), member.get("type")
    has_more = isinstance(function, dict) and not function.keys() <= _FUNCTION
    if member.keys() <= _KNOWN and kind in _KINDS and not has_more:
        return {}  # nearly every delta
    extra = {name: clean_json(value) for name, value in member.items() if name not in _KNOWN and value is not None}
    if kind not in _KINDS:
        extra["type"] = clean_json(kind)
    if isinstance(function, dict) and has_more:
        inner = {key: clean_json(value) for key, value in function.items() if key not in ("name", "arguments")}
        extra |= {"function": {key: value for key, value in inner.items() if value is not None}}
    return {name: value for name, value in extra.items() if present(value) or name != "function"}


def _text(value: Any) -> str | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    return clean(value) or None if isinstance(value, str) else None


def _index(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
