"""Messages of a conversation, as they are stored and as models are shown them, and tool calls as people are shown them.

The system prompt is not among them: it belongs to the agent, not to the conversation. This module knows no provider's
JSON; `holodeck.models.chat_format` does. Values hold no live objects, so the garbage collector can skip them
(`gc=False`): a server keeps thousands of messages, and each collection would visit them all.

`History` is a whole conversation as JSON. A longer version of the conversation shares it. A client that does not know a
conversation is sent all of it. The cost must not grow with each turn, so a message is encoded once, and once more for
each format in which it is sent. A conversation that has grown adds to the same lists, and an earlier version of it keeps
its length. Messages are decoded only when a caller reads them.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias, final, overload

import msgspec

from holodeck.core.ids import new_message_id
from holodeck.core.usage import TokenUsage

INTERRUPTED = "interrupted"
"""The reason why a message is incomplete, or a run has ended: its process died."""


now: Callable[[], datetime] = partial(datetime.now, UTC)


class TextPart(msgspec.Struct, frozen=True, tag="text", gc=False):
    text: str


class MediaPart(msgspec.Struct, frozen=True, tag="media", kw_only=True, omit_defaults=True, gc=False):
    """An image or document. Its bytes are in `data` (base64) or at `url`."""

    mime_type: str
    data: str | None = None
    url: str | None = None
    filename: str | None = None

    @property
    def data_url(self) -> str:
        return f"data:{self.mime_type};base64,{self.data or ''}"


Part: TypeAlias = TextPart | MediaPart
Content: TypeAlias = str | tuple[Part, ...]


def text_of(content: Content) -> str:
    """The text of a content. Media are named in brackets, so that nothing is dropped without a trace."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, TextPart) else _named(part) for part in content)


def parts_of(content: Content) -> tuple[Part, ...]:
    return (TextPart(content),) if isinstance(content, str) else content


def _named(part: MediaPart) -> str:
    return f"[{part.mime_type}: {part.filename}]" if part.filename else f"[{part.mime_type}]"


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One call as the model asked for it.

    `arguments` is the model's own text, JSON or not. `extra` holds every member that we do not understand (Gemini's
    thought signatures): the next request sends it back unchanged, or the provider answers 400.
    """

    id: str
    name: str
    arguments: str
    extra: dict[str, Any] = {}


class UserMessage(
    msgspec.Struct, frozen=True, tag_field="role", tag="user", kw_only=True, omit_defaults=True, gc=False
):
    content: Content
    id: str = msgspec.field(default_factory=new_message_id)
    timestamp: datetime = msgspec.field(default_factory=now)
    run_id: str = ""  # the run that stored it


class AssistantMessage(
    msgspec.Struct, frozen=True, tag_field="role", tag="assistant", kw_only=True, omit_defaults=True, gc=False
):
    """One reply of the model. `cut` is the reason why it is incomplete: a broken stream, a limit, a stop."""

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    tokens_used: TokenUsage | None = None
    cut: str | None = None
    from_client: bool = False  # adopted from a client's history; no model of ours wrote it
    extra: dict[str, Any] = {}
    id: str = msgspec.field(default_factory=new_message_id)
    timestamp: datetime = msgspec.field(default_factory=now)
    run_id: str = ""  # the run that stored it


class ToolMessage(
    msgspec.Struct, frozen=True, tag_field="role", tag="tool", kw_only=True, omit_defaults=True, gc=False
):
    call_id: str
    name: str
    content: Content
    failed: bool = False
    from_client: bool = False  # adopted from a client's history
    id: str = msgspec.field(default_factory=new_message_id)
    timestamp: datetime = msgspec.field(default_factory=now)
    run_id: str = ""  # the run that stored it


class ToolStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"


class ToolExecution(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One tool call as people and logs see it (CHT-05)."""

    tool_name: str
    call_id: str = ""
    parameters: dict[str, Any] = {}
    status: ToolStatus = ToolStatus.PENDING
    result: str | None = None
    execution_time: float | None = None
    error_message: str | None = None

    def __post_init__(self) -> None:
        if self.status is ToolStatus.FAILED and not self.error_message:
            raise ValueError("a failed ToolExecution needs its error_message")
        if self.execution_time is not None and self.execution_time < 0:
            raise ValueError("execution_time cannot be negative")


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


def unanswered(messages: Iterable[Message]) -> list[ToolCall]:
    """Calls without a result. Providers refuse a history that has one, so a stored history never does."""
    open_calls: dict[str, ToolCall] = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            open_calls.update((call.id, call) for call in message.tool_calls)
        elif isinstance(message, ToolMessage):
            open_calls.pop(message.call_id, None)
    return list(open_calls.values())


def has_stray_results(messages: Iterable[Message]) -> bool:
    """Whether a result has no call before it. Providers refuse such a history too."""
    calls: set[str] = set()
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls.update(call.id for call in message.tool_calls)
        elif isinstance(message, ToolMessage) and message.call_id not in calls:
            return True
    return False


def can_be_answered(messages: Sequence[Message]) -> bool:
    """Whether a model may be asked with this history: it does not end with an answer, or only with an incomplete one.

    A model that finds its own complete answer last repeats it, or its provider refuses the request.
    """
    last = messages[-1] if messages else None
    return last is not None and not (isinstance(last, AssistantMessage) and last.cut is None)


