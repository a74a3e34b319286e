"""Todos as the tools answer them, and which of them a phrase means."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher
from typing import Any

import msgspec

ALIKE = 0.8  # similarity of two words that are the same but for a typing mistake
ENOUGH = 0.5  # share of the phrase's words that a title has to have

PAST_TENSES = {
    "bought": "buy",
    "paid": "pay",
    "wrote": "write",
    "sent": "send",
    "made": "make",
    "did": "do",
    "got": "get",
    "took": "take",
    "read": "read",
    "ran": "run",
    "met": "meet",
    "told": "tell",
    "found": "find",
    "sold": "sell",
    "built": "build",
    "brought": "bring",
    "fed": "feed",
    "swept": "sweep",
    "spoke": "speak",
    "gave": "give",
    "went": "go",
    "drove": "drive",
    "ate": "eat",
    "hung": "hang",
    "put": "put",
    "cut": "cut",
    "done": "do",
}
_FILLERS = frozenset(
    [
        "the",
        "a",
        "an",
        "my",
        "our",
        "your",
        "this",
        "that",
        "these",
        "those",
        "to",
        "of",
        "for",
        "with",
        "and",
        "in",
        "on",
        "at",
        "it",
        "one",
        "ones",
        "i",
        "about",
        "task",
        "tasks",
        "todo",
        "todos",
        "item",
        "items",
        "reminder",
        "reminders",
        "thing",
        "called",
        "named",
        "titled",
        "do",
        "up",
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Todo:
    id: str
    title: str
    description: str = ""
    due: datetime | None = None
    priority: str | None = None
    status: str = "pending"
    tags: tuple[str, ...] = ()


class Unreadable(Exception):
    """A tool answered something else than the JSON of a todo server; its text may still be good for people."""


def read_todo(text: str) -> Todo:
    data = _json(text)
    for key in ("todo", "task"):
        if isinstance(data, dict) and isinstance(data.get(key), dict):
            data = data[key]
    return _todo(data)


def read_todos(text: str) -> list[Todo]:
    data = _json(text)
    if isinstance(data, dict):
        data = next((data[key] for key in ("todos", "tasks", "items") if key in data), None)
    if not isinstance(data, list):
        raise Unreadable(text)
    return [_todo(entry) for entry in data]


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        raise Unreadable(text) from None


def _todo(data: Any) -> Todo:
    if not isinstance(data, dict) or "title" not in data or "id" not in data:
        raise Unreadable(str(data))
    return Todo(
        id=str(data["id"]),
        title=str(data["title"]),
        description=str(data.get("description") or ""),
        due=_instant(data.get("due_date")),
        priority=data.get("priority"),
        status="completed" if data.get("status") == "completed" or data.get("completed") is True else "pending",
        tags=tuple(str(tag) for tag in data.get("tags") or ()),
    )


def _instant(value: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else None


def find(words: str, todos: Sequence[Todo]) -> list[Todo]:
    """The todos that a phrase may mean: one when it is clear, several when it is not, none when nothing fits."""
    exact = [todo for todo in todos if _plain(todo.title) == _plain(words)]
    if exact:
        return exact
    wanted = _stems(words)
    scored = [(_share(wanted, stems), _share(stems, wanted), todo) for todo in todos if (stems := _stems(todo.title))]
    best = max((share for share, _, _ in scored), default=0.0)
    if not wanted or best < ENOUGH:
        return []
    likely = [(covered, todo) for share, covered, todo in scored if share == best]
    whole = [todo for covered, todo in likely if covered == 1.0]
    return whole if len(whole) == 1 else [todo for _, todo in likely]


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _stems(text: str) -> list[str]:
    words = re.findall(r"\w+", text.casefold().replace("'", ""))
    return [_stem(word) for word in words if word not in _FILLERS] or [_stem(word) for word in words]


def _stem(word: str) -> str:
    word = PAST_TENSES.get(word, word)
    for ending in ("ing", "ied", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:  # noqa: PLR2004, "bus" and "red" stay
            return word.removesuffix(ending)
    return word.removesuffix("e") if len(word) > 3 else word  # noqa: PLR2004, "moved" and "move" meet here


def _share(words: Sequence[str], among: Sequence[str]) -> float:
    if not words:
        return 0.0
    return sum(any(_alike(word, other) for other in among) for word in words) / len(words)


def _alike(one: str, other: str) -> bool:
    return one == other or SequenceMatcher(None, one, other).ratio() >= ALIKE
