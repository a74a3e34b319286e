"""What a durable store adds to a request and to a token, and what a second worker costs.

Servers that differ only in their store run at the same time and take small loads in turn: a figure is the median of their
ratios, or of their differences, which other work on the machine does not move. `postgres + valkey` is a real server of each,
without flushes to the disk: their disk is not what is measured.

Further rows explain the time that SQLite adds, in rounds beside the others. A server with `durability: process` does all
but the flush. The store without a server does the same reads and the same commit in a process that has nothing else to do,
so the processor finds more of it in its caches. The pages without SQLite are written with the same calls, into a file of the
same length, and flushed.
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import uvloop

from benchmarks.added import BATCH, agent_folder
from benchmarks.load import Load
from benchmarks.measures import BURST_STREAMS, BURST_TOKENS, PACE, Subject, subject
from benchmarks.native import fake_model
from benchmarks.options import Options
from benchmarks.processes import cores
from benchmarks.report import CannotMeasureError, Row, Target
from benchmarks.systems import HOLODECK, System
from holodeck.core.events import RunFinished
from holodeck.core.ids import new_ulid
from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER
from holodeck.core.request import RunRequest
from holodeck.runs.port import RunRecord
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore

MEMORY, SQLITE, DATABASE = "memory", "sqlite", "postgres + valkey"
UNFLUSHED = "sqlite without flush"
REQUEST, LATENCY = "one-token request, CPU beside memory", "one-token request, added to the p50"
STORE, READS, THREAD = (
    "its store, without a server",
    "of that its two reads",
    "of that its thread, for a job without work",
)
DISK = "its pages, without SQLite"
PACED, BURST = "paced token, CPU beside memory", "burst token, CPU of 2 workers beside 1"
ADDED_TOKEN = "one more paced token, CPU beside memory"
ROUNDS, QUICK_ROUNDS = 15, 2
PAGES = 6  # that one transaction writes: all of a one-token request
PAGE, FRAME_HEADER = 4096, 24  # bytes; in its log, SQLite writes a header before each page
LOG_PAGES = 1000  # after so many, SQLite writes its log from the beginning again
PAUSE = 0.0007  # between two commits, as between two requests: a disk that was idle takes longer
PACED_TOKENS, PACED_STREAMS = 100, 20  # two seconds
LONG_TOKENS = 400  # the difference of runs of both lengths has tokens only, neither begin nor commit of a run


@contextmanager
def databases() -> Iterator[tuple[str, str]]:
    """URLs of a PostgreSQL and of a Valkey."""
    try:
        from tests.limits.valkey_server import valkey  # noqa: PLC0415  other benchmarks need neither
        from tests.postgres_server import postgres_server  # noqa: PLC0415
    except ImportError as error:
        raise CannotMeasureError(f"the servers under test come with the extra `test`: {error}") from error
    with tempfile.TemporaryDirectory() as folder, valkey(Path(folder)) as cache, postgres_server() as database:
        yield database, cache


def systems(options: Options, database: str, cache: str) -> dict[str, System]:
    """The same agent on each store."""
    folders = {
        MEMORY: agent_folder(options, "memory", sessions="{store: memory}"),
        SQLITE: agent_folder(options, "sqlite"),
        UNFLUSHED: agent_folder(options, "unflushed", sessions='{path: "${BENCH_SESSIONS}", durability: process}'),
        DATABASE: agent_folder(
            options,
            "postgres",
            sessions=f"{{store: postgres, url: '{database}'}}",
            more=f"cluster: {{valkey: '{cache}'}}",
        ),
    }
    return {name: replace(HOLODECK, name=name, cwd=folder) for name, folder in folders.items()}


def cpu_ms_of_requests(started: Subject) -> float:
    return _cpu(started, "fake-1", streams=1, requests=BATCH, tokens=1) * 1e3 / BATCH


def p50_ms_of_requests(started: Subject) -> float:
    return started.request_ms(BATCH).p50


class Disk:
    """A file that is written as SQLite writes its log."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._frame = FRAME_HEADER + PAGE
        for number in range(
            LOG_PAGES
        ):  # one by one: a page of a block that was written at once costs five times as much
            os.pwrite(self._file, bytes(self._frame), number * self._frame)
        os.fsync(self._file)
        self._next = 0

    def p50_ms_of_commits(self) -> float:
        return statistics.median([self._commit() for _ in range(BATCH)])

    def _commit(self) -> float:
        time.sleep(PAUSE)
        header, page, begun = os.urandom(FRAME_HEADER), os.urandom(PAGE), time.perf_counter()
        for number in range(self._next, self._next + PAGES):
            os.pwrite(self._file, header, number * self._frame)
            os.pwrite(self._file, page, number * self._frame + FRAME_HEADER)
        os.fdatasync(self._file)
        self._next = (self._next + PAGES) % LOG_PAGES
        return (time.perf_counter() - begun) * 1e3

    def close(self) -> None:
        os.close(self._file)


