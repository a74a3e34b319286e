"""docs/chat.md says what the chat has."""

import re
from pathlib import Path

from holodeck.cli.conversation.commands import COMMANDS

PAGE = (Path(__file__).parents[2] / "docs" / "chat.md").read_text(encoding="utf-8")


def test_every_command_is_documented_and_no_other():
    documented = re.findall(r"^\| `(/[a-z]+)", PAGE, re.MULTILINE)
    assert documented == list(COMMANDS)


def test_the_picture_loads_nothing_from_elsewhere():
    picture = (Path(__file__).parents[2] / "docs" / "chat.svg").read_text(encoding="utf-8")
    assert "Buy eggs" in picture
    assert set(re.findall(r"\w+://[^\s\"<]+", picture)) == {"http://www.w3.org/2000/svg"}
