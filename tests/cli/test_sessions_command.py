"""`holodeck sessions`: on a file as a server leaves it."""

import asyncio
import json
import sqlite3
from contextlib import closing
from unittest.mock import AsyncMock

import msgspec
import pytest

from holodeck.cli.sessions import command
from holodeck.config.build_stores import build_sqlite
from holodeck.config.load import load_config
from holodeck.core.messages import AssistantMessage, PendingStep, ToolCall, ToolMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER, Owner
from holodeck.errors import StartError, StorageFull
from holodeck.runs.port import RunState
from holodeck.sessions.port import StoredSession
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from tests.cli.process import holodeck
from tests.runs.restarted import BEGINNING, QUESTION, RECORD, Restarted

AGENT = "name: tester\nmodel: {provider: demo}\n"
ADA = Owner("acme", "ada")


@pytest.fixture
async def folder(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT)
    store = build_sqlite(load_config(tmp_path)).sessions
    await store.start()
    for owner, name in ((ANONYMOUS_OWNER, "first"), (ADA, "second"), (ANONYMOUS_OWNER, "both"), (ADA, "both")):
        conversation = await store.open(name, owner=owner, create=True)
        await conversation.commit([UserMessage(content=f"hello from {owner.user}\x1b[31m")])
        call = ToolCall(id="c", name="look", arguments='{"at": 1}')
        result = ToolMessage(call_id="c", name="look", content="seen")
        await conversation.commit([AssistantMessage(content="hi", tool_calls=(call,)), result], state={"n": 1})
        await conversation.commit([AssistantMessage(content="I s", cut="stopped")])
        conversation.close()
    await store.close()
    return tmp_path


def ran(folder, *words, code=0):
    done = holodeck("sessions", *words, folder=folder)
    assert done.code == code, done.err
    return done


def test_they_are_listed_and_shown(folder):
    lines = ran(folder, "list").out.splitlines()
    assert [line.split()[0] for line in lines] == ["both", "both", "second", "first"]
    assert "acme/ada" in lines[0]
    assert len({(line.index(" messages"), line.index("hello")) for line in lines}) == 1, "columns"
    assert lines[2].endswith("hello from ada")
    listed = [json.loads(line) for line in ran(folder, "list", "--json", "--limit", "2").out.splitlines()]
    assert [(each["session_id"], each["message_count"]) for each in listed] == [("both", 4), ("both", 4)]
    shown = ran(folder, "show", "second").out
    assert "user: hello from ada" in shown
    assert 'calls look {"at": 1}' in shown
    assert "look: seen" in shown
    assert "assistant: I s (cut off)\n" in shown
    assert shown.count("(cut off)") == 1
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("waits", "state"),
    [
        ({"approvals": {"i": "d"}}, "This step waits for an approval.\n"),
        ({"client_calls": ("d",)}, "This step waits for the client's tools.\n"),
        ({"begun": ("d",)}, "This step is in progress, or a crash cut it off.\n"),
    ],
)
async def test_a_step_that_waits_is_shown_with_its_calls(folder, waits, state):
    """Only its existence was shown: an operator could not see which call was to be approved."""
    store = build_sqlite(load_config(folder)).sessions
    await store.start()
    conversation = await store.open("asks", owner=ADA, create=True)
    call = ToolCall(id="d", name="erase", arguments='{"at": 2}')
    await conversation.commit([UserMessage(content="erase it")])
    await conversation.commit([], pending=PendingStep(assistant=AssistantMessage(tool_calls=(call,)), **waits))
    conversation.close()
    await store.close()
    shown = (await asyncio.to_thread(ran, folder, "show", "asks")).out
    assert shown == f'user: erase it\nassistant:\n  calls erase {{"at": 2}}\n{state}'


def test_an_agent_that_keeps_its_sessions_in_memory_has_none_for_these_commands(folder):
    """They read and wrote a file that no server of this agent opens."""
    (folder / "agent.yaml").write_text(AGENT + "sessions: {store: memory}\n")
    (folder / "one.jsonl").write_text(line("new"))
    for words in (("list",), ("show", "first"), ("export",), ("import", "one.jsonl"), ("delete", "first"), ("vacuum",)):
        assert "sessions.store is memory: only the running server has the sessions" in ran(folder, *words, code=2).err
    assert "sessions.store is memory" in ran(folder, "backup", "copy.db", code=2).err
    (folder / "agent.yaml").write_text(AGENT)
    assert len(ran(folder, "list").out.splitlines()) == 4


