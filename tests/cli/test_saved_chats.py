"""Saved chats and the values they are made of: whole files, for their owner alone."""

import json
import os
from datetime import UTC, datetime, timedelta

import pytest

from holodeck.access.private_file import write_private
from holodeck.cli.conversation.archive import ChatFileError, load_chat, save_chat
from holodeck.cli.conversation.session import ChatSession, SessionState
from holodeck.core.messages import (
    AssistantMessage,
    Summary,
    ToolCall,
    ToolExecution,
    ToolMessage,
    ToolStatus,
    UserMessage,
)
from holodeck.core.usage import TokenUsage
from holodeck.sessions.transcript import Transcript
from tests.cli.process import holodeck

MESSAGES = (
    UserMessage(content="Add eggs ☺"),
    AssistantMessage(
        tool_calls=(ToolCall(id="c1", name="add", arguments='{"what": "eggs"}'),),
        tokens_used=TokenUsage(prompt_tokens=5, completion_tokens=2),
    ),
    ToolMessage(call_id="c1", name="add", content="added"),
    AssistantMessage(content="Do", cut="stopped", tokens_used=TokenUsage(prompt_tokens=9, completion_tokens=1)),
)


def session(**fields) -> ChatSession:
    return ChatSession(agent_name="a", transcript=Transcript(MESSAGES, state={"n": 1}), **fields)


@pytest.mark.req("CHT-04")
def test_a_chat_comes_back_as_it_was(tmp_path):
    saved, path = session(metadata={"mood": "good"}), tmp_path / "chat.json"
    save_chat(saved, path)
    assert path.stat().st_mode & 0o777 == 0o600
    found = load_chat(path)
    assert tuple(found.transcript.messages) == MESSAGES
    assert found.transcript.state == {"n": 1}
    assert (found.session_id, found.started_at, found.metadata) == (
        saved.session_id,
        saved.started_at,
        {"mood": "good"},
    )
    assert (found.state, found.message_count, found.title) == (SessionState.INITIALIZING, 4, "Add eggs ☺")


def test_a_summary_is_kept_while_it_is_of_these_messages(tmp_path):
    summary = Summary(content="They added eggs.", until=MESSAGES[2].id, messages=3)
    one = ChatSession(agent_name="a", transcript=Transcript(MESSAGES, summary=summary))
    path = tmp_path / "chat.json"
    save_chat(one, path)
    assert load_chat(path).transcript.summary == summary
    path.write_text(path.read_text().replace(f'"until": "{summary.until}"', '"until": "another"'))
    assert load_chat(path).transcript.summary is None


def test_a_file_without_a_summary_is_as_good(tmp_path):
    path = tmp_path / "chat.json"
    save_chat(session(), path)
    saved = json.loads(path.read_text())
    assert saved.pop("summary") is None
    path.write_text(json.dumps(saved))
    assert load_chat(path).message_count == len(MESSAGES)


def test_the_file_is_readable(tmp_path):
    save_chat(session(), tmp_path / "chat.json")
    lines = (tmp_path / "chat.json").read_text().splitlines()
    assert len(lines) > 20
    assert '  "title": "Add eggs ☺",' in lines
    assert json.loads("\n".join(lines))["messages"][3]["cut"] == "stopped"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "chat.json"
    path.write_bytes(b"old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_private(path, b"new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["chat.json"]


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ChatFileError, match="there is no saved chat"):
        load_chat(tmp_path / "chat.json")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data[: len(data) // 2], "is not a saved chat"),
        (lambda data: b"[]", "is not a saved chat"),
        (lambda data: data.replace(b"holodeck-chat/1", b"holodeck-chat/2"), "is not a saved chat"),
        (lambda data: data.replace(b'"call_id": "c1"', b'"call_id": "c2"'), "a call of add without its result"),
        (lambda data: data.replace(b'"started_at": "20', b'"started_at": "29'), "in the future"),
        (lambda data: data.replace(b"eggs", b"\xff\xfe"), "is not a saved chat"),
        (lambda data: data.replace(b'"n": 1', b'"n": ' + b"[" * 100_000 + b"]" * 100_000), "is not a saved chat"),
        (lambda data: data.replace(b'"session_id": "', b'"session_id": "../../'), "is not a ULID"),
    ],
)
def test_files_that_are_no_chats(tmp_path, change, problem):
    path = tmp_path / "chat.json"
    save_chat(session(), path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ChatFileError, match=problem):
        load_chat(path)


