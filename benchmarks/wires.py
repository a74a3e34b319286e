"""CPU per token of each streaming wire beside AG-UI's, on one server in the same rounds."""

import json
import sys
from collections import defaultdict
from dataclasses import dataclass, replace

from benchmarks.load import Load
from benchmarks.measures import BURST_STREAMS, BURST_TOKENS, Subject, subject
from benchmarks.native import fake_model
from benchmarks.options import Options
from benchmarks.report import Row, Target, ratios
from benchmarks.systems import HOLODECK, Wire, agui_body

AGUI = "AG-UI"
ACCEPT = "application/json, text/event-stream"  # MCP demands both
MODE = f"fake-{BURST_TOKENS}"
MEASURE = f"CPU per token by wire, burst {BURST_STREAMS} x {BURST_TOKENS}"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How a wire is asked for a stream, and which of its events carry text; `shown` is how many tokens these have together."""

    path: str
    body: str
    match: str
    shown: int = BURST_TOKENS

    def load(self, requests: int) -> Load:
        return Load(
            mode=MODE,
            streams=BURST_STREAMS,
            requests=requests,
            expect=self.shown,
            wire=Wire(name=self.path, accept=ACCEPT, count=("--match", self.match)),
            path=self.path,
            body=self.body,
        )


QUESTION = f"hello [[{MODE}]]"
WIRES = {
    AGUI: Asked(path="/awp", body=agui_body(MODE), match="TEXT_MESSAGE_CONTENT"),
    "OpenAI": Asked(
        path="/v1/chat/completions",
        body=json.dumps(
            {
                "stream": True,
                "metadata": {"session_id": "{{session}}"},
                "messages": [{"role": "user", "content": QUESTION}],
            }
        ),
        match='"delta":{"content"',
    ),
    "OpenAI Responses": Asked(
        path="/v1/responses",
        body=json.dumps({"stream": True, "conversation": "{{session}}", "input": QUESTION}),
        match="output_text.delta",
    ),
    "AI SDK": Asked(
        path="/ai-sdk/chat",
        body=json.dumps(
            {
                "id": "{{session}}",
                "messages": [{"id": "m-{{id}}", "role": "user", "parts": [{"type": "text", "text": QUESTION}]}],
            }
        ),
        match="text-delta",
    ),
    "A2A": Asked(
        path="/a2a/message:stream?A2A-Version=1.0",
        body=json.dumps(
            {
                "message": {
                    "messageId": "m-{{id}}",
                    "contextId": "{{session}}",
                    "role": "ROLE_USER",
                    "parts": [{"text": QUESTION}],
                }
            }
        ),
        match='"lastChunk":false',  # the last update has the whole text again
    ),
    "MCP": Asked(
        path="/mcp",
        body=json.dumps(
            {
                "jsonrpc": "2.0",
                "id": "{{id}}",
                "method": "tools/call",
                "params": {
                    "name": "ask",
                    "arguments": {"message": QUESTION, "session": "{{session}}"},
                    "_meta": {"progressToken": "{{id}}"},
                },
            }
        ),
        match="structuredContent",
        shown=2 * BURST_TOKENS,  # one event has the whole answer, as text and as data
    ),
}


def burst(started: Subject, wire: Asked, requests: int) -> float:
    """CPU µs per token."""
    cpu, result = started.cpu_of(wire.load(requests))
    return cpu * 1e6 / (result.ok * BURST_TOKENS)


def run(options: Options) -> list[Row]:
    samples: defaultdict[str, list[float]] = defaultdict(list)
    system = replace(HOLODECK, argv=(*HOLODECK.argv, "--protocol", "all"))
    requests = BURST_STREAMS if options.quick else HOLODECK.burst_requests
    with fake_model() as model_port, subject(system, model_port, options.scratch) as started:
        for wire in WIRES.values():
            burst(started, wire, BURST_STREAMS)  # warm
        for number in range(options.rounds + 2):
            print(f"round {number + 1} of {options.rounds + 2}", file=sys.stderr)
            for name, wire in WIRES.items():
                samples[name].append(burst(started, wire, requests))
    figures = [Row(measure=MEASURE, system=name, unit="µs", samples=each) for name, each in samples.items()]
    relative = [
        Row(
            measure="the same, relative",
            system=f"{name} / {AGUI}",
            unit="x",
            samples=ratios(each, samples[AGUI]),
            target=Target(limit=1.3),
        )
        for name, each in samples.items()
        if name != AGUI
    ]
    return [*figures, *relative]
