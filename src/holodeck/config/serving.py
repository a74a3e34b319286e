"""How to serve an agent, as the command line says it. The values only; `holodeck.server` acts on them."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from holodeck.config.load import LoadedConfig

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
LogFormat: TypeAlias = Literal["json", "text"]

DEFAULT_PROTOCOLS = ("ag-ui", "rest", "openai", "responses")
"""What a server speaks unless it is asked for something else: the playground's protocol, and those of a first request."""


LISTENER_VARIABLE = "HOLODECK_LISTENER"
"""Names the descriptor of the socket that the workers of one server share."""


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
    root_path: str = (
        ""  # the path under which a proxy has the server; empty, or it starts with a slash and ends without
    )
    debug: bool = False
    open_browser: bool = False
    banner: bool | None = None  # whether to print it; None: if standard error is a terminal
    listener: int | None = None  # the descriptor of a socket that is bound already, for one of several workers
    uds: str | None = None  # a unix socket to listen on instead of host and port
    insecure_no_auth: bool = False  # whether other machines may come without a credential
