"""Approvals as forms that the client shows to a person, and the person's answers.

A result of the type `input_required` names the forms and a `requestState`. The client calls again with the answers and
that state. The state is the id of the run that waits. The server does not trust it: it looks up the run among those of
the caller, and only what waits there can be decided. A forged state finds nothing.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from holodeck.core.events import Interrupt
from holodeck.core.json_schema import object_of, string
from holodeck.core.json_values import decoded
from holodeck.core.request import Resume
from holodeck.errors import InvalidRequest
from holodeck.wires.body import MAX_REASON, name, opaque, refusal_reason, refuse_repeated_names, table

DECISION, ARGUMENTS, REASON = "decision", "arguments", "reason"
APPROVE, REJECT = "approve", "reject"
MAX_ANSWERS = 256
_SCHEMA = object_of(
    {
        DECISION: string(title="Decision", enum=[APPROVE, REJECT]),
        ARGUMENTS: string("Empty: as they are", title="Other arguments, as JSON"),
        REASON: string(title="Why it is rejected", maxLength=MAX_REASON),
    },
    required=[DECISION],
)


def input_requests(interrupts: Iterable[Interrupt]) -> dict[str, Any]:
    return {each.id: {"method": "elicitation/create", "params": _form(each)} for each in interrupts}


def _form(interrupt: Interrupt) -> dict[str, Any]:
    message = f"{interrupt.message}\n\n{interrupt.tool} {interrupt.arguments}"
    return {"mode": "form", "message": message, "requestedSchema": _SCHEMA}


class FormAnswers(msgspec.Struct, frozen=True):
    """The decisions among a client's answers, and the ids of the forms that a person closed without one."""

    decided: tuple[Resume, ...] = ()
    dismissed: frozenset[str] = frozenset()


def form_answers(given: Any, interrupts: Iterable[Interrupt]) -> FormAnswers:
    """Reads `inputResponses`. Answers to other questions are ignored."""
    answers = table(given, "inputResponses")
    if len(answers) > MAX_ANSWERS:
        raise InvalidRequest(f"inputResponses has more than {MAX_ANSWERS} entries", field="inputResponses")
    known = {each.id for each in interrupts}
    found = {
        key: _decision(key, table(value, f"inputResponses.{key}")) for key, value in answers.items() if key in known
    }
    return FormAnswers(
        tuple(each for each in found.values() if each is not None),
        frozenset(key for key, each in found.items() if each is None),
    )


def _decision(key: str, answer: dict[str, Any]) -> Resume | None:
    """Returns None if a person closed the form without a choice. Refuses anything but yes and no (ACC-07)."""
    path = f"inputResponses.{key}"
    interrupt_id = name(key, "inputResponses")
    action = answer.get("action")
    if action == "cancel":
        return None
    if action == "decline":
        return Resume(interrupt_id=interrupt_id, approved=False)
    if action != "accept":
        raise InvalidRequest(f"{path}.action must be accept, decline or cancel", field=f"{path}.action")
    content = table(answer.get("content"), f"{path}.content")
    chosen = content.get(DECISION)
    if chosen not in (APPROVE, REJECT):
        what = f"{path}.content.{DECISION} must be {APPROVE} or {REJECT}"
        raise InvalidRequest(what, field=f"{path}.content.{DECISION}")
    payload = _edited(content.get(ARGUMENTS), f"{path}.content.{ARGUMENTS}")
    why = refusal_reason(content.get(REASON), f"{path}.content.{REASON}")
    return Resume(interrupt_id=interrupt_id, approved=chosen == APPROVE, payload=payload, reason=why)


def _edited(given: Any, path: str) -> dict[str, Any] | None:
    """Returns the arguments that a person edited, if any."""
    if given is None or given == "":
        return None
    typed = decoded(given) if isinstance(given, str) else None
    if not isinstance(typed, dict):
        raise InvalidRequest(f"{path} must be a JSON object, or empty", field=path)
    refuse_repeated_names(given)
    return {"arguments": opaque(typed, path)}
