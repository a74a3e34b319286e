"""A whole conversation as JSON: it reads as a sequence of messages, and what it has in common with a longer one is shared."""

import pytest

from holodeck.core.messages import (
    AssistantMessage,
    History,
    MediaPart,
    Message,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    places_of,
)

CALL = ToolCall(id="c", name="t", arguments="{}")
MESSAGES: list[Message] = [
    UserMessage(id="u0", content='say "hi" \u2028'),
    AssistantMessage(id="a0", content="hi", tool_calls=(CALL,)),
    ToolMessage(id="t0", call_id="c", name="t", content="done"),
    UserMessage(id="u1", content=(TextPart("look"), MediaPart(mime_type="image/png", data="AA=="))),
]


def write(seen: list[str]):
    def written(message: Message) -> bytes:
        seen.append(message.id)
        return message.id.encode()

    return written


def test_it_is_the_sequence_of_its_messages():
    history = History(MESSAGES)
    assert (list(history), len(history), history[1], history[-1]) == (MESSAGES, 4, MESSAGES[1], MESSAGES[-1])
    assert (history[1:3], history[:]) == (MESSAGES[1:3], MESSAGES)
    assert history == MESSAGES
    assert history == tuple(MESSAGES)
    assert history != MESSAGES[:3]
    assert history.last is MESSAGES[-1]
    with pytest.raises(IndexError):
        history[4]


def test_none_at_all():
    history = History()
    assert (list(history), len(history), history.last, history.size, dict(history.places)) == ([], 0, None, 0, {})
    assert history.extended(()) is history


def test_a_longer_one_leaves_the_shorter_as_it_was():
    short = History(MESSAGES[:2])
    long = short.extended(MESSAGES[2:])
    assert (list(short), list(long)) == (MESSAGES[:2], MESSAGES)
    assert dict(short.places) == places_of(MESSAGES[:2]) == {"u0": 0, "a0": 1}
    assert places_of(long) == places_of(MESSAGES)


def test_an_id_that_comes_again_changes_no_place():
    """Stored sessions of older versions may have one, and so may a file that is imported."""
    again = UserMessage(id="u0", content="again"), AssistantMessage(id="a1", content="well")
    short = History(MESSAGES[:2])
    long = short.extended(again)
    assert dict(short.places) == {"u0": 0, "a0": 1}
    assert dict(long.places) == places_of([*MESSAGES[:2], *again]) == {"u0": 0, "a0": 1, "a1": 3}
    one = History([again[0]])
    two = one.extended([again[0]]).extended([again[1]])
    assert (dict(one.extended([again[0]]).places), dict(two.places)) == ({"u0": 0}, {"u0": 0, "a1": 2})
    assert dict(two.extended(()).places) == {"u0": 0, "a1": 2}
    middle = one.extended([again[0]])
    middle.extended([again[1]])
    assert dict(middle.places) == {"u0": 0}, "no place beyond its own end"


def test_two_may_continue_from_one_beginning():
    beginning = History(MESSAGES[:2])
    one, other = beginning.extended(MESSAGES[2:]), beginning.extended([AssistantMessage(id="x", content="else")])
    assert (list(beginning), list(one)) == (MESSAGES[:2], MESSAGES)
    assert [each.id for each in other] == ["u0", "a0", "x"]
    assert set(other.places) == {"u0", "a0", "x"}


@pytest.mark.req("SRV-15")
def test_what_was_written_once_is_not_written_again():
    seen: list[str] = []
    short = History(MESSAGES[:2])
    assert short.written("form", write(seen)) == [b"u0", b"a0"]
    before = short.size
    long = short.extended(MESSAGES[2:])
    assert long.written("form", write(seen)) == [b"u0", b"a0", b"t0", b"u1"]
    assert short.written("form", write(seen)) == [b"u0", b"a0"]
    assert seen == ["u0", "a0", "t0", "u1"]
    assert long.written("another form", write(seen)) == [b"u0", b"a0", b"t0", b"u1"]
    assert len(seen) == 8
    assert long.size > before


@pytest.mark.parametrize("place", range(4))
def test_an_unchanged_message_of_a_user_is_known_by_its_json(place):
    history = History(MESSAGES)
    says = [history.says(place, message.content) for message in MESSAGES]
    assert says == [place == each and isinstance(MESSAGES[each], UserMessage) for each in range(4)]
    assert not history.says(0, 'say "hi"')
