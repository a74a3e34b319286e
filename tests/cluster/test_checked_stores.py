"""`holodeck check` connects to every store that the agent file names, as `serve` does."""

import pytest

from tests.cli.process import holodeck

AGENT = """name: tester
model: {provider: demo}
sessions: {store: postgres, url: "${DATABASE_URL}"}
cluster: {valkey: "${VALKEY_URL}"}
server: {limits: {store: "${LIMITS_URL}", when_store_is_down: refuse}}
"""
NOWHERE = "unix:///nowhere/valkey.sock"
NO_SENTINEL = "valkey+sentinel://127.0.0.1:1/primary"


@pytest.fixture
def check(tmp_path, postgres_database, valkey_url):
    (tmp_path / "agent.yaml").write_text(AGENT)
    urls = {"DATABASE_URL": postgres_database, "VALKEY_URL": valkey_url, "LIMITS_URL": valkey_url}
    return lambda **changed: holodeck("check", folder=tmp_path, **{**urls, **changed})


def test_all_that_answer_are_named(check):
    done = check()
    assert done.code == 0, done.err
    assert "sessions are kept in PostgreSQL" in done.err, "as a warning: this one does not flush its log"
    for name in ("Valkey of cluster.valkey", "Valkey of server.limits.store"):
        assert name in done.out


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"VALKEY_URL": NOWHERE}, "✗ the Valkey of cluster.valkey cannot be reached: "),
        ({"LIMITS_URL": NOWHERE}, "✗ the Valkey of server.limits.store cannot be reached, so requests are refused: "),
        ({"VALKEY_URL": NO_SENTINEL}, "✗ the Valkey of cluster.valkey cannot be reached: "),
        (
            {"LIMITS_URL": NO_SENTINEL},
            "✗ the Valkey of server.limits.store cannot be reached, so requests are refused: ",
        ),
        ({"VALKEY_URL": "nonsense"}, "cluster.valkey: this is not the address of a Valkey or Redis"),
        ({"LIMITS_URL": "nonsense"}, "server.limits.store: this is not the address of a Valkey or Redis"),
    ],
)
def test_one_that_a_server_would_miss_is_an_error(check, changed, problem):
    """`check` was content with all of these; `serve` refused to start, or refused every request."""
    done = check(**changed)
    assert (done.code, problem in done.err) == (2, True), done.err