class Summary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A summary that the model is shown instead of the beginning of a conversation. Only the model can write it.

    It is stored beside the history, which does not change. `until` is the id of the last message that it covers. If
    that message no longer exists, the summary covers nothing.
    """

    content: str
    until: str
    messages: int  # how many messages it covers
    tokens_used: TokenUsage | None = None
    timestamp: datetime = msgspec.field(default_factory=now)

    def rest_of(self, messages: Sequence[Message]) -> Sequence[Message] | None:
        """The messages after the summary. None if it is not a summary of these messages."""
        ends = next((place for place, message in enumerate(messages) if message.id == self.until), None)
        return None if ends is None else messages[ends + 1 :]


class KeptAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's answer to one of several interrupts, kept until the others are answered too."""

    approved: bool
    payload: Any = None
    reason: str | None = None


class PendingStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An incomplete step: it waits for a person's approval or for a tool of the client, or its tools are running.

    It is stored beside the history, not in it, until every call has its result; then it enters the history as a whole.
    After a crash `begun` names the calls that may have taken effect: they are never made again.
    """

    assistant: AssistantMessage
    results: tuple[ToolMessage, ...] = ()
    approvals: dict[str, str] = {}  # interrupt id → call id
    client_calls: tuple[str, ...] = ()  # call ids
    expires_at: datetime | None = None
    begun: tuple[str, ...] = ()  # ids of calls that were passed to their tools
    run_id: str = ""
    answers: dict[str, KeptAnswer] = {}  # by interrupt id; they count when a client resumes with all of them

    @property
    def waiting(self) -> Sequence[ToolCall]:
        answered = {result.call_id for result in self.results}
        return [call for call in self.assistant.tool_calls if call.id not in answered]

    def has_expired(self, at: datetime) -> bool:
        """Whether it is too late to approve its calls. They can still be refused."""
        return self.expires_at is not None and at > self.expires_at


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Message]).decode

_BYTES_OF_A_MESSAGE = 300  # memory per message beyond its JSON: the id, and entries in the lists and the dictionary
_USER_SAYS = b'{"role":"user","content":'  # how the JSON of a user's message begins


class _Ledger:
    """Append-only lists: the part below a reader's length never changes."""

    __slots__ = ("encoded", "places", "size", "written")

    def __init__(self) -> None:
        self.encoded: list[bytes] = []
        self.places: dict[str, int] = {}
        self.written: dict[Hashable, list[bytes]] = {}
        self.size = 0

    def add(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.places.setdefault(message.id, len(self.encoded))
            self.encoded.append(encoded := _encode(message))
            self.size += len(encoded) + _BYTES_OF_A_MESSAGE

    def beginning(self, length: int) -> "_Ledger":
        """A copy of the first `length` messages, for a conversation that took another course after them."""
        copy = _Ledger()
        copy.encoded = self.encoded[:length]
        copy.places = {message_id: place for message_id, place in self.places.items() if place < length}
        copy.size = sum(map(len, copy.encoded)) + length * _BYTES_OF_A_MESSAGE
        return copy


@final
class History(Sequence[Message]):
    """The messages of a conversation, oldest first. Immutable.

    Compare its type: `isinstance` with an abstract class is a Python call, and every run makes several.
    """

    __slots__ = ("_ledger", "_length", "last")

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self._ledger, self._length = _Ledger(), len(messages)
        self.last = messages[-1] if messages else None
        self._ledger.add(messages)

    def extended(self, added: Sequence[Message]) -> "History":
        """This conversation with the added messages at its end."""
        if not added:
            return self
        longer = History()
        is_longest = len(self._ledger.encoded) == self._length
        longer._ledger = self._ledger if is_longest else self._ledger.beginning(self._length)
        longer._ledger.add(added)
        longer._length, longer.last = self._length + len(added), added[-1]
        return longer

    @property
    def size(self) -> int:
        """Its approximate size in bytes, including what it shares."""
        return self._ledger.size

    @property
    def places(self) -> Mapping[str, int]:
        """The index of each message, by its id; of the first one if several have the same."""
        places = self._ledger.places
        if len(self._ledger.encoded) == self._length:
            return places
        return {message_id: place for message_id, place in places.items() if place < self._length}

    def says(self, place: int, content: Content) -> bool:
        """Whether the message at this index is a user's with exactly this content."""
        return self._ledger.encoded[place].startswith(_USER_SAYS + _encode(content) + b",")

    def written(self, form: Hashable, write: Callable[[Message], bytes]) -> Sequence[bytes]:
        """Each message as `write` encodes it.

        Messages that were encoded before under the name `form` are not encoded again.
        """
        written = self._ledger.written.setdefault(form, [])
        if len(written) < self._length:
            added = [write(message) for message in self[len(written) :]]
            written += added
            self._ledger.size += sum(map(len, added)) + len(added) * _BYTES_OF_A_MESSAGE // 4
        return written[: self._length]

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> list[Message]: ...
    def __getitem__(self, place: int | slice) -> "Message | list[Message]":
        found = range(self._length)[place]
        if isinstance(found, int):
            return _decode(b"[%b]" % self._ledger.encoded[found])[0]
        encoded = self._ledger.encoded
        return _decode(b"[%b]" % b",".join([encoded[each] for each in found]))

    def __iter__(self) -> Iterator[Message]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list: equal to sequences of other types


def places_of(messages: Sequence[Message]) -> Mapping[str, int]:
    """The index of each message, by its id; of the first one if several have the same."""
    if type(messages) is History:
        return messages.places
    places: dict[str, int] = {}
    for place, message in enumerate(messages):
        places.setdefault(message.id, place)
    return places
