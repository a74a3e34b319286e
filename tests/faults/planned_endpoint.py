"""The model endpoint of the matrix: every run brings its own plan, so that many can misbehave at the same time.

A user's message carries a key, `[run:A05-7]`; the last key of a request picks the plan. The endpoint also is as strict as
providers are: a history with an unanswered tool call is refused, and kept in `offences` for the invariants (I4).
"""

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.models.endpoint import ModelEndpoint, Received, Respond, Wire, _receive, status, text_stream

_KEY = re.compile(rb"\[run:([\w.-]+)\]")
UNPLANNED = text_stream("unplanned")


def marked(key: str, words: str = "") -> str:
    return f"{words}[run:{key}]"


@dataclass
class Plan:
    """The answers to one run, in order; the last one repeats. What came in stays in `requests`."""

    responses: tuple[Respond, ...]
    requests: list[Received] = field(default_factory=list)
    answering: int = 0  # answers that are being given at the moment
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def announce(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def asked(self, times: int = 1) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.requests) >= times)

    async def left_alone(self) -> None:
        """Waits until no client reads an answer any more."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.answering == 0)


class PlannedEndpoint(ModelEndpoint):
    def __init__(self) -> None:
        super().__init__(UNPLANNED)
        self.plans: dict[str, Plan] = {}
        self.offences: dict[str, str] = {}

    def plan(self, key: str, *responses: Respond) -> Plan:
        self.plans[key] = plan = Plan(responses or (text_stream("fine"),))
        return plan

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _receive(reader)
        wire = Wire(request, writer, writer.transport.get_protocol().gone)  # type: ignore[attr-defined]  # our own class
        keys = _KEY.findall(request.body)
        key = keys[-1].decode() if keys else ""
        plan = self.plans.get(key)
        if plan is None:
            await UNPLANNED(wire)
            return True
        offence = offence_of(request.json["messages"])
        if offence:
            self.offences[key] = offence
        respond = plan.responses[min(len(plan.requests), len(plan.responses) - 1)]
        plan.requests.append(request)
        plan.answering += 1
        await plan.announce()
        try:
            await (status(400, {"error": {"message": offence}}) if offence else respond)(wire)
        finally:
            plan.answering -= 1
            await plan.announce()
        return wire.keep_alive and not wire.gone.is_set()


def offence_of(messages: list[dict[str, Any]]) -> str | None:
    """Why a provider would refuse these messages: calls without results, results without calls."""
    waiting: set[str] = set()
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return f"message {number} answers {message['tool_call_id']!r}, which nobody asked"
            waiting.discard(message["tool_call_id"])
        elif waiting:
            return f"message {number} comes before the results of {sorted(waiting)}"
        else:
            waiting = {call["id"] for call in message.get("tool_calls") or ()}
    return f"no results for {sorted(waiting)}" if waiting else None


def tool_results(request: Received) -> list[str]:
    """The results of tools in the prompt, as one text each."""
    found = [message["content"] for message in request.json["messages"] if message["role"] == "tool"]
    return [content if isinstance(content, str) else json.dumps(content) for content in found]
