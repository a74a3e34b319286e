"""Sentences and what the demo model does with them: the specification of its English, as data.

The list at the start of every case (`LIST`) has the ids t1 to t6; a new todo becomes t7. It is Sunday, 15 November
2026, 10:00 in Berlin, unless the case says otherwise.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

BERLIN, NEW_YORK, KOLKATA = "Europe/Berlin", "America/New_York", "Asia/Kolkata"


def clock(text: str, zone: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


NOW = clock("2026-11-15T10:00", BERLIN)

LIST: tuple[dict[str, Any], ...] = (
    {"title": "Buy eggs", "due_date": "2026-11-16T15:00:00+01:00", "priority": "high", "tags": ["home"]},
    {"title": "Write the march report", "due_date": "2026-11-20T23:59:59+01:00", "tags": ["work"]},
    {"title": "Call mom"},
    {"title": "Buy milk", "priority": "low", "tags": ["home"]},
    {"title": "Return the library books", "due_date": "2026-11-13T18:00:00+01:00"},
    {"title": "Pay rent"},  # completed
)
COMPLETED = ("t6",)

Call = tuple[str, dict[str, Any]]
LOOK: Call = ("list_todos", {"status": "all"})


@dataclass(frozen=True, kw_only=True)
class Case:
    sentence: str
    calls: tuple[Call, ...] = ()
    answer: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    now: datetime = NOW
    zone: str = BERLIN


def creates(sentence: str, title: str, *answer: str, **rest: Any) -> Case:
    """`due`, `priority`, `tags` are expected arguments; anything else is the case's own."""
    names = {"due": "due_date", "priority": "priority", "tags": "tags"}
    arguments = {"title": title, **{name: rest.pop(key) for key, name in names.items() if key in rest}}
    return Case(sentence=sentence, calls=(("create_todo", arguments),), answer=("Added", title, *answer), **rest)


def shows(sentence: str, *answer: str, **filters: Any) -> Case:
    return Case(sentence=sentence, calls=(("list_todos", {"status": "pending", **filters}),), answer=answer)


def changes(
    sentence: str, todo_id: str, *answer: str, before: tuple[str, ...] = (), found: bool = False, **new: Any
) -> Case:
    """`found`: no earlier sentence gave the id, so the model lists the todos first."""
    update: Call = ("update_todo", {"todo_id": todo_id, **new})
    return Case(sentence=sentence, before=before, calls=(LOOK, update) if found else (update,), answer=answer)


def says(sentence: str, *answer: str, before: tuple[str, ...] = (), calls: tuple[Call, ...] = ()) -> Case:
    return Case(sentence=sentence, before=before, calls=calls, answer=answer)