@contextmanager
def _on_core_of_servers() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores()[1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class StoreTimes(NamedTuple):
    """Milliseconds of one request."""

    all: float
    reads: float
    thread: float = 0.0


def p50_ms_of_store(path: Path, *, durable: bool) -> StoreTimes:
    """The reads and the commit of a one-token request, without a server."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_p50_ms_of_store(SqliteFile(path, durable=durable)))


async def _p50_ms_of_store(file: SqliteFile) -> StoreTimes:
    runs = SqliteRunStore(file, HOLODECK.name)
    store = SqliteSessionStore(file, HOLODECK.name, runs=runs)
    await store.start()
    try:
        for _ in range(LOG_PAGES // PAGES):  # then the log no longer grows, which takes longer
            await answered_ms(store, runs)
        samples = [await _after_pause(file, store, runs) for _ in range(BATCH)]
    finally:
        await store.close()
    return StoreTimes(*map(statistics.median, zip(*samples, strict=True)))


async def _after_pause(file: SqliteFile, store: SqliteSessionStore, runs: SqliteRunStore) -> StoreTimes:
    time.sleep(PAUSE)  # noqa: ASYNC251  nothing else runs in this loop
    answered, begun = await answered_ms(store, runs), time.perf_counter()
    await file.read(lambda _: None)
    return answered._replace(thread=(time.perf_counter() - begun) * 1e3)


async def answered_ms(store: SqliteSessionStore, runs: SqliteRunStore) -> StoreTimes:
    run, session, question = new_ulid(), new_ulid(), UserMessage(content="hello [[fake-1]]")
    request = RunRequest(session_id=session, run_id=run, messages=(question,))
    record = RunRecord(run_id=run, owner=ANONYMOUS_OWNER, session_id=session, wire="ag-ui", key=run, request=request)
    begun = time.perf_counter()
    await runs.by_key(record.wire, run, owner=record.owner)
    runs.register(record)
    conversation = await store.open(session, owner=record.owner, run_id=run, create=True)
    read = time.perf_counter()
    conversation.accept([question])
    await conversation.commit([AssistantMessage(content="one")], ending=RunFinished(run, session))
    conversation.close()
    runs.release(record)
    return StoreTimes((time.perf_counter() - begun) * 1e3, (read - begun) * 1e3)


def cpu_us_of_paced_tokens(started: Subject, tokens: int = PACED_TOKENS) -> float:
    mode = f"fake-{tokens}-{PACE}tps"
    cpu = _cpu(started, mode, streams=PACED_STREAMS, requests=PACED_STREAMS, tokens=tokens)
    return cpu * 1e6 / (PACED_STREAMS * tokens)


def added_by_tokens(short: Mapping[str, float], long: Mapping[str, float]) -> dict[str, float]:
    """CPU µs of one more token, from those of a token in short runs and in long ones."""
    tokens = LONG_TOKENS - PACED_TOKENS
    return {name: (long[name] * LONG_TOKENS - short[name] * PACED_TOKENS) / tokens for name in short}


def cpu_us_of_burst_tokens(started: Subject) -> float:
    mode = f"fake-{BURST_TOKENS}"
    cpu = _cpu(started, mode, streams=BURST_STREAMS, requests=BURST_STREAMS, tokens=BURST_TOKENS)
    return cpu * 1e6 / (BURST_STREAMS * BURST_TOKENS)


def _cpu(started: Subject, mode: str, *, streams: int, requests: int, tokens: int) -> float:
    wire, path = started.system.wires[0], started.system.path
    load = Load(mode=mode, streams=streams, requests=requests, expect=tokens, wire=wire, path=path)
    return started.cpu_of(load)[0]


def measure_stores(model_port: int, options: Options) -> list[Row]:
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    with databases() as urls, ExitStack() as stack:
        started = {
            name: stack.enter_context(subject(system, model_port, options.scratch))
            for name, system in systems(options, *urls).items()
        }
        compared = {name: started[name] for name in (MEMORY, SQLITE, DATABASE)}
        requests = [{name: cpu_ms_of_requests(each) for name, each in compared.items()} for _ in range(rounds)]
        disk = stack.enter_context(closing(Disk(options.scratch / "disk")))
        waits, alone, unflushed, flushes = [], [], [], []
        for _ in range(rounds):
            waits.append({name: p50_ms_of_requests(each) for name, each in started.items()})
            with _on_core_of_servers():
                alone.append(p50_ms_of_store(options.scratch / "alone.db", durable=True))
                unflushed.append(p50_ms_of_store(options.scratch / "unflushed.db", durable=False))
                flushes.append(disk.p50_ms_of_commits())
        paced, added = [], []
        for _ in range(rounds):
            paced.append({name: cpu_us_of_paced_tokens(each) for name, each in compared.items()})
            long = {name: cpu_us_of_paced_tokens(each, LONG_TOKENS) for name, each in compared.items()}
            added.append(added_by_tokens(paced[-1], long))
    return [
        *(_ratio(REQUEST, requests, name) for name in (SQLITE, DATABASE)),
        _difference(LATENCY, waits, SQLITE, 0.3),
        *(_difference(LATENCY, waits, name) for name in (UNFLUSHED, DATABASE)),
        Row(measure=STORE, system=SQLITE, unit="ms", samples=[each.all for each in alone]),
        Row(measure=STORE, system=UNFLUSHED, unit="ms", samples=[each.all for each in unflushed]),
        Row(measure=READS, system=SQLITE, unit="ms", samples=[each.reads for each in alone]),
        Row(measure=THREAD, system=SQLITE, unit="ms", samples=[each.thread for each in alone]),
        Row(measure=DISK, system="disk", unit="ms", samples=flushes),
        *(_ratio(PACED, paced, name, 1.1) for name in (SQLITE, DATABASE)),
        *(_ratio(ADDED_TOKEN, added, name, 1.1) for name in (SQLITE, DATABASE)),
    ]


def measure_workers(model_port: int, options: Options) -> list[Row]:
    """By CPU: two workers on two free cores carry so many more streams than one as they have more time for each token."""
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    with ExitStack() as stack:
        started = {
            count: stack.enter_context(subject(workers(options, count), model_port, options.scratch))
            for count in (1, 2)
        }
        burst = [{str(count): cpu_us_of_burst_tokens(each) for count, each in started.items()} for _ in range(rounds)]
    ratios = [each["2"] / each["1"] for each in burst]
    return [
        Row(measure=BURST, system="2 workers / 1", unit="x", samples=ratios, target=Target(limit=1.11)),
        Row(
            measure="streams that 2 workers carry, by that",
            system="2 workers / 1",
            unit="x",
            samples=[2 / ratio for ratio in ratios],
            target=Target(limit=1.8, at_least=True),
        ),
    ]


def workers(options: Options, count: int) -> System:
    folder = agent_folder(options, f"workers{count}")
    argv = HOLODECK.argv if count == 1 else (*HOLODECK.argv, "--workers", str(count))
    return replace(HOLODECK, name=f"{count} workers", argv=argv, cwd=folder)


def _ratio(measure: str, samples: list[dict[str, float]], name: str, limit: float | None = None) -> Row:
    ratios = [each[name] / each[MEMORY] for each in samples]
    target = None if limit is None else Target(limit=limit)
    return Row(measure=measure, system=f"{name} / {MEMORY}", unit="x", samples=ratios, target=target)


def _difference(measure: str, samples: list[dict[str, float]], name: str, limit: float | None = None) -> Row:
    differences = [each[name] - each[MEMORY] for each in samples]
    target = None if limit is None else Target(limit=limit)
    return Row(measure=measure, system=f"{name} - {MEMORY}", unit="ms", samples=differences, target=target)


def run(options: Options) -> list[Row]:
    with fake_model() as model_port:
        return [*measure_stores(model_port, options), *measure_workers(model_port, options)]
