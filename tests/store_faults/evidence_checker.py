"""Holds what clients saw, what the store has and what the tools did against each other, after everything has ended.

The invariants have the numbers of the design: I1 one ending, I2 user messages once and in order, I3 what was seen is what is
stored, I4 every call has one result, I5 no tool twice and no act without a trace, I10 event numbers rise and tokens have no
gap, I11 runs of one session do not mix and take turns, I12 nothing is left behind. I6 to I9 (descriptors, other clients' streams, log
lines) are checked by `tests.faults`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holodeck.core.events import NOT_STORED
from tests.store_faults.numbered_model import Script

UNKNOWN = "whether it took effect is not known"
LOOKS = "look:"  # an act of the tool that may be repeated
ENDED = {"finished", "failed", "cancelled", "interrupted"}
STORE_FAILED = {"storage-full", "store-unavailable"}  # codes of endings that say that the answer could not be stored
TAKEN_OVER = "session-taken"  # the code of an ending that is shown where the run was; another process stores its own


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one client saw of one run."""

    script: Script
    thread: str
    ids: Sequence[int]
    events: Sequence[Mapping[str, Any]]
    state: str  # of the run, as the row of the store has it, not the memory of a server
    code: str | None = None  # of the stored ending, if it is a failure
    answered: str | None = None  # the state that a server answers with; None: it was not asked

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def is_acknowledged(self) -> bool:
        return "RUN_STARTED" in self.types

    @property
    def was_withdrawn(self) -> bool:
        """Whether it was stopped before its turn: then its message is not stored."""
        return self.state == "cancelled" and "STEP_STARTED" not in self.types

    @property
    def was_refused(self) -> bool:
        """Whether it failed before its message was stored, and its ending says so: then its client sends it again.

        A run shows nothing before its message is stored. RUN_STARTED comes with the ending, since every run begins with it.
        A waiting run is not refused because its server loses the store: it waits on, or another server takes it over.
        """
        return self.types == ["RUN_STARTED", "RUN_ERROR"] and NOT_STORED in self.events[-1]["message"]

    @property
    def message_id(self) -> str:
        return f"m-{self.script.run}"

    @property
    def has_ended(self) -> bool:
        return bool(self.events) and self.types[-1] in ("RUN_FINISHED", "RUN_ERROR")

    def texts(self) -> dict[str, str]:
        """The text of each message as it was streamed."""
        found: dict[str, str] = {}
        for event in self.events:
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                found[event["messageId"]] = found.get(event["messageId"], "") + event["delta"]
        return found

    def shown(self) -> dict[str, str]:
        """The text of each assistant message as the client shows it at the end: a snapshot replaces what it had."""
        found: dict[str, str] = {}
        for event in self.events:
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                found[event["messageId"]] = found.get(event["messageId"], "") + event["delta"]
            if event["type"] == "MESSAGES_SNAPSHOT":
                messages = (each for each in event["messages"] if each["role"] == "assistant")
                found = {each["id"]: each.get("content") or "" for each in messages}
        return {name: text for name, text in found.items() if text.strip()}


@dataclass(frozen=True)
class Turn:
    """A run began to be the running one of its session, or ceased to be it, as a trigger of the database wrote it down."""

    session: str
    run: str
    is_running: bool


@dataclass(frozen=True, kw_only=True)
class Evidence:
    clients: Sequence[Seen]
    sessions: Mapping[str, Sequence[Mapping[str, Any]]]  # thread → its messages, as GET /sessions/{id} has them
    acts: Sequence[str] = ()  # call ids, in the order in which the tool wrote them
    offences: Sequence[str] = ()  # histories that the model refused
    open_runs: Sequence[str] = ()  # runs without an ending in the store
    without_expiry: Sequence[str] = ()  # keys in Valkey that stay for ever
    turns: Sequence[Turn] = ()  # in their order; only PostgreSQL writes them down


@dataclass
class Verdict:
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    unknown: int = 0
    broken: list[str] = field(default_factory=list)  # a sentence for each promise that was not kept

    def require(self, kept: object, sentence: str) -> None:
        if not kept:
            self.broken.append(sentence)


def judge(evidence: Evidence) -> Verdict:
    verdict = Verdict()
    for client in evidence.clients:
        _one_ending(verdict, client)
        _numbers_rise(verdict, client)
        _no_token_is_missing(verdict, client)
        _what_was_seen_is_stored(verdict, client, evidence.sessions.get(client.thread, ()))
    for thread, messages in evidence.sessions.items():
        _messages_once(verdict, [each for each in evidence.clients if each.thread == thread], messages)
        _every_call_has_one_result(verdict, thread, messages)
        _runs_do_not_mix(verdict, thread, messages)
    _one_running_run(verdict, evidence.turns)
    _no_tool_twice(verdict, evidence)
    for offence in evidence.offences:
        verdict.broken.append(f"I4: the model was sent a history with an unanswered call: {offence}")
    verdict.require(not evidence.open_runs, f"I12: runs without an ending: {evidence.open_runs}")
    verdict.require(not evidence.without_expiry, f"I12: keys without expiry: {evidence.without_expiry}")
    return verdict


