"""Text from outside: every function takes anything and gives back text that is safe for its purpose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.core.text import clean, one_line, scalar, shorten, strip_controls, terminal_safe

ANYTHING = st.text(st.characters(), max_size=60)  # surrogates and controls included
CONTROLS = {chr(code) for code in [*range(0x20), *range(0x7F, 0xA0)]}
BIDI = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")

TERMINAL = [
    ("plain", "plain"),
    ("a\tb\nc", "a\tb\nc"),
    ("a\r\nb\rc", "a\nbc"),
    ("\x1b[31mred\x1b[0m", "red"),
    ("\x1b[2J\x1b[H", ""),
    ("\x9b31mred", "red"),
    ("\x1b]0;title\x07after", "after"),
    ("\x1b]8;;http://127.0.0.1\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("\x1b]52;c;aGk=\x9cafter", "after"),
    ("\x1bP1$q\x1b\\after", "after"),
    ("\x1b]0;never ends", ""),
    ("\x1bc reset", " reset"),
    ("\x1b(B text", " text"),
    ("\x1b", ""),
    ("\x1b\x1b[31m[31mx", "[31mx"),
    ("bell\x07 back\x08", "bell back"),
    ("abc\u202egpj.exe", "abcgpj.exe"),
    ("zero\u200bwidth\ufeff", "zerowidth"),
    ("\ud83d\ude00", "\U0001f600"),
    ("half \ud83d", "half \ufffd"),
    ("family \U0001f468\u200d\U0001f469", "family \U0001f468\u200d\U0001f469"),
]


@pytest.mark.req("CHT-08", "B20")
@pytest.mark.parametrize(("text", "shown"), TERMINAL)
def test_what_a_terminal_is_shown(text, shown):
    assert terminal_safe(text) == shown


@pytest.mark.req("CHT-08")
@given(ANYTHING)
def test_no_text_reaches_the_terminal_with_controls_or_overrides(text):
    shown = terminal_safe(text)
    assert not set(shown) & (CONTROLS - {"\n", "\t"} | BIDI)
    assert terminal_safe(shown) == shown
    shown.encode()


@given(ANYTHING)
def test_cleaned_text_can_be_stored(text):
    cleaned = clean(text)
    assert "\x00" not in cleaned
    assert clean(cleaned) == cleaned
    cleaned.encode()


@given(st.text(max_size=60))
def test_valid_text_is_left_as_it_is(text):
    assert scalar(text) == text


@pytest.mark.req("ORC-01")
def test_line_ends_and_tabs_are_no_controls():
    assert strip_controls("a\x00b\nc\td\re\x1b\x7f\x85") == "ab\nc\td\re"


@pytest.mark.parametrize(
    ("limit", "shown"),
    [(10, "0123456789"), (9, "012345678… [1 of 10 characters left out]"), (0, "… [10 of 10 characters left out]")],
)
def test_shortened_text_says_what_is_missing(limit, shown):
    assert shorten("0123456789", limit) == shown


@given(ANYTHING, st.integers(1, 30))
def test_one_line_is_one_line_of_that_length(text, limit):
    line = one_line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1


def test_one_line_flattens_and_ends_with_an_ellipsis():
    assert one_line("a\n  b\x1b[1m c", 80) == "a b c"
    assert one_line("abcdef", 4) == "abc…"


def test_what_is_cleaned_is_not_printable():
    """So an id of printable characters (`is_valid_id`) needs no cleaning."""
    every = map(chr, range(0x110000))
    assert not [each for each in every if each.isprintable() and clean(each) != each]
