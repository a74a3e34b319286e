"""`holodeck keys` as a user types it."""

import json
import stat

import pytest

from holodeck.config.auth import build_access
from holodeck.config.load import load_config
from tests.cli.process import holodeck


@pytest.fixture
def keys(tmp_path):
    def command(*arguments, stdin=""):
        return holodeck("keys", *arguments, folder=tmp_path, stdin=stdin)

    return command


def test_a_key_from_its_making_to_its_end(keys, tmp_path):
    """A18: the key is on standard output once, alone, and nowhere else."""
    made = keys("create", "--name", "ci", "--user", "ann", "--tenant", "acme", "--scope", "chat", "--rpm", "60")
    assert "for ann of tenant acme, expires" in made.err
    key = made.out.strip()
    assert made.code == 0
    assert made.out == key + "\n"
    assert key.startswith("hdk_")
    assert key not in made.err
    assert stat.S_IMODE((tmp_path / "keys.json").stat().st_mode) == 0o600

    checked = keys("check", stdin=key + "\n")
    about = json.loads(checked.out)
    assert (about["user"], about["tenant"], about["scopes"], about["state"]) == ("ann", "acme", ["chat"], "active")
    assert checked.code == 0

    listed = json.loads(keys("list", "--json").out)
    assert [each["id"] for each in listed] == [key[4:12]]
    assert "ann" in keys("list").out

    rotated = keys("rotate", key[4:12], "--grace", "1h")
    assert rotated.code == 0
    assert rotated.out.startswith("hdk_")
    assert f"; to end it now: holodeck keys revoke {key[4:12]}\n" in rotated.err, "a leaked key still works"
    assert "The old key" not in keys("rotate", rotated.out[4:12], "--grace", "0m").err

    assert keys("revoke", key[4:12]).code == 0
    after = keys("check", stdin=key)
    assert (after.code, json.loads(after.out)["state"]) == (1, "revoked")
    written = (tmp_path / "keys.json").read_text()
    for text in (key, rotated.out.strip()):
        assert text not in written + keys("list").out + keys("list", "--json").out + checked.out


def test_the_first_key_comes_with_the_line_that_makes_the_server_ask_for_it(keys, tmp_path):
    hint = "To require keys, write into agent.yaml: "
    (line,) = [each for each in keys("create", "--name", "a").err.splitlines() if each.startswith(hint)]
    assert hint not in keys("create", "--name", "b").err
    (tmp_path / "agent.yaml").write_text(f"name: x\nmodel: {{provider: demo}}\n{line.removeprefix(hint)}\n")
    config = load_config(tmp_path)
    assert build_access(config).keys is not None


def test_a_key_expires_in_a_year_unless_never_is_written(keys):
    keys("create", "--name", "a")
    keys("create", "--name", "b", "--expires", "never")
    first, second = json.loads(keys("list", "--json").out)
    assert first["expires"] is not None
    assert second["expires"] is None


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "words"),
    [
        (("create",), "", 2, "--name"),
        (("create", "--name", "x", "--expires", "soon"), "", 2, "90d"),
        (("create", "--name", "x", "--expires", "0d"), "", 2, "cannot be used"),
        (("create", "--name", "x", "--expires", "9999y"), "", 2, "at most 100y, or never"),
        (("create", "--name", "x", "--scope", "everything"), "", 2, "everything"),
        (("create", "--name", "x", "--user", "anonymous"), "", 2, "user name"),
        (("create", "--name", ""), "", 2, "name"),
        (("create", "--name", "x", "--file", "no/such/folder/keys.json"), "", 2, "cannot be written"),
        (("list",), "", 2, "holodeck keys create"),
        (("revoke", "7Q2M9KXD"), "", 2, "no key with the id 7Q2M9KXD"),
        (("rotate", "7Q2M9KXD"), "", 2, "no key with the id 7Q2M9KXD"),
        (("check",), "nonsense", 1, "hdk_"),
        (("check",), "hdk_ABCDEFGH_short", 1, "mistyped"),
        (("check",), "", 1, "hdk_"),
    ],
)
def test_mistakes_are_one_line(keys, arguments, stdin, code, words):
    done = keys(*arguments, stdin=stdin)
    assert done.code == code
    assert words in done.err
    assert "Traceback" not in done.err


def test_an_unknown_key_is_not_valid(keys):
    keys("create", "--name", "x")
    from holodeck.access.api_key import new_key

    done = keys("check", stdin=new_key())
    assert done.code == 1
    assert "unknown" in done.err
