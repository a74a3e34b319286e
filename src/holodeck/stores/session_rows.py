"""A session as SQL stores keep it: one row for itself, one for each step of its history. The same values in every store."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import msgspec

from holodeck.core.messages import Message, UserMessage
from holodeck.core.owner import Owner
from holodeck.sessions.port import ServerSession
from holodeck.sessions.title import READ, title_in
from holodeck.sessions.transcript import whole_turns
from holodeck.stores import records

TTL_SECONDS = 30 * 24 * 3600.0
CLEAN_SECONDS = 60.0
COLUMNS = "key, epoch, created, used, messages, steps, size, v, pending, state, summary, broken"

# The beginning of the first step that begins with a user's message, for the title: format it with both tables' names.
FIRST_STEP = (
    f"(SELECT substr(f.body, 1, {READ}) FROM {{steps}} f WHERE f.session = {{sessions}}.key AND f.by_user"
    " ORDER BY f.seq LIMIT 1)"
)

_EPOCH, _MICROSECOND = datetime.fromtimestamp(0, UTC), timedelta(microseconds=1)

Step: TypeAlias = tuple[int, bool, bytes]
"""How many messages, whether a user's comes first, the messages as JSON."""


class SessionRow(msgspec.Struct, frozen=True):
    """A session as it is stored, without its messages. `key` None: not stored yet."""

    key: int | None
    epoch: int
    created: float
    used: float
    messages: int
    steps: int
    size: int
    v: int
    pending: bytes | None = None
    state: bytes | None = None
    summary: bytes | None = None
    broken: str | None = None

    def grown(self, steps: Sequence[Step], *, epoch: int, used: float) -> "SessionRow":
        """The row after these steps were added."""
        messages, size = self.messages, self.size
        for count, _, body in steps:
            messages += count
            size += len(body) - count - 1
        return msgspec.structs.replace(
            self, epoch=epoch, used=used, messages=messages, steps=self.steps + len(steps), size=size, v=records.VERSION
        )


def new_row(now: float, key: int | None = None) -> SessionRow:
    """An empty session."""
    return SessionRow(key, 0, now, now, 0, 0, 0, records.VERSION)


def steps_of(messages: Sequence[Message]) -> list[Step]:
    return [(len(turn), isinstance(turn[0], UserMessage), records.encode(turn)) for turn in whole_turns(messages)]


def size_of_steps(steps: Sequence[Step]) -> int:
    """The bytes of their messages, as `sessions.history.size_of` counts them."""
    size = 0
    for count, _, body in steps:
        size += len(body) - count - 1
    return size


def microseconds_of(moment: datetime) -> int:
    """Since 1970. Exact both ways: `described` cuts a time off at a microsecond, as stores do that compare with it."""
    return (moment - _EPOCH) // _MICROSECOND


def described(owner: Owner, session_id: str, row: SessionRow, first_step: bytes | None = None) -> ServerSession:
    """A session without its messages; with a title if the beginning of its first step is given."""
    return ServerSession(
        session_id=session_id,
        owner=owner,
        created_at=datetime.fromtimestamp(row.created, UTC),
        last_activity=_EPOCH + int(row.used * 1e6) * _MICROSECOND,
        message_count=row.messages,
        size=row.size,
        title=title_in(first_step),
    )


class StoreClock:
    """The clock of a store: never behind what is stored, and not moved by a clock that is set while the process runs."""

    def __init__(self, latest: float, now: float | None = None) -> None:
        """`latest` is the newest time that is stored, `now` the time by the store's own clock if it has one."""
        self._offset = max(latest, time.time() if now is None else now) - time.monotonic()

    def __call__(self) -> float:
        return self._offset + time.monotonic()
