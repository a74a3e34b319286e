"""`holodeck chat --resume` of a conversation that the server has stored: it goes on there."""

from datetime import timedelta
from types import SimpleNamespace

import pytest

from holodeck.cli.conversation.archive import ChatFileError
from holodeck.cli.conversation.chat_store import ChatStore
from holodeck.config.build_stores import build_sqlite
from holodeck.config.load import load_config
from holodeck.core.messages import AssistantMessage, PendingStep, ToolCall, UserMessage, now
from holodeck.core.owner import ANONYMOUS, ANONYMOUS_OWNER, DEFAULT_TENANT, Owner
from holodeck.errors import StartError
from tests.cli.process import holodeck
from tests.cli.vt import Terminal

AGENT = "name: tester\nmodel: {provider: demo}\n"
ANN = Owner(DEFAULT_TENANT, "ann")


async def fill(store, session_id, owner=ANONYMOUS_OWNER):
    conversation = await store.open(session_id, owner=owner, create=True)
    await conversation.commit([UserMessage(content="hello", id="u1")])
    await conversation.commit([AssistantMessage(content="hi there")])
    conversation.close()


@pytest.fixture
async def store(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT)
    made = build_sqlite(load_config(tmp_path)).sessions
    await made.start()
    await fill(made, "from the page")
    yield made
    await made.close()


@pytest.fixture
async def chats(store, tmp_path):
    made = ChatStore(load_config(tmp_path), user_id=ANONYMOUS, keeps=True, complain=pytest.fail)
    yield made
    await made.close()


async def texts_in(store, session_id="from the page", owner=ANONYMOUS_OWNER):
    return [message.content for message in (await store.read(session_id, owner=owner)).messages]


@pytest.mark.parametrize("name", ["from the page", "last"])
async def test_the_terminal_continues_what_the_server_has(store, tmp_path, name):
    done = holodeck("chat", "--resume", name, folder=tmp_path, stdin="and who are you?\n")
    assert done.code == 0, done.err
    texts = await texts_in(store)
    assert texts[:3] == ["hello", "hi there", "and who are you?"]
    assert len(texts) == 4


async def test_a_chat_that_is_not_saved_leaves_the_stored_one_as_it_was(store, tmp_path):
    done = holodeck("chat", "--resume", "last", "--no-save", folder=tmp_path, stdin="and who are you?\n")
    assert done.code == 0, done.err
    assert await texts_in(store) == ["hello", "hi there"]


@pytest.mark.parametrize("saved", [True, False])
async def test_what_is_typed_in_a_chat_that_is_not_saved_is_in_no_file(tmp_path, saved):
    (tmp_path / "agent.yaml").write_text(AGENT)
    typed = tmp_path / "data" / "holodeck" / "history"
    typed.parent.mkdir(parents=True)
    typed.write_text("\n# 2026-01-01 00:00:00\n+typed before\n")
    async with Terminal("chat", *[] if saved else ["--no-save"], folder=tmp_path) as terminal:
        await terminal.prompt()
        terminal.enter("hello zebra")
        await terminal.wait_for("2/50 messages")
        await terminal.prompt()
        terminal.type("\x1b[A\x1b[A")
        await terminal.wait_for("> typed before")
        terminal.interrupt()
        await terminal.prompt()
        terminal.type("\x04")
        assert await terminal.exit_code() == 0
    files = [file for file in tmp_path.rglob("*") if file.is_file() and b"zebra" in file.read_bytes()]
    assert bool(files) is saved
    assert (typed in files) is saved


async def test_a_user_sees_their_own_chats_only(store, tmp_path):
    await fill(store, "of ann", ANN)
    listed = {name: holodeck("chat", "--list", "--user", name, folder=tmp_path).out for name in (ANONYMOUS, "ann")}
    assert ("from the page" in listed[ANONYMOUS], "of ann" in listed[ANONYMOUS]) == (True, False)
    assert ("from the page" in listed["ann"], "of ann" in listed["ann"]) == (False, True)
    refused = holodeck("chat", "--resume", "of ann", folder=tmp_path)
    error = "error: 'of ann' is a conversation of default/ann, not of anonymous; --user ann continues it\n"
    assert (refused.code, refused.err) == (2, error)
    await fill(store, "of bo", Owner("acme", "bo"))
    refused = holodeck("chat", "--resume", "of bo", folder=tmp_path)
    assert "of acme/bo, not of anonymous; a chat over --url with that user's key continues it" in refused.err
    done = holodeck("chat", "--resume", "last", "--user", "ann", folder=tmp_path, stdin="and who are you?\n")
    assert done.code == 0, done.err
    assert len(await texts_in(store, "of ann", ANN)) == 4
    assert await texts_in(store) == ["hello", "hi there"]


