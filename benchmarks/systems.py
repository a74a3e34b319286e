"""Servers under test: how each is started, where it is asked, and how the load client knows its tokens."""

import json
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp

from benchmarks.processes import Server, cores, environment, serving

HERE = Path(__file__).parent
SERVERS = HERE / "servers"


@dataclass(frozen=True, kw_only=True)
class Wire:
    """How answers come. `count` is the load client's option that picks the events which carry text."""

    name: str
    accept: str = "text/event-stream"
    count: tuple[str, str] = ("--match", "TEXT_MESSAGE_CONTENT")


SSE = Wire(name="SSE")
BYTES = Wire(name="bytes", count=("--match", ""))
TEXT_CONTENT_ARM = 18  # the first byte of a protobuf Event that is a TextMessageContentEvent: field 2, length-delimited
PROTOBUF = Wire(name="protobuf", accept="application/vnd.ag-ui.event+proto", count=("--arm", str(TEXT_CONTENT_ARM)))


@dataclass(frozen=True, kw_only=True)
class System:
    name: str
    argv: tuple[str, ...]  # {port} is replaced
    cwd: Path = SERVERS
    path: str = "/"
    ready: str = "/health"
    wires: tuple[Wire, ...] = (SSE,)
    env: Mapping[str, str] = field(default_factory=dict)
    burst_requests: int = 64  # of 200 tokens; more for servers that are done with them in no time

    def start(self, model_port: int, log: Path, **env: str) -> AbstractContextManager[Server]:
        """With a new file of sessions: what earlier runs stored would slow each write down."""
        model_url, sessions = f"http://127.0.0.1:{model_port}/v1", f"{mkdtemp(dir=log.parent)}/sessions.db"
        full = environment(self.argv, **{"BENCH_MODEL_URL": model_url, "BENCH_SESSIONS": sessions, **self.env, **env})
        return serving(self.argv, ready=self.ready, env=full, cwd=self.cwd, log=log, cpus=cores()[1])


def uvicorn(python: str, app: str) -> tuple[str, ...]:
    return python, "-m", "uvicorn", "--port", "{port}", "--log-level", "warning", "--no-access-log", app


RAW = System(
    name="floor: raw protocol", argv=(sys.executable, "raw_relay.py", "{port}"), wires=(BYTES,), burst_requests=640
)
COPY = System(
    name="limit: bytes copied", argv=uvicorn(sys.executable, "limits_app:copy"), wires=(BYTES,), burst_requests=640
)
DECODE = System(name="limit: msgspec", argv=uvicorn(sys.executable, "limits_app:decode"), burst_requests=640)
HOLODECK = System(
    name="HoloDeck",
    argv=(sys.executable, "-m", "holodeck", "serve", "agent.yaml", "--port", "{port}"),
    cwd=HERE / "agent",
    path="/awp",
    ready="/ready",
    wires=(SSE, PROTOBUF),
    burst_requests=640,
)
HOLODECK_REST = replace(HOLODECK, argv=(*HOLODECK.argv, "--protocol", "rest"), path="/agent/bench/chat", wires=(BYTES,))


def agui_body(mode: str, words: str = "") -> str:
    """A RunAgentInput as a template of the load client; `mode` selects the fake model's answer."""
    message = {"id": "m-{{id}}", "role": "user", "content": f"hello {words}[[{mode}]]"}
    request = {
        "threadId": "{{session}}",
        "runId": "{{id}}",
        "protocolVersion": "1.0",
        "state": {},
        "messages": [message],
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }
    return json.dumps(request)
