"""Checks of a user's own, named in the agent file (CHT-07)."""

import pytest

from tests.cli.process import holodeck


@pytest.mark.req("CHT-07")
def test_a_check_from_the_agent_file_changes_or_refuses_what_was_typed(tmp_path):
    (tmp_path / "agent.yaml").write_text(
        "name: helper\nmodel: {provider: demo}\nchat:\n  checks: [{file: checks.py, function: polite}]\n"
    )
    (tmp_path / "checks.py").write_text(
        'def polite(text: str) -> str:\n    if "please" not in text:\n        raise ValueError("Say please.")\n    return text\n'
    )
    result = holodeck("chat", "--quiet", folder=tmp_path, stdin="do it\n")
    assert "Say please." in result.err
    kind = holodeck("chat", "--quiet", folder=tmp_path, stdin="hello, please\n")
    assert "Say please." not in kind.err
    assert kind.out
