"""What an API key and TLS to the model add to a one-token request.

Two servers run at a time, one with and one without, and take small batches of requests in turn: a figure is the median of
their ratios, which other work on the machine does not move.
"""

import shutil
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.load import Load
from benchmarks.measures import Subject, subject
from benchmarks.native import fake_model, relay
from benchmarks.options import Options
from benchmarks.report import Row, Target
from benchmarks.systems import HOLODECK, System
from holodeck.access.key_file import change_key_file
from tests.http.certificates import Authority

BATCH, BATCHES = 40, 15
KEY, TLS = "one-token request with an API key", "one-token request over TLS to the model"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A server to ask, where its model is, and what each request carries."""

    system: System
    model_url: str
    header: str = "x-load: 1"
    env: Mapping[str, str] = field(default_factory=dict)

    def start(self, stack: ExitStack, options: Options) -> Subject:
        return stack.enter_context(
            subject(self.system, 0, options.scratch, BENCH_MODEL_URL=self.model_url, header=self.header, **self.env)
        )


def cpu_ms(started: Subject, header: str) -> float:
    wire, path = started.system.wires[0], started.system.path
    load = Load(mode="fake-1", streams=1, requests=BATCH, expect=1, wire=wire, path=path, header=header)
    cpu, _ = started.cpu_of(load)
    return cpu * 1e3 / BATCH


def compared(name: str, variants: Sequence[Variant], options: Options, limit: float | None) -> list[Row]:
    """Rows of the second variant, and its ratio to the first."""
    batches = 3 if options.quick else BATCHES
    with ExitStack() as stack:
        servers = [(each.start(stack, options), each.header) for each in variants]
        samples = [[cpu_ms(*server) for server in servers] for _ in range(batches)]
    ratios = [added / plain for plain, added in samples]
    target = None if limit is None else Target(limit=limit)
    return [
        Row(
            measure=name, system=HOLODECK.name, unit="ms CPU", samples=[statistics.median(each[1] for each in samples)]
        ),
        Row(measure=name, system="with / without", unit="x", samples=[statistics.median(ratios)], target=target),
    ]


def agent_folder(options: Options, name: str, *, sessions: str = "", server: str = "", more: str = "") -> Path:
    """A copy of the agent under load: `sessions` replaces that block, `server` is added to its own, `more` are other blocks."""
    folder = options.scratch / name
    shutil.copytree(HOLODECK.cwd, folder, ignore=shutil.ignore_patterns(".holodeck"))
    file = folder / "agent.yaml"
    lines = file.read_text(encoding="utf-8").splitlines()
    if sessions:
        (place,) = (number for number, line in enumerate(lines) if line.startswith("sessions:"))
        lines[place] = f"sessions: {sessions}"
    if server:
        lines.insert(lines.index("server:") + 1, f"  {server}")
    file.write_text("\n".join([*lines, more, ""]), encoding="utf-8")
    return folder


def secured(options: Options, name: str) -> System:
    """The agent under load, behind API keys of its folder's keys.json."""
    server = "auth: {mode: api_key, api_key: {file: keys.json}}"
    return replace(HOLODECK, cwd=agent_folder(options, name, server=server))


def run(options: Options) -> list[Row]:
    open_to_all = replace(HOLODECK, cwd=agent_folder(options, "open"))
    behind_keys = secured(options, "secured")
    _, key = change_key_file(behind_keys.cwd / "keys.json", lambda keys: keys.add(name="bench"))
    authority = Authority(options.scratch)
    authority.server()
    certificate = next(options.scratch.glob("server-*.pem"))
    with fake_model() as port, relay(port) as plain, relay(port, certificate) as tls:
        model = f"http://127.0.0.1:{port}/v1"
        without = Variant(system=open_to_all, model_url=model)
        with_key = Variant(system=behind_keys, model_url=model, header=f"authorization: Bearer {key}")
        behind = Variant(system=open_to_all, model_url=f"http://127.0.0.1:{plain}/v1")
        over_tls = Variant(
            system=replace(HOLODECK, cwd=agent_folder(options, "tls")),
            model_url=f"https://127.0.0.1:{tls}/v1",
            env={"SSL_CERT_FILE": str(authority.file)},
        )
        return [
            *compared(KEY, (without, with_key), options, 1.05),
            *compared(TLS, (behind, over_tls), options, None),
        ]
