"""`holodeck check` and `holodeck sessions` on a database."""

import json

from holodeck.config.build_stores import build_durable
from holodeck.config.load import load_config
from holodeck.core.messages import UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from tests.cli.process import holodeck
from tests.ports import free_port

AGENT = "name: tester\nmodel: {{provider: demo}}\nsessions: {{store: postgres, url: '{url}'}}\n"


def test_check_says_what_survives(tmp_path, postgres_database):
    (tmp_path / "agent.yaml").write_text(AGENT.format(url=postgres_database))
    done = holodeck("check", folder=tmp_path)
    assert done.code == 0, done.err
    assert "warning: sessions are kept in PostgreSQL on" in done.err
    assert "a power failure may lose the last messages (fsync off" in done.err
    assert "PostgreSQL" not in done.out, "no check mark"


def test_check_fails_without_the_database(tmp_path):
    port = free_port()
    (tmp_path / "agent.yaml").write_text(AGENT.format(url=f"postgresql://me:hunter2@127.0.0.1:{port}/db"))
    done = holodeck("check", folder=tmp_path)
    assert done.code == 2
    assert f"PostgreSQL on 127.0.0.1:{port}, database db, cannot be reached: Connection refused" in done.err
    assert "hunter2" not in done.out + done.err


async def test_sessions_are_listed_moved_and_deleted(tmp_path, postgres_database):
    (tmp_path / "agent.yaml").write_text(AGENT.format(url=postgres_database))
    store = build_durable(load_config(tmp_path))
    await store.start()
    conversation = await store.open("s", owner=ME, create=True)
    await conversation.commit([UserMessage(content="hello")])
    await store.close()
    assert "1 messages" in holodeck("sessions", "list", folder=tmp_path).out
    assert "user: hello" in holodeck("sessions", "show", "s", folder=tmp_path).out
    exported = holodeck("sessions", "export", folder=tmp_path).out
    assert json.loads(exported)["session"]["session_id"] == "s"
    (tmp_path / "all.jsonl").write_text(exported)
    assert holodeck("sessions", "delete", "s", folder=tmp_path).code == 0
    assert "No sessions: none is stored yet" in holodeck("sessions", "list", folder=tmp_path).err
    assert holodeck("sessions", "import", "all.jsonl", folder=tmp_path).code == 0
    assert "1 messages" in holodeck("sessions", "list", folder=tmp_path).out
    refused = holodeck("sessions", "backup", "copy.db", folder=tmp_path)
    assert (refused.code, "pg_dump" in refused.err) == (2, True)