def test_an_id_that_two_users_have_needs_the_user(folder):
    assert "2 users have a session 'both'" in ran(folder, "show", "both", code=2).err
    assert "ada" in ran(folder, "show", "both", "--user", "ada", "--tenant", "acme").out
    assert "there is no session 'nope'" in ran(folder, "show", "nope", code=2).err
    assert "there is no session 'nope' of default/ann" in ran(folder, "show", "nope", "--user", "ann", code=2).err


def test_a_tenant_without_its_user_is_an_error(folder):
    """`second` is a session of acme: without a user, the option was ignored."""
    for words in (("show", "second"), ("delete", "second"), ("export",)):
        assert "--tenant needs --user" in ran(folder, *words, "--tenant", "other", code=2).err
    assert len(ran(folder, "export").out.splitlines()) == 4


def test_the_sessions_of_one_user_are_exported_without_those_of_others(folder):
    lines = ran(folder, "export", "--user", "ada", "--tenant", "acme").out.splitlines()
    exported = [msgspec.json.decode(line, type=StoredSession).session for line in lines]
    assert {(each.session_id, each.owner) for each in exported} == {("second", ADA), ("both", ADA)}
    other = ran(folder, "export", "--user", "ada")
    assert (other.out, other.err) == ("", "0 sessions exported.\n"), "another tenant's ada"


def test_they_move_to_another_agent(folder, tmp_path):
    done = ran(folder, "export")
    exported = done.out
    assert (len(exported.splitlines()), done.err) == (4, "4 sessions exported.\n")
    assert ran(folder, "export", "second").err == "1 session exported.\n"
    other = tmp_path / "other"
    other.mkdir()
    (other / "agent.yaml").write_text(AGENT.replace("tester", "other"))
    (tmp_path / "all.jsonl").write_text(exported)
    ran(folder, "import", "all.jsonl", "--agent", "other")
    again = ran(folder, "export", "--agent", "other").out
    assert sorted(again.splitlines()) == sorted(exported.splitlines())
    again = ran(folder, "import", "all.jsonl", "--agent", "other", code=2).err
    assert "and 3 more exist already, nothing was imported; --skip-existing imports the others" in again
    ran(folder, "delete", "first", "--agent", "other")
    skipped = ran(folder, "import", "all.jsonl", "--skip-existing", "--agent", "other")
    assert skipped.err == "1 session imported, 3 left as they were.\n"
    for bad in ('{"session": 1}', '{"session": ', "\ud800", "hello"):
        (tmp_path / "bad.jsonl").write_bytes(f"{exported}\n{bad}\n".encode(errors="surrogatepass"))
        refused = ran(folder, "import", "bad.jsonl", code=2).err
        assert "line 6 is not an export of a session, nothing was imported: " in refused


def test_a_backup_is_not_taken_for_an_export(folder):
    """The error was 'JSON is malformed', which does not say how to get the sessions back."""
    ran(folder, "backup", "copy.db")
    refused = ran(folder, "import", "copy.db", code=2).err
    assert "nothing was imported: `import` reads what `export` wrote; to restore a backup, stop the server" in refused


def line(session="s", user="ann", messages=(), *, used="2026-01-02T00:00:00Z"):
    about = {"session_id": session, "owner": {"tenant": "default", "user": user}, "created_at": used}
    return json.dumps({"session": {**about, "last_activity": used}, "messages": list(messages)}) + "\n"


CALLING = {
    "role": "assistant",
    "content": "",
    "id": "a",
    "tool_calls": [{"id": "c", "name": "look", "arguments": "{}"}],
}
RESULT = {"role": "tool", "call_id": "c", "name": "look", "content": "seen", "id": "t"}


@pytest.mark.req("D05")
@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (line("a\x00b"), "has no usable name"),
        (line("a\r\nb"), "has no usable name"),
        (line("a" * 200), "has no usable name"),
        (line(user="\x00"), "has no usable name"),
        (line("good"), "is in the file twice"),
        (line(messages=[CALLING]), "has no result"),
        (line(messages=[RESULT]), "has no call"),
    ],
)
def test_a_file_that_no_server_could_use_is_refused_as_a_whole(folder, bad, problem):
    (folder / "hostile.jsonl").write_text(line("good") + bad)
    refused = ran(folder, "import", "hostile.jsonl", code=2).err
    assert "line 2 cannot be stored, nothing was imported" in refused
    assert problem in refused
    assert "there is no session 'good'" in ran(folder, "show", "good", code=2).err


