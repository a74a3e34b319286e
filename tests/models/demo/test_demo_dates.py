"""Date words → due dates: a table of phrases, in zones where days and hours are not what they seem."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.models.demo.dates import cut_date, read_date
from tests.examples import examples
from tests.models.demo.sentences import BERLIN, KOLKATA, NEW_YORK, NOW, clock

DAYS = {
    "today": "2026-11-15",
    "tomorrow": "2026-11-16",
    "the day after tomorrow": "2026-11-17",
    "monday": "2026-11-16",
    "on friday": "2026-11-20",
    "this friday": "2026-11-20",
    "next friday": "2026-11-20",
    "sunday": "2026-11-22",
    "this sunday": "2026-11-15",
    "this weekend": "2026-11-15",
    "next week": "2026-11-16",
    "next month": "2026-12-01",
    "end of month": "2026-11-30",
    "by the end of the month": "2026-11-30",
    "in 3 days": "2026-11-18",
    "in two weeks": "2026-11-29",
    "Nov 20": "2026-11-20",
    "20 November": "2026-11-20",
    "the 20th of November": "2026-11-20",
    "November 20th, 2027": "2027-11-20",
    "on 3 march": "2027-03-03",
    "2026-11-20": "2026-11-20",
}
TIMES = {
    "tonight": "2026-11-15T20:00",
    "this evening": "2026-11-15T19:00",
    "tomorrow morning": "2026-11-16T09:00",
    "tomorrow afternoon": "2026-11-16T15:00",
    "tomorrow evening": "2026-11-16T19:00",
    "tomorrow night": "2026-11-16T21:00",
    "in the morning": "2026-11-16T09:00",
    "at noon": "2026-11-15T12:00",
    "tomorrow at noon": "2026-11-16T12:00",
    "at midnight": "2026-11-16T00:00",
    "at 3": "2026-11-15T15:00",
    "at 9": "2026-11-16T09:00",
    "at 11": "2026-11-15T11:00",
    "at six": "2026-11-15T18:00",
    "3pm": "2026-11-15T15:00",
    "3 p.m.": "2026-11-15T15:00",
    "at 3.30pm": "2026-11-15T15:30",
    "12am": "2026-11-16T00:00",
    "8am": "2026-11-16T08:00",
    "at 15:30": "2026-11-15T15:30",
    "at 09:30": "2026-11-16T09:30",
    "at 4 o'clock": "2026-11-15T16:00",
    "tomorrow at 7": "2026-11-16T07:00",
    "tomorrow at 6": "2026-11-16T18:00",
    "today at 8am": "2026-11-15T08:00",
    "in 2 hours": "2026-11-15T12:00",
    "in 45 min": "2026-11-15T10:45",
    "friday 5pm": "2026-11-20T17:00",
    "by 5pm on friday": "2026-11-20T17:00",
    "Nov 20 at 14:15": "2026-11-20T14:15",
}


@pytest.mark.req("ORC-06")
@pytest.mark.parametrize("phrase", DAYS)
def test_a_day_is_due_at_its_end(phrase: str) -> None:
    due = read_date(phrase, NOW)
    assert due is not None
    assert due.moment(NOW).isoformat() == f"{DAYS[phrase]}T23:59:59+01:00"


@pytest.mark.req("ORC-06")
@pytest.mark.parametrize("phrase", TIMES)
def test_a_time(phrase: str) -> None:
    due = read_date(phrase, NOW)
    assert due is not None
    assert due.moment(NOW).isoformat() == f"{TIMES[phrase]}:00+01:00"


@pytest.mark.req("ORC-06")
@pytest.mark.parametrize(
    ("phrase", "now", "expected"),
    [
        pytest.param(
            "tomorrow at 2:30", clock("2027-03-27T12:00", BERLIN), "2027-03-28T14:30:00+02:00", id="afternoon"
        ),
        pytest.param("tomorrow at 02:30", clock("2027-03-27T12:00", BERLIN), "2027-03-28T03:30:00+02:00", id="gap"),
        pytest.param("at 02:30", clock("2026-10-25T01:00", BERLIN), "2026-10-25T02:30:00+02:00", id="first of two"),
        pytest.param("in 2 hours", clock("2027-03-28T01:00", BERLIN), "2027-03-28T04:00:00+02:00", id="over the gap"),
        pytest.param("in 24 hours", clock("2026-10-31T12:00", NEW_YORK), "2026-11-01T11:00:00-05:00", id="25-hour day"),
        pytest.param("tomorrow at noon", clock("2026-10-31T12:00", NEW_YORK), "2026-11-01T12:00:00-05:00", id="wall"),
        pytest.param("tomorrow", clock("2026-11-15T23:59", KOLKATA), "2026-11-16T23:59:59+05:30", id="before midnight"),
        pytest.param("tonight", clock("2026-11-15T00:05", KOLKATA), "2026-11-15T20:00:00+05:30", id="after midnight"),
        pytest.param("next friday", clock("2026-11-11T09:00", BERLIN), "2026-11-20T23:59:59+01:00", id="next week's"),
        pytest.param("friday", clock("2026-11-11T09:00", BERLIN), "2026-11-13T23:59:59+01:00", id="this week's"),
        pytest.param("friday", clock("2026-11-13T09:00", BERLIN), "2026-11-20T23:59:59+01:00", id="not today"),
        pytest.param("this friday", clock("2026-11-13T09:00", BERLIN), "2026-11-13T23:59:59+01:00", id="today"),
        pytest.param("this weekend", clock("2026-11-11T09:00", BERLIN), "2026-11-14T23:59:59+01:00", id="saturday"),
        pytest.param("tomorrow", clock("2026-12-31T09:00", BERLIN), "2027-01-01T23:59:59+01:00", id="new year"),
    ],
)
def test_the_clock_and_the_calendar(phrase: str, now: datetime, expected: str) -> None:
    due = read_date(phrase, now)
    assert due is not None
    assert due.moment(now).isoformat() == expected


@pytest.mark.parametrize(
    "title",
    [
        *("march report", "buy a second monitor", "ask if I may leave", "call 911", "version 2.0 release"),
        *("friday report", "prepare tomorrow's slides", "slides for friday meeting", "look at 3 houses", "movie night"),
        *("sit in the sun", "24/7 support", "read chapter 3", "buy 2 tickets for 7 people", "a table for 7"),
        *(
            "meeting from 3 to 5",
            "buy 1/2 pound of butter",
            "watch 9/11 documentary",
            "sun screen",
            "buy christmas cards",
        ),
        *("study for the final on calculus", "go to the bank on main street", "learn the may pole dance"),
    ],
)
def test_a_title_survives(title: str) -> None:
    assert cut_date(title, NOW) == (title, None)


WORDS = (
    *DAYS,
    *TIMES,
    *(
        "buy",
        "eggs",
        "at",
        "on",
        "by",
        "in",
        "the",
        "next",
        "99",
        "31",
        "30 feb",
        "9999-12-31",
        "in 999 years",
        "0:00",
        "25:61",
    ),
)


@examples(60)
@given(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join))
def test_any_jumble_has_a_date_or_none(text: str) -> None:
    rest, due = cut_date(text, NOW)
    assert len(rest) <= len(text)
    assert due is None or due.moment(NOW).utcoffset() is not None


@examples(60)
@given(
    st.sampled_from([phrase for phrase in (*DAYS, *TIMES) if not re.search("today|tonight|this|202", phrase)]),
    st.datetimes(datetime(2026, 1, 1), datetime(2035, 12, 31)),  # noqa: DTZ001, made aware below
    st.sampled_from([BERLIN, NEW_YORK, KOLKATA, "Australia/Lord_Howe", "Pacific/Apia"]),
)
def test_a_date_without_a_year_is_to_come(phrase: str, wall: datetime, zone: str) -> None:
    now = clock(wall.isoformat(), zone).astimezone(UTC).astimezone(clock("2026-01-01", zone).tzinfo)
    due = read_date(phrase, now)
    assert due is not None
    assert due.moment(now).astimezone(UTC) > now.astimezone(UTC) - timedelta(minutes=1)
