"""The page of findings: every test that it names exists, and no finding is left out."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "findings.md").read_text()


SERVER_ROWS = (
    23, 30, 42, 43, 71, 75, 77, 94, 97, 111, 114, 128, 130, 155, 156, 157, 158, 159, 160, 161, 163, 164, 172, 176, 177, 180,
)  # fmt: skip
CHAT_ROWS = (1, 23, 36, 38, 47, 49, 72, 94, 96, 104, 106, 112, 115, 118, 128, 130, 132, 140, 147)
NEWCOMER = {"1": 6, "2b": 6, "2c": 5, "2d": 5, "3": 9, "4": 9, "5": 9, "6": 7}  # section → findings with a number


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PAGE)
    missing = [name for path, name in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert missing == []
    assert len(named) >= len(rows())


def rows() -> list[str]:
    return re.findall(r"^\| ([FSC]?\d\w?(?:[\d.]*)) \|", PAGE, re.MULTILINE)


def test_every_finding_has_a_row() -> None:
    expected = [str(number) for number in range(1, 21)] + [f"F{number}" for number in range(1, 12)]
    expected += [f"S{number}" for number in SERVER_ROWS] + [f"C{number}" for number in CHAT_ROWS]
    numbered = {f"{section}.{number}" for section, last in NEWCOMER.items() for number in range(1, last + 1)}
    assert rows()[: len(expected)] == expected
    assert set(rows()[len(expected) :]) == {"2a", *numbered}


def test_every_attack_has_a_row_with_its_test() -> None:
    found = re.findall(r"^\| (A\d+) \|.*\| `tests/[^|]+` \|$", PAGE, re.MULTILINE)
    assert found == [f"A{number:02}" for number in range(1, 75)]


def test_every_promise_of_the_wires_has_a_row_with_its_test() -> None:
    found = re.findall(r"^\| (W\d+) \|.*\| `tests/[^|]+` \|$", PAGE, re.MULTILINE)
    assert found == [f"W{number:02}" for number in range(1, 48)]


def test_every_sentence_about_models_has_a_row_with_its_test() -> None:
    found = re.findall(r"^\| M(\d+)\.(\d+) \|.*\| `tests/[^|]+` \|$", PAGE, re.MULTILINE)
    sections = {int(section) for section, _ in found}
    assert sections == set(range(1, 13))
    for section in sections:
        numbers = [int(number) for each, number in found if int(each) == section]
        assert numbers == list(range(1, len(numbers) + 1))


def test_every_sentence_about_everyday_use_has_a_row_with_its_test() -> None:
    found = re.findall(r"^\| E(\d+)\.(\d+) \|.*\| `tests/[^|]+` \|$", PAGE, re.MULTILINE)
    expected = {1: 4, 2: 14, 3: 11, 4: 12, 5: 8, 6: 13, 7: 7, 8: 13, 9: 5, 10: 6}
    assert found == [(str(section), str(number)) for section, last in expected.items() for number in range(1, last + 1)]


def test_every_sentence_about_durability_has_a_row_with_its_test_or_command() -> None:
    found = re.findall(r"^\| L(\d+)\.(\d+) \|.*\| (`[^|]+`) \|$", PAGE, re.MULTILINE)
    sections = {int(section) for section, *_ in found}
    assert sections == set(range(1, 12))
    for section in sections:
        numbers = [int(number) for each, number, _ in found if int(each) == section]
        assert numbers == list(range(1, len(numbers) + 1))
    assert commands_in(shown for *_, shown in found) <= known_commands()


@pytest.mark.parametrize(
    ("letter", "sections"), [("G", range(1, 17)), ("H", (*range(1, 10), *range(11, 15)))], ids=["findings", "one door"]
)
def test_every_sentence_about_findings_and_the_redesign_has_a_row_with_its_test_or_command(letter, sections) -> None:
    rows = re.findall(rf"^\| {letter}(\d+)\.(\d+) \|", PAGE, re.MULTILINE)
    found = re.findall(rf"^\| {letter}(\d+)\.(\d+) \|.*\| (`[^|]+`) \|$", PAGE, re.MULTILINE)
    assert [(section, number) for section, number, _ in found] == rows
    assert [int(section) for section, number in rows if number == "1"] == list(sections)
    assert commands_in(shown for *_, shown in found) <= known_commands()


def commands_in(cells: Iterable[str]) -> set[str]:
    return {name for shown in cells for name in re.findall(r"`([^`]+)`", shown) if not name.startswith("tests/")}


def known_commands() -> set[str]:
    verbs = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    return {f"make {verb}" for verb in verbs} | {f"python -m benchmarks {name}" for name in BENCHMARKS}


def test_every_sentence_about_access_has_a_row_with_its_tests() -> None:
    """By the items of what was asked for (R1 to R13) and the sections of its design (D1.2 to D2.2)."""
    lines = re.findall(r"^\| ([RD]\d[\w.]*) \|", PAGE, re.MULTILINE)
    found = re.findall(r"^\| ([RD]\d[\w.]*) \|.*\| `tests/[^|]+` \|$", PAGE, re.MULTILINE)
    assert lines == found
    assert len(set(found)) == len(found)
    assert {row.partition(".")[0] for row in found if row.startswith("R")} == {f"R{item}" for item in range(1, 14)}
    sections = {row.rstrip("ab") for row in found if row.startswith("D")}
    assert sections == {*(f"D1.{section}" for section in range(2, 14)), "D2.1", "D2.2"}
