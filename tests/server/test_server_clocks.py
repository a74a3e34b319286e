"""Clocks that jump: no duration and no limit depends on the time of day."""

import ast
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

import holodeck
from holodeck.core.messages import now
from holodeck.runs import run
from holodeck.server.options import ServerSettings
from tests.server.serving import served

SOURCE = Path(holodeck.__file__).parent
SHOWN_ONLY = {
    "sessions/memory.py",
    "server/protocol.py",
    "server/routes/metrics.py",
}  # when it was, for people; nothing is measured by it
STORES = {
    "stores/postgres_runs.py",
    "stores/sqlite_runs.py",
    "stores/stored_conversation.py",
}  # the clock never goes back
CREDENTIALS = {  # their times are stated by other machines, or to them
    "access/authenticator.py", "access/jwks.py", "access/key_ring.py", "access/page_session.py", "access/tickets.py", "access/tokens.py",
    "server/push_sender.py", "server/run_feed.py", "tools/mcp_oauth.py",
}  # fmt: skip


@pytest.mark.req("D09")
@pytest.mark.parametrize("jump", [timedelta(hours=1), timedelta(hours=-1)])
async def test_a_clock_that_jumps_during_a_run_does_not_change_how_long_it_took(monkeypatch, jump):
    steps = count(1)
    monkeypatch.setattr(run, "now", lambda: now() + next(steps) * jump)
    async with served(settings=ServerSettings(protocols=("rest",))) as s:
        async with s.post({"message": "hi"}, "/agent/tester/chat") as answer:
            result = await answer.json()
        assert next(steps) > 1, "the clock was read, and jumped"
        assert 0 <= result["execution_time_ms"] < 5000


@pytest.mark.req("D09")
def test_the_time_of_day_measures_nothing():
    readers = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "time.time":
                readers.add(str(path.relative_to(SOURCE)))
    assert readers == SHOWN_ONLY | STORES | CREDENTIALS