def _one_ending(verdict: Verdict, client: Seen) -> None:
    run, types = client.script.run, client.types
    endings = [kind for kind in types if kind in ("RUN_FINISHED", "RUN_ERROR")]
    verdict.require(len(endings) <= 1, f"I1: run {run} has the endings {endings}")
    if not client.is_acknowledged:
        return
    verdict.require(
        client.has_ended, f"I1: run {run} ({client.state}) has no ending for its client; last: {types[-3:]}"
    )
    verdict.require(client.state in ENDED, f"I1: run {run} is {client.state or 'unknown'} in the store")
    if client.has_ended and client.state in ENDED:
        finished = client.types[-1] == "RUN_FINISHED"
        expected = {"finished", "cancelled"} if finished else ENDED - {"finished"}
        why = client.events[-1].get("code")
        verdict.require(
            client.state in expected, f"I1: run {run} ended with {types[-1]} {why}, the store has {client.state}"
        )
        verdict.require(
            why in (client.code, TAKEN_OVER), f"I1: run {run} was shown the failure {why}, the store has {client.code}"
        )
    verdict.require(
        client.answered in (None, client.state),
        f"I1: run {run} is {client.answered or 'unknown'} at the server, the store has {client.state}",
    )


def _numbers_rise(verdict: Verdict, client: Seen) -> None:
    rises = all(before < after for before, after in zip(client.ids, client.ids[1:], strict=False))
    verdict.require(rises, f"I10: run {client.script.run} was sent the event numbers {_around_a_fall(client.ids)}")


def _around_a_fall(ids: Sequence[int]) -> list[int]:
    for place in range(1, len(ids)):
        if ids[place] <= ids[place - 1]:
            return list(ids[max(0, place - 3) : place + 3])
    return []


def _no_token_is_missing(verdict: Verdict, client: Seen) -> None:
    for text in client.texts().values():
        whole = client.script.answer
        verdict.require(whole.startswith(text), f"I10: run {client.script.run} was sent the tokens {text!r}")


def _what_was_seen_is_stored(verdict: Verdict, client: Seen, messages: Iterable[Mapping[str, Any]]) -> None:
    if not client.has_ended or client.events[-1].get("code") in STORE_FAILED:
        return
    stored = {message["id"]: message.get("content") for message in messages if message["role"] == "assistant"}
    for name, text in client.shown().items():
        verdict.require(
            stored.get(name) == text, f"I3: run {client.script.run} shows {text!r}, stored is {stored.get(name)!r}"
        )


def _messages_once(verdict: Verdict, clients: Sequence[Seen], messages: Iterable[Mapping[str, Any]]) -> None:
    stored = [message["id"] for message in messages if message["role"] == "user"]
    acknowledged = [
        each.message_id for each in clients if each.is_acknowledged and not (each.was_withdrawn or each.was_refused)
    ]
    lost = [name for name in acknowledged if name not in stored]
    doubled = sorted({name for name in stored if stored.count(name) > 1})
    verdict.acknowledged += len(acknowledged)
    verdict.lost += len(lost)
    verdict.doubled += len(doubled)
    verdict.require(not lost, f"I2: acknowledged and lost: {lost}")
    verdict.require(not doubled, f"I2: stored twice: {doubled}")


def _every_call_has_one_result(verdict: Verdict, thread: str, messages: Sequence[Mapping[str, Any]]) -> None:
    calls = sorted(call["id"] for message in messages for call in message.get("tool_calls") or ())
    results = sorted(message["call_id"] for message in messages if message["role"] == "tool")
    verdict.require(calls == results, f"I4: session {thread} has the calls {calls} and the results {results}")


def _runs_do_not_mix(verdict: Verdict, thread: str, messages: Sequence[Mapping[str, Any]]) -> None:
    order = [message.get("run_id", "") for message in messages]
    without = [message for message in messages if not message.get("run_id")]
    verdict.require(not without, f"I11: session {thread} has messages of no run: {without[:2]}")
    turns = [run for place, run in enumerate(order) if place == 0 or order[place - 1] != run]
    verdict.require(len(turns) == len(set(turns)), f"I11: session {thread} mixes runs: {turns}")


def _one_running_run(verdict: Verdict, turns: Iterable[Turn]) -> None:
    running: dict[str, set[str]] = {}
    for turn in turns:
        runs = running.setdefault(turn.session, set())
        if turn.is_running:
            runs.add(turn.run)
            verdict.require(len(runs) == 1, f"I11: session {turn.session} had the running runs {sorted(runs)}")
        else:
            runs.discard(turn.run)


def _no_tool_twice(verdict: Verdict, evidence: Evidence) -> None:
    acts = [act for act in evidence.acts if not act.startswith(LOOKS)]
    twice = sorted({act for act in acts if acts.count(act) > 1})
    verdict.doubled += len(twice)
    verdict.require(not twice, f"I5: tools acted twice: {twice}")
    results = {
        message["call_id"]: str(message["content"])
        for messages in evidence.sessions.values()
        for message in messages
        if message["role"] == "tool"
    }
    verdict.unknown += sum(UNKNOWN in text for text in results.values())
    for act in acts:
        text = results.get(act)
        kept = text is not None and (text == "acted" or UNKNOWN in text)
        verdict.require(kept, f"I5: call {act} acted, and the history has {text!r}")
    for call, text in results.items():
        verdict.require(text != "acted" or call in acts, f"I5: call {call} is said to have acted and has not")
