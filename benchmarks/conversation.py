"""One long conversation at the defaults: what its turns leave in memory, and whether late ones cost more than early ones.

On each wire that keeps sessions, as its clients talk: some send their last message only, others the whole conversation. The
server of each row is a new one, so that none pays for the memory of another.
"""

import http.client
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.measures import SETTLE, Subject, subject
from benchmarks.native import fake_model
from benchmarks.options import Options
from benchmarks.processes import cpu_seconds, rss_mib
from benchmarks.report import CannotMeasureError, Row, Target
from benchmarks.systems import HOLODECK, PROTOBUF

TURNS, QUICK_TURNS, WARM_UP = 500, 60, 20
WORDS = "x" * 200
ANSWER = "@ " * 20  # about what the fake model says
EARLY, LATE, WINDOW = 210, 490, 10  # turns around which CPU is compared


@dataclass(frozen=True, kw_only=True)
class Client:
    """How a client of one wire asks. `turn` makes the body of a request from the thread and the turns so far."""

    path: str
    turn: "Callable[[str, Sequence[Turn], str], dict[str, Any]]"
    done: bytes  # what a whole answer contains
    reply_id: bytes = rb"$^"  # a pattern for the id of the answer, for clients that name it later
    reply: bytes = rb"$^"  # a pattern for the pieces of its text, for clients that are recognised by it
    headers: Mapping[str, str] | None = None
    sends_all: bool = False  # what its requests cost grows with what it sends: that has no target


@dataclass(frozen=True)
class Turn:
    asked: str
    reply_id: str
    reply: str


def _agui(thread: str, messages: list[dict[str, Any]], number: int) -> dict[str, Any]:
    body = {"threadId": thread, "runId": f"{thread}-r{number}", "protocolVersion": "1.0", "messages": messages}
    return body | {"tools": [], "context": [], "state": {}, "forwardedProps": {}}


def agui_last(thread: str, turns: Sequence[Turn], text: str) -> dict[str, Any]:
    return _agui(thread, [{"id": f"{thread}-m{len(turns)}", "role": "user", "content": text}], len(turns))


def agui_all(thread: str, turns: Sequence[Turn], text: str) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for number, turn in enumerate(turns):
        messages.append({"id": f"{thread}-m{number}", "role": "user", "content": turn.asked})
        messages.append({"id": turn.reply_id, "role": "assistant", "content": ANSWER})
    return _agui(thread, [*messages, {"id": f"{thread}-m{len(turns)}", "role": "user", "content": text}], len(turns))


def openai_all(_thread: str, turns: Sequence[Turn], text: str) -> dict[str, Any]:
    messages: list[dict[str, str]] = []
    for turn in turns:
        messages += ({"role": "user", "content": turn.asked}, {"role": "assistant", "content": turn.reply})
    return {"stream": True, "store": True, "messages": [*messages, {"role": "user", "content": text}]}


def openai_last(thread: str, _turns: Sequence[Turn], text: str) -> dict[str, Any]:
    return {"stream": True, "metadata": {"session_id": thread}, "messages": [{"role": "user", "content": text}]}


def responses(_thread: str, turns: Sequence[Turn], text: str) -> dict[str, Any]:
    before = {"previous_response_id": turns[-1].reply_id} if turns else {}
    return {"stream": True, "input": text} | before


def _ui_message(id_: str, role: str, text: str) -> dict[str, Any]:
    return {"id": id_, "role": role, "parts": [{"type": "text", "text": text}]}


def ai_sdk_all(thread: str, turns: Sequence[Turn], text: str) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for number, turn in enumerate(turns):
        messages.append(_ui_message(f"{thread}-m{number}", "user", turn.asked))
        messages.append(_ui_message(turn.reply_id, "assistant", ANSWER))
    return {"id": thread, "messages": [*messages, _ui_message(f"{thread}-m{len(turns)}", "user", text)]}


def a2a(thread: str, turns: Sequence[Turn], text: str) -> dict[str, Any]:
    message = {"messageId": f"{thread}-m{len(turns)}", "contextId": thread, "role": "ROLE_USER"}
    return {"message": message | {"parts": [{"text": text}]}}


