"""What a sentence can ask for, as values."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from holodeck.models.demo.dates import Due
from holodeck.models.demo.details import Details
from holodeck.models.demo.todos import Todo


@dataclass(frozen=True, slots=True)
class It:
    """The todo that was talked about last."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Positions in the list that was shown last; -1 is its end."""

    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Titled:
    words: str


@dataclass(frozen=True, slots=True)
class Everything:
    """All of them, or all that are completed."""

    status: str | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """Todos that are already found."""

    todos: tuple[Todo, ...]


Target: TypeAlias = It | Numbers | Titled | Everything | Known


@dataclass(frozen=True, slots=True)
class Create:
    details: Details


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Due within [start, end). `word` is how the list tool calls it, if it can."""

    label: str
    start: datetime
    end: datetime
    word: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    status: str = "pending"
    priority: str | None = None
    period: Period | None = None
    overdue: bool = False
    tags: tuple[str, ...] = ()
    search: str = ""
    count_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`due` moves it; `shift` moves it by so much; `undated` takes the date away."""

    target: Target
    title: str | None = None
    due: Due | None = None
    shift: timedelta | None = None
    undated: bool = False
    priority: str | None = None
    status: str | None = None
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    target: Target
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class Agree:
    """Yes."""


@dataclass(frozen=True, slots=True)
class Decline:
    """No."""


@dataclass(frozen=True, slots=True)
class Talk:
    """Small talk, or what cannot be done; `topic` is a key of `wording.TALK`."""

    topic: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """None of our sentences."""


Intent: TypeAlias = Create | Show | Change | Delete | Agree | Decline | Talk | Unknown