CREATE = (
    creates(
        "Remind me to buy eggs tomorrow at 3pm, urgent #home",
        "Buy eggs",
        "Mon 16 Nov, 15:00",
        "high priority",
        "#home",
        due="2026-11-16T15:00:00+01:00",
        priority="high",
        tags=["home"],
    ),
    creates("add milk and eggs", "Milk and eggs"),
    creates("Add buy bread to my list", "Buy bread"),
    creates("put bread on my shopping list please", "Bread"),
    creates(
        "Could you please add a task to call the bank on friday?",
        "Call the bank",
        "Fri 20 Nov",
        due="2026-11-20T23:59:59+01:00",
    ),
    creates("create an urgent task: fix the server", "Fix the server", priority="high"),
    creates("new todo water the plants", "Water the plants"),
    creates("todo: fix the bike asap", "Fix the bike", priority="high"),
    creates("urgent: call the bank", "Call the bank", priority="high"),
    creates("submit the tax form!!!", "Submit the tax form", priority="high"),
    creates("I need to renew my passport, low priority", "Renew my passport", priority="low"),
    creates("learn to juggle someday", "Learn to juggle", priority="low"),
    creates(
        "don't let me forget to call dad tonight", "Call dad", "Sun 15 Nov, 20:00", due="2026-11-15T20:00:00+01:00"
    ),
    creates("Don\u2019t forget to feed the cat this evening", "Feed the cat", due="2026-11-15T19:00:00+01:00"),
    creates(
        "remind me tomorrow to take out the trash", "Take out the trash", "Mon 16 Nov", due="2026-11-16T23:59:59+01:00"
    ),
    creates("remind me at 3 to call Ann", "Call Ann", "15:00", due="2026-11-15T15:00:00+01:00"),
    creates(
        "buy cat food on saturday #pets #home", "Buy cat food", due="2026-11-21T23:59:59+01:00", tags=["pets", "home"]
    ),
    creates("email the invoice to Bob, tag it work", "Email the invoice to Bob", tags=["work"]),
    creates(
        "book flights next week tagged travel and family",
        "Book flights",
        due="2026-11-16T23:59:59+01:00",
        tags=["travel", "family"],
    ),
    creates(
        "finish the slides by friday 5pm", "Finish the slides", "Fri 20 Nov, 17:00", due="2026-11-20T17:00:00+01:00"
    ),
    creates("add dentist 2027-01-12 at 08:30", "Dentist", "Tue 12 Jan 2027, 08:30", due="2027-01-12T08:30:00+01:00"),
    creates("add call it's important", "Call", priority="high"),
    creates("add meet Tom today at 8am", "Meet Tom", "already over", due="2026-11-15T08:00:00+01:00"),
    creates("pay rent end of month", "Pay rent", before=("add a task",), due="2026-11-30T23:59:59+01:00"),
    creates(
        "set a reminder for my dentist appointment on Dec 3rd at 14:30",
        "My dentist appointment",
        due="2026-12-03T14:30:00+01:00",
    ),
    creates("schedule a call with John for thursday at 2pm", "Call with John", due="2026-11-19T14:00:00+01:00"),
    creates("add groceries: milk, bread, cheese", "Groceries: milk, bread, cheese"),
    # Words that look like dates, priorities or tags, and are none.
    creates("read 'The Day After Tomorrow'", "Read 'The Day After Tomorrow'"),
    creates('add "Call me maybe tomorrow" to my list', "Call me maybe tomorrow"),
    creates("buy a second monitor", "Buy a second monitor"),
    creates("add march report", "March report"),
    creates("add friday report", "Friday report"),
    creates("add prepare tomorrow's slides", "Prepare tomorrow's slides"),
    creates("write to Bob that he may leave", "Write to Bob that he may leave"),
    creates("add call 911", "Call 911"),
    creates("add version 2.0 release", "Version 2.0 release"),
    creates("add look at 3 houses", "Look at 3 houses"),
    creates("add fix issue #42", "Fix issue #42"),
    creates("call the urgent care clinic", "Call the urgent care clinic"),
    creates("plan the movie night", "Plan the movie night"),
    # Other zones, midnight, and the nights on which the clocks change.
    creates(
        "pay bills tomorrow",
        "Pay bills",
        "Tue 17 Nov",
        due="2026-11-17T23:59:59+05:30",
        zone=KOLKATA,
        now=clock("2026-11-15T19:30", "UTC"),
    ),
    creates(
        "call home in 2 hours",
        "Call home",
        "02:30",
        due="2026-11-16T02:30:00+05:30",
        zone=KOLKATA,
        now=clock("2026-11-15T19:00", "UTC"),
    ),
    creates(
        "take pills tomorrow at 2:30am",
        "Take pills",
        "Sun 14 Mar, 03:30",
        due="2027-03-14T03:30:00-04:00",
        zone=NEW_YORK,
        now=clock("2027-03-13T12:00", NEW_YORK),
    ),
    creates(
        "take pills in 3 hours",
        "Take pills",
        "01:30",
        due="2026-11-01T01:30:00-05:00",
        zone=NEW_YORK,
        now=clock("2026-10-31T23:30", NEW_YORK),
    ),
    creates(
        "remind me at 1:30am to check the oven",
        "Check the oven",
        due="2026-11-01T01:30:00-04:00",
        zone=NEW_YORK,
        now=clock("2026-11-01T00:30", NEW_YORK),
    ),
)