def test_an_import_that_would_delete_sessions_is_refused_as_a_whole(folder):
    (folder / "agent.yaml").write_text(AGENT + "sessions: {max_per_user: 3}\n")
    (folder / "more.jsonl").write_text("".join(line(f"new{number}") for number in range(4)))
    refused = ran(folder, "import", "more.jsonl", code=2).err
    assert "default/ann would have 4 sessions, and sessions.max_per_user is 3: nothing was imported" in refused
    assert len(ran(folder, "list").out.splitlines()) == 4


@pytest.mark.req("DUR-02")
def test_an_import_that_would_not_fit_is_refused(folder):
    """The first message after it would delete the user's oldest sessions."""
    (folder / "agent.yaml").write_text(AGENT + "sessions: {stored_mb: 1}\n")
    long = {"role": "user", "content": "x" * 400_000, "id": "long", "timestamp": "2026-01-02T00:00:00Z"}
    first, second, third = (line(each, messages=[long], used="9999-01-01T00:00:00Z") for each in ("a", "b", "third"))
    (folder / "two.jsonl").write_text(first + second)
    (folder / "one.jsonl").write_text(third)
    ran(folder, "import", "two.jsonl")
    refused = ran(folder, "import", "one.jsonl", code=2).err
    assert "default/ann would have 1.2 MB, and sessions.stored_mb is 1: nothing was imported" in refused
    assert "third" not in ran(folder, "list").out


def spoil(folder, session_id, change):
    with closing(sqlite3.connect(folder / ".holodeck" / "sessions.db")) as file, file:
        file.execute(f"UPDATE steps SET {change} WHERE session = (SELECT key FROM sessions WHERE id = ?)", [session_id])


@pytest.mark.req("D16")
@pytest.mark.parametrize("change", ["body = x'5b7b'", "v = 99"], ids=["broken", "newer"])
def test_one_that_cannot_be_read_is_named_by_an_export_and_can_be_deleted(folder, change):
    spoil(folder, "first", change)
    done = ran(folder, "export", code=2)
    assert len(done.out.splitlines()) == 3
    assert "1 session could not be exported; all others were." in done.err
    assert "first of default/anonymous: " in done.err
    ran(folder, "show", "first", code=2)
    ran(folder, "delete", "first")
    assert len(ran(folder, "export").out.splitlines()) == 3


