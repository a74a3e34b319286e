"""Which histories are kept from one turn to the next, when one still holds, and how many bytes they take together."""

from holodeck.core.messages import AssistantMessage, History, Message, UserMessage
from holodeck.core.owner import Owner
from holodeck.sessions.recent_histories import RecentHistories

ADA, EVE = Owner("default", "ada"), Owner("default", "eve")
TALK: list[Message] = [
    kind(id=f"{kind.__name__[0]}{n}", content=f"words {n}", run_id=f"r{n}")
    for n in range(20)
    for kind in (UserMessage, AssistantMessage)
]


class Reader:
    """Has read the end of a conversation. Counts how often it reads the rest."""

    def __init__(self, recent: RecentHistories, messages: list[Message]) -> None:
        self.recent, self.messages, self.times = recent, messages, 0

    async def whole(self, length: int, owner: Owner = ADA, session_id: str = "s") -> History:
        earlier = length - 6

        async def older() -> list[Message]:
            self.times += 1
            return self.messages[:earlier]

        history = await self.recent.whole((owner, session_id), earlier, self.messages[earlier:length], older)
        assert list(history) == self.messages[:length]
        return history


async def test_a_conversation_that_continues_is_read_once():
    reader = Reader(RecentHistories(), TALK)
    for length in range(10, 41, 2):
        await reader.whole(length)
    assert reader.times == 1


async def test_one_that_continued_elsewhere_for_long_is_read_again():
    reader = Reader(RecentHistories(), TALK)
    await reader.whole(10)
    await reader.whole(40)
    assert reader.times == 2


async def test_one_that_was_cut_is_read_again():
    reader = Reader(RecentHistories(), TALK)
    await reader.whole(20)
    await reader.whole(18)
    assert reader.times == 2
    await reader.whole(20)
    assert reader.times == 2


async def test_a_message_that_the_user_has_changed_is_another_one():
    recent = RecentHistories()
    await Reader(recent, TALK).whole(19)
    changed = UserMessage(id="U9", content="other words", run_id="r-later", timestamp=TALK[18].timestamp)
    reader = Reader(recent, [*TALK[:18], changed])
    await reader.whole(19)
    assert reader.times == 1


async def test_they_are_bounded_by_bytes_and_the_longest_unused_goes_first():
    size = History(TALK).size
    recent = RecentHistories(max_bytes=2 * size + 1)
    reader = Reader(recent, TALK)
    for session in ("a", "b", "a", "c", "a"):
        await reader.whole(40, session_id=session)
    assert reader.times == 3, "a was used again before c came"
    await reader.whole(40, session_id="b")
    assert reader.times == 4


async def test_one_that_is_longer_than_all_may_be_is_not_kept():
    reader = Reader(RecentHistories(max_bytes=100), TALK)
    await reader.whole(40)
    await reader.whole(40)
    assert reader.times == 2


async def test_what_is_deleted_is_forgotten():
    recent = RecentHistories()
    reader = Reader(recent, TALK)
    for owner, session in ((ADA, "a"), (ADA, "b"), (EVE, "a")):
        await reader.whole(40, owner, session)
    recent.forget(ADA, "a")
    recent.forget(ADA, "unknown")
    await reader.whole(40, ADA, "b")
    assert reader.times == 3
    recent.forget(ADA)
    await reader.whole(40, EVE, "a")
    assert reader.times == 3
    await reader.whole(40, ADA, "a")
    await reader.whole(40, ADA, "b")
    assert reader.times == 5
