"""Decides what happens to a pending step, from the answers of people and clients. Pure functions.

A step is pending if it waited for an answer, or if a crash interrupted it. A resume counts once, in time, and only for
the session that asked. Tool results from a client count only for calls that were given to it. Everything else that it
claims is ignored (forged history, T27).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from holodeck.core.ids import new_ulid
from holodeck.core.messages import AssistantMessage, PendingStep, ToolCall, ToolMessage, now
from holodeck.core.request import REFUSED, Resume
from holodeck.errors import InvalidRequest

UNDECIDED = "Not carried out: the user continued without approving it."
NO_ANSWER = "The application gave no result for this call."
OUTCOME_UNKNOWN = "Stopped before it finished; whether it took effect is not known."
NOT_MADE = "Not carried out: the run was interrupted before this call was made."


@dataclass(frozen=True)
class Decision:
    approved: list[ToolCall] = field(default_factory=list)
    refused: list[tuple[ToolCall, str]] = field(default_factory=list)
    client_results: list[ToolMessage] = field(default_factory=list)

    def applied_to(self, assistant: AssistantMessage) -> AssistantMessage:
        """The message with the arguments that were really used, if a person changed them."""
        carried_out = {call.id: call for call in self.approved}
        calls = tuple(carried_out.get(call.id, call) for call in assistant.tool_calls)
        return msgspec.structs.replace(assistant, tool_calls=calls)

    def with_own_ids(self, used: Collection[str]) -> "Decision":
        """The same decision. A client's result whose id another message has gets an id of its own."""
        taken, results = set(used), list[ToolMessage]()
        for result in self.client_results:
            own = msgspec.structs.replace(result, id=new_ulid()) if result.id in taken else result
            taken.add(own.id)
            results.append(own)
        return replace(self, client_results=results)


def decide(
    pending: PendingStep | None,
    resume: Sequence[Resume],
    client_results: Sequence[ToolMessage],
    at: datetime | None = None,
) -> Decision:
    """Sorts the waiting calls. Raises InvalidRequest for a resume that is unknown, used up, duplicated or too late."""
    answers = _answers(pending, resume, at or now())
    decision = Decision()
    if pending is None:
        return decision
    from_client = {message.call_id: message for message in client_results}
    interrupts = {call_id: interrupt_id for interrupt_id, call_id in pending.approvals.items()}
    for call in pending.waiting:
        if call.id in pending.begun:
            decision.refused.append((call, OUTCOME_UNKNOWN))
        elif call.id in pending.client_calls:
            _take_result(decision, call, from_client.get(call.id))
        elif call.id not in interrupts:
            decision.refused.append((call, NOT_MADE))
        elif (answer := answers.get(interrupts[call.id])) is None:
            decision.refused.append((call, UNDECIDED))
        elif answer.approved:
            decision.approved.append(_edited(call, answer.payload))
        else:
            decision.refused.append((call, _refusal(answer.reason)))
    return decision


def _answers(pending: PendingStep | None, resume: Sequence[Resume], at: datetime) -> dict[str, Resume]:
    answers: dict[str, Resume] = {}
    for entry in resume:
        if pending is None or entry.interrupt_id not in pending.approvals:
            raise InvalidRequest(f"There is no open interrupt {entry.interrupt_id!r} in this session.", field="resume")
        if entry.interrupt_id in answers:
            raise InvalidRequest(f"Interrupt {entry.interrupt_id!r} is answered twice.", field="resume")
        if entry.approved and pending.has_expired(at):
            raise InvalidRequest(f"Interrupt {entry.interrupt_id!r} has expired.", field="resume")
        answers[entry.interrupt_id] = entry
    return answers


def _refusal(reason: str | None) -> str:
    return REFUSED if reason is None else f"{REFUSED} Their reason: {reason}"


def _take_result(decision: Decision, call: ToolCall, message: ToolMessage | None) -> None:
    if message is None:
        decision.refused.append((call, NO_ANSWER))
    else:
        decision.client_results.append(msgspec.structs.replace(message, name=call.name))


def _edited(call: ToolCall, payload: Any) -> ToolCall:
    """The call with the person's arguments in place of the model's, if they changed them."""
    arguments = payload.get("arguments") if isinstance(payload, dict) else None
    if not isinstance(arguments, dict):
        return call
    return msgspec.structs.replace(call, arguments=msgspec.json.encode(arguments).decode())
