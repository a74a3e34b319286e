"""`holodeck serve`: starts a server from a checked agent file, and stops it on a signal.

The order matters: the server binds its port before it prints anything, answers 503 while the agent starts, and prints the
banner when it can serve a request. On a signal it lets running streams finish for a while, ends the rest with a proper
ending, then releases everything.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from select import select
from typing import Any
from urllib.parse import urlsplit

import uvloop

from holodeck._version import __version__
from holodeck.access.authenticator import Authenticator
from holodeck.agent.definition import AgentDefinition
from holodeck.config.auth import API_KEY_VARIABLE, build_access
from holodeck.config.build import build_agent, build_files, build_middleware, build_run_settings
from holodeck.config.build_stores import Stores, build_stores
from holodeck.config.load import LoadedConfig, secrets_of
from holodeck.config.serving import ServeOptions, WorkerSeat
from holodeck.core.events import Observer
from holodeck.core.sizes import MB
from holodeck.core.text import one_line
from holodeck.errors import StartError
from holodeck.limits.leases import LeaseStore, ValkeyLeases
from holodeck.limits.valkey import ValkeyWindows
from holodeck.limits.window import StoreDown
from holodeck.runs.port import SharedRunStore
from holodeck.runs.run import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.app import Application
from holodeck.server.banner import banner, shown_host
from holodeck.server.connection import room_for
from holodeck.server.guard import ANY, LOOPBACK
from holodeck.server.listen import acceptors, bind, bind_unix, only_on_loopback
from holodeck.server.options import CHAT_STREAM_SECONDS, DEFAULT_MAX_TOKENS, Access, ServerSettings, SpendingSettings
from holodeck.server.protocol import HttpServer
from holodeck.server.routes.metrics import own_series
from holodeck.server.wires import wires_of
from holodeck.telemetry import logs
from holodeck.telemetry.metrics import Metrics
from holodeck.telemetry.worker_figures import WorkerFigures

log = logging.getLogger(__name__)

LOG_KEY = "HOLODECK_LOG_KEY"  # salts the hash that names users if `logs.user_ids` is hashed
ALLOWED_HOSTS = "HOLODECK_ALLOWED_HOSTS"
GC_THRESHOLDS = (2_000, 5, 200)  # streams pause during a collection: 50 ms if it has 100,000 new objects to visit
_SECURE = ("rediss", "valkeys", "unix")  # schemes, also with +sentinel
_LIMITS = ("server", "limits")  # the place in the agent file
FLUSH_SECONDS = 2  # for clients to read the last events after the runs have ended
CANCEL_SECONDS = 1.0  # seconds for the remaining tasks to end at shutdown
LAST_WORDS_SECONDS = 0.2  # for the log's last lines, after a second signal


def serve(options: ServeOptions) -> None:
    """Serves until a signal arrives; a second one ends the process. Raises ConfigError or StartError if it cannot."""
    access = build_access(options.config)
    refuse_exposure(options, access)
    settings = settings_of(options, keys=access.keys is not None)
    output = logs.configure(  # before the server is built, so that problems of its stores are logged
        debug=options.debug,
        secrets=secrets_of(options.config),
        level=options.log_level,
        style=options.log_format,
        name_user=_naming(options),
    )
    with closing(output), tracing(options.config) as trace:
        stores = build_stores(options.config, options.worker)
        server = build_server(options.config, settings, access, trace=trace, stores=stores)
        _serve(server, options, output)


def _serve(server: AgentServer, options: ServeOptions, output: logs.Logging) -> None:
    if options.worker is not None:
        folder, number = Path(options.worker.folder), options.worker.number
        server.worker_figures = WorkerFigures(folder, number, partial(own_series, server))
    listener = _listener_of(options)
    server.metrics.log_drops = lambda: output.writer.dropped
    try:
        run_to_end(Service(server, listener, options, last_words=partial(output.close, LAST_WORDS_SECONDS)).run())
    finally:
        listener.close()
        if options.uds:
            Path(options.uds).unlink(missing_ok=True)


def _listener_of(options: ServeOptions) -> socket.socket:
    if options.worker is not None:
        for descriptor in options.worker.descriptors:
            os.set_inheritable(descriptor, False)  # tool servers have no use for them
        return socket.socket(fileno=options.worker.listener)
    return bind_unix(options.uds) if options.uds else bind(options.host, options.port)


def run_to_end(main: Coroutine[Any, Any, None]) -> None:
    """Runs `main` in its own loop. Remaining tasks are cancelled and get a moment to end, no more.

    `asyncio.Runner` waits for them without a limit: a tool that swallows its cancellation would keep the process alive.
    """
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(main)
    finally:
        try:
            loop.run_until_complete(_end_tasks())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


async def _end_tasks() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if not left:
        return
    _, abandoned = await asyncio.wait(left, timeout=CANCEL_SECONDS)
    for task in abandoned:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001  as asyncio's own gather does
    if abandoned:
        names = ", ".join(sorted(each.get_name() for each in abandoned))
        log.warning("%d tasks did not end when they were cancelled and were abandoned: %s", len(abandoned), names)


@contextmanager
def tracing(config: LoadedConfig) -> Iterator[Callable[[Run], Observer] | None]:
    """Exports OpenTelemetry spans of runs to a collector (CHT-11: the same spans as in the terminal), if it is wanted."""
    wanted = config.agent.observability
    if not wanted.enabled:
        yield None
        return
    otlp = import_module("holodeck.telemetry.otlp")  # an optional dependency
    exporting = otlp.Exporting(wanted, agent=config.agent.name, environment=config.environment)

    def spans_of(run: Run) -> Observer:
        spans: Observer = exporting.tracing.run(
            run_id=run.run_id,
            session_id=run.session_id,
            kept=lambda: run.log.kept,
            user_id=run.owner.user if wanted.user_ids else None,
        )
        return spans

    try:
        yield spans_of
    finally:
        exporting.close()


def build_server(
    config: LoadedConfig,
    settings: ServerSettings,
    access: Authenticator | None = None,
    *,
    trace: Callable[[Run], Observer] | None = None,
    stores: Stores | None = None,
    agent: AgentDefinition | None = None,
) -> AgentServer:
    """Builds the server of a file. `agent` replaces the agent that the file describes."""
    metrics, stores = Metrics(config.agent.observability.tenants), stores or build_stores(config)
    windows, leases = open_store(config)
    if windows is not None and isinstance(records := stores.runs, SharedRunStore):
        windows.processes = lambda: records.processes
    return AgentServer(
        agent
        or build_agent(
            config,
            on_change=lambda change: metrics.breaker_changes.add(change.service, change.new_state),
            debug=settings.debug,
        ),
        stores.sessions,
        records=stores.runs,
        settings=settings,
        run_settings=build_run_settings(config),
        middleware=build_middleware(config),
        files=build_files(config, settings.files),
        metrics=metrics,
        trace=trace,
        access=access,
        windows=windows,
        leases=leases,
    )


def _naming(options: ServeOptions) -> Callable[[str], str] | None:
    """Returns how log lines name users. None: unchanged."""
    if options.config.agent.logs.user_ids == "plain":
        return None
    key = options.config.environment.get(LOG_KEY, "") or ("" if options.worker is None else options.worker.secret)
    return logs.hashed_with(key.encode() or os.urandom(32))


def refuse_exposure(options: ServeOptions, access: Authenticator) -> None:
    """Refuses to serve strangers by mistake: other machines without auth, or any web page with it (T08, T09)."""
    if access.enabled and ANY in options.cors_origins:
        raise StartError("--cors-origins * cannot be combined with server.auth: name the origins of your own pages.")
    if access.enabled or options.insecure_no_auth or options.uds or only_on_loopback(options.host):
        return
    raise StartError(
        f"--host {options.host} is open to other machines without authentication: set a key "
        f"({API_KEY_VARIABLE}=$(openssl rand -hex 32) holodeck serve …), or allow it with --insecure-no-auth."
    )


def settings_of(options: ServeOptions, *, keys: bool = False) -> ServerSettings:
    file, more_hosts = options.config.agent, options.config.environment.get(ALLOWED_HOSTS, "")
    return ServerSettings(
        block=file.server.model_copy(update={"max_connections": room_for(file.server.max_connections)}),
        cluster=file.cluster,
        access=Access(
            bind_host=options.host,
            allowed_hosts=(*options.allowed_hosts, *(name.strip() for name in more_hosts.split(",") if name.strip())),
            cors_origins=options.cors_origins,
        ),
        spending=spending_of(options.config, has_keys=keys),
        max_upload=round((file.files.max_request_mb + 1) * MB),
        files=file.files.limits,
        protocols=options.protocols,
        root_path=options.root_path,
        chat_stream_timeout=file.loop.run_timeout or CHAT_STREAM_SECONDS,
        remember_conversations="store" in file.sessions.model_fields_set,
        debug=options.debug,
    )


def spending_of(config: LoadedConfig, *, has_keys: bool) -> SpendingSettings:
    """Returns how money and tokens are counted. Raises StartError for a money limit without a price."""
    price = config.agent.model.price
    if price is None and config.agent.server.limits.counts_money:
        raise StartError(str(config.error(_LIMITS, "money_per_day needs to know what tokens cost; add model.price")))
    return SpendingSettings(
        price=price,
        max_tokens=config.agent.model.max_tokens or DEFAULT_MAX_TOKENS,
        has_keys=has_keys,
    )


def open_store(config: LoadedConfig) -> tuple[ValkeyWindows | None, LeaseStore | None]:
    """Returns the store that replicas share, or None twice if each process counts for itself."""
    file = config.agent.server.limits
    if file.store is None:
        return None, None
    url = file.store.get_secret_value()
    try:
        windows = ValkeyWindows(url, file.when_store_is_down)
    except ModuleNotFoundError as error:
        raise StartError("limits.store needs the package redis: pip install 'holodeck-agents[valkey]'") from error
    except ValueError as error:
        text = "this is not the address of a Valkey or Redis; write e.g. valkeys://user:password@host:6379/0"
        raise StartError(str(config.error((*_LIMITS, "store"), text))) from error
    if url.partition(":")[0].partition("+")[0] not in _SECURE and urlsplit(url).hostname not in LOOPBACK:
        log.warning(
            "limits.store is used without TLS: others on the network can read and change the counts; use rediss://"
        )
    return windows, ValkeyLeases(windows)


async def reach_limits_store(config: LoadedConfig) -> str:
    """Connects to the store that `limits.store` names. Raises StartError, although a server starts without it."""
    windows, _ = open_store(config)
    if windows is None:
        return "each process counts for itself"
    then = "are refused" if config.agent.server.limits.when_store_is_down == "refuse" else "are counted by each process"
    try:
        await windows.ping()
    except StoreDown as error:
        raise StartError(f"the Valkey of server.limits.store cannot be reached, so requests {then}: {error}") from error
    finally:
        await windows.close()
    return "the Valkey of server.limits.store answers"


class Service:
    """One lifetime of a server, from INITIALIZING to STOPPED."""

    def __init__(
        self, server: AgentServer, listener: socket.socket, options: ServeOptions, last_words: Callable[[], None]
    ) -> None:
        self._server, self._listener, self._options, self._last_words = server, listener, options, last_words
        self._http = http_server(server)
        self._stop_requested = asyncio.Event()
        self._has_started = False

    async def run(self) -> None:
        worker = self._options.worker
        with _signals(self._signalled), _lifeline(worker, self._stop_requested.set):
            try:
                if worker is None:
                    await self._http.listen(acceptors(self._listener))
                if await self._start():
                    if worker is not None:  # it listens when it is ready: until then the other workers answer
                        await self._http.listen(acceptors(self._listener, is_shared=True))
                    self._announce()
                    await self._stop_requested.wait()
            finally:
                await self._stop()

    async def _start(self) -> bool:
        """Starts the agent. Returns False if a signal arrived first."""
        starting = asyncio.create_task(self._server.start(), name="start")
        stopping = asyncio.create_task(self._stop_requested.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            return False
        starting.result()
        _settle_memory()
        self._server.serve()
        self._has_started = True
        return True

    async def _stop(self) -> None:
        seconds = self._options.config.agent.server.shutdown_timeout
        if self._has_started:
            self._announce_stop(self._server.runs.busy, seconds)
        await self._server.drain(seconds)
        await self._http.stop(FLUSH_SECONDS)
        await self._server.close()

    def _signalled(self, number: signal.Signals) -> None:
        if self._stop_requested.is_set():
            self._last_words()
            os._exit(128 + number)  # the second signal stops immediately
        self._stop_requested.set()

    def _announce(self) -> None:
        uds = self._options.uds
        host, port = ("", 0) if uds else self._listener.getsockname()[:2]
        self._log_start(uds or f"{host}:{port}")
        text = banner(
            agent=self._server.agent.name,
            model=self._server.agent.model.name,
            host=self._options.host,
            port=port,
            root_path=self._options.root_path,
            wires=wires_of(self._server.settings.protocols),
            tools=len(self._server.agent.tools.schemas()),
            secured=self._server.gate.enabled,
            uds=uds,
            colours=sys.stderr.isatty() and "NO_COLOR" not in os.environ,
        )
        if sys.stderr.isatty() if self._options.banner is None else self._options.banner:
            self._say(text)
        if self._options.open_browser and not uds:
            asyncio.get_running_loop().run_in_executor(None, webbrowser.open, self._page_address(port))

    def _page_address(self, port: int) -> str:
        """Returns the address for the browser. With authentication it has a code that signs the browser in, once."""
        code = f"#code={self._server.access.page.new_code()}" if self._server.gate.enabled else ""
        return f"http://{shown_host(self._options.host)}:{port}{self._options.root_path}/{code}"

    def _log_start(self, address: str) -> None:
        agent, settings = self._server.agent, self._server.settings
        details = {
            "version": __version__,
            "address": address,
            "agent": agent.name,
            "model": agent.model.name,
            "tools": len(agent.tools.schemas()),
            "protocols": [wire.name for wire in wires_of(settings.protocols)],
            "store": self._options.config.agent.sessions.store or "sqlite",
        }
        log.info("server_started", extra={"details": details})

    def _announce_stop(self, runs: int, seconds: float) -> None:
        log.info("server_stopping", extra={"details": {"runs": runs, "seconds": seconds if runs else 0}})
        if runs:
            what = "1 run has" if runs == 1 else f"{runs} runs have"
            self._say(f"Stopping: {what} up to {seconds:g} s to end. Ctrl+C again stops at once.")

    def _say(self, text: str) -> None:
        """Prints to stderr through its own stream: text stuck in `sys.stderr` would make the exit code 120.

        Drops the text if stderr is not writable: a stopped terminal must not keep the server from serving or stopping.
        """
        try:
            if not select([], [sys.stderr.fileno()], [], 0)[1]:
                return
            with open(
                sys.stderr.fileno(), "w", encoding=sys.stderr.encoding, errors="replace", closefd=False
            ) as screen:
                screen.write(text + "\n")
        except OSError as error:  # a full disk, a closed terminal: no reason not to serve
            log.warning("could not write to the terminal: %s: %s", one_line(text), error.strerror)


def _settle_memory() -> None:
    """Freezes the objects that the start made: they live as long as the process, so the GC need not scan them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


def http_server(server: AgentServer) -> HttpServer:
    return HttpServer(Application(server), server.settings.block.limits.request, server.connection_limit)


@contextmanager
def _lifeline(worker: WorkerSeat | None, when_cut: Callable[[], None]) -> Iterator[None]:
    """Ends a worker when its parent ends for any reason: otherwise it would keep the port and the session file."""
    if worker is None:
        yield
        return

    def cut() -> None:
        loop.remove_reader(worker.lifeline)
        log.error("the parent process of this worker has ended; the worker ends its runs and exits")
        when_cut()

    loop = asyncio.get_running_loop()
    loop.add_reader(worker.lifeline, cut)
    try:
        yield
    finally:
        loop.remove_reader(worker.lifeline)


@contextmanager
def _signals(on_signal: Callable[[signal.Signals], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    handled = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # else `nohup` keeps the process alive
        handled.append(signal.SIGHUP)
    for number in handled:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
