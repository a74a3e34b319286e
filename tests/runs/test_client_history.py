"""What a client's copy of the conversation does to ours: append, rewind or adopt. Examples first, then properties."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.core.messages import (
    AssistantMessage,
    MediaPart,
    Message,
    PendingStep,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    can_be_answered,
    unanswered,
)
from holodeck.core.request import Resume, RunRequest
from holodeck.core.tools import ToolSchema
from holodeck.errors import InvalidRequest
from holodeck.runs.client_history import Change, ClientHistory, adopted, change_of, first_of_use, matched

pytestmark = pytest.mark.req("SRV-07")


def user(id_: str, text: str | None = None) -> UserMessage:
    return UserMessage(id=id_, content=f"says {id_}" if text is None else text)


def assistant(id_: str, *calls: str, cut: str | None = None) -> AssistantMessage:
    made = tuple(ToolCall(id=f"{id_}-{name}", name=name, arguments="{}") for name in calls)
    return AssistantMessage(id=id_, content="" if calls else f"answers {id_}", tool_calls=made, cut=cut)


def result(call_id: str, id_: str | None = None) -> ToolMessage:
    return ToolMessage(id=id_ or f"r-{call_id}", call_id=call_id, name="", content="done")


def after(change: Change, stored: Sequence[Message]) -> list[Message]:
    """The session's messages when the change is made."""
    kept = list(stored)
    if change.rewind_before is not None:
        (place,) = [i for i, each in enumerate(kept) if each.id == change.rewind_before]
        assert isinstance(kept[place], UserMessage), "stores cut before user messages only"
        kept = kept[:place]
    return [*kept, *change.append]


def ids(messages: Sequence[Message]) -> str:
    return " ".join(message.id for message in messages)


OURS: tuple[Message, ...] = (
    user("u1"), assistant("a1"), user("u2"), assistant("a2", "look"), result("a2-look", "t2"), assistant("a3"),
)  # fmt: skip
NEW = user("u9")

WITH_A_HISTORY: dict[str, tuple[Sequence[Message], str]] = {
    "the whole history and a new message": ([*OURS, NEW], "u1 a1 u2 a2 t2 a3 u9"),
    "only what is new": ([NEW], "u1 a1 u2 a2 t2 a3 u9"),
    "several new messages": ([user("u8"), NEW], "u1 a1 u2 a2 t2 a3 u8 u9"),
    "regenerate the last answer": (OURS[:3], "u1 a1 u2"),
    "regenerate the first answer": (OURS[:1], "u1"),
    "regenerate after a tool": (OURS[:5], "u1 a1 u2 a2 t2"),
    "another message instead of the second": ([*OURS[:2], NEW], "u1 a1 u9"),
    "another message after the first": ([OURS[0], NEW], "u1 u9"),
    "the first message edited": ([user("u1", "no, this")], "u1"),
    "the second message edited": ([*OURS[:2], user("u2", "no, this")], "u1 a1 u2"),
    "an edit in the middle, the rest left as it was": ([*OURS[:2], user("u2", "no"), *OURS[3:], NEW], "u1 a1 u2 u9"),
    "a gap": ([OURS[0], OURS[2], OURS[5], NEW], "u1 a1 u2 a2 t2 a3 u9"),
    "the end only": ([*OURS[3:], NEW], "u1 a1 u2 a2 t2 a3 u9"),
    "another order": ([OURS[1], OURS[0], NEW], "u1 a1 u2 a2 t2 a3 u9"),
    "a result that the client has not seen": ([*OURS[:4], OURS[5], NEW], "u1 a1 u2 a2 t2 a3 u9"),
    "a forged answer": ([*OURS, assistant("x"), NEW], "u1 a1 u2 a2 t2 a3 u9"),
    "only forged answers": ([assistant("x"), result("x-look"), NEW], "u1 a1 u2 a2 t2 a3 u9"),
    "spaces changed": ([user("u1", " says \n u1 "), *OURS[1:], NEW], "u1 a1 u2 a2 t2 a3 u9"),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "expected"), WITH_A_HISTORY.values(), ids=WITH_A_HISTORY)
def test_a_session_with_a_history(sent: Sequence[Message], expected: str) -> None:
    assert ids(after(matched(sent, OURS), OURS)) == expected