CLIENTS = {
    "AG-UI, last message": Client(path="/awp", turn=agui_last, done=b"RUN_FINISHED"),
    "AG-UI, all messages": Client(
        path="/awp",
        turn=agui_all,
        done=b"RUN_FINISHED",
        reply_id=rb'TEXT_MESSAGE_START","messageId":"([^"]+)"',
        sends_all=True,
    ),
    "AG-UI protobuf, last message": Client(
        path="/awp", turn=agui_last, done=b"completed", headers={"Accept": PROTOBUF.accept}
    ),
    "REST": Client(
        path="/agent/bench/chat",
        turn=lambda thread, _turns, text: {"message": text, "session_id": thread},
        done=b'"content"',
    ),
    "OpenAI, session": Client(path="/v1/chat/completions", turn=openai_last, done=b"[DONE]"),
    "OpenAI, all messages": Client(
        path="/v1/chat/completions",
        turn=openai_all,
        done=b"[DONE]",
        reply=rb'"delta":{"content":"([^"]*)"',
        sends_all=True,
    ),
    "Responses, previous_response_id": Client(
        path="/v1/responses", turn=responses, done=b"response.completed", reply_id=rb'"id":"(resp_[^"]+)"'
    ),
    "AI SDK, all messages": Client(
        path="/ai-sdk/chat",
        turn=ai_sdk_all,
        done=b"[DONE]",
        reply_id=rb'"messageId":"([^"]+)"',
        sends_all=True,
    ),
    "A2A": Client(path="/a2a/message:stream?A2A-Version=1.0", turn=a2a, done=b"TASK_STATE_COMPLETED"),
}


def run(options: Options) -> list[Row]:
    turns = QUICK_TURNS if options.quick else TURNS
    rows: list[Row] = []
    system = replace(HOLODECK, argv=(*HOLODECK.argv, "--protocol", "all"))
    with fake_model() as port:
        for name, client in CLIENTS.items():
            print(name, file=sys.stderr)
            with subject(system, port, options.scratch) as started:
                talk(started, client, "warm-up", WARM_UP)
                before = rss_mib(started.server.pid)
                cpu = talk(started, client, "long", turns)
                time.sleep(SETTLE)
                grown = rss_mib(started.server.pid) - before
            rows += _rows(name, client, grown, cpu)
    return sorted(rows, key=lambda row: row.unit)


def _rows(name: str, client: Client, grown: float, cpu: list[float]) -> list[Row]:
    turns = len(cpu)
    rows = [
        Row(
            measure=f"memory after {turns} turns of one conversation",
            system=name,
            unit="MiB",
            samples=[grown],
            target=Target(limit=10),
        )
    ]
    if turns > LATE + WINDOW - 1:
        early, late = (statistics.median(cpu[turn - WINDOW : turn + WINDOW]) for turn in (EARLY, LATE))
        rows.append(
            Row(
                measure=f"turn {LATE} / turn {EARLY}",
                system=name,
                unit="x CPU",
                samples=[late / early],
                target=None if client.sends_all else Target(limit=1.5),
            )
        )
        rows.append(Row(measure=f"turn {LATE}", system=name, unit="ms CPU", samples=[late * 1e3]))
    return rows


def talk(started: Subject, client: Client, thread: str, turns: int) -> list[float]:
    """CPU seconds of each turn."""
    connection = http.client.HTTPConnection("127.0.0.1", started.server.port, timeout=60)
    figures: list[float] = []
    so_far: list[Turn] = []
    for number in range(turns):
        text = f"{thread} {number} {WORDS} [[fake-20]]"
        body = json.dumps(client.turn(thread, so_far, text))
        before = cpu_seconds(started.server.pid)
        connection.request("POST", client.path, body, {"Content-Type": "application/json", **(client.headers or {})})
        received = connection.getresponse().read()
        figures.append(cpu_seconds(started.server.pid) - before)
        if client.done not in received:
            raise CannotMeasureError(f"turn {number} of {client.path} did not finish: {received[:300]!r}")
        found = re.search(client.reply_id, received)
        reply = b"".join(re.findall(client.reply, received)).decode()
        so_far.append(Turn(text, found[1].decode() if found else "", reply or ANSWER))
    connection.close()
    return figures
