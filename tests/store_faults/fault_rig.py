"""The rig of the store faults: real servers with a breakable link to each store, and clients that do not give up.

Everything has one random generator, so a row with the same seed asks the same questions.
"""

import asyncio
import dataclasses
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Self

import aiohttp
import msgspec
import psutil
import psycopg
import yaml
from redis import Redis

from tests.cluster.replicas import Client, Server
from tests.faults.mutate import ROOT
from tests.limits.valkey_server import valkey
from tests.models.endpoint import ModelEndpoint
from tests.postgres_server import new_databases, postgres_server, socket_of
from tests.store_faults.evidence_checker import ENDED, Evidence, Seen, Turn, Verdict, judge
from tests.store_faults.fault_proxy import FaultProxy
from tests.store_faults.memory_census import INSTALL
from tests.store_faults.numbered_model import TOOLS, NumberedModel, Script

TAKE_OVER = 3.0  # seconds without a beat after which a server counts as dead, in most rows
PATIENCE = 60.0  # seconds for a client to see its run's ending
SQLITE, POSTGRES, CLUSTER = "sqlite", "postgres", "postgres and valkey"
WATCH = b"""
CREATE TABLE public.turns (
  number bigint GENERATED ALWAYS AS IDENTITY, session text NOT NULL, run text NOT NULL, is_running boolean NOT NULL);
CREATE FUNCTION public.note_turn() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  was boolean := TG_OP <> 'INSERT' AND coalesce(OLD.state = 'running' AND OLD.ended IS NULL, false);
  is_now boolean := TG_OP <> 'DELETE' AND coalesce(NEW.state = 'running' AND NEW.ended IS NULL, false);
BEGIN
  IF was AND NOT is_now THEN
    INSERT INTO public.turns (session, run, is_running) VALUES (OLD.user_name || '/' || OLD.session, OLD.id, false);
  ELSIF is_now AND NOT was THEN
    INSERT INTO public.turns (session, run, is_running) VALUES (NEW.user_name || '/' || NEW.session, NEW.id, true);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER note_turn AFTER INSERT OR UPDATE OR DELETE ON holodeck.runs FOR EACH ROW EXECUTE FUNCTION public.note_turn();
"""


class PromiseBroken(AssertionError):
    """A promise that was not kept."""


@dataclass
class Timed:
    """How long something took each time, in seconds, and how long it may take on a machine that is not busy."""

    limit: float
    seconds: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        middle = median(self.seconds)
        over = f": over the limit of {self.limit:g} s" if middle > self.limit else f", the limit is {self.limit:g} s"
        return f"median {middle:.3f} s{over}"


@dataclass
class RowFigures:
    """What a row prints."""

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    unknown: int = 0
    seconds: list[float] = field(default_factory=list)  # until a run went on or ended elsewhere, or a server was back
    notes: dict[str, object] = field(default_factory=dict)
    timed: dict[str, "Timed"] = field(default_factory=dict)  # what has a limit
    not_played: str = ""  # why a part of the row, or all of it, could not be played here

    def take(self, verdict: Verdict) -> None:
        self.acknowledged += verdict.acknowledged
        self.lost += verdict.lost
        self.doubled += verdict.doubled
        self.unknown += verdict.unknown
        if verdict.broken:
            raise PromiseBroken("; ".join(verdict.broken[:5]))


