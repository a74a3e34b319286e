"""Token counts: sums, and the difference between nothing and unknown."""

import msgspec
import pytest

from holodeck.core.usage import TokenUsage, total

SMALL = TokenUsage(prompt_tokens=1, completion_tokens=2)
FULL = TokenUsage(prompt_tokens=10, completion_tokens=20, reasoning_tokens=5, cached_tokens=0)


@pytest.mark.req("CHT-06")
def test_the_total_is_the_sum():
    assert FULL.total_tokens == 30


def test_what_only_one_side_knows_is_kept():
    both = SMALL + FULL
    assert both == TokenUsage(prompt_tokens=11, completion_tokens=22, reasoning_tokens=5, cached_tokens=0)
    assert (SMALL + SMALL).reasoning_tokens is None


@pytest.mark.parametrize(
    ("usages", "expected"),
    [
        ([], None),
        ([None], None),
        ([SMALL, None], None),
        ([SMALL], SMALL),
        ([SMALL, SMALL, SMALL], TokenUsage(prompt_tokens=3, completion_tokens=6)),
    ],
)
def test_a_total_is_whole_or_unknown(usages, expected):
    assert total(usages) == expected


def test_what_is_unknown_is_not_written():
    assert msgspec.json.decode(msgspec.json.encode(SMALL)) == {"prompt_tokens": 1, "completion_tokens": 2}