async def test_chats_are_found_by_a_part_of_their_id(store, chats):
    await fill(store, "abcd-1")
    await fill(store, "abcd-2")
    await fill(store, "01K9ZQ4W3V8N2R5T7Y9A1C3E5G")
    assert (await chats.find("01k9zq4w")).session_id == "01K9ZQ4W3V8N2R5T7Y9A1C3E5G"
    with pytest.raises(ChatFileError, match=r"abcd could be abcd-1, abcd-2; write more of it"):
        await chats.find("abcd")


async def test_a_step_that_waits_is_kept_by_a_copy(store, chats):
    conversation = await store.open("waiting", owner=ANONYMOUS_OWNER, create=True)
    step = PendingStep(assistant=AssistantMessage(tool_calls=(ToolCall(id="c1", name="wipe", arguments="{}"),)))
    await conversation.commit([UserMessage(content="wipe it")], step)
    conversation.close()
    chats.keeps = False
    found = await chats.find("waiting")
    copy = await (await chats.opened()).read("waiting", owner=ANONYMOUS_OWNER)
    assert copy.pending == found.transcript.pending == step


async def test_a_chat_under_an_id_that_is_new_shows_that(store, tmp_path):
    new = "(there is no conversation with this id, or it has expired; your first message begins it)"
    async with Terminal("chat", "--session", "mine", folder=tmp_path, columns=120) as terminal:
        await terminal.wait_for(new)
    async with Terminal("chat", "--session", "from the page", folder=tmp_path, columns=120) as terminal:
        await terminal.wait_for("hi there")
        assert new not in terminal.text


@pytest.mark.parametrize(("days", "code"), [(1, 5), (-1, 0)], ids=["open", "expired"])
async def test_a_question_of_a_stored_chat_is_asked_until_it_expires(store, tmp_path, days, code):
    """A script without an answer to an open question exits with 5. An expired one can no longer be answered with yes."""
    conversation = await store.open("waiting", owner=ANONYMOUS_OWNER, create=True)
    assistant = AssistantMessage(tool_calls=(ToolCall(id="c1", name="wipe", arguments="{}"),))
    expires_at = now() + timedelta(days=days)
    step = PendingStep(assistant=assistant, approvals={"i1": "c1"}, expires_at=expires_at)
    await conversation.commit([UserMessage(content="wipe it")], step)
    conversation.close()
    done = holodeck("chat", "--resume", "waiting", folder=tmp_path, stdin="hello\n")
    assert (done.code, "? wipe" in done.err + done.out) == (code, code == 5), done


async def test_an_id_that_nothing_has_is_one_sentence(store, tmp_path):
    done = holodeck("chat", "--resume", "01K9ZQ4W3V8N2R5T7Y9A1C3E5G", folder=tmp_path)
    assert done.code == 2
    assert "there is no saved chat" in done.err


def test_a_session_whose_store_cannot_be_used_is_not_replaced_by_a_new_one(tmp_path):
    (tmp_path / "agent.yaml").write_text("name: a\nmodel: {provider: demo}\n")
    (tmp_path / ".holodeck").mkdir()
    (tmp_path / ".holodeck" / "sessions.db").write_text("no database\n" * 100)
    done = holodeck("chat", "--session", "s", "hello", folder=tmp_path)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert "sessions.db cannot be used: file is not a database" in done.err


async def test_a_full_disk_is_named(tmp_path, monkeypatch):
    (tmp_path / "agent.yaml").write_text(AGENT)
    (tmp_path / ".holodeck" / "sessions.db").mkdir(parents=True)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=4096))
    store = build_sqlite(load_config(tmp_path)).sessions
    with pytest.raises(StartError, match="cannot be used: the disk is full"):
        await store.start()