def test_a_folder_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "chats").write_text("a file")
    with pytest.raises(ChatFileError, match="cannot be written"):
        save_chat(session(), tmp_path / "chats" / "chat.json")


@pytest.mark.req("CHT-04")
def test_a_session_goes_one_way():
    one = session()
    one.become(SessionState.ACTIVE)
    one.become(SessionState.TERMINATED)
    for state in SessionState:
        with pytest.raises(ValueError, match="cannot become"):
            one.become(state)


@pytest.mark.req("CHT-04")
@pytest.mark.parametrize("when", [datetime.now(UTC) + timedelta(days=1), datetime(2020, 1, 1)])  # noqa: DTZ001  the case
def test_a_session_starts_at_a_time_that_has_been(when):
    with pytest.raises(ValueError, match="started_at"):
        session(started_at=when)


@pytest.mark.req("CHT-06")
def test_usage_is_the_sum_and_not_complete_if_a_part_is_unknown():
    one, usage = session(), TokenUsage(prompt_tokens=14, completion_tokens=3)
    assert one.known_usage == (usage, True)
    one.transcript = Transcript([*MESSAGES, AssistantMessage(content="?")])
    assert one.known_usage == (usage, False)


@pytest.mark.req("CHT-05")
def test_a_failed_tool_execution_says_why():
    with pytest.raises(ValueError, match="error_message"):
        ToolExecution(tool_name="t", status=ToolStatus.FAILED)
    with pytest.raises(ValueError, match="negative"):
        ToolExecution(tool_name="t", execution_time=-1.0)
    assert [*ToolStatus] == ["pending", "running", "success", "failed"]


@pytest.mark.req("CHT-01")
def test_list_and_resume_through_pipes(tmp_path):
    (tmp_path / "agent.yaml").write_text("name: a\nmodel: {provider: demo}\n")
    one, file = session(), tmp_path / "chat.json"
    assert holodeck("chat", "--list", folder=tmp_path).out == "There are no saved chats.\n"
    save_chat(one, file)
    resumed = holodeck("chat", "--resume", str(file), folder=tmp_path, stdin="hello\n")
    assert resumed.code == 0
    assert load_chat(file).message_count == 4, "the file stays as it is"
    listed = holodeck("chat", "--list", folder=tmp_path)
    assert listed.out.startswith(one.session_id)
    assert "Add eggs" in listed.out
    shown = holodeck("sessions", "show", one.session_id, folder=tmp_path)
    assert shown.out.startswith("user: Add eggs ☺\n")
    assert "user: hello\n" in shown.out, "the chat goes on in the store"
    save_chat(ChatSession(agent_name="b", transcript=Transcript(MESSAGES)), file)
    other = holodeck("chat", "--resume", str(file), folder=tmp_path)
    assert (other.code, other.err) == (0, "! this chat was with b\n")
    missing = holodeck("chat", "--resume", "never", folder=tmp_path)
    assert (missing.code, missing.out) == (2, "")
    assert "there is no saved chat 'never'" in missing.err


def test_a_chat_through_a_pipe_is_not_kept(tmp_path):
    (tmp_path / "agent.yaml").write_text("name: a\nmodel: {provider: demo}\n")
    assert holodeck("chat", folder=tmp_path, stdin="hello\n").code == 0
    assert not (tmp_path / ".holodeck").exists()
