"""The options of `holodeck serve`. Values only; `holodeck.server` acts on them."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from holodeck.config.load import LoadedConfig

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
LogFormat: TypeAlias = Literal["json", "text"]

WORKER_VARIABLE = "HOLODECK_WORKER"
"""The environment variable with the `WorkerSeat` of a worker, as JSON."""


class WorkerSeat(msgspec.Struct, frozen=True, kw_only=True):
    """What one of several workers gets from its parent."""

    number: int  # counts from 0; a worker that replaces a dead one has the same number
    replica: str  # names the process in the store
    listener: int  # the descriptor of the socket that all share
    lifeline: int  # the descriptor of a pipe that ends with the parent
    others: tuple[int, ...] = ()  # descriptors that only have to stay open
    folder: str  # folder that the workers share: a socket and a metrics file for each
    secret: str  # the key that hashes names in logs

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (self.listener, self.lifeline, *self.others)


@dataclass(frozen=True, kw_only=True)
class AppOptions:
    """What the application needs of the command line."""

    protocols: tuple[str, ...] = ()  # names of wires; empty: the default ones
    root_path: str = ""  # where a proxy mounts this server, such as /agents/one; addresses work with and without it
    debug: bool = False


@dataclass(frozen=True, kw_only=True)
class ServeOptions(AppOptions):
    config: LoadedConfig
    host: str = "127.0.0.1"
    port: int = 8000
    cors_origins: tuple[str, ...] = ("loopback",)
    allowed_hosts: tuple[str, ...] = ()  # host names that the server accepts, besides loopback and `host`
    log_level: LogLevel = "info"
    log_format: LogFormat = "json"
    open_browser: bool = False
    banner: bool | None = None  # whether to print it; None: only if standard error is a terminal
    worker: WorkerSeat | None = None  # if the process is one of several workers
    uds: str | None = None  # a unix socket to listen on instead of host and port
    insecure_no_auth: bool = False  # whether other machines may connect without a credential