class Backends:
    """A PostgreSQL and a Valkey for all rows, started when the first row wants them."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._folder: Path | None = None
        self._server = ""
        self._create: Callable[[], str] | None = None
        self._valkey: Path | None = None

    def __enter__(self) -> Self:
        self._folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="rig")))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def database(self) -> str:
        """The address of a new database, on a unix socket."""
        if self._create is None:
            self._server = self._open.enter_context(postgres_server())
            self._create = new_databases(self._server)
        return self._create()

    def valkey(self) -> Path:
        """The socket of an empty Valkey."""
        assert self._folder is not None
        if self._valkey is None:
            self._open.enter_context(valkey(self._folder))
            self._valkey = self._folder / "valkey.sock"
        with Redis(unix_socket_path=str(self._valkey)) as client:
            client.flushall()
            client.config_set("maxmemory", 0)
            client.config_set("maxmemory-policy", "noeviction")
        return self._valkey


class Node(Server):
    """A server with a link of its own to each store."""

    database_link: FaultProxy | None = None
    valkey_link: FaultProxy | None = None

    @property
    def runs(self) -> bool:
        return super().runs and psutil.pid_exists(self.process.pid)

    async def kill(self) -> None:
        """Also if it has ended by itself."""
        if super().runs:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGKILL)
            await self.dies()

    async def restart(self) -> float:
        """Kills the server and starts it again; returns how long it was away."""
        await self.kill()
        begun = time.monotonic()
        await self.start()
        return time.monotonic() - begun

    async def dies(self) -> None:
        """Waits until it has ended by itself."""
        await asyncio.wait_for(self.process.wait(), PATIENCE)
        await self.process.communicate()

    @property
    def database(self) -> FaultProxy:
        assert self.database_link is not None
        return self.database_link

    @property
    def valkey(self) -> FaultProxy:
        assert self.valkey_link is not None
        return self.valkey_link


class ExecutedNode(Node):
    """A server that is executed rather than forked: a fork keeps the old clock, and the code that this process has."""

    async def start(self) -> None:
        words = ("-m", "holodeck", "serve", "--protocol", "all", "--port", str(self.port))
        self.executed = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            cwd=self.folder,
            env={**os.environ, **self.variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert self.executed.stderr is not None
        async with asyncio.timeout(PATIENCE):
            while b"Ctrl+C" not in (line := await self.executed.stderr.readline()):
                assert line, "the server does not start"

    @property
    def runs(self) -> bool:
        return hasattr(self, "executed") and self.executed.returncode is None

    async def end(self, number: int = signal.SIGKILL) -> None:
        self.executed.send_signal(number)
        await asyncio.wait_for(self.executed.communicate(), PATIENCE)

    async def kill(self) -> None:
        if self.runs:
            await self.end()


class Witness(Client):
    """A client that asks, reads on wherever it can after each interruption, and writes everything down."""

    def __init__(self, script: Script, *, thread: str = "t", **more: Any) -> None:
        super().__init__(str(script), run=script.run, thread=thread, **more)
        self.script, self.thread = script, thread
        self.statuses: list[int] = []
        self.answered: list[float] = []  # when the head of each answer came, by the monotonic clock

    async def _read(self, answer: aiohttp.ClientResponse, until: str = "") -> None:
        self.answered.append(time.monotonic())
        await super()._read(answer, until)

    @property
    def is_acknowledged(self) -> bool:
        return "RUN_STARTED" in self.types

    @property
    def has_ended(self) -> bool:
        return bool(self.events) and self.types[-1] in ("RUN_FINISHED", "RUN_ERROR")

    async def see_through(self, choose: Callable[[], Server], seconds: float = PATIENCE) -> None:
        """Asks, and asks or reads again at whichever server, until the run has ended or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.has_ended:
                    with suppress(aiohttp.ClientError, OSError, TimeoutError):
                        await (self.resume(choose()) if self.is_acknowledged else self.post(choose()))
                        self.statuses.append(self.status)
                    await asyncio.sleep(0.05)

    async def until_tokens(self, count: int) -> None:
        await self.until("TEXT_MESSAGE_CONTENT", count)

    def first_after(self, moment: float) -> float | None:
        """Seconds from this moment to the first event of a process that took the run over."""
        first = next((n for n, number in enumerate(self.ids) if number >= 1_000_000_000), None)
        if first is None or len(self.ids) != len(self.times):
            return self.times[-1] - moment if self.times and self.times[-1] > moment else None
        return self.times[first] - moment


