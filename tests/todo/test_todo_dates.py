from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from holodeck.todo.due_dates import read_due_date, read_period, read_zone, shorten, write_instant
from holodeck.todo.todo_values import TodoError

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.req("ORC-05")
@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-11-16T15:00:00+01:00", "2026-11-16T14:00:00+00:00"),
        ("2026-11-16T15:00:00Z", "2026-11-16T15:00:00+00:00"),
        ("2026-11-16T15:00", "2026-11-16T14:00:00+00:00"),  # no offset: the user's zone
        ("2026-07-16T15:00", "2026-07-16T13:00:00+00:00"),  # in summer
        ("2026-11-16", "2026-11-16T22:59:59+00:00"),  # no time: the end of that day
        ("2026-03-29T02:30", "2026-03-29T01:30:00+00:00"),  # an hour that the clocks skip
        ("2026-11-16T15:00:00.987654Z", "2026-11-16T15:00:00+00:00"),
    ],
)
def test_a_due_date_means_one_instant(text, instant):
    assert read_due_date(text, BERLIN).isoformat() == instant


@pytest.mark.parametrize("text", ["tomorow", "2026-13-01", "2026-02-30", "15:00", "16.11.2026", "x" * 500])
def test_a_bad_due_date_says_what_to_write(text):
    with pytest.raises(TodoError, match=r"is not ISO 8601; write e\.g\. 2026-11-16T15:00:00") as caught:
        read_due_date(text, BERLIN)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize("text", ["0001-01-01T00:00", "9999-12-31T23:59:59-12:00"])
def test_a_due_date_beyond_the_calendar_is_an_error(text):
    with pytest.raises(TodoError, match="years 1 to 9999"):
        read_due_date(text, BERLIN)


def test_an_instant_is_written_with_the_offset_of_the_user():
    assert write_instant(datetime(2026, 7, 1, 12, tzinfo=UTC), BERLIN) == "2026-07-01T14:00:00+02:00"
    assert write_instant(None, BERLIN) is None


def test_an_instant_without_a_local_form_is_written_in_utc():
    assert write_instant(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), BERLIN) == "9999-12-31T23:59:59+00:00"


@pytest.mark.req("ORC-05")
@pytest.mark.parametrize(
    ("text", "now", "start", "end"),
    [
        # 23:30 in London is the next day in Berlin
        ("today", "2026-11-17T23:30:00+00:00", "2026-11-17T23:00:00+00:00", "2026-11-18T23:00:00+00:00"),
        ("this_week", "2026-11-18T12:00:00+00:00", "2026-11-15T23:00:00+00:00", "2026-11-22T23:00:00+00:00"),
        # the week in which the clocks go back has 169 hours
        ("this_week", "2026-10-25T12:00:00+00:00", "2026-10-18T22:00:00+00:00", "2026-10-25T23:00:00+00:00"),
        ("2026-12-24", "2026-11-18T12:00:00+00:00", "2026-12-23T23:00:00+00:00", "2026-12-24T23:00:00+00:00"),
    ],
)
def test_a_period_is_made_of_local_days(text, now, start, end):
    period = read_period(text, BERLIN, datetime.fromisoformat(now))
    assert [instant.isoformat() for instant in period] == [start, end]


@pytest.mark.parametrize("text", ["soon", "2026-02-30", "9999-12-31", "0001-01-01"])
def test_a_bad_period_names_the_good_ones(text):
    with pytest.raises(TodoError, match="not today, this_week, overdue or an ISO date"):
        read_period(text, BERLIN, datetime(2026, 11, 18, tzinfo=UTC))


@pytest.mark.parametrize("name", ["Mars/Olympus", "Europe", "../etc/passwd", "/etc/localtime", "", "a\0b", "é" * 300])
def test_a_zone_that_is_none_is_an_error(name):
    with pytest.raises(TodoError, match=r"is not an IANA name; write e\.g\. Europe/Berlin"):
        read_zone(name)


def test_a_quoted_value_is_short_and_visible():
    assert shorten("a\nb") == r"'a\nb'"
    assert len(shorten("x" * 1000)) == 61
