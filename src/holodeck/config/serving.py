"""How to serve an agent, as the command line says it. The values only; `holodeck.server` acts on them."""

from dataclasses import dataclass

from holodeck.config.load import LoadedConfig


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    config: LoadedConfig
    host: str = "127.0.0.1"
    port: int = 8000
    protocols: tuple[str, ...] = ("ag-ui",)
    cors_origins: tuple[str, ...] = ("loopback",)
    allowed_hosts: tuple[str, ...] = ()  # names under which the server may be asked, besides loopback and `host`
    debug: bool = False
    open_browser: bool = False
    uds: str | None = None  # a unix socket to listen on instead of host and port
    insecure_no_auth: bool = False  # whether other machines may come without a credential
