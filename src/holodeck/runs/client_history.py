"""Compares a client's copy of the conversation with ours. Pure functions that match messages by their ids.

If the session has messages, ours count. The client may add user messages. It may also go back, to regenerate an answer
or to edit a user message. It cannot add assistant messages, tool calls or tool results (T27).

If the session has none (new, expired, deleted), the server adopts the client's copy: the texts of user and assistant,
and the calls and results of the client's own tools. It leaves out calls of server tools and their results, since
nothing proves that they happened. Adopted messages are marked `from_client`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from holodeck.core.messages import (
    AssistantMessage,
    Content,
    History,
    Message,
    PendingStep,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    can_be_answered,
    places_of,
    text_of,
)
from holodeck.core.request import RunRequest
from holodeck.errors import InvalidRequest


class ClientHistory(StrEnum):
    """How to treat a client's history on a session without messages."""

    ADOPT = "adopt"
    IGNORE = "ignore"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The change that a request makes to a session's messages: rewind first, then append."""

    append: Sequence[Message] = ()
    rewind_before: str | None = None  # the id of a stored user message; it and all later messages are removed
    adopted: int = 0  # how many messages at the beginning of `append` are the client's history
    left_out: int = 0  # how many messages and calls of the client's history were left out
    rewound: int = 0  # how many stored messages the change removes

    @property
    def note(self) -> dict[str, int]:
        """The change as clients are shown it. Empty if messages were only added."""
        if not (self.adopted or self.left_out or self.rewound):
            return {}
        counts = {"adopted": self.adopted, "left_out": self.left_out, "rewound": self.rewound}
        return {name: count for name, count in counts.items() if count}


def change_of(
    request: RunRequest,
    stored: Sequence[Message],
    pending: PendingStep | None,
    *,
    server_tools: Collection[str] = (),
    unknown: ClientHistory = ClientHistory.ADOPT,
    unseen: Collection[str] = (),
    elsewhere: Collection[str] = (),
) -> Change:
    """Returns the change that this request makes to a session that holds `stored` and waits for `pending`.

    `unseen` are the ids of runs that were in progress when the request came: the client may lack their replies. Other
    clients started the runs in `elsewhere`: this client may lack all messages of those runs.
    """
    sent = _distinct(request.messages)
    if stored or pending is not None:
        if request.rewind_to is not None:
            return answered_again(sent, stored, request.rewind_to)
        if request.only_adds:
            return Change(append=_new_at_end(sent, places_of(stored), pending))
        return matched(
            sent, stored, pending, answers=answers_step(request, pending), unseen=unseen, elsewhere=elsewhere
        )
    if unknown is ClientHistory.IGNORE:
        new = _new_at_end(sent, {})
        return Change(append=new, left_out=_messages_and_calls(sent) - _messages_and_calls(new))
    return adopted(sent, {tool.name for tool in request.client_tools}.difference(server_tools))


def matched(
    sent: Sequence[Message],
    stored: Sequence[Message],
    pending: PendingStep | None = None,
    *,
    answers: bool = False,
    unseen: Collection[str] = (),
    elsewhere: Collection[str] = (),
) -> Change:
    """The change for a session with messages.

    With `answers`, the request answers the pending step, so nothing is rewound.
    """
    known = places_of(stored)
    if answers:
        return Change(append=_new_at_end(sent, known, pending))
    edited = next((place for place, message in enumerate(sent) if _is_edited(message, stored, known)), None)
    if edited is not None:
        message = sent[edited]
        return _rewound(stored, known[message.id], [message, *_new_at_end(sent[edited + 1 :], known)])
    new = _new_at_end(sent, known, pending)
    if not new:  # the client wants another answer to the same messages
        unseen = elsewhere = ()
    common = _common(sent, stored, pending, unseen, elsewhere)
    return Change(append=new) if common is None else _rewound(stored, common, new)


def answered_again(sent: Sequence[Message], stored: Sequence[Message], message_id: str) -> Change:
    """The change for a client that names the user message it wants answered again, perhaps with another text."""
    known = places_of(stored)
    place = known.get(message_id)
    if place is None or not isinstance(stored[place], UserMessage):  # the first try did not reach us
        return Change(append=_new_at_end(sent, known))
    edited = next((each for each in sent if each.id == message_id and _is_edited(each, stored, known)), None)
    return _rewound(stored, place + 1, ()) if edited is None else _rewound(stored, place, [edited])


def adopted(sent: Sequence[Message], own_tools: Collection[str]) -> Change:
    """The change for a session without messages. `own_tools` are the names of the tools that the client runs itself."""
    if not [each for each in sent if not isinstance(each, UserMessage)]:
        return Change(append=sent)  # a new conversation
    taken = list(_adoptable(sent, own_tools))
    left_out = _messages_and_calls(sent) - _messages_and_calls(taken)
    return Change(append=taken, adopted=first_of_use(taken), left_out=left_out)


def first_of_use(sent: Sequence[Message]) -> int:
    """The index of the first message after the last assistant message. Everything before it is history."""
    first = len(sent)
    while first and not isinstance(sent[first - 1], AssistantMessage):
        first -= 1
    return first


def answers_step(request: RunRequest, pending: PendingStep | None) -> bool:
    """Whether a request answers the pending step, or at least a part of it."""
    return bool(request.resume or results_for(pending, request.messages))


def results_for(pending: PendingStep | None, sent: Sequence[Message]) -> list[ToolMessage]:
    """The results in a request of tools that the client runs itself, and for which the pending step waits."""
    waiting = () if pending is None else pending.client_calls
    return [message for message in sent if isinstance(message, ToolMessage) and message.call_id in waiting]