class FaultRig:
    """What one row has at hand."""

    def __init__(
        self,
        backends: Backends,
        folder: Path,
        store: str,
        *,
        seed: int,
        rounds: int,
        slack: float,
        full: bool = False,
        streams: int | None = None,
        live: bool = False,
        take_over: float = TAKE_OVER,
    ) -> None:
        self.backends, self.folder, self.store, self.rounds, self.slack = backends, folder, store, rounds, slack
        self.full = full  # with the numbers of the design: of clients, streams, seconds
        self.streams = streams  # of S30 at a time, in place of the design's
        self.take_over = take_over  # seconds
        self.live = live  # S30 prints what has grown in a server's memory
        self.random = random.Random(f"{store} {seed}")
        self.figures = RowFigures()
        self.model = NumberedModel()
        self.nodes: list[Node] = []
        self.witnesses: list[Witness] = []
        self.direct_url = ""  # the database, without a link that may be broken
        self.valkey_socket: Path | None = None
        self.valkey_url = ""  # of Sentinels, in place of a Valkey behind a link
        self._count = 0
        self._watches_turns = False

    def require(self, kept: object, sentence: str) -> None:
        if not kept:
            raise PromiseBroken(sentence)

    def in_time(self, seconds: float, limit: float, what: str) -> None:
        """Notes how long something took. Beyond the limit, times the slack for a busy machine, it is broken.

        The row prints the median beside the limit without slack.
        """
        self.figures.seconds.append(seconds)
        self.timed(seconds, limit, what)
        self.require(seconds <= limit * self.slack, f"{what} took {seconds:.1f} s, the limit is {limit:g} s")

    def timed(self, seconds: float, limit: float, what: str) -> None:
        """Notes how long something took, for the row to print beside its limit."""
        self.figures.timed.setdefault(what, Timed(limit)).seconds.append(seconds)

    def script(self, **fields: Any) -> Script:
        self._count += 1
        return Script(f"r{self._count}", **fields)

    def witness(self, script: Script, **options: Any) -> Witness:
        made = Witness(script, **options)
        self.witnesses.append(made)
        return made

    def any_node(self) -> Node:
        return self.random.choice([node for node in self.nodes if node.runs] or self.nodes)

    @property
    def acts(self) -> list[str]:
        file = self.folder / "acts"
        return file.read_text().split() if file.exists() else []

    def forget_acts(self) -> None:
        """For a row that leaves sessions behind."""
        (self.folder / "acts").unlink(missing_ok=True)

    async def acted(self, times: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.acts) < times:
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def serving(
        self, count: int = 1, *, start: bool = True, has_census: bool = False, **changes: Any
    ) -> AsyncIterator[list[Node]]:
        """So many servers of one agent; `changes` are merged into its file.

        `has_census`: they can be asked what they have in memory.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "tools.py").write_text(TOOLS + (INSTALL.format(root=str(ROOT)) if has_census else ""))
        self.model = NumberedModel()
        async with AsyncExitStack() as stack:
            endpoint = await stack.enter_async_context(ModelEndpoint(self.model))
            (self.folder / "agent.yaml").write_text(yaml.safe_dump(self._agent(endpoint.url, changes)))
            if self.store != SQLITE:
                self.direct_url = self.direct_url or self.backends.database()
            if self.store == CLUSTER and not self.valkey_url:
                self.valkey_socket = self.backends.valkey()
            self.nodes = [await self._node(stack) for _ in range(count)]
            try:
                if start:
                    await asyncio.gather(*(node.start() for node in self.nodes))
                    await asyncio.to_thread(self._watch_turns)
                yield self.nodes
            finally:
                for node in self.nodes:
                    await node.kill()
                self.direct_url, self._watches_turns = "", False

    def _watch_turns(self) -> None:
        """Has PostgreSQL write down when a run begins and ceases to be the running one of its session (I11)."""
        if self.store != SQLITE:
            with closing(psycopg.connect(self.direct_url, autocommit=True)) as connection:
                connection.execute(WATCH)
            self._watches_turns = True

    async def _turns(self) -> list[Turn]:
        if not self._watches_turns:
            return []
        found = await self.rows("SELECT session, run, is_running FROM public.turns ORDER BY number")
        return [Turn(*each) for each in found]

    async def _node(self, stack: AsyncExitStack) -> Node:
        node = Node(self.folder, HOLODECK_BANNER="1")
        if self.store != SQLITE:
            node.database_link = await stack.enter_async_context(FaultProxy(socket_of(self.direct_url)))
            name = self.direct_url.partition("?")[0].rpartition("/")[2]
            node.variables["DATABASE_URL"] = f"postgresql://postgres@127.0.0.1:{node.database.port}/{name}"
        if self.valkey_url:
            node.variables["VALKEY_URL"] = self.valkey_url
        elif self.store == CLUSTER:
            assert self.valkey_socket is not None
            node.valkey_link = await stack.enter_async_context(FaultProxy(self.valkey_socket))
            node.variables["VALKEY_URL"] = f"valkey://127.0.0.1:{node.valkey.port}"
        return node

    def _agent(self, endpoint: str, changes: dict[str, Any]) -> dict[str, Any]:
        def tool(name: str, **more: Any) -> dict[str, Any]:
            return {"name": name, "type": "function", "file": "tools.py", **more}

        agent: dict[str, Any] = {
            "name": "tester",
            "model": {"provider": "openai_compatible", "name": "m", "api_key": "none", "endpoint": endpoint},
            "tools": [tool("act"), tool("pay", approval="always"), tool("look", repeatable=True)],
            "sessions": {"store": "sqlite", "max_messages": 1000},
            "server": {"runs": {"detach_grace": 60}},
        }
        if self.store != SQLITE:
            agent["sessions"] |= {"store": "postgres", "url": "${DATABASE_URL}"}
            agent["cluster"] = {"take_over_seconds": self.take_over}
        if self.store == CLUSTER:
            agent["cluster"]["valkey"] = "${VALKEY_URL}"
        _merge(agent, changes)
        return agent

    async def rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """What the store itself has. `holodeck.` before a table's name is left out for a file."""
        return await asyncio.to_thread(self._rows, statement, values)

    def _rows(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        if self.store == SQLITE:
            with closing(sqlite3.connect(self.folder / ".holodeck" / "sessions.db", timeout=PATIENCE)) as file:
                return file.execute(statement.replace("holodeck.", ""), values).fetchall()
        with closing(psycopg.connect(self.direct_url, autocommit=True)) as connection:
            return connection.execute(statement.replace("?", "%s"), values).fetchall()

    async def change(self, statement: str, values: Sequence[object] = ()) -> None:
        """Changes what the store has, behind the servers' backs."""
        await asyncio.to_thread(self._change, statement, values)

    def _change(self, statement: str, values: Sequence[object]) -> None:
        if self.store == SQLITE:
            with closing(sqlite3.connect(self.folder / ".holodeck" / "sessions.db")) as file, file:
                file.execute(statement.replace("holodeck.", ""), values)
        else:
            with closing(psycopg.connect(self.direct_url, autocommit=True)) as connection:
                connection.execute(statement.replace("?", "%s").encode(), values)

    async def stored(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Waits until the store has a row for this."""
        async with asyncio.timeout(PATIENCE):
            while not (found := await self.rows(statement, values)):
                await asyncio.sleep(0.02)
        return found

    async def settle(self, node: Server, *, deleted: Sequence[str] = ()) -> None:
        """Waits until all runs have ended, then judges everything that was seen. `deleted` sessions are left out."""
        await self._all_ended()
        clients = [each for each in self.witnesses if each.thread not in deleted]
        evidence = Evidence(
            clients=[await self._seen(node, each) for each in clients],
            sessions={
                thread: await self._messages(node, thread) for thread in sorted({each.thread for each in clients})
            },
            acts=self.acts,
            offences=self.model.offences,
            open_runs=await self._open_runs(),
            turns=await self._turns(),
            without_expiry=await asyncio.to_thread(self._without_expiry),
        )
        self.witnesses = []
        self.figures.take(judge(evidence))

    async def _messages(self, node: Server, thread: str) -> list[dict[str, Any]]:
        """The messages of a session, none if there is no such session. A busy server is asked again."""
        async with asyncio.timeout(PATIENCE):
            while (found := await node.get(f"/sessions/{thread}"))["status"] not in (200, 404):
                await asyncio.sleep(0.1)
        return list(found.get("messages", ()))

    async def _seen(self, node: Server, client: Witness) -> Seen:
        """What a client saw of its run, beside the row of the run and the answer of a server."""
        seen = Seen(script=client.script, thread=client.thread, ids=client.ids, events=client.events, state="")
        if not client.is_acknowledged:
            return seen
        found = await self.rows("SELECT state, ending FROM holodeck.runs WHERE id = ?", (client.run_id,))
        state, ending = found[0] if found else ("", None)
        code = None if ending is None else msgspec.json.decode(bytes(ending)).get("code")
        answered = (await node.get(f"/runs/{client.run_id}")).get("state", "")
        return dataclasses.replace(seen, state=state, code=code, answered=answered)

    async def _open_runs(self) -> list[str]:
        return [name for (name,) in await self.rows("SELECT id FROM holodeck.runs WHERE ended IS NULL")]

    async def _all_ended(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while await self._open_runs() and time.monotonic() < deadline:
            await asyncio.sleep(0.1)

    def _without_expiry(self) -> list[str]:
        if self.valkey_socket is None:
            return []
        with Redis(unix_socket_path=str(self.valkey_socket)) as client:
            return [key.decode() for key in client.scan_iter() if client.ttl(key) == -1]


class Load:
    """Several conversations at once, each of one question after the other, until it is stopped."""

    def __init__(
        self,
        rig: FaultRig,
        threads: int,
        script: Callable[[], Script],
        *,
        name: str = "t",
        choose: Callable[[], Server] | None = None,
    ) -> None:
        self._rig, self._threads, self._script, self._name = rig, threads, script, name
        self._choose = choose or rig.any_node
        self._stopping = False
        self._talking: list[asyncio.Task[None]] = []
        self.clients: list[Witness] = []

    async def __aenter__(self) -> Self:
        self._talking = [asyncio.create_task(self._talk(f"{self._name}{n}")) for n in range(self._threads)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._talking:
            task.cancel()
        await asyncio.wait(self._talking)

    async def end(self) -> None:
        """Lets every conversation see the end of its question; no further one is asked."""
        self._stopping = True
        await asyncio.gather(*self._talking)

    async def _talk(self, thread: str) -> None:
        while not self._stopping:
            client = self._rig.witness(self._script(), thread=thread)
            self.clients.append(client)
            await client.see_through(self._choose)
            await asyncio.sleep(0.01)

    def acknowledged(self) -> int:
        return sum(client.is_acknowledged for client in self.clients)

    async def more(self, count: int) -> None:
        """Waits until so many more questions were acknowledged."""
        before = self.acknowledged()
        async with asyncio.timeout(PATIENCE):
            while self.acknowledged() < before + count:
                await asyncio.sleep(0.005)


def _merge(into: dict[str, Any], changes: dict[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


__all__ = ["ENDED", "Backends", "ExecutedNode", "FaultRig", "Load", "Node", "PromiseBroken", "RowFigures", "Witness"]
