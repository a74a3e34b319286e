"""The page of findings: every test that it names exists, and no finding is left out."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "findings.md").read_text()


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PAGE)
    missing = [name for path, name in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert (missing, len(named)) == ([], 31)


def test_every_finding_has_a_row() -> None:
    rows = re.findall(r"^\| (F?\d+) \|", PAGE, re.MULTILINE)
    assert rows == [str(number) for number in range(1, 21)] + [f"F{number}" for number in range(1, 12)]
