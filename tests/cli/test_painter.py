"""Live lines: the screen shows what was asked for, with as little written as possible."""

import io
import random

import pyte
import pytest

from holodeck.cli.terminal.markdown_lines import (
    GrowingMarkdown,
    GrowingText,
    Renderer,
    ReplyMarkdown,
    blocks,
    unseen,
    visible,
)
from holodeck.cli.terminal.screen import Painter

ROWS = 8


class PaintedTerminal:
    def __init__(self) -> None:
        self.out = io.StringIO()
        self.height = ROWS
        self.painter = Painter(self.out, lambda: self.height)
        self.screen = pyte.HistoryScreen(20, ROWS, history=1000, ratio=0.5)
        self.screen.set_mode(pyte.modes.LNM)  # what a terminal driver does with a line feed
        self.stream = pyte.Stream(self.screen)

    def written(self) -> str:
        text = self.out.getvalue()
        self.out.seek(0)
        self.out.truncate()
        self.stream.feed(text)
        return text

    @property
    def lines(self) -> list[str]:
        above = ["".join(line[x].data for x in range(20)).rstrip() for line in self.screen.history.top]
        return [*above, *(line.rstrip() for line in self.screen.display)]


def test_only_what_is_new_is_written():
    terminal = PaintedTerminal()
    terminal.painter.show(["one", "tw"])
    assert terminal.written() == "one\ntw"
    terminal.painter.show(["one", "two"])
    assert terminal.written() == "o"
    terminal.painter.show(["one", "two", "three"])
    assert terminal.written() == "\nthree"
    terminal.painter.show(["one", "two", "three"])
    assert terminal.written() == ""
    terminal.painter.settle(2)
    terminal.painter.show(["3"])
    assert terminal.written() == "\r\x1b[J3"
    assert terminal.lines[:4] == ["one", "two", "3", ""]


def test_random_pictures_end_up_on_the_screen():
    """Whatever is shown, settled and kept in whatever order, the screen agrees with a plain list."""
    chance = random.Random(3)
    for _ in range(150):
        terminal, settled = PaintedTerminal(), []
        for _ in range(12):
            picture = [f"{chance.randrange(3)}" * chance.randrange(1, 9) for _ in range(chance.randrange(ROWS - 1))]
            terminal.painter.show(picture)
            if chance.random() < 0.4:
                number = chance.randrange(len(picture) + 1)
                terminal.painter.settle(number)
                settled += picture[:number]
                picture = picture[number:]
            terminal.written()
            shown = [line for line in terminal.lines if line]
            assert shown == settled + picture


def test_a_picture_higher_than_the_screen_is_written_once():
    terminal = PaintedTerminal()
    lines: list[str] = []
    for number in range(30):
        lines.append(f"line {number}")
        terminal.painter.show(lines)
    terminal.painter.keep(lines)
    assert terminal.written().count("line 3\n") == 1
    assert [line for line in terminal.lines if line] == lines


def test_the_cursor_stays_in_a_window_that_became_lower():
    """What has left it cannot change any more; rows above it are not the painter's."""
    terminal = PaintedTerminal()
    terminal.painter.show(["one", "two", "three", "four", "five"])
    terminal.height = 4
    terminal.written()
    terminal.painter.show(["ONE", "two", "three", "four", "five"])
    assert terminal.written() == ""
    terminal.painter.show(["ONE", "two", "THREE", "four", "five"])
    assert terminal.written() == "\r\x1b[2A\x1b[JTHREE\nfour\nfive"


MARKDOWN = "# T\n\ntext\nmore\n\n- a\n- b\n\n  c\n\n3. x\n\n```py\na\n\nb\n```\n\n| a |\n|---|\n| 1 |\n\n> q\n\nend"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_blocks_that_are_finished_say_the_same_as_the_whole(size):
    growing, renderer, lines = GrowingMarkdown(), Renderer(colours=False), []
    for start in range(0, len(MARKDOWN), size):
        growing.add(MARKDOWN[start : start + size])
        lines += renderer.lines(ReplyMarkdown(growing.finished()), 40)
    lines += renderer.lines(ReplyMarkdown(growing.rest()), 40)
    whole = renderer.lines(ReplyMarkdown(MARKDOWN), 40)
    assert [line.strip() for line in lines if line.strip()] == [line.strip() for line in whole if line.strip()]


def test_a_text_is_the_sum_of_its_blocks():
    assert blocks("") == []
    assert len(blocks(MARKDOWN)) == 8
    assert "\n".join(blocks(MARKDOWN)) == MARKDOWN


def test_plain_text_is_finished_line_by_line():
    growing = GrowingText()
    growing.add("one\ntw")
    assert (growing.finished(), growing.open) == ("one\n", "tw")
    assert (growing.rest(), growing.rest()) == ("tw", "")


def test_what_markdown_usually_drops_is_shown():
    shown = "\n".join(
        Renderer(colours=False).lines(ReplyMarkdown("<b>x</b>\n\n[1]: http://a.b\n\n[t](http://c.d)"), 60)
    )
    for part in ("<b>x</b>", "[1]: http://a.b", "t (http://c.d)"):
        assert part in shown


@pytest.mark.parametrize("seen", range(23))
def test_the_rest_of_a_text_at_another_width(seen):
    lines, text = ["The quick", "\x1b[1mbrown\x1b[0m fox", "jumps."], "Thequickbrownfoxjumps."
    assert visible(unseen(lines, text[:seen])) == text[seen:]


@pytest.mark.parametrize(
    ("seen", "rest"),
    [
        ("The**quickbr", "ownfoxjumps."),  # the markup is closed now
        ("Thequick**", "brownfoxjumps."),
        ("Thequickbrownfoxjumps.**", ""),
        ("Theslow", "Thequickbrownfoxjumps."),  # something else: written again, as a whole
    ],
)
def test_a_text_that_looks_different_by_now(seen, rest):
    assert visible(unseen(["The quick", "brown fox", "jumps."], seen)) == rest