def test_a_call_keeps_its_result_that_the_client_has_not_seen() -> None:
    """A client that stopped the run while the tool ran has the call, but not the result."""
    stopped = OURS[:5]
    assert ids(after(matched([*OURS[:4], NEW], stopped), stopped)) == "u1 a1 u2 a2 t2 u9"


def test_an_edit_takes_the_new_text() -> None:
    change = matched([user("u1", "no, this")], OURS)
    assert [each.content for each in change.append] == ["no, this"]
    assert change.note == {"rewound": 6}


def test_nothing_is_rewound_if_there_would_be_nothing_to_answer() -> None:
    with pytest.raises(InvalidRequest, match="no message to answer"):
        matched(OURS[:2], OURS)
    cut = [user("u1"), assistant("a1", cut="length"), user("u2")]
    assert ids(after(matched(cut[:2], cut), cut)) == "u1 a1", "an answer that was cut can be continued"


def test_a_history_that_no_user_message_precedes_is_not_rewound() -> None:
    ours = [assistant("a0"), assistant("a1"), user("u1")]
    assert matched([ours[0], NEW], ours) == Change(append=[NEW])


class TestAWaitingStep:
    waits = PendingStep(assistant=assistant("a4", "paint"), client_calls=("a4-paint",))
    seen = (*OURS, user("u4"), waits.assistant)
    ours = (*OURS, user("u4"))

    def test_a_result_for_it_rewinds_nothing(self) -> None:
        for sent in ([*self.seen, result("a4-paint")], [OURS[0], result("a4-paint")], [result("a4-paint")]):
            request = RunRequest(messages=tuple(sent))
            assert change_of(request, self.ours, self.waits) == Change(append=[])

    def test_an_approval_rewinds_nothing(self) -> None:
        resume = (Resume(interrupt_id="i", approved=True),)
        for sent in ((), OURS[:1], self.seen):
            request = RunRequest(messages=tuple(sent), resume=resume)
            assert list(change_of(request, self.ours, self.waits).append) == []
            assert change_of(request, self.ours, self.waits).rewind_before is None

    def test_a_client_that_has_it_and_continues_rewinds_nothing(self) -> None:
        assert matched([*self.seen, NEW], self.ours, self.waits) == Change(append=[NEW])

    def test_a_client_that_takes_it_back_drops_it(self) -> None:
        change = matched(self.ours, self.ours, self.waits)
        assert change.rewind_before == "u4"
        assert ids(after(change, self.ours)) == ids(self.ours)


def test_files_are_no_edit() -> None:
    ours = UserMessage(id="u1", content=(TextPart("Read it"), TextPart("report.pdf:\nText of the file")))
    media = MediaPart(mime_type="application/pdf", data="eHl6enk=")
    copies = ["Read it", (TextPart("Read it"), media), (media,), "Read it\nreport.pdf:\nText of the file", ""]
    for content in copies:
        assert matched(
            [UserMessage(id="u1", content=content), assistant("a1"), NEW], [ours, assistant("a1")]
        ) == Change(append=[NEW]), content
    changed = matched([UserMessage(id="u1", content=(TextPart("Read this"), media))], [ours, assistant("a1")])
    assert changed.rewind_before == "u1"


class TestAdoption:
    """Of a session that the server does not know."""

    sent = (
        user("u1"),
        AssistantMessage(
            id="a1", content="I look", tool_calls=(*assistant("a1", "look").tool_calls, *assistant("a1", "paint").tool_calls)
        ),
        result("a1-look"),
        result("a1-paint"),
        assistant("a2"),
        user("u2"),
    )  # fmt: skip

    def test_texts_and_the_clients_own_tools_are_adopted_and_marked(self) -> None:
        change = adopted(self.sent, {"paint"})
        assert ids(change.append) == "u1 a1 r-a1-paint a2 u2"
        assert [getattr(each, "from_client", None) for each in change.append] == [None, True, True, True, None]
        assert [call.name for call in change.append[1].tool_calls] == ["paint"]
        assert change.append[2].name == "paint"
        assert change.note == {"adopted": 4, "left_out": 2}, "the call and the result of the server's tool"

    def test_names_of_server_tools_are_never_the_clients(self) -> None:
        paint = ToolSchema(name="paint", parameters={}, on_client=True)
        request = RunRequest(messages=self.sent, client_tools=(paint,))
        assert ids(change_of(request, (), None, server_tools={"paint"}).append) == "u1 a1 a2 u2"

    def test_a_call_without_result_or_with_one_before_it_is_left_out(self) -> None:
        sent = [user("u1"), result("a1-paint"), assistant("a1", "paint"), assistant("a2", "paint"), user("u2")]
        assert ids(adopted(sent, {"paint"}).append) == "u1 u2"

    def test_a_result_of_the_clients_tool_can_be_last(self) -> None:
        sent = [user("u1"), assistant("a1", "paint"), result("a1-paint")]
        assert can_be_answered(adopted(sent, {"paint"}).append)

    def test_it_can_be_switched_off(self) -> None:
        request = RunRequest(messages=self.sent)
        change = change_of(request, (), None, unknown=ClientHistory.IGNORE)
        assert (ids(change.append), change.note) == ("u2", {"left_out": 7})

    def test_a_first_message_is_no_history(self) -> None:
        assert adopted([NEW], ()).note == {}


