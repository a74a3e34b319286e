"""Stored bodies: versioned JSON, the same bytes in every store, so that a session can be moved between stores.

Reading validates. A body of an older version is upgraded in memory and written back with the next commit. A body of a
newer version, or one that cannot be read, raises and is left unchanged.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from holodeck.core.events import AnyEvent, Ending, Event, failure
from holodeck.core.messages import Message, PendingStep, Summary
from holodeck.core.owner import Owner
from holodeck.core.request import RunRequest
from holodeck.errors import RunInterrupted, SessionBroken, SessionNewer
from holodeck.runs.port import RunRecord, RunState
from holodeck.runs.recovery import PART_STRIDE

log = logging.getLogger(__name__)

VERSION = 1
UPGRADES: dict[int, Callable[[bytes], bytes]] = {}  # from this version to the next; pure functions

T = TypeVar("T")

encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
_messages = msgspec.json.Decoder(list[Message])
_pending = msgspec.json.Decoder(PendingStep)
_summary = msgspec.json.Decoder(Summary)
_ending = msgspec.json.Decoder(Ending)
_request = msgspec.json.Decoder(RunRequest)
_anything = msgspec.json.Decoder()
_events = msgspec.json.Decoder(list[AnyEvent])


def messages_of(body: bytes, version: int) -> list[Message]:
    return _read(_messages, body, version)


def pending_of(body: bytes | None, version: int) -> PendingStep | None:
    return None if body is None else _read(_pending, body, version)


def summary_of(body: bytes | None, version: int) -> Summary | None:
    return None if body is None else _read(_summary, body, version)


def state_of(body: bytes | None, version: int) -> Any:
    return None if body is None else _read(_anything, body, version)


def ending_of(body: bytes | None, version: int) -> Ending | None:
    return None if body is None else _read(_ending, body, version)


def is_ending(ending: Ending, body: bytes | None, version: int) -> bool:
    """Whether a stored ending is this one. The same ending may have other bytes if another version wrote it."""
    return body is not None and (body == encode(ending) or ending_of(body, version) == ending)


def request_of(body: bytes, version: int) -> RunRequest:
    return _read(_request, body, version)


def optional(value: Any) -> bytes | None:
    return None if value is None else encode(value)


def pieces_of(stored: Iterable[Sequence[Any]], first: int = 0) -> list[tuple[int, list[Event]]]:
    """The pieces of a log copy, from event `first` on, each with the number of its first event.

    `stored` are numbers and bodies in their order. A piece that was written again may overlap the next one: no event is
    returned twice. After a gap, or after a piece that cannot be read, the rest of that part of the log is left out.
    """
    pieces: list[tuple[int, list[Event]]] = []
    expected = first
    for number, body in stored:
        if number // PART_STRIDE > expected // PART_STRIDE:
            expected = number // PART_STRIDE * PART_STRIDE
        try:
            events: list[Event] = [*_events.decode(body)] if number <= expected else []
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
        new = events[expected - number :]
        if new:
            pieces.append((expected, new))
            expected += len(new)
    return pieces


def _read(decoder: "msgspec.json.Decoder[T]", body: bytes, version: int) -> T:
    if version > VERSION:
        raise SessionNewer("A newer version of HoloDeck wrote this session; it is left as it is.")
    try:
        for old in range(version, VERSION):
            body = UPGRADES[old](body)
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, KeyError) as error:
        raise SessionBroken("This session cannot be read; its data is kept as it is.") from error


KEY_SECONDS = 24 * 3600.0  # how long an idempotency key is kept after its run's end; a record at least as long
COLUMNS = (
    "tenant, {user}, id, session, wire, repeat_key, fingerprint, state, accepted, ended, v, request, ending, recovered,"
    " root, replica, stop_wanted"
)
_V = COLUMNS.split(", ").index("v")
_RUN_BROKEN = "This run cannot be read; its data is kept as it is."


def run_of(row: Sequence[Any]) -> RunRecord:
    """`row` has the values of `COLUMNS`: the same in SQLite and PostgreSQL except for the name of one column.

    Raises SessionNewer if a newer version wrote it, SessionBroken if it cannot be read.
    """
    if row[_V] > VERSION:
        raise SessionNewer("A newer version of HoloDeck wrote this run; it is left as it is.")
    try:
        return _run_of(row)
    except (ValueError, OverflowError, OSError) as error:  # a state that no version has, or a time that no clock has
        raise SessionBroken(_RUN_BROKEN) from error
    except SessionBroken as error:
        raise SessionBroken(_RUN_BROKEN) from error.__cause__


def _run_of(row: Sequence[Any]) -> RunRecord:
    tenant, user, run_id, session, wire, key, fingerprint, state, accepted, ended, v, request, ending, *rest = row
    recovered, root, replica, stop_wanted = rest
    return RunRecord(
        run_id=run_id,
        owner=Owner(tenant, user),
        session_id=session,
        wire=wire,
        key=key,
        fingerprint=fingerprint or b"",
        state=RunState(state),
        created_at=datetime.fromtimestamp(accepted, UTC),
        finished_at=None if ended is None else datetime.fromtimestamp(ended, UTC),
        request=request_of(request, v),
        ending=ending_of(ending, v),
        recovered=recovered,
        root=root or "",
        replica=replica or "",
        stop_wanted=bool(stop_wanted),
    )


def readable_runs(rows: Iterable[Sequence[Any]]) -> list[RunRecord]:
    """The runs of a list, without those that cannot be read: one of them must not hide the others."""
    found = []
    for row in rows:
        with suppress(SessionBroken, SessionNewer):
            found.append(run_of(row))
    return found


class OpenRuns:
    """Runs without an ending, as a process reads them that recovers them. `rows` are a key and the values of `COLUMNS`.

    One that cannot be read is `broken`: the store sets it aside with an ending, so that it blocks neither the start nor
    its session. Its request is kept as it is. One of a newer version is left for a process of that version.
    """

    def __init__(self, rows: Iterable[Sequence[Any]]) -> None:
        self.readable: list[tuple[int, RunRecord]] = []
        self.broken: list[tuple[int, bytes]] = []  # with the ending
        for key, *row in rows:
            name, session = row[2:4]
            try:
                self.readable.append((key, run_of(row)))
            except SessionNewer:
                log.warning("run %r of session %r is of a newer version and waits for one", name, session)
            except SessionBroken as error:
                log.warning("run %r of session %r cannot be read and is set aside: %r", name, session, error.__cause__)
                self.broken.append((key, encode(failure(name, session, RunInterrupted(error.message)))))