SHOW = (
    shows(
        "what's on my list?",
        "5 open todos",
        "1. **Buy eggs** — due Mon 16 Nov, 15:00 · high priority · #home",
        "was due Fri 13 Nov",
    ),
    shows("show my todos", "5 open todos"),
    shows("my tasks", "5 open todos"),
    shows("What do I have to do today?", "no open todos due today", due_date_filter="today", timezone=BERLIN),
    shows("what's due tomorrow", "1 open todo due tomorrow", "Buy eggs", due_date_filter="2026-11-16", timezone=BERLIN),
    shows("what do i have this week?", "1 open todo", "library books", due_date_filter="this_week", timezone=BERLIN),
    shows("anything overdue?", "1 overdue todo", "library books", due_date_filter="overdue", timezone=BERLIN),
    shows("show high priority tasks", "1 open high-priority todo", "Buy eggs", priority="high"),
    shows("list my low priority items", "Buy milk", priority="low"),
    shows("show completed tasks", "1 completed todo", "Pay rent", status="completed"),
    shows("what did I finish?", "Pay rent", status="completed"),
    shows("show everything", "6 todos", status="all"),
    shows("anything tagged work?", "1 open todo tagged #work", tags=["work"]),
    shows("show my tasks with #home", "2 open todos tagged #home", tags=["home"]),
    shows(
        "how many tasks do I have?",
        "You have 5 open todos",
    ),
    shows("find milk", "Buy milk", status="all", search="milk"),
    shows("show my todos about report", "march report", search="report"),
    shows("show tasks tagged garden", "no open todos tagged #garden", tags=["garden"]),
    says(
        "now show my list",
        "Buy oats",
        "6 open todos",
        before=("add buy oats",),
        calls=(("list_todos", {"status": "pending"}),),
    ),
)

CHANGE = (
    changes("complete buy eggs", "t1", "ticked off **Buy eggs**", found=True, status="completed"),
    changes("done with the march report", "t2", found=True, status="completed"),
    changes("finished the report", "t2", found=True, status="completed"),
    changes("check off call mom", "t3", found=True, status="completed"),
    changes("the milk task is done", "t4", found=True, status="completed"),
    changes("mark 2 as done", "t2", before=("show my todos",), status="completed"),
    changes("mark the last one as completed", "t5", before=("show my todos",), status="completed"),
    changes("it's done", "t7", before=("add buy oats",), status="completed"),
    changes("reopen pay rent", "t6", "Reopened **Pay rent**", found=True, status="pending"),
    changes("mark pay rent as not done", "t6", found=True, status="pending"),
    changes("make it urgent", "t7", "Buy oats", "high priority", before=("add buy oats",), priority="high"),
    changes("make call mom high priority", "t3", found=True, priority="high"),
    changes("set the priority of buy eggs to low", "t1", found=True, priority="low"),
    changes("it's not urgent", "t7", before=("add buy oats asap",), priority="low"),
    changes("make it urgent", "t7", before=("add buy oats", "show my todos", "thanks"), priority="high"),
    changes("tag it #work", "t7", "#work", before=("add buy oats",), tags=["work"]),
    changes("tag the first one as shop", "t1", before=("show my todos",), tags=["home", "shop"]),
    changes(
        "rename buy milk to buy oat milk", "t4", "Renamed it to **Buy oat milk**", found=True, title="Buy oat milk"
    ),
    changes("change the title of call mom to 'call mum'", "t3", found=True, title="Call mum"),
    changes(
        "move the report to friday 10am", "t2", "Fri 20 Nov, 10:00", found=True, due_date="2026-11-20T10:00:00+01:00"
    ),
    changes("push it to next week", "t7", "Mon 16 Nov", before=("add buy oats",), due_date="2026-11-16T23:59:59+01:00"),
    changes("move buy eggs to wednesday", "t1", "Wed 18 Nov, 15:00", found=True, due_date="2026-11-18T15:00:00+01:00"),
    changes(
        "move the first one to 5pm",
        "t1",
        "Mon 16 Nov, 17:00",
        before=("show my todos",),
        due_date="2026-11-16T17:00:00+01:00",
    ),
    changes("change call mom to tomorrow at noon", "t3", found=True, due_date="2026-11-16T12:00:00+01:00"),
    changes("remove the due date of buy eggs", "t1", found=True, due_date=""),
    changes("the second", "t4", "ticked off **Buy milk**", before=("complete buy",), status="completed"),
    changes("Buy milk", "t4", before=("complete buy",), status="completed"),
    changes("no, I meant saturday", "t7", before=("add buy oats on friday",), due_date="2026-11-21T23:59:59+01:00"),
    says("complete buy", "Which one do you mean?", "1. **Buy eggs**", "2. **Buy milk**", calls=(LOOK,)),
    says("no", "leave it", before=("complete buy",)),
    says("complete the spaceship", "found no todo like “the spaceship”", calls=(LOOK,)),
    says("mark 9 as done", "no number 9", before=("show my todos",)),
    says("mark 2 as done", "Which one do you mean?", calls=(LOOK,)),
    says(
        "mark 1 and 3 as done",
        "ticked off 2 todos",
        before=("show my todos",),
        calls=(
            ("update_todo", {"todo_id": "t1", "status": "completed"}),
            ("update_todo", {"todo_id": "t3", "status": "completed"}),
        ),
    ),
)