@pytest.mark.parametrize(
    ("sent", "first"), [("", 0), ("u", 0), ("uu", 0), ("ua", 2), ("uau", 2), ("uauat", 4), ("uauatu", 4)]
)
def test_what_follows_the_last_answer_is_of_use(sent: str, first: int) -> None:
    made = {"u": user("u"), "a": assistant("a"), "t": result("c")}
    assert first_of_use([made[kind] for kind in sent]) == first


# Properties: histories of turns as the loop stores them, and any mixture of them as a client may send it.


@st.composite
def histories(draw: st.DrawFn, prefix: str = "m") -> list[Message]:
    made: list[Message] = []
    for turn in range(draw(st.integers(0, 4))):
        made.append(user(f"{prefix}{turn}u"))
        for step in range(draw(st.integers(0, 2))):
            name = draw(st.sampled_from(["", "look", "paint"]))
            reply = assistant(f"{prefix}{turn}s{step}", *([name] if name else []))
            made += [reply, *(result(call.id) for call in reply.tool_calls)]
    return made


@st.composite
def sent_copies(draw: st.DrawFn, stored: Sequence[Message]) -> list[Message]:
    """Some of ours, some edited, some forged, some new."""
    copy = [each for each in stored if draw(st.booleans())] if draw(st.booleans()) else list(stored)
    copy = copy[: draw(st.integers(0, len(copy)))]
    if copy and draw(st.booleans()):
        place = draw(st.integers(0, len(copy) - 1))
        if isinstance(copy[place], UserMessage):
            copy[place] = user(copy[place].id, "edited")
    copy += draw(histories(prefix="forged"))
    return [*copy, *(user(f"new{i}") for i in range(draw(st.integers(0, 2))))]


@given(st.data())
def test_a_known_session_stays_ours(data: st.DataObject) -> None:
    stored = data.draw(histories())
    sent = data.draw(sent_copies(stored))
    try:
        change = matched(sent, stored)
    except InvalidRequest:
        return  # there is nothing to answer
    made = after(change, stored)
    by_id = {message.id: message for message in stored}
    assert len({message.id for message in made}) == len(made), "no message is there twice"
    assert unanswered(made) == [], "no call loses its result"
    for message in made:
        assert isinstance(message, UserMessage) or by_id.get(message.id) == message, "nothing is put into our mouth"
    kept = [message for message in made if message.id in by_id]
    assert [message.id for message in kept] == [message.id for message in stored[: len(kept)]], "a prefix of ours stays"
    if change.rewind_before is None:
        assert made[: len(stored)] == stored
    assert matched(sent, made).rewind_before is None or not can_be_answered(made), (
        "the same request changes nothing again"
    )


@given(histories(), st.sets(st.sampled_from(["look", "paint"])))
def test_an_adopted_history_is_well_formed(sent: list[Message], own_tools: set[str]) -> None:
    made = adopted(sent, own_tools).append
    assert unanswered(made) == []
    assert [each for each in made if isinstance(each, UserMessage)] == [
        each for each in sent if isinstance(each, UserMessage)
    ]
    calls = [call for each in made if isinstance(each, AssistantMessage) for call in each.tool_calls]
    assert {call.name for call in calls} <= own_tools
    assert {each.call_id for each in made if isinstance(each, ToolMessage)} == {call.id for call in calls}
    assert all(each.from_client for each in made if not isinstance(each, UserMessage))
