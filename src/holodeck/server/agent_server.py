"""The parts of one agent that is served: its runs, sessions, limits and state. Routes find them here."""

import logging
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, TypeAlias

from starlette.requests import HTTPConnection

from holodeck.access.authenticator import Authenticator
from holodeck.access.page_session import CODE_SECONDS
from holodeck.agent.definition import AgentDefinition
from holodeck.core.encoder import Encoder, bare
from holodeck.core.events import Event, Observer, ReasoningAdded, RunStarted, TextAdded
from holodeck.core.messages import Message
from holodeck.core.owner import Owner
from holodeck.core.request import RunRequest
from holodeck.core.tools import ToolSchema
from holodeck.errors import HoloDeckError, NotReady, Overloaded, Unauthorized
from holodeck.files.reader import FileReader
from holodeck.limits.leases import Lease, LeaseStore
from holodeck.limits.window import WindowStore
from holodeck.resilience.breakers import Dependency
from holodeck.runs.client_history import ClientHistory
from holodeck.runs.idempotency import Idempotency
from holodeck.runs.interrupted_runs import InterruptedRuns
from holodeck.runs.middleware import NO_STAGES, EventMiddleware
from holodeck.runs.port import RunStore, SharedRunStore
from holodeck.runs.replica import Replica
from holodeck.runs.run import Run
from holodeck.runs.run_settings import RunSettings
from holodeck.runs.runs import Runs
from holodeck.runs.stored_runs import Stopped, StoredRuns
from holodeck.server.audit import decided
from holodeck.server.connection import ConnectionLimit
from holodeck.server.identity import Gate, spender_of
from holodeck.server.options import ServerSettings
from holodeck.server.quota import Meter, Quotas, Spender
from holodeck.server.store_health import SERVER, StoreHealth
from holodeck.sessions.port import SessionStore
from holodeck.sessions.values import KeptValue
from holodeck.telemetry.metrics import Metrics
from holodeck.telemetry.run_logger import RunLogger
from holodeck.telemetry.watchdog import Watchdog
from holodeck.telemetry.worker_figures import WorkerFigures

if TYPE_CHECKING:
    from holodeck.server.push_sender import PushSender  # for annotations only: PushSender imports this module

OpenEncoder: TypeAlias = Callable[["AgentServer", Run, str | None], Encoder]
"""Makes the encoder of one reader of a run. The text is the reader's Accept header.

Everything else comes from the run: `RunRequest.encoding` is stored with it. So a run is encoded in the same way in every
process that shows it.
"""

_SECRET, _CODE = "secret", "page-code"

log = logging.getLogger(__name__)

# Keys in the scope.
SLOT = "holodeck.slot"
RATE_LIMIT = "holodeck.rate_limit"  # RateLimitHeaders of a request that was counted


class ServerState(StrEnum):
    """The life of a server (SRV-03)."""

    INITIALIZING = "initializing"  # listening, but the agent is not ready: requests get 503
    READY = "ready"  # the agent can serve
    RUNNING = "running"  # the agent is serving
    SHUTTING_DOWN = "shutting_down"  # running streams may finish, new runs get 503
    STOPPED = "stopped"


_NEXT = {
    ServerState.INITIALIZING: {ServerState.READY, ServerState.SHUTTING_DOWN},
    ServerState.READY: {ServerState.RUNNING, ServerState.SHUTTING_DOWN},
    ServerState.RUNNING: {ServerState.SHUTTING_DOWN},
    ServerState.SHUTTING_DOWN: {ServerState.STOPPED},
    ServerState.STOPPED: set[ServerState](),
}


def _advance(state: ServerState, to: ServerState) -> ServerState:
    if to not in _NEXT[state]:
        raise RuntimeError(f"a server that is {state} cannot become {to}")
    return to


