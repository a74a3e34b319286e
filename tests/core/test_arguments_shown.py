"""Arguments of a call, for people who read it."""

import pytest

from holodeck.core.tools import arguments_shown


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("[1]", {"arguments": [1]}),
        ("{oops", {"arguments": "{oops"}),
        ('{"a": NaN}', {"arguments": '{"a": NaN}'}),
        ("[" * 5000, {"arguments": "[" * 5000}),
        ("\ud800", {"arguments": "\ud800"}),
    ],
)
def test_an_object_or_the_text_itself(written, shown):
    assert arguments_shown(written) == shown
