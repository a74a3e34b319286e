"""A small model of everything that writes to one session, for an exhaustive search through all interleavings.

Alice's run "a" is in progress at process 0, which lives. Her run "q" waits for its turn at process 1; process 2 may take it over at any
moment, also while process 1 lives. A terminal, which has no run, may write at any moment. Alice may delete the session at any moment, and
Bob may begin a session and a run right after that. A client may stop run "a" twice. One connection may break after its commit took effect, and the
commit is then repeated. `protocol_model` has the rest: deaths, tool calls, and copies of logs.

As there, each rule can be switched off, and the search then has to find a violation.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Start = Literal["stored", "new"]  # whether the session is there before the runs
Actor = Literal["queue", "terminal", "deletion"]


@dataclass(frozen=True, kw_only=True)
class WriterRules:
    keys_are_given_out_once: bool = True
    commits_need_their_run: bool = (
        True  # otherwise a run that was deleted with its session may insert the session again
    )
    others_raise_the_epoch_by_two: bool = True
    only_runs_that_had_their_turn_fence: bool = True
    first_ending_counts: bool = True  # otherwise the second stop shows its ending without waiting for the store
    stored_endings_prove_commits: bool = True  # otherwise only the session's epoch and number of steps do


class Stored(NamedTuple):
    """The row of a session."""

    key: int
    owner: str
    epoch: int
    steps: str  # a letter for each step: whose it is


class RunRow(NamedTuple):
    key: int
    name: str
    process: int
    state: str  # "queued", "running" or the ending


class Read(NamedTuple):
    """What a writer knows of the session."""

    key: int | None = None  # None: there is none
    epoch: int = 0
    step_count: int = 0


class Writer(NamedTuple):
    """A run in one process, or the terminal, whose run is 0."""

    name: str
    process: int
    run: int
    at: str  # the next thing that it does
    read: Read = Read()
    claimed: bool = False
    ending: str = ""  # the one that it gave to the store
    stored: str = ""  # the steps that it takes for stored
    shown: str = ""  # the ending that its readers were shown


class State(NamedTuple):
    writers: tuple[Writer, ...]
    sessions: tuple[Stored, ...]
    runs: tuple[RunRow, ...]
    stops: int = 0  # stops of run "a"
    connection_lost: bool = False
    may_be_deleted: bool = True
    deleted: bool = False


RUN, QUEUED, TERMINAL = "a", "q", "t"
WRITERS = (
    Writer(RUN, 0, 1, "read"),
    Writer(QUEUED, 1, 2, "wait"),
    Writer(QUEUED, 2, 2, "take over"),
    Writer(TERMINAL, 3, 0, "read"),
)
RUNS = (RunRow(1, RUN, 0, "running"), RunRow(2, QUEUED, 1, "queued"))
LAST_SESSION, LAST_RUN = 1, 2  # the highest keys that Alice's rows can have
OPEN = {"queued", "running"}


def first_state(start: Start, actors: Collection[Actor]) -> State:
    """Run "a" with some of the others: with all of them there would be 800,000 states."""
    names = {RUN, *({QUEUED} if "queue" in actors else ()), *({TERMINAL} if "terminal" in actors else ())}
    return State(
        writers=tuple(each for each in WRITERS if each.name in names),
        sessions=(Stored(1, "alice", 1, "o"),) if start == "stored" else (),
        runs=tuple(each for each in RUNS if each.name in names),
        may_be_deleted="deletion" in actors,
    )


def steps(state: State, rules: WriterRules) -> Iterator[State]:
    """Every state that can come next."""
    for index, writer in enumerate(state.writers):
        yield from _writer(state, index, writer, rules)
    if state.stops < 2 and state.writers[0].at in {"end", "store ending"}:  # earlier and later ones change nothing
        yield state._replace(stops=state.stops + 1)
    if state.may_be_deleted and not state.deleted:
        kept = tuple(each for each in state.sessions if each.owner != "alice")
        without = state._replace(sessions=kept, runs=(), deleted=True)
        yield from (without, _begin_bob(without, rules))


def _begin_bob(state: State, rules: WriterRules) -> State:
    used = LAST_SESSION, LAST_RUN
    if not rules.keys_are_given_out_once:
        used = max((each.key for each in state.sessions), default=0), max((each.key for each in state.runs), default=0)
    session, run = Stored(used[0] + 1, "bob", 1, "b"), RunRow(used[1] + 1, "b", 0, "running")
    return state._replace(sessions=(*state.sessions, session), runs=(*state.runs, run))


def _with(state: State, index: int, writer: Writer) -> State:
    return state._replace(writers=(*state.writers[:index], writer, *state.writers[index + 1 :]))


def _run_row(state: State, writer: Writer) -> RunRow | None:
    return next((each for each in state.runs if each.key == writer.run and each.process == writer.process), None)


def _current(state: State, read: Read) -> Stored | None:
    """The session by its key, or by its name if the writer knows no key."""
    if read.key is not None:
        return next((each for each in state.sessions if each.key == read.key), None)
    return next((each for each in state.sessions if each.owner == "alice"), None)


def _writer(state: State, index: int, writer: Writer, rules: WriterRules) -> Iterator[State]:  # noqa: C901  a case for each step
    def go(at: str, **changes: Any) -> State:
        return _with(state, index, writer._replace(at=at, **changes))

    match writer.at:
        case "wait":
            yield from _turn(state, index, writer)
        case "take over":
            yield from _take_over(state, index, writer, rules)
        case "read" | "read to end":
            found = _current(state, Read())
            read = Read() if found is None else Read(found.key, found.epoch, len(found.steps))
            yield go("commit" if writer.at == "read" else "end", read=read)
        case "commit":
            yield from _commit(state, index, writer, rules)
        case "end":
            is_stopped = writer.name == RUN and state.stops
            ending = (
                "stopped" if is_stopped else "interrupted" if writer.process == 2 and not writer.stored else "completed"
            )
            yield go("store ending", ending=ending)
        case "store ending":
            if writer.name == RUN and state.stops == 2 and not rules.first_ending_counts and not writer.shown:
                yield go("store ending", shown="stopped")
            yield from _commit(state, index, writer, rules)
        case "look":
            yield _with(state, index, _judged(state, writer, rules))
        case "lost" | "session deleted" if writer.run:
            yield go(f"{writer.at}, shown", shown=writer.shown or "failed")
        case "lost, shown" if (
            row := _run_row(state, writer)
        ) and row.state in OPEN:  # the ending is stored when it can be
            yield go("lost, over")._replace(runs=_changed(state, row._replace(state=writer.shown)))


def _changed(state: State, row: RunRow) -> tuple[RunRow, ...]:
    return tuple(row if each.key == row.key else each for each in state.runs)


def _turn(state: State, index: int, writer: Writer) -> Iterator[State]:
    row = _run_row(state, writer)
    is_next = not any(each.name == RUN and each.state in OPEN for each in state.runs)
    if row is not None and row.state == "queued" and is_next:
        yield _with(state, index, writer._replace(at="read"))._replace(
            runs=_changed(state, row._replace(state="running"))
        )


def _take_over(state: State, index: int, writer: Writer, rules: WriterRules) -> Iterator[State]:
    """One statement: the run belongs to another process, and what the process before writes late fails."""
    row = next((each for each in state.runs if each.name == QUEUED and each.state in OPEN), None)
    if row is None:
        return
    fences = row.state == "running" or not rules.only_runs_that_had_their_turn_fence
    sessions = tuple(
        each._replace(epoch=each.epoch + 1) if fences and each.owner == "alice" else each for each in state.sessions
    )
    taken = _with(state, index, writer._replace(at="wait" if row.state == "queued" else "read to end"))
    yield taken._replace(runs=_changed(state, row._replace(process=writer.process)), sessions=sessions)


def _after(state: State, writer: Writer, rules: WriterRules) -> Read:
    """The session after the writer's commit."""
    raised = 0 if writer.claimed else 1 if writer.run or not rules.others_raise_the_epoch_by_two else 2
    added = 0 if writer.ending else 1
    key = writer.read.key
    if key is None and added:
        key = LAST_SESSION + 2 if state.deleted else LAST_SESSION  # Bob has the one between
    return Read(key, writer.read.epoch + raised, writer.read.step_count + added)


