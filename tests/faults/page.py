"""Writes docs/what-happens-when.md from the catalogue of faults, so that the page says only what the matrix shows."""

from collections.abc import Sequence
from pathlib import Path

from tests.faults.fault_catalogue import CLIENT_KINDS, MODEL_KINDS, PROCESS_KINDS, TOOL_KINDS
from tests.faults.matrix import Kind

PAGE = Path(__file__).parents[2] / "docs" / "what-happens-when.md"

INTRODUCTION = """\
# What happens when …

Find your symptom below. This page names errors by their code; [Errors](errors.md) lists them. Settings are keys of
[agent.yaml](agent-yaml.md).

After every run, whatever went wrong in it:

- the client got exactly one final event, and the server stored the same outcome;
- the store has the user's messages once and in order;
- the store has what the client saw of the answer, marked if it is incomplete (after a crash of the server, the last quarter of a
  second may be missing: [Sessions](sessions.md#after-a-crash));
- every tool call in the history has exactly one result, and the tool was called at most once;
- file descriptors, child processes and connections are as before, and no other client's stream was affected;
- the log has one line about the outcome, with the id of the request (after a crash of the server: with the id of the run, once the
  server has restarted).

`python -m tests.faults` tests every row against a real server process, ten times with different random seeds, over AG-UI (SSE and
protobuf), REST, streamed REST and chat-stream as far as the row applies. It generates this page from the same table.
"""
SECTIONS: tuple[tuple[str, Sequence[Kind]], ...] = (
    ("… the model endpoint misbehaves", MODEL_KINDS),
    ("… a tool server misbehaves", TOOL_KINDS),
    ("… a client misbehaves", CLIENT_KINDS),
    ("… the process or the machine fails", PROCESS_KINDS),
)

BETWEEN_SERVERS = """## … one of several servers or workers fails

[Sessions](sessions.md#several-servers) describes what happens when one of several servers or [workers](sessions.md#workers) is killed, paused or cut off.
`make faults-stores` tests these cases.
"""


def written() -> str:
    parts = [INTRODUCTION]
    parts += [f"## {title}\n\n{_table(kinds)}" for title, kinds in SECTIONS]
    parts.append(BETWEEN_SERVERS)
    return "\n".join(parts)


def _table(kinds: Sequence[Kind]) -> str:
    rows = [f"| {kind.id} | {kind.fault} | {kind.seen} |" for kind in kinds]
    return "\n".join(["| row | when | then |", "| --- | --- | --- |", *rows]) + "\n"
