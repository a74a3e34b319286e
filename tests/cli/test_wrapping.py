"""Lines of the chat itself in a narrow window."""

import pytest

from holodeck.cli.terminal.markdown_lines import wrapped


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("one two", "one two"),
        ("one two three", "one two\nthree"),
        ("  one two three", "  one two\n  three"),
        ("a   b", "a   b"),
        ("to /a/very/long/path.json now", "to\n/a/very/long/path.json\nnow"),
        ("日本語 日本語", "日本語\n日本語"),
        ("\x1b[2mone two\x1b[0m three", "\x1b[2mone two\x1b[0m\nthree"),
        ("one\ntwo three four", "one\ntwo three\nfour"),
    ],
)
def test_words_stay_whole(text, shown):
    assert wrapped(text, 10) == shown
