"""Writes docs/what-happens-when.md from the catalogue of faults, so that the page says only what the matrix shows."""

from collections.abc import Sequence
from pathlib import Path

from tests.faults.fault_catalogue import CLIENT_KINDS, MODEL_KINDS, PROCESS_KINDS, TOOL_KINDS
from tests.faults.matrix import Kind

PAGE = Path(__file__).parents[2] / "docs" / "what-happens-when.md"

INTRODUCTION = """\
# What happens when …

`python -m tests.faults` plays every row against the real server process, with ten seeds on every wire that the row concerns: AG-UI
over SSE and protobuf, REST, REST stream and chat-stream. This page is generated from the same table, and a test compares the two.

After every run, whatever went wrong in it:

- the client got exactly one ending, as its last event, and the server has recorded the same ending;
- the store has the user's messages once and in order;
- the store has what the client saw of the answer, flagged if it is incomplete (after a crash of the server, the last quarter of a
  second may be missing: [Sessions](sessions.md));
- every tool call in the history has exactly one result, and the tool was called at most once;
- descriptors, child processes and connections are as before, and no other client's stream was affected;
- the log has one line about the ending, under the id of the request (of a run that ended in a crash of the server: after the restart,
  under the id of the run).

This page names errors by their code; [Errors](errors.md) lists them. Settings are keys of [agent.yaml](agent-yaml.md).
"""
SECTIONS: tuple[tuple[str, Sequence[Kind]], ...] = (
    ("… the model endpoint misbehaves", MODEL_KINDS),
    ("… a tool server misbehaves", TOOL_KINDS),
    ("… a client misbehaves", CLIENT_KINDS),
    ("… the process or the machine does", PROCESS_KINDS),
)

BETWEEN_SERVERS = """## … one of several servers or workers does

[Sessions](sessions.md#several-servers) describes what happens when a server or [worker](sessions.md#workers) that shares conversations is killed, paused or cut
off, and what happens to late writes of one that was only paused. `make faults-stores` plays these rows.
"""


def written() -> str:
    parts = [INTRODUCTION]
    parts += [f"## {title}\n\n{_table(kinds)}" for title, kinds in SECTIONS]
    parts.append(BETWEEN_SERVERS)
    return "\n".join(parts)


def _table(kinds: Sequence[Kind]) -> str:
    rows = [f"| {kind.id} | {kind.fault} | {kind.seen} |" for kind in kinds]
    return "\n".join(["| row | when | then |", "| --- | --- | --- |", *rows]) + "\n"
