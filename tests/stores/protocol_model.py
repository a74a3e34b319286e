"""A small model of how replicas share a run, for an exhaustive search through all interleavings.

One session with one run that calls one tool, and a second run that waits in the session's queue. Process 0 starts the run. Processes 1
and 2 may take it over at any moment, also while its owner lives: that covers a paused owner, a slow one and a wrong suspicion. Processes
0 and 1 may die at any moment. The copy of the log may fail over once and lose any tail, its seal included. A local client reconnects to
the new owner, a remote reader follows the copy. The run's request has come to another process too, which looked for the run before it
was stored, and enters at any later moment.

`Rules` are the rules of the real stores. Each can be switched off, and the search then has to find a violation: a model in which a
missing rule goes unnoticed would prove nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

BLOCK = 10  # numbers of events after take-over n start at n * BLOCK; the real block is 10^9
NO_CLIENT = -1
Ending = Literal["finished", "interrupted"]
Result = Literal["done", "unknown", "not made"]
Observer = Literal["client", "reader"]


@dataclass(frozen=True, kw_only=True)
class Rules:
    on_crash_continue: bool = True
    commits_name_their_epoch: bool = True
    intent_before_call: bool = True
    unknown_calls_stay_unknown: bool = True  # otherwise a begun call is answered with "not made"
    begun_calls_are_not_repeated: bool = True
    numbers_jump_at_take_over: bool = True
    endings_are_stored_first: bool = True
    readers_ask_the_database: bool = True
    turns_wait_for_the_run_before: bool = True
    ended_runs_are_not_begun_again: bool = True


@dataclass(frozen=True, slots=True)
class Process:
    at: str  # the next thing that it does
    epoch: int = 0
    takeover: int = 0
    base: int = 0  # the number of its first event
    events: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """The copy of the log of one owner."""

    events: int = 0
    ended: bool = False
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class State:
    processes: tuple[Process, ...]
    copies: tuple[Copy, ...] = (Copy(), Copy(), Copy())
    # the database
    epoch: int = 1
    run: Literal["running", "finished", "interrupted"] = "running"
    takeovers: int = 0
    begun: bool = False
    result: Result | None = None
    commits: tuple[int, ...] = ()  # the epoch of each commit
    second: Literal["queued", "running", "finished"] = "queued"
    second_epoch: int = 0
    repeat: Literal["looked up", "joined", "begun again"] = "looked up"
    # the world
    calls: int = 0  # how often the tool acted
    failed_over: bool = False
    # the local client
    client_at: int = 0  # the process that it reads from
    client_seen: int = -1  # the highest number that it has
    client_missed: bool = False
    client_ending: Ending | None = None
    # the remote reader
    reader_stream: int = 0
    reader_ending: Ending | None = None


START = State(processes=(Process("talk", epoch=1), Process("idle"), Process("idle")))
STARTS: dict[Observer, State] = {
    "client": START,
    "reader": replace(START, client_at=NO_CLIENT, second="finished", repeat="joined"),
}


def steps(state: State, rules: Rules, observer: Observer) -> Iterator[State]:
    """Every state that can come next. Client and reader do not influence each other, so each has a search of its own."""
    for index, process in enumerate(state.processes):
        yield from _process(state, index, process, rules)
        if index < 2 and process.at not in {"dead", "over"}:
            yield _with(state, index, replace(process, at="dead"))
        if process.events and process.at != "dead":
            yield from _flush(state, process)
    yield from _queue(state, rules)
    if state.repeat == "looked up":
        yield _enter_late(state, rules)
    if observer == "client":
        yield from _client(state)
    else:
        yield from _reader(state, rules)
        if not state.failed_over:
            yield from _fail_over(state)


def _with(state: State, index: int, process: Process, **changes: object) -> State:
    processes = (*state.processes[:index], process, *state.processes[index + 1 :])
    return replace(state, processes=processes, **changes)  # type: ignore[arg-type]  # changes are fields of State


def _may_write(state: State, process: Process, rules: Rules) -> bool:
    return process.epoch == state.epoch or not rules.commits_name_their_epoch


def _process(state: State, index: int, process: Process, rules: Rules) -> Iterator[State]:  # noqa: C901  a case for each step
    def go(at: str, *, events: int = 0, **changes: Any) -> State:
        seen = process.base + process.events + events - 1
        if events and state.client_at == index:
            changes["client_seen"] = max(state.client_seen, seen)
        return _with(state, index, replace(process, at=at, events=process.events + events), **changes)

    match process.at:
        case "idle" if state.run == "running" and (index == 1 or state.takeovers or state.processes[1].at == "dead"):
            yield _take_over(state, index, rules)
        case "talk":
            yield go("intend" if rules.intent_before_call else "call", events=1)
        case "intend":
            yield go("call", begun=True) if _may_write(state, process, rules) else go("over")
        case "call":
            yield go("commit", calls=state.calls + 1)
        case "commit":
            done: dict[str, Any] = {"result": "done", "begun": True, "commits": (*state.commits, process.epoch)}
            yield go("finish", **done) if _may_write(state, process, rules) else go("over")
        case "finish" if (
            not rules.endings_are_stored_first and state.client_ending is None and state.client_at == index
        ):
            yield go("finish", events=1, client_ending="finished")
        case "finish":
            done = {"run": "finished", "commits": (*state.commits, process.epoch)}
            yield go("show finished", **done) if _may_write(state, process, rules) else go("over")
        case "show finished" | "show interrupted":
            ending = process.at.removeprefix("show ")
            is_read_here = state.client_at == index and state.client_ending is None
            yield go("over", events=1, **({"client_ending": ending} if is_read_here else {}))
        case "seal":
            sealed = tuple(
                replace(each, sealed=each.sealed or at < process.takeover) for at, each in enumerate(state.copies)
            )
            yield go("settle", copies=sealed)
        case "settle":
            yield from _settle(state, process, go, rules)
        case "interrupt":
            done = {"run": "interrupted", "commits": (*state.commits, process.epoch)}
            yield go("show interrupted", **done) if _may_write(state, process, rules) else go("over")


def _take_over(state: State, index: int, rules: Rules) -> State:
    """One transaction: the session's epoch rises, and the run belongs to another process."""
    takeover = state.takeovers + 1
    base = takeover * BLOCK if rules.numbers_jump_at_take_over else state.copies[takeover - 1].events
    process = Process("seal", epoch=state.epoch + 1, takeover=takeover, base=base)
    return _with(state, index, process, epoch=state.epoch + 1, takeovers=takeover)