GONE: Call = ("delete_todo", {"todo_id": "t1", "confirmation": True})
DELETE = (
    says("delete buy eggs", "Delete “Buy eggs”? Say yes to confirm.", calls=(LOOK,)),
    says("yes", "Deleted **Buy eggs**", before=("delete buy eggs",), calls=(GONE,)),
    says("Yes, delete it!", "Deleted **Buy eggs**", before=("remove the eggs one",), calls=(GONE,)),
    says("go ahead", "Deleted", before=("show my todos", "delete the first one"), calls=(GONE,)),
    says("no", "nothing was deleted", before=("delete buy eggs",)),
    says("never mind", "nothing was deleted", before=("delete buy eggs",)),
    says("yes", "no question open", before=("delete buy eggs", "no")),
    says("yes", "no question open", before=("delete buy eggs", "how are you?")),
    says("delete it", "Delete “Buy oats”?", before=("add buy oats",)),
    says("1", "Delete “Buy eggs”?", before=("delete buy",)),
    says("yes", "Deleted **Buy eggs**", before=("delete buy", "1"), calls=(GONE,)),
    says("delete the flying carpet", "found no todo", calls=(LOOK,)),
    says("delete everything", "Delete 5 todos", calls=(LOOK,)),
    says("delete", "Delete “Buy oats”?", before=("add buy oats",)),
    says("get rid of call mom", "Delete “Call mom”?", calls=(LOOK,)),
)

NO_LANGUAGE_MODEL = "language model"
TALK = (
    says("hi", "Hello", NO_LANGUAGE_MODEL),
    says("Good morning!", "Hello"),
    says("thanks a lot", "welcome"),
    says("bye", "Goodbye"),
    says("who are you?", NO_LANGUAGE_MODEL),
    says("are you ChatGPT?", NO_LANGUAGE_MODEL),
    says("what can you do?", NO_LANGUAGE_MODEL, "Remind me to buy eggs"),
    says("how are you?", "demo"),
    says("help", "Try, for example"),
    says("what's the weather today?", "did not understand", NO_LANGUAGE_MODEL),
    says(
        "colourless green ideas sleep furiously",
        "did not understand",
        NO_LANGUAGE_MODEL,
        "Remind me to",
        "What's on my list",
        "Mark the first one",
    ),
    says("   ", "no", NO_LANGUAGE_MODEL),
    says("yes", "no question open"),
    says("word " * 500, "a lot of text"),
)

CASES = (*CREATE, *SHOW, *CHANGE, *DELETE, *TALK)