class AgentServer:
    push_sender: "PushSender"  # A2A's; `Wire.prepare` sets it
    encoders: Mapping[str, OpenEncoder] = MappingProxyType({})  # by wire; the application sets them

    def __init__(
        self,
        agent: AgentDefinition,
        store: SessionStore,
        *,
        records: RunStore | None = None,
        settings: ServerSettings | None = None,
        run_settings: RunSettings | None = None,
        middleware: Callable[[], EventMiddleware] | None = None,
        files: FileReader | None = None,
        metrics: Metrics | None = None,
        trace: Callable[[Run], Observer] | None = None,
        access: Authenticator | None = None,
        windows: WindowStore | None = None,
        leases: LeaseStore | None = None,
    ) -> None:
        """`middleware` makes that of one reader (SRV-21), `trace` the spans of one run. Both keep state."""
        self.settings = settings or ServerSettings()
        limits, spending = self.settings.block.limits, self.settings.spending
        self.agent, self._middleware = agent, middleware
        self.store, self.store_health = store, StoreHealth(store)
        self._tools: tuple[Sequence[ToolSchema], Sequence[ToolSchema]] = (), ()  # a listing, and what is shown of it
        self.files = files or FileReader(self.settings.files)
        self.metrics = metrics or Metrics()
        self.metrics.offered_tools = lambda: (schema.name for schema in agent.tools.schemas())
        self.connection_limit = ConnectionLimit(
            self.settings.block.max_connections, self.metrics.connections.add, per_client=limits.address.connections
        )
        self.access = access or Authenticator()
        self.access.on_revoked = self._revoked
        self.gate = Gate(
            self.access,
            self.metrics,
            realm=agent.name,
            public=frozenset(self.settings.block.auth.public),
            metadata_url=self.settings.metadata_url if self.access.takes_tokens else None,
        )
        self.at_drain: list[Callable[[], Awaitable[None]]] = []  # called when the last run has ended
        self.arriving = 0  # runs that are admitted but not yet started
        self.answering = 0  # answers in progress
        self._trace = trace
        self.run_settings = run_settings or RunSettings()
        self.runs = Runs(self.agent, store, self.run_settings, records=records, observe=self._observers)
        self.stored_runs = StoredRuns(self.runs, store, records)
        self.interrupted_runs = InterruptedRuns(self.runs, refusal=self._refusal)
        self._replica = self._replica_of(records)
        self.idempotency = Idempotency(self.runs, self.stored_runs.restored, self.stored_runs.elsewhere)
        self.state = ServerState.INITIALIZING
        self._has_begun = False  # whether `start` was called
        self.quotas = Quotas(
            limits,
            spending,
            windows,
            leases,
            stored=store.tenant_bytes,
            key_limits=self.access.limits_of_key,
            refused=self.metrics.limit_refusals.add,
        )
        self.worker_figures: WorkerFigures | None = None  # if this process is one of several workers
        self._watchdog = Watchdog(self.metrics.loop_lag.observe) if self.settings.block.watchdog else None
        self._started_at = time.monotonic()

    def _replica_of(self, records: RunStore | None) -> Replica | None:
        """This process's entry among those that share its store, or None if no other process uses the store."""
        if not isinstance(records, SharedRunStore):
            return None
        return Replica(self.runs, self.interrupted_runs, records, self.settings.cluster.take_over_seconds)

    async def start(self) -> None:
        """Starts the agent. Raises StartError if that fails."""
        self._has_begun = True
        await self.store.start()
        if self._replica is not None:  # before tool servers start, which may take longer than others wait for a beat
            self._replica.start()
        if self.access.enabled:
            await self._share_secret()
        await self.access.start()
        await self.agent.start()
        if recovered := await self.interrupted_runs.recover():
            log.warning("runs_recovered", extra={"details": {"runs": recovered}})
        if self._replica is not None:
            self._replica.takes_over = True
        if self.worker_figures is not None:
            await self.worker_figures.start()
        self.state = _advance(self.state, ServerState.READY)

    async def _share_secret(self) -> None:
        """Makes tickets and page sign-ins valid at all processes that share the store, and after a restart."""
        values = self.store.values
        # The first process that asks makes the secret.
        await values.put_first(KeptValue(kind=_SECRET, name="signing", body=os.urandom(32)), owner=SERVER)
        (secret,) = await values.of_topic(_SECRET, owner=SERVER)
        self.gate.tickets.use(secret.body)
        self.access.page.use(secret.body)
        self.access.page.spend = self._spend_code

    async def _spend_code(self, name: str) -> bool:
        """Marks a sign-in code as used. Returns whether it was unused, in all processes."""
        used = KeptValue(kind=_CODE, name=name)
        return await self.store.values.put_first(used, owner=SERVER, seconds=2 * CODE_SECONDS)

    def serve(self) -> None:
        self.state = _advance(self.state, ServerState.RUNNING)
        if self._watchdog is not None:  # not earlier: the imports of a start may block the loop for a while
            self._watchdog.start()

    async def drain(self, seconds: float) -> None:
        """Refuses new runs from now on. Running ones get their grace period, then an ending."""
        self.state = _advance(self.state, ServerState.SHUTTING_DOWN)
        await self.runs.close(seconds)
        for call in self.at_drain:
            await call()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Starts the server and stops it at the end, for programs that serve its application themselves."""
        try:
            await self.start()
            self.serve()
            yield
            await self.drain(self.settings.block.shutdown_timeout)
        finally:
            await self.close()

    async def close(self) -> None:
        """Releases all resources, even after a start that failed halfway."""
        if self._watchdog is not None:
            self._watchdog.close()
        if self.worker_figures is not None:
            await self.worker_figures.close()
        if self._replica is not None:
            await self._replica.close()
        await self.interrupted_runs.close()
        await self.stored_runs.close()
        try:
            await self.access.close()
            await self.agent.close()
        finally:
            await self.quotas.close()
            await self.store.close()
            if self.state is ServerState.SHUTTING_DOWN:
                self.state = _advance(self.state, ServerState.STOPPED)

    async def will_adopt(self, session_id: str, *, owner: Owner) -> bool:
        """Returns whether to adopt a client's history: only if the session has no messages of its own."""
        adopts = self.run_settings.client_history is ClientHistory.ADOPT
        session = await self.store.get(session_id, owner=owner) if adopts else None
        return adopts and (session is None or session.message_count == 0)

    async def history(self, session_id: str, *, owner: Owner, last: int | None = None) -> Sequence[Message]:
        """Reads a stored conversation, or about `last` messages of its end. An unknown one is empty."""
        stored = await self.store.read(session_id, owner=owner, last=last)
        return () if stored is None else stored.messages

    def middleware(self) -> EventMiddleware:
        return NO_STAGES if self._middleware is None else self._middleware()

    def shown_events(self, *parts: Run) -> Iterator[Event]:
        """The events of a run, or of its parts, that readers may see. The oldest are missing if a log did not keep them."""
        kept = (event for part in parts for event in part.log.kept)
        return (bare(event) for _, event in self.middleware()(enumerate(kept)))

    def shown_tools(self) -> Sequence[ToolSchema]:
        """The tools that clients may know of: those whose calls the middleware shows. Asks it once for each listing."""
        tools = self.agent.tools.schemas()
        if tools is not self._tools[0]:
            self._tools = tools, self.middleware().shown_tools(tools)
        return self._tools[1]

    def check_ready(self) -> None:
        if not self._has_begun:
            raise NotReady(
                "The agent was not started: the application that mounts it has to pass its lifespan on, as in FastAPI(lifespan=agent.lifespan)."
            )
        if self.state is ServerState.INITIALIZING:
            raise NotReady("The agent is starting; try again in a moment.")

    @property
    def uptime(self) -> float:
        return time.monotonic() - self._started_at

    def lacks(self) -> list[str]:
        """Returns what a run that starts now would lack, as sentences for an operator."""
        lacking = []
        if self.state not in (ServerState.READY, ServerState.RUNNING):
            lacking.append(f"The server is {self.state.value.replace('_', ' ')}.")
        if self.agent.breakers.cut_off(Dependency.MODEL):
            lacking.append("The model keeps failing: its circuit breaker is open.")
        if self._replica is not None and not self._replica.is_connected:
            lacking.append("The session store cannot be reached.")
        lacking.extend(
            f"The tool server '{each.name}' is not available{each.detail and ': '}{each.detail}."
            for each in self.agent.tools.health()
            if each.required and not each.ready
        )
        return lacking

    def weakened(self) -> list[str]:
        """Returns what runs have to do without, as sentences for an operator. They work nevertheless."""
        if self.carrier_is_up is False:
            return [
                "The Valkey of cluster.valkey does not respond: the database carries streams and stops, more slowly."
            ]
        return []

    @property
    def carrier_is_up(self) -> bool | None:
        """Returns whether `cluster.valkey` responds, or None if there is none."""
        records = self.runs.records
        return records.carrier_is_up if isinstance(records, SharedRunStore) else None

    @property
    def retry_after(self) -> int:
        """Seconds, rounded up, after which a client may ask a server again that is not ready."""
        model = self.agent.breakers.retry_after(Dependency.MODEL)
        return max(1, math.ceil(model)) if self.agent.breakers.cut_off(Dependency.MODEL) else 1

    async def stop_runs(self, *runs: Run) -> list[Stopped]:
        """Stops runs at a client's request, and logs it unless a run has ended in another way."""
        results = await self.stored_runs.stop(runs)
        for run, result in zip(runs, results, strict=True):
            if result.is_stopping:
                decided("run_stopped", run.owner, run_id=run.run_id)
        return results

    def _refusal(self, request: RunRequest) -> HoloDeckError | None:
        """Returns why a run that a crash interrupted may not continue: its key was revoked meanwhile."""
        key = request.api_key_id
        return None if key is None or self.access.in_force(key) else _revoked()

    def _revoked(self, credentials: frozenset[str]) -> None:
        """Ends the runs that revoked keys started, then the requests that they still have open."""
        for run in self.runs.active:
            if run.request.api_key_id in credentials:
                self.runs.stop(run, _revoked())
        self.gate.end(credentials)

    def _observers(self, run: Run) -> list[Observer]:
        """Makes the observers of a new run: log lines, metrics, spans, and its meter.

        A run has the meter that it was started with, but one that continues after a crash gets another one here.
        """
        lines = RunLogger(
            run_id=run.run_id,
            session_id=run.session_id,
            user_id=run.owner.user,
            begun=run.begun,
            debug=self.settings.debug,
            reply=lambda: "".join(event.delta for event in run.log.kept if isinstance(event, TextAdded)),
            reasoning=lambda: "".join(event.delta for event in run.log.kept if isinstance(event, ReasoningAdded)),
        )
        observers: list[Observer] = [lines, self.metrics.run(run.log, run.owner.tenant), self.store_health]
        if self._trace is not None:
            observers.append(self._trace(run))
        if run.earlier is not None:  # a run that a crash interrupted does not emit its start again
            for observer in observers:
                observer(RunStarted(run.run_id, run.session_id, model=self.agent.model.name))
        if run.reader_arrived is not None:  # it continues after a crash: the address of its request is not stored
            authenticated = self.access.enabled and not run.owner.is_anonymous
            run.meter = self.quotas.follow_up(Spender(run.owner, None, authenticated=authenticated))
        if run.meter is not None:
            run.meter.follow(run)
            observers.append(run.meter)
        return observers