def _new_at_end(sent: Sequence[Message], known: Collection[str], pending: PendingStep | None = None) -> list[Message]:
    """The trailing user messages of the request that are not stored yet."""
    start = len(sent)
    waiting = () if pending is None else (pending.assistant.id, *[result.id for result in pending.results])
    while (
        start > 0 and isinstance(last := sent[start - 1], UserMessage) and not (last.id in known or last.id in waiting)
    ):
        start -= 1
    return list(sent[start:])


def _distinct(sent: Sequence[Message]) -> Sequence[Message]:
    """The messages without those whose id an earlier one has: an id stands for one message of a conversation."""
    first = places_of(sent)
    return sent if len(first) == len(sent) else [sent[place] for place in first.values()]


def _common(
    sent: Sequence[Message],
    stored: Sequence[Message],
    pending: PendingStep | None,
    unseen: Collection[str],
    elsewhere: Collection[str],
) -> int | None:
    """How many stored messages to keep if the client went back. None if it did not.

    The client went back if its copy of our messages is a proper prefix of ours. Tool results are not compared: they
    stay or go with the message that holds their calls. Replies of `unseen` runs and messages of runs `elsewhere` are
    not compared either if the client lacks them.
    """
    has, known = {message.id for message in sent}, places_of(stored)
    if has.issuperset(known) and (pending is None or pending.assistant.id in has):
        return None  # it lacks nothing
    if known.keys().isdisjoint(has) and (pending is None or pending.assistant.id not in has):
        return None  # it has only new messages

    def counts(message: Message) -> bool:
        if isinstance(message, ToolMessage):
            return False
        lacks = message.run_id in elsewhere or (isinstance(message, AssistantMessage) and message.run_id in unseen)
        return message.id in has or not lacks

    ours = [message.id for message in stored if counts(message)]
    kept, waiting = len(ours), 0
    if pending is not None and counts(pending.assistant):
        ours.append(pending.assistant.id)
        waiting = 1
    counted = set(ours)
    theirs = [message.id for message in sent if message.id in counted and not isinstance(message, ToolMessage)]
    if not theirs or len(theirs) == kept + waiting or theirs != ours[: len(theirs)]:
        return None
    if len(theirs) == kept:  # all but the pending step
        return len(stored)
    return next(place for place, message in enumerate(stored) if message.id == ours[len(theirs)])


def _rewound(stored: Sequence[Message], keep: int, new: Sequence[Message]) -> Change:
    """Keeps the first `keep` stored messages and appends the new ones.

    Stores cut only before a user message. If the cut falls inside a turn, the whole turn is cut off, and its kept
    beginning is appended again.
    """
    cut = keep
    while cut < len(stored) and cut >= 0 and not isinstance(stored[cut], UserMessage):
        cut -= 1
    if cut == len(stored):
        cut = next((i for i in reversed(range(len(stored))) if isinstance(stored[i], UserMessage)), -1)
    if cut < 0:  # no user message to cut before: our history stays
        return Change(append=new)
    append = [*stored[cut:keep], *new]
    if not can_be_answered(append or stored[:keep]):
        raise InvalidRequest("There is no message to answer.", field="messages")
    return Change(append=append, rewind_before=stored[cut].id, rewound=max(1, len(stored) - keep))


def _is_edited(message: Message, stored: Sequence[Message], known: Mapping[str, int]) -> bool:
    if not isinstance(message, UserMessage) or message.id not in known:
        return False
    place = known[message.id]
    if type(stored) is History and stored.says(place, message.content):
        return False
    ours = stored[place]
    return isinstance(ours, UserMessage) and not _has_our_text(message.content, ours.content)


def _has_our_text(theirs: Content, ours: Content) -> bool:
    """Whether a client's copy of a user message has the text that we stored.

    Files make the two differ without an edit. We store the text of a file as a part of its own. A client has the file,
    or the text that a snapshot showed it, or neither. So a message counts as unchanged if all its texts are among ours,
    in order.
    """
    if _words(text_of(theirs)) == _words(text_of(ours)):
        return True
    stored = iter([_words(text) for text in _texts(ours)])
    return all(words in stored for words in map(_words, _texts(theirs)) if words)


def _texts(content: Content) -> list[str]:
    return [content] if isinstance(content, str) else [part.text for part in content if isinstance(part, TextPart)]


def _words(text: str) -> str:
    return " ".join(text.split())


def _adoptable(sent: Sequence[Message], own_tools: Collection[str]) -> Iterator[Message]:
    places = {message.call_id: place for place, message in enumerate(sent) if isinstance(message, ToolMessage)}
    for place, message in enumerate(sent):
        if isinstance(message, UserMessage):
            yield message
        elif isinstance(message, AssistantMessage):
            own = {call.id: call for call in message.tool_calls if call.name in own_tools}
            answered = {id_: places.pop(id_) for id_ in own if places.get(id_, -1) > place}
            yield from _step(message, [own[id_] for id_ in answered], [sent[each] for each in answered.values()])


def _step(message: AssistantMessage, calls: Sequence[ToolCall], results: Sequence[Message]) -> Iterator[Message]:
    """An assistant message and the results of its calls. Empty if it has neither text nor calls."""
    if message.content.strip() or calls:
        yield msgspec.structs.replace(message, tool_calls=tuple(calls), from_client=True)
    for call, result in zip(calls, results, strict=True):
        yield msgspec.structs.replace(result, name=call.name, from_client=True)


def _messages_and_calls(messages: Sequence[Message]) -> int:
    return len(messages) + sum([len(each.tool_calls) for each in messages if isinstance(each, AssistantMessage)])
