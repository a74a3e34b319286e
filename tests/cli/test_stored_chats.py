"""`holodeck chat --resume` of a conversation that the server has stored: it goes on there."""

from contextlib import AsyncExitStack

import pytest

from holodeck.cli.conversation.stored_chat import stored_chat
from holodeck.config.build_stores import build_sqlite
from holodeck.config.load import load_config
from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from tests.cli.process import holodeck

AGENT = "name: tester\nmodel: {provider: demo}\n"


@pytest.fixture
async def store(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT)
    made = build_sqlite(load_config(tmp_path)).sessions
    await made.start()
    conversation = await made.open("from the page", owner=ME, create=True)
    await conversation.commit([UserMessage(content="hello", id="u1")])
    await conversation.commit([AssistantMessage(content="hi there")])
    conversation.close()
    yield made
    await made.close()


async def said(store):
    return [message.content for message in (await store.read("from the page", owner=ME)).messages]


@pytest.mark.parametrize("name", ["from the page", "last"])
async def test_the_terminal_goes_on_with_what_the_server_has(store, tmp_path, name):
    done = holodeck("chat", "--resume", name, folder=tmp_path, stdin="and who are you?\n")
    assert done.code == 0, done.err
    texts = await said(store)
    assert texts[:3] == ["hello", "hi there", "and who are you?"]
    assert len(texts) == 4
    assert not (tmp_path / "data" / "holodeck" / "chats").exists(), "it is kept in one place"


async def test_a_turn_that_is_taken_back_is_taken_back_in_the_store(store, tmp_path):
    async with AsyncExitStack() as stack:
        chat = await stored_chat(load_config(tmp_path), "from the page", stack)
        again = chat.take_back_last_turn()
        assert await said(store) == ["hello", "hi there"], "until something takes its place"
        await chat.transcript.commit([again])
        await chat.transcript.commit([AssistantMessage(content="another answer")], state={"n": 1})
        assert [each.content for each in chat.transcript.messages] == ["hello", "another answer"]
    assert await said(store) == ["hello", "another answer"]
    assert (await store.read("from the page", owner=ME)).state == {"n": 1}


async def test_an_id_that_nothing_has_is_one_sentence(store, tmp_path):
    done = holodeck("chat", "--resume", "01K9ZQ4W3V8N2R5T7Y9A1C3E5G", folder=tmp_path)
    assert done.code == 2
    assert "there is no saved chat" in done.err