@dataclass(slots=True, eq=False)
class RunAdmission:
    """Wraps the start of a run: refuses it if the server is full or a limit is reached, else counts it.

    A run counts from here on, while its files are read, so that many parallel uploads cannot become too many runs. If
    the block raises, the reservation in the owner's limits is given back. Entering returns the run's meter, or None if
    none of its limits counts anything.
    """

    _server: AgentServer
    _request: HTTPConnection
    _owner: Owner
    _meter: Meter | None = None

    async def __aenter__(self) -> Meter | None:
        server = self._server
        if server.runs.busy + server.arriving >= server.settings.block.runs.max_concurrent:
            raise Overloaded("The server has too many runs at the moment; try again in a moment.")
        server.arriving += 1
        if server.quotas.counts:
            try:
                self._meter = await server.quotas.admit(spender_of(self._request, self._owner))
            except BaseException:
                server.arriving -= 1
                raise
            if self._meter is not None:
                self._request.scope[RATE_LIMIT] = self._meter.rate_limit
        return self._meter

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.arriving -= 1
        if isinstance(error, HoloDeckError):
            self._server.store_health.note(error.code)
        if kind is not None and self._meter is not None:
            self._meter.end()


@dataclass(slots=True, eq=False)
class Slot:
    """The slot of one request, which it takes before it starts or reads a run, and keeps until its answer has ended.

    The slots limit how many answers an address, key, user and tenant may be getting at a time (T17). Requests with a
    short answer need no slot: a client whose slots are all taken can still stop a run. Slots are counted by credential.
    Users behind one address share only `server.limits.address.streams`.
    """

    _server: AgentServer
    _taken: bool = False
    _lease: Lease | None = None

    async def take(self, request: HTTPConnection, owner: Owner) -> None:
        """Takes the slot. Idempotent. Raises RateLimited if a limit is reached."""
        if not self._taken:
            self._taken = True
            self._server.answering += 1
            if self._server.quotas.counts_streams:
                self._lease = await self._server.quotas.stream(spender_of(request, owner))

    def release(self) -> None:
        if self._taken:
            self._taken = False
            self._server.answering -= 1
        if self._lease is not None:
            self._server.quotas.release(self._lease)
            self._lease = None


def slot_of(request: HTTPConnection) -> Slot:
    slot: Slot = request.scope[SLOT]
    return slot


def _revoked() -> Unauthorized:
    return Unauthorized("The key of this run was revoked.", reason="revoked")