@pytest.mark.parametrize("used", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00", "0001-01-01T00:00:00Z"])
def test_a_time_in_a_file_ends_no_other_session(folder, used):
    (folder / "odd.jsonl").write_text(line("odd", messages=[CALLING, RESULT], used=used))
    read = ran(folder, "import", "odd.jsonl").err
    assert ("will be deleted" in read) == used.startswith("0001")
    ran(folder, "vacuum")
    left = {text.split()[0] for text in ran(folder, "list").out.splitlines()}
    assert left >= {"first", "second", "both"}


def test_one_is_deleted_and_the_file_is_vacuumed_and_backed_up(folder):
    assert ran(folder, "backup", "copy.db").err.startswith("Wrote copy.db, ")
    assert "exists" in ran(folder, "backup", "copy.db", code=2).err
    assert "there is no folder nowhere" in ran(folder, "backup", "nowhere/copy.db", code=2).err
    assert ran(folder, "delete", "first").err == "1 session deleted.\n"
    ran(folder, "vacuum")
    assert len(ran(folder, "list").out.splitlines()) == 3
    for name in ("sessions.db-wal", "sessions.db-shm"):
        (folder / ".holodeck" / name).unlink(missing_ok=True)
    (folder / "copy.db").replace(folder / ".holodeck" / "sessions.db")
    assert len(ran(folder, "list").out.splitlines()) == 4


@pytest.mark.req("D03b")
@pytest.mark.parametrize("stops", [0, 2], ids=["once", "after two stops of the server"])
async def test_a_server_on_a_backup_ends_the_runs_that_the_original_continues(tmp_path, stops):
    """A background run would make the calls again that it has made since the backup."""
    (tmp_path / "agent.yaml").write_text(AGENT)
    original, copy = tmp_path / ".holodeck" / "sessions.db", tmp_path / "copy.db"
    request = msgspec.structs.replace(RECORD.request, detached=True, handovers=stops)
    async with Restarted(original) as server:
        await server.left(QUESTION, record=msgspec.structs.replace(RECORD, request=request), events=BEGINNING)
        await asyncio.to_thread(ran, tmp_path, "backup", str(copy))
    async with Restarted(copy) as server:
        assert await server.interrupted.recover() == 1
        assert (await server.records.find("r", owner=ANONYMOUS_OWNER)).state is RunState.INTERRUPTED
        assert [message.content for message in await server.history()] == ["go", "let me"]
        assert server.model.prompts == []
    async with Restarted(original) as server:
        await server.interrupted.recover()
        run = await server.stored.find("r", owner=ANONYMOUS_OWNER)
        await run.done()
        assert run.state is RunState.FINISHED


@pytest.mark.req("D05")
def test_a_file_with_a_damaged_page_can_be_backed_up(folder):
    """The copy may be the last that can be read of the sessions."""
    path, copy = folder / ".holodeck" / "sessions.db", folder / "copy.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(
            "INSERT INTO runs (agent, tenant, user, id, session, wire, state, accepted, v, request)"
            " VALUES ('tester', 't', 'u', 'r', 's', '', 'running', 0, 1, x'7b7d')"
        )
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'runs'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * 8)
    assert "warning: a page is damaged" in ran(folder, "backup", copy.name).err
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (4,)


def test_a_backup_that_fails_leaves_no_file_that_looks_like_one(folder):
    """An empty file would be an empty store, for the operator who restores it."""
    path = folder / ".holodeck" / "sessions.db"
    for each in path.parent.glob("sessions.db-*"):
        each.unlink()
    path.write_bytes(b"this is no database, whatever its name says")
    assert "cannot be copied" in ran(folder, "backup", "copy.db", code=2).err
    assert list(folder.glob("copy.db*")) == []


def test_a_backup_that_cannot_be_written_names_its_own_file(folder):
    """Removing the incomplete copy failed as well, as in a read-only folder: exit code 70."""
    name = "a" * 255
    assert f"{name} cannot be written: File name too long" in ran(folder, "backup", name, code=2).err


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("PRAGMA application_id=1", "is a database of another application"),
        ("PRAGMA user_version=99", "was written by a newer version of HoloDeck"),
    ],
    ids=["foreign", "newer"],
)
def test_only_a_file_that_this_version_understands_is_backed_up(folder, change, problem):
    """The runs in the copy are ended, in tables that another program or version may use differently."""
    with closing(sqlite3.connect(folder / ".holodeck" / "sessions.db")) as connection, connection:
        connection.execute(change)
    assert problem in ran(folder, "backup", "copy.db", code=2).err
    assert list(folder.glob("copy.db*")) == []


def test_all_sessions_of_one_user_are_deleted(folder):
    done = ran(folder, "delete", "--all", "--user", "ada")
    left = [json.loads(line) for line in ran(folder, "list", "--json").out.splitlines()]
    assert done.err.strip() == f"{4 - len(left)} sessions deleted."
    assert left
    assert [each for each in left if each["owner"] == {"tenant": "default", "user": "ada"}] == []
    for words in (["--all"], ["first", "--all", "--user", "ada"], []):
        assert "either the ID of a session, or --all and --user" in ran(folder, "delete", *words, code=2).err


def test_without_a_file_it_is_one_sentence(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT)
    listed = ran(tmp_path, "list")
    assert (listed.out, listed.err) == (
        "",
        "No sessions: none is stored yet, or all have expired. Answers to a single question are stored only with --session ID.\n",
    )
    assert "there are no stored sessions" in ran(tmp_path, "show", "first", code=2).err


@pytest.mark.req("D10")
def test_a_deletion_on_a_full_disk_says_what_it_needs(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(SqliteSessionStore, "delete", AsyncMock(side_effect=StorageFull("The disk is full.")))
    with pytest.raises(StartError, match=r"The disk is full\. Free about 1 MB and try again"):
        command.main(["delete", "first"], standalone_mode=False)