def _stored(writer: Writer, read: Read) -> Writer:
    """The writer when it takes its commit for stored. Only then are readers shown an ending."""
    if writer.ending:
        return writer._replace(at="over", shown=writer.shown or writer.ending)
    return writer._replace(at="end" if writer.run else "over", read=read, claimed=True, stored=writer.name)


def _commit(state: State, index: int, writer: Writer, rules: WriterRules) -> Iterator[State]:
    """One statement. If it has no effect, a run looks why; if its connection breaks, a run sends it again."""
    read, after, row, found = (
        writer.read,
        _after(state, writer, rules),
        _run_row(state, writer),
        _current(state, writer.read),
    )
    is_allowed = not writer.run or (row is not None and row.state == "running") or not rules.commits_need_their_run
    sessions = state.sessions
    if read.key is None and after.key is not None:
        is_allowed = is_allowed and found is None
        sessions = (*sessions, Stored(after.key, "alice", after.epoch, writer.name))
    elif read.key is not None:
        is_allowed = (
            is_allowed and found is not None and (found.epoch, len(found.steps)) == (read.epoch, read.step_count)
        )
        if is_allowed and found is not None:
            grown = found._replace(epoch=after.epoch, steps=found.steps + ("" if writer.ending else writer.name))
            sessions = tuple(grown if each is found else each for each in sessions)
    if not is_allowed:
        yield _with(state, index, writer._replace(at="look" if writer.run else "over"))
        return
    runs = _changed(state, row._replace(state=writer.ending)) if row is not None and writer.ending else state.runs
    done = state._replace(sessions=sessions, runs=runs)
    yield _with(done, index, _stored(writer, after))
    if writer.run and not state.connection_lost:
        yield done._replace(connection_lost=True)


