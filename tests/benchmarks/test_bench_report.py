"""What the benchmarks say about a figure. No test here measures time."""

import json

import pytest

from benchmarks.report import Row, Target, keep, number, ratios, table


def row(*samples, limit=None, take=None):
    options = {} if take is None else {"take": take}
    target = None if limit is None else Target(limit=limit)
    return Row(measure="CPU", system="holodeck", unit="s", samples=samples, target=target, **options)


@pytest.mark.parametrize(
    ("value", "shown"), [(60, "60"), (127.4, "127"), (76.04, "76.0"), (7.312, "7.31"), (0.3, "0.30"), (0.0571, "0.057")]
)
def test_figures_have_three_digits_at_most(value, shown):
    assert number(value) == shown


def test_the_median_of_the_rounds_decides_and_the_spread_is_shown():
    assert row(9.0, 2.0, 1.0, limit=2.5).cells() == ("CPU", "holodeck", "2 [1-9]", "s", "≤ 2.50", "met")


def test_the_best_start_decides_where_noise_only_adds():
    assert row(9.0, 2.0, 1.0, limit=1.5, take=min).met is True
    assert row(9.0, 2.0, 1.0, limit=1.5).met is False


def test_a_target_may_be_a_least_figure():
    assert Target(limit=350, at_least=True).met(500)
    assert not Target(limit=350, at_least=True).met(200)
    assert str(Target(limit=350, at_least=True)) == "≥ 350"


def test_a_missed_target_stands_out_and_a_limit_has_none():
    shown = table([row(3.0, limit=2), row(3.0)]).splitlines()
    assert "MISSED" in shown[2]
    assert shown[3].split("|")[5].strip() == "-"
    assert len({len(line) for line in shown}) == 1


def test_ratios_are_taken_round_by_round():
    assert ratios([4, 9], [2, 3]) == [2, 3]
    with pytest.raises(ValueError, match="shorter"):
        ratios([4, 9], [2])


def test_every_sample_is_kept(tmp_path):
    file = tmp_path / "results" / "start.jsonl"
    for _ in range(2):
        keep(file, "start", [row(1.0, 2.0, limit=3)], {"commit": "abc"})
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 2
    assert lines[0]["samples"] == [1.0, 2.0]
    assert (lines[0]["commit"], lines[0]["met"]) == ("abc", True)