def _settle(state: State, process: Process, go: object, rules: Rules) -> Iterator[State]:
    assert callable(go)
    if not _may_write(state, process, rules):
        yield go("over")
        return
    continues = rules.on_crash_continue and process.takeover == 1
    if state.result is None and state.begun and not (continues and not rules.begun_calls_are_not_repeated):
        answer: Result = "unknown" if rules.unknown_calls_stay_unknown else "not made"
        yield go("interrupt", result=answer, commits=(*state.commits, process.epoch))
    elif continues:
        yield go("finish" if state.result == "done" else "talk", events=1)
    else:
        yield go("interrupt")


def _flush(state: State, process: Process) -> Iterator[State]:
    copy = state.copies[process.takeover]
    new = replace(copy, events=process.events, ended=process.at == "over" and state.run != "running")
    if not copy.sealed and new != copy:
        copies = (*state.copies[: process.takeover], new, *state.copies[process.takeover + 1 :])
        yield replace(state, copies=copies)


def _queue(state: State, rules: Rules) -> Iterator[State]:
    if state.second == "queued" and (state.run != "running" or not rules.turns_wait_for_the_run_before):
        yield replace(state, second="running", epoch=state.epoch + 1, second_epoch=state.epoch + 1)
    elif state.second == "running" and (state.second_epoch == state.epoch or not rules.commits_name_their_epoch):
        yield replace(state, second="finished", commits=(*state.commits, state.second_epoch))