def _judged(state: State, writer: Writer, rules: WriterRules) -> Writer:
    """What a run makes of a commit that had no effect."""
    after, row, found = _after(state, writer, rules), _run_row(state, writer), _current(state, writer.read)
    is_ended = row is not None and bool(writer.ending) and row.state == writer.ending
    if is_ended and rules.stored_endings_prove_commits:
        return _stored(writer, after)
    if found is None:
        return writer._replace(at="session deleted")
    is_ours = is_ended or (row is not None and row.state == "running" and not writer.ending)
    if is_ours and (found.epoch, len(found.steps)) == (after.epoch, after.step_count):
        return _stored(writer, Read(found.key, found.epoch, len(found.steps)))
    return writer._replace(at="lost")


def _steps_of(state: State, owner: str) -> str:
    return "".join(each.steps for each in state.sessions if each.owner == owner)


def _is_fenced_for_nothing(state: State) -> bool:
    has_terminal_written = TERMINAL in _steps_of(state, "alice")
    return not state.deleted and state.writers[0].at.startswith("lost") and not has_terminal_written


def _shows_another_ending(state: State) -> bool:
    rows = ((writer, _run_row(state, writer)) for writer in state.writers if writer.shown)
    return any(row is not None and row.state not in OPEN and row.state != writer.shown for writer, row in rows)


NEVER: dict[str, Callable[[State], bool]] = {
    "a late run writes into a session of another owner": lambda it: set(_steps_of(it, "bob")) > {"b"},
    "a late run ends a run of another owner": lambda it: any(
        each.name == "b" and each.state != "running" for each in it.runs
    ),
    "a deleted session comes back": lambda it: it.deleted and not {RUN, QUEUED}.isdisjoint(_steps_of(it, "alice")),
    "a message that a run takes for stored is lost": (
        lambda it: not it.deleted and any(set(each.stored) - set(_steps_of(it, "alice")) for each in it.writers)
    ),
    "a step is stored twice": lambda it: any(len(each.steps) != len(set(each.steps)) for each in it.sessions),
    "a run of a living process loses a session that nothing else wrote to": _is_fenced_for_nothing,
    "readers are shown another ending than the stored one": _shows_another_ending,
}
NEVER_AT_THE_END: dict[str, Callable[[State], bool]] = {
    "readers wait for ever": lambda it: not it.writers[0].shown,
    "a run never ends": lambda it: any(each.state in OPEN and each.name != "b" for each in it.runs),
}


def search(
    rules: WriterRules, start: Start, actors: Collection[Actor], wanted: str | None = None
) -> tuple[int, set[str]]:
    """The number of states, and every violation that any of them has. The search stops at the violation that is `wanted`."""
    first = first_state(start, actors)
    seen, waiting, found = {first}, [first], set[str]()
    while waiting and wanted not in found:
        state = waiting.pop()
        nexts = set(steps(state, rules))
        found.update(name for name, is_true in NEVER.items() if is_true(state))
        if not nexts:
            found.update(name for name, is_true in NEVER_AT_THE_END.items() if is_true(state))
        waiting.extend(nexts - seen)
        seen |= nexts
    return len(seen), found
