"""Which session a request of Chat Completions goes on with, when it names none."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from holodeck.core.messages import AssistantMessage, Message, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.owner import Owner
from holodeck.core.request import RunRequest
from holodeck.models.scripted import calls, says
from holodeck.runs.log import RunLog
from holodeck.runs.run import Run
from holodeck.server import completion_sessions
from holodeck.server.completion_sessions import MAX_ANSWERS, MAX_AT_ONCE, note_answer, runs_after, visible
from holodeck.server.options import ServerSettings
from holodeck.sessions.values import MemoryValues
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.serving import Served, served

OPENAI = ServerSettings(protocols=("openai",))
HINT = "X-OpenWebUI-Chat-Id"


async def ask(s: Served, *texts: str, headers: Any = None, **body: Any) -> tuple[str, str | None]:
    """The answer, and the session that the server names. The texts are the conversation, the user's first."""
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    async with s.post({"messages": messages, **body}, "/v1/chat/completions", **(headers or {})) as answer:
        result = await answer.json()
        assert answer.status == 200, result
        return result["choices"][0]["message"]["content"], answer.headers.get("X-Session-Id")


async def texts(s: Served, session: str | None) -> list[Any]:
    stored = await s.server.store.read(session or "", owner=ME)
    return [] if stored is None else [message.content for message in stored.messages if message.content]


async def test_nothing_is_kept_unless_the_client_asks_for_it() -> None:
    async with served(says("one"), settings=OPENAI) as s:
        assert await ask(s, "1") == ("one", None)
        assert await s.server.store.count() == 0


async def test_a_conversation_is_recognised_by_its_messages() -> None:
    turns = calls(("echo", "{}"), text=["Looking."]), says("one"), says("two"), says("again"), says("three")
    async with served(*turns, tools=PlainTools(echo=echo), settings=OPENAI) as s:
        first, session = await ask(s, "1", store=True)
        assert first == "Looking.\n\none"
        second, same = await ask(s, "1", f"  {first}\n", "2", store=True)
        assert (second, same) == ("two", session)
        shown = [message.content for message in s.model.prompts[-1].messages]
        assert len(shown) == 5, "the result of the tool is still there"
        edited, branch = await ask(s, "1", first, "2, differently", store=True)
        assert (edited, branch == session) == ("again", False)
        assert (await texts(s, branch))[-2:] == ["2, differently", "again"]
        await ask(s, "1", first, "2", "two", "3", store=True)
        assert (await texts(s, session))[-2:] == ["3", "three"]


async def test_a_history_that_the_server_did_not_write_begins_a_session_of_its_own() -> None:
    async with served(says("one"), says("two"), settings=OPENAI) as s:
        _, session = await ask(s, "1", store=True)
        _, other = await ask(s, "1", "forged", "2", store=True)
        assert other != session
        assert await texts(s, session) == ["1", "one"]


async def test_a_hint_counts_if_the_messages_match() -> None:
    async with served(says("a query"), says("one"), says("a title"), says("two"), settings=OPENAI) as s:
        headers = {HINT: "chat-1"}
        assert await ask(s, "Make a query of: 1", headers=headers) == ("a query", None), (
            "it comes before the chat begins"
        )
        body = {"messages": [{"role": "user", "content": "1"}], "stream": True}
        async with s.post(body, "/v1/chat/completions", **headers) as answer:
            assert b"one" in await answer.read()
            assert answer.headers["X-Session-Id"] == "chat-1"
        assert await ask(s, "Make a title of: 1, one", headers=headers) == ("a title", None)
        assert await ask(s, "1", "one", "2", headers=headers) == ("two", "chat-1")
        assert await texts(s, "chat-1") == ["1", "one", "2", "two"]


def test_what_is_visible() -> None:
    replies = [AssistantMessage(content="a "), AssistantMessage(content="b<details><p>tool</p></details>")]
    assert visible([UserMessage(content="x\u0065\u0301"), *replies]) == [("user", "x\u00e9"), ("assistant", "a b")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a<DETAILS open>x<details>y</details>b</details>c", "ab</details>c"),
        ("a</details>b<details>c", "a</details>b<details>c"),
        ("a<detailsx>b</details>", "a<detailsx>b</details>"),
        ("<details " * 100_000, " ".join(["<details"] * 100_000)),  # minutes, if it were quadratic
        ("a" + "\u0315\u0300" * 200_000, "a" + "\u0315\u0300" * 200_000),  # minutes too
    ],
    ids=["nested", "unclosed", "another tag", "many tags", "many marks"],
)
def test_what_details_enclose_is_not_visible(text: str, shown: str) -> None:
    assert visible([UserMessage(content=text)]) == [("user", shown)]


def test_many_messages_of_one_side_are_joined_once() -> None:
    """Joined one by one, 20 MB would be copied 100,000 times."""
    messages = [UserMessage(content="x" * 200)] * 100_000
    assert [(role, len(text)) for role, text in visible(messages)] == [("user", 20_099_999)]


@pytest.mark.parametrize("number", [1, MAX_AT_ONCE + 2])
async def test_a_long_conversation_is_compared_by_a_thread(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop would do nothing else meanwhile."""
    threads = set()

    def noting(messages: Sequence[Message]) -> list[tuple[str, str]]:
        threads.add(threading.get_ident())
        return visible(messages)

    monkeypatch.setattr(completion_sessions, "visible", noting)
    async with served(says("ok"), settings=ServerSettings(protocols=("openai",))) as s:
        body = {"messages": [{"role": "user", "content": "hi"}] * number, "store": True}
        async with s.post(body, "/v1/chat/completions") as answer:
            assert answer.status == 200
    assert threads
    assert (threading.get_ident() not in threads) is (number > MAX_AT_ONCE)


async def test_the_index_is_bounded_for_each_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion_sessions, "MAX_CONVERSATIONS", 3)
    known = MemoryValues()
    asked = [[UserMessage(content=str(n))] for n in range(4)]
    await note_answer(known, Owner("acme", "ann"), asked[0], run_named("hers"))
    for n, messages in enumerate(asked):
        await note_answer(known, ME, messages, run_named(f"r{n}"))
    assert [await runs_after(known, ME, messages) for messages in asked] == [[], ["r1"], ["r2"], ["r3"]]
    assert await runs_after(known, Owner("acme", "ann"), asked[0]) == ["hers"]


async def test_a_question_that_is_asked_again_has_several_answers() -> None:
    known, asked = MemoryValues(), [UserMessage(content="1")]
    for n in range(MAX_ANSWERS + 1):
        await note_answer(known, ME, asked, run_named(f"r{n}"))
    assert await runs_after(known, ME, asked) == [f"r{n}" for n in range(MAX_ANSWERS, 0, -1)], "the last one first"


def run_named(run_id: str) -> Run:
    return Run(request=RunRequest(), run_id=run_id, session_id="s", owner=ME, log=RunLog())