def _enter_late(state: State, rules: Rules) -> State:
    """One statement: it finds the row of the run, which is in progress or has ended."""
    if state.run == "running" or rules.ended_runs_are_not_begun_again:
        return replace(state, repeat="joined")
    return replace(state, repeat="begun again", run="running", epoch=state.epoch + 1)


def _client(state: State) -> Iterator[State]:
    """The client reconnects to the newest owner, and asks for what comes after the last number that it has."""
    here = state.processes[state.client_at]
    owner = next(
        (i for i, each in enumerate(state.processes) if each.takeover == state.takeovers and i != state.client_at), None
    )
    if here.at in {"dead", "over"} and state.client_ending is None and owner is not None and state.takeovers:
        new = state.processes[owner]
        missed = new.events > 0 and new.base <= state.client_seen
        last = new.base + new.events - 1 if new.events else state.client_seen
        ended: Ending | None = state.run if new.at == "over" and state.run != "running" else None
        yield replace(
            state, client_at=owner, client_missed=state.client_missed or missed,
            client_seen=max(state.client_seen, last), client_ending=ended,
        )  # fmt: skip


def _reader(state: State, rules: Rules) -> Iterator[State]:
    if state.reader_ending is not None:
        return
    copy = state.copies[state.reader_stream]
    if copy.ended and state.run != "running":
        yield replace(state, reader_ending=state.run)
    if copy.sealed and state.reader_stream < state.takeovers:
        yield replace(state, reader_stream=state.reader_stream + 1)
    if rules.readers_ask_the_database and state.run != "running":
        yield replace(state, reader_ending=state.run)


def _fail_over(state: State) -> Iterator[State]:
    """The copy's primary dies; its replica lacks a tail: the seal and the ending, or everything."""
    for at, copy in enumerate(state.copies):
        for kept in {0, copy.events}:
            lost = Copy(events=kept)
            if lost != copy:
                yield replace(state, copies=(*state.copies[:at], lost, *state.copies[at + 1 :]), failed_over=True)


NEVER: dict[str, Callable[[State], bool]] = {
    "a tool acted twice": lambda it: it.calls > 1,
    "a tool acted without a trace in the store": lambda it: it.calls > 0 and not it.begun,
    "a call that was made is reported as not made": lambda it: it.calls > 0 and it.result == "not made",
    "commits of two owners are interleaved": lambda it: list(it.commits) != sorted(it.commits),
    "the client was shown an ending that the store does not have": (
        lambda it: it.client_ending == "finished" and it.run != "finished"
    ),
    "the client skips events of the new owner": lambda it: it.client_missed,
    "a request is carried out twice": lambda it: it.repeat == "begun again",
    "two runs of one session at a time": lambda it: it.run == it.second == "running",
}
NEVER_AT_THE_END: dict[str, Callable[[State], bool]] = {
    "the run never ends": lambda it: it.run == "running",
    "a reader of the copy waits for ever": lambda it: it.client_at == NO_CLIENT and it.reader_ending is None,
    "the run in the queue never gets its turn": lambda it: it.second != "finished",
}


def search(rules: Rules, observer: Observer, wanted: str | None = None) -> tuple[int, set[str]]:
    """The number of states, and every violation that any of them has. The search stops at the violation that is `wanted`."""
    seen, waiting, found = {STARTS[observer]}, [STARTS[observer]], set[str]()
    while waiting and wanted not in found:
        state = waiting.pop()
        nexts = set(steps(state, rules, observer))
        found.update(name for name, is_true in NEVER.items() if is_true(state))
        if not nexts:
            found.update(name for name, is_true in NEVER_AT_THE_END.items() if is_true(state))
        waiting.extend(nexts - seen)
        seen |= nexts
    return len(seen), found
