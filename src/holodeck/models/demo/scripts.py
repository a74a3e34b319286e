"""One short script per intent: which tools to ask for, and what to say in the end.

A script is a generator. It yields the calls it needs, is sent the texts that the tools answered, and returns what to
say. It is started anew for every reply and fed the answers that the history already holds (`conversation.py`), so it
may not depend on anything but its arguments.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeAlias

from holodeck.models.demo import wording
from holodeck.models.demo.intents import (
    Change,
    Create,
    Delete,
    Everything,
    Intent,
    It,
    Known,
    Numbers,
    Show,
    Talk,
    Target,
    Titled,
    Unknown,
)
from holodeck.models.demo.todos import Todo, find, read_todo, read_todos
from holodeck.models.demo.vocabulary import Call, Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What we asked and what becomes of the answer: a choice fills in the target of `then`, a yes lets it go ahead."""

    line: str
    then: Intent | None = None
    choices: tuple[Todo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    text: str
    shown: tuple[Todo, ...] | None = None
    focus: Todo | None = None
    forgets: bool = False  # what was in focus is gone
    question: Question | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the conversation has established: the todo that is "it", the list that was numbered, the open question."""

    focus: Todo | None = None
    shown: tuple[Todo, ...] = ()
    question: Question | None = None

    def after(self, said: Say) -> "Memory":
        focus = None if said.forgets else self.focus
        return Memory(
            focus=said.focus or focus,
            shown=self.shown if said.shown is None else said.shown,
            question=said.question,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What a script works with."""

    tools: Vocabulary
    now: datetime
    memory: Memory = field(default_factory=Memory)


Calls: TypeAlias = tuple[Call, ...]
Script: TypeAlias = Generator[Calls, list[str], Say]
Search: TypeAlias = Generator[Calls, list[str], Say | tuple[Todo, ...]]


def script_for(intent: Intent, desk: Desk) -> Script | Say:
    match intent:
        case Create():
            return create(intent, desk)
        case Show():
            return show(intent, desk)
        case Change():
            return change(intent, desk)
        case Delete():
            return delete(intent, desk)
        case _:
            return talk(intent)


def talk(intent: Intent) -> Say:
    """Whatever needs no tools."""
    if isinstance(intent, Talk):
        return Say(text=wording.TALK[intent.topic])
    return Say(text=wording.TALK["unknown" if isinstance(intent, Unknown) else "no_question"])


def create(intent: Create, desk: Desk) -> Script:
    if not intent.details.title:
        return Say(text=wording.WHAT_TO_ADD, question=Question(line=wording.WHAT_TO_ADD, then=intent))
    (answer,) = yield (desk.tools.create(intent.details),)
    todo = read_todo(answer)
    return Say(text=wording.created(todo, intent.details, desk.now), focus=todo)


def show(intent: Show, desk: Desk) -> Script:
    (answer,) = yield (desk.tools.show(intent),)
    todos = tuple(todo for todo in read_todos(answer) if _is_wanted(todo, intent, desk.now))
    focus = todos[0] if len(todos) == 1 else None
    shown = None if intent.count_only else todos
    return Say(text=wording.listed(todos, intent, desk.now), shown=shown, focus=focus)


def _is_wanted(todo: Todo, wanted: Show, now: datetime) -> bool:
    """The filters once more, for tools that do not have them all."""
    due = todo.due and todo.due.astimezone(UTC)
    return (
        wanted.status in {"all", todo.status}
        and wanted.priority in {None, todo.priority}
        and set(wanted.tags) <= set(todo.tags)
        and (not wanted.overdue or (due is not None and due < now.astimezone(UTC)))
        and (wanted.period is None or (due is not None and wanted.period.start <= due < wanted.period.end))
        and wanted.search.casefold() in f"{todo.title} {todo.description} {' '.join(todo.tags)}".casefold()
    )


def change(intent: Change, desk: Desk) -> Script:
    found = yield from _resolve(
        intent, intent.target, desk, prefer="completed" if intent.status == "pending" else "pending"
    )
    if isinstance(found, Say):
        return found
    if isinstance(intent.target, Titled) and all(todo.status == intent.status for todo in found):
        return Say(text=wording.already(found), focus=found[-1])
    calls = tuple(call for todo in found if (call := desk.tools.change(todo, intent, desk.now)) is not None)
    if not calls:
        return Say(text=wording.cannot(intent))
    answers = yield calls
    todos = [read_todo(answer) for answer in answers]
    return Say(text=wording.changed(todos, intent, desk.now), focus=todos[-1])


def delete(intent: Delete, desk: Desk) -> Script:
    found = yield from _resolve(intent, intent.target, desk, prefer="pending")
    if isinstance(found, Say):
        return found
    if not intent.confirmed and not desk.tools.deletion_is_approved:
        line = wording.confirm_deletion(found)
        agreed = Delete(target=Known(found), confirmed=True)
        return Say(text=line, focus=found[-1], question=Question(line=line, then=agreed))
    yield tuple(desk.tools.delete(todo) for todo in found)
    return Say(text=wording.deleted(found), forgets=True)


def _resolve(intent: Change | Delete, target: Target, desk: Desk, *, prefer: str) -> Search:
    """The todos that are meant, or what to say instead. Looks into the list only when the conversation does not tell."""
    match target:
        case Known(todos):
            return todos
        case It() if desk.memory.focus is not None:
            return (desk.memory.focus,)
        case Numbers(places) if desk.memory.shown:
            return _places(places, desk.memory.shown)
        case Everything(None) if desk.memory.shown:
            return desk.memory.shown
    (answer,) = yield (desk.tools.show(Show(status="all")),)
    return _looked_up(intent, target, read_todos(answer), desk, prefer=prefer)


def _looked_up(
    intent: Change | Delete, target: Target, everything: Sequence[Todo], desk: Desk, *, prefer: str
) -> Say | tuple[Todo, ...]:
    wanted = (target.status if isinstance(target, Everything) else None) or prefer
    likely = [todo for todo in everything if todo.status == wanted]
    if isinstance(target, Titled):
        found = find(target.words, likely) or find(target.words, everything)
        return _the_one(found, intent, desk) if found else Say(text=wording.not_found(target.words))
    if not likely:
        return Say(text=wording.empty_list())
    if isinstance(target, Everything):
        return tuple(likely)
    # A number of a list that nobody has seen yet: better to show it than to guess.
    return _which(likely, intent, desk) if isinstance(target, Numbers) else _the_one(likely, intent, desk)


def _the_one(found: Sequence[Todo], intent: Change | Delete, desk: Desk) -> Say | tuple[Todo, ...]:
    return tuple(found) if len(found) == 1 else _which(found, intent, desk)


def _which(found: Sequence[Todo], intent: Change | Delete, desk: Desk) -> Say:
    choices = tuple(found)
    question = Question(line=wording.WHICH, then=intent, choices=choices)
    return Say(text=wording.which(choices, desk.now), shown=choices, question=question)


def _places(places: Sequence[int], shown: Sequence[Todo]) -> Say | tuple[Todo, ...]:
    wrong = next((place for place in places if place != -1 and not 1 <= place <= len(shown)), None)
    if wrong is not None:
        return Say(text=wording.out_of_range(wrong, len(shown)))
    return tuple(shown[place - 1 if place > 0 else -1] for place in places)


def with_target(intent: Intent, todos: tuple[Todo, ...]) -> Intent:
    return replace(intent, target=Known(todos)) if isinstance(intent, Change | Delete) else intent
