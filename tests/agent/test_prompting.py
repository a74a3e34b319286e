"""What of a long conversation the model is shown."""

from holodeck.agent.prompting import latest
from holodeck.core.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage, unanswered

TURN = [
    UserMessage(content="q"),
    AssistantMessage(tool_calls=(ToolCall(id="c", name="t", arguments="{}"),)),
    ToolMessage(call_id="c", name="t", content="r"),
    AssistantMessage(content="a"),
]


def test_a_short_conversation_is_shown_whole():
    assert latest(TURN, 4) == TURN


def test_a_long_one_is_cut_where_a_user_speaks():
    for limit in range(4, 12):
        shown = latest(TURN * 3, limit)
        assert isinstance(shown[0], UserMessage)
        assert len(shown) <= limit
        assert unanswered(shown) == []


def test_a_turn_longer_than_the_limit_is_kept_whole():
    assert latest(TURN * 2, 2) == TURN
