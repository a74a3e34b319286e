"""T24: nothing that a model or a tool says can steer the terminal, wherever it is cut."""

import codecs
import random

import pyte
import pytest

from holodeck.cli.plain_display import SafeStream
from holodeck.cli.terminal.markdown_lines import Renderer, ReplyMarkdown, plain
from holodeck.core.text import one_line, terminal_safe
from tests.cli.escapes import SEQUENCES
from tests.cli.fake_model import FakeModel
from tests.cli.vt import Terminal

CHUNK = 40


def cut_everywhere(text: str):
    """The text in two pieces, cut at every byte of its UTF-8, decoded as a stream is."""
    data = text.encode()
    for at in range(len(data) + 1):
        decoder = codecs.getincrementaldecoder("utf-8")()
        yield decoder.decode(data[:at]), decoder.decode(data[at:], final=True)


def test_there_are_more_than_500():
    assert len(set(SEQUENCES)) > 500


@pytest.mark.req("T24", "CHT-08")
@pytest.mark.parametrize("first", range(0, len(SEQUENCES), CHUNK))
def test_a_sequence_cut_at_any_byte_leaves_only_the_text_around_it(first):
    screen = pyte.Screen(40, 2)
    stream = pyte.Stream(screen)
    for sequence in SEQUENCES[first : first + CHUNK]:
        shown = set()
        for head, tail in cut_everywhere(f"be{sequence}after"):
            safe = SafeStream()
            shown.add(safe.feed(head) + safe.feed(tail) + safe.flush())
        assert shown == {"beafter"}, repr(sequence)
        screen.reset()
        stream.feed(shown.pop())
        assert screen.display[0].rstrip() == "beafter"
        assert (screen.title, screen.cursor.x, screen.cursor.y) == ("", 7, 0)
        assert terminal_safe(f"be{sequence}after") == one_line(f"be{sequence}after") == "beafter"


@pytest.mark.req("T24", "CHT-08")
def test_markdown_adds_nothing_but_colours():
    """rich passes control characters and writes links as OSC 8 if it is let; here neither happens."""
    text = terminal_safe("[click](http://evil.example) `a\x1b[2Jb` <b>x</b>\n\n".join(SEQUENCES))
    lines = Renderer(colours=True).lines(ReplyMarkdown(text), 60)
    assert "(http://evil.example)" in "".join(map(plain, lines))
    assert "<b>x</b>" in "".join(map(plain, lines))
    assert all(character.isprintable() for line in lines for character in plain(line))


@pytest.mark.req("T24", "CHT-08")
async def test_a_hostile_model_on_a_real_terminal(tmp_path):
    order = random.Random(7).sample(SEQUENCES, 150)
    async with FakeModel() as fake_model:
        fake_model.agent(tmp_path)
        async with Terminal("chat", folder=tmp_path) as terminal:
            await terminal.prompt()
            terminal.enter("go")
            for number, sequence in enumerate(order):
                middle = len(sequence) // 2
                fake_model.say(f"w{number:03}", sequence[:middle], sequence[middle:], "x ")
            fake_model.end()
            await terminal.wait_for("2/50 messages")
            words = [word for word in terminal.text.split() if word.startswith("w") and word.endswith("x")]
            assert words == [f"w{number:03}x" for number in range(150)]
            assert terminal.screen.title == ""
            assert b"]52" not in terminal.raw
            assert b"evil" not in terminal.raw


def test_halves_of_an_emoji_in_two_pieces_become_one():
    safe = SafeStream()
    assert safe.feed("a\ud83d") + safe.feed("\ude00b") + safe.flush() == "a😀b"
    assert safe.feed("a\ud83d") + safe.flush() == "a\ufffd"
