"""What a sentence can ask for, as values, and the todo that it is about."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from holodeck.models.demo.dates import Due


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTodo:
    """A todo as the tools return it."""

    id: str
    title: str
    description: str = ""
    due: datetime | None = None
    priority: str | None = None
    status: str = "pending"
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class It:
    """The todo of the last exchange."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Positions in the list that was shown last; -1 is its end."""

    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Titled:
    words: str


@dataclass(frozen=True, slots=True)
class Everything:
    """All todos of the list."""


Target: TypeAlias = It | Numbers | Titled | Everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    title: str
    due: Due | None = None
    priority: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """`period` is [start, end) of the due date, `period_name` the words for it, `due_filter` the list tool's name."""

    status: str = "pending"
    priority: str | None = None
    period: tuple[datetime, datetime] | None = None
    period_name: str = ""
    due_filter: str | None = None
    tags: tuple[str, ...] = ()
    search: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TodoChange:
    target: Target
    title: str | None = None
    due: Due | None = None
    undated: bool = False  # removes the due date
    priority: str | None = None
    status: str | None = None
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    target: Target


@dataclass(frozen=True, slots=True)
class Talk:
    """Small talk, or yes and no; `topic` is a key of a table in `wording`."""

    topic: str


Intent: TypeAlias = Create | Show | TodoChange | Delete | Talk
