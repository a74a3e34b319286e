"""How to serve an agent, as the command line says it. The values only; `holodeck.server` acts on them."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from holodeck.config.load import LoadedConfig

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
LogFormat: TypeAlias = Literal["json", "text"]

DEFAULT_PROTOCOLS = ("ag-ui", "rest", "openai", "responses")
"""What a server speaks unless it is asked for something else: the playground's protocol, and those of a first request."""


WORKER_VARIABLE = "HOLODECK_WORKER"
"""Holds the `WorkerSeat` of a worker, as JSON."""


class WorkerSeat(msgspec.Struct, frozen=True, kw_only=True):
    """What one of several workers gets from its parent."""

    number: int  # from 0 on; a worker that takes the place of one that died has the same
    replica: str  # names the process in the store
    listener: int  # the descriptor of the socket that all share
    lifeline: int  # the descriptor of a pipe that ends with the parent
    others: tuple[int, ...] = ()  # descriptors that have only to stay open
    folder: str  # where workers meet: a socket and a file of figures for each
    secret: str  # what names in logs are hashed with

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (self.listener, self.lifeline, *self.others)


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    config: LoadedConfig
    host: str = "127.0.0.1"
    port: int = 8000
    protocols: tuple[str, ...] = DEFAULT_PROTOCOLS
    cors_origins: tuple[str, ...] = ("loopback",)
    allowed_hosts: tuple[str, ...] = ()  # names under which the server may be asked, besides loopback and `host`
    log_level: LogLevel = "info"
    log_format: LogFormat = "json"
    root_path: str = ""  # the path under which a proxy has the server, such as /agents/one
    debug: bool = False
    open_browser: bool = False
    banner: bool | None = None  # whether to print it; None: if standard error is a terminal
    worker: WorkerSeat | None = None  # if the process is one of several workers
    uds: str | None = None  # a unix socket to listen on instead of host and port
    insecure_no_auth: bool = False  # whether other machines may come without a credential
