"""Token counts: sums, and the difference between nothing and unknown."""

import msgspec
import pytest

from holodeck.core.usage import TokenUsage, total
from holodeck.models.price import Price

SMALL = TokenUsage(prompt_tokens=1, completion_tokens=2)
FULL = TokenUsage(prompt_tokens=10, completion_tokens=20, reasoning_tokens=5, cached_tokens=0)


@pytest.mark.req("CHT-06")
def test_the_total_is_the_sum():
    assert FULL.total_tokens == 30


def test_usage_fields_missing_on_one_side_are_kept():
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


def test_a_cost_that_one_side_does_not_know_is_not_known():
    known = TokenUsage(prompt_tokens=1, completion_tokens=2, cost=0.5)
    assert (known + known).cost == 1.0
    assert (known + SMALL).cost is None


@pytest.mark.parametrize(
    ("price", "cost"),
    [
        (Price(input=2, output=8), 1_000 * 2 + 500 * 8),
        (Price(input=2, output=8, cached=0.5), 600 * 2 + 400 * 0.5 + 500 * 8),
        (Price(input=2, output=8, cached=0), 600 * 2 + 500 * 8),
        (Price(input=0, output=0), 0),
    ],
)
def test_a_price_is_that_of_a_million_tokens(price, cost):
    usage = TokenUsage(prompt_tokens=1_000, completion_tokens=500, cached_tokens=400)
    assert price.of(usage) == pytest.approx(cost / 1_000_000)


def test_more_cached_than_read_is_not_paid_back():
    usage = TokenUsage(prompt_tokens=10, completion_tokens=0, cached_tokens=50)
    assert Price(input=1_000_000, output=0, cached=1).of(usage) == pytest.approx(10 / 1_000_000)


@pytest.mark.parametrize("counts", [(-1, 0), (0, -1)])
def test_counts_are_never_negative(counts):
    with pytest.raises(ValueError, match="cannot be negative"):
        TokenUsage(prompt_tokens=counts[0], completion_tokens=counts[1])
