"""`holodeck serve`: reads the options, checks the agent file, hands over to `holodeck.server`."""

import gc
import os
import re
import sys
from importlib import import_module

import click
import msgspec

from holodeck.cli.agent_choice import agent_arguments, chosen
from holodeck.config.serving import DEFAULT_PROTOCOLS, WORKER_VARIABLE, LogFormat, LogLevel, ServeOptions, WorkerSeat
from holodeck.server.wires import WIRES

_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")


def _root_path(_context: click.Context, _option: click.Parameter, value: str) -> str:
    path = value.rstrip("/")
    if not _ROOT_PATH.fullmatch(path) or ".." in path.split("/"):
        raise click.BadParameter("a path starts with / and has letters, digits and . _ ~ - between its slashes")
    return path


@click.command("serve")
@agent_arguments
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    envvar="HOLODECK_PORT",
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option("--host", default="127.0.0.1", envvar="HOLODECK_HOST", show_default=True, help="Address to listen on.")
@click.option(
    "--protocol",
    "protocols",
    type=click.Choice([*WIRES, "all"]),
    multiple=True,
    default=DEFAULT_PROTOCOLS,
    envvar="HOLODECK_PROTOCOL",
    show_default=True,
    help="What to speak; may be given several times.",
)
@click.option(
    "--cors-origins",
    default="loopback",
    envvar="HOLODECK_CORS_ORIGINS",
    show_default=True,
    help="Origins of web pages that may use the server, separated by commas; "
    "loopback: pages of this machine, *: any page.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    help="Another name of this server, e.g. behind a proxy; may be given several times.",
)
@click.option(
    "--root-path",
    default="",
    envvar="HOLODECK_ROOT_PATH",
    callback=_root_path,
    metavar="PATH",
    help="The path under which a proxy has the server, e.g. /agents/one.",
)
@click.option("--uds", metavar="PATH", help="Listen on a unix socket (mode 0600) instead of host and port.")
@click.option("--insecure-no-auth", is_flag=True, help="Serve other machines without server.auth.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    envvar="HOLODECK_LOG_LEVEL",
    show_default=True,
    help="Lines below this level are left out.",
)
@click.option(
    "--log-format",
    type=click.Choice(["json", "text"]),
    default="json",
    envvar="HOLODECK_LOG_FORMAT",
    show_default=True,
    help="JSON lines for machines, text lines for development.",
)
@click.option("--debug", is_flag=True, help="Log requests and answers in full; show tracebacks.")
@click.option(
    "--banner/--no-banner",
    default=None,
    envvar="HOLODECK_BANNER",
    help="Print the addresses when the server is ready; default: only on a terminal.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    envvar="HOLODECK_WORKERS",
    show_default=True,
    help="Server processes on one port, one for each core; they share the conversations of the file or database.",
)
@click.option("--reload", is_flag=True, help="Start again when the agent file or a file beside it changes.")
@click.option("--open", "open_browser", is_flag=True, help="Open the playground in the browser.")
def command(
    *,
    path: str | None,
    demo: bool,
    port: int,
    host: str,
    protocols: tuple[str, ...],
    cors_origins: str,
    allowed_hosts: tuple[str, ...],
    root_path: str,
    uds: str | None,
    insecure_no_auth: bool,
    log_level: LogLevel,
    log_format: LogFormat,
    debug: bool,
    banner: bool | None,
    workers: int,
    reload: bool,
    open_browser: bool,
) -> int | None:
    """Serve an agent over HTTP.

    PATH is an agent file or its folder; without it, agent.yaml of this folder. Options can also be set in the environment:
    HOLODECK_HOST, HOLODECK_PORT, HOLODECK_PROTOCOL, HOLODECK_CORS_ORIGINS, HOLODECK_ROOT_PATH, HOLODECK_LOG_LEVEL,
    HOLODECK_LOG_FORMAT, HOLODECK_BANNER, HOLODECK_WORKERS.
    """
    if reload:
        code: int = import_module("holodeck.cli.reload").serve_again(sys.argv[1:], lambda: chosen(path, demo=demo))
        return code
    options = ServeOptions(
        config=chosen(path, demo=demo),
        host=host,
        port=port,
        protocols=tuple(WIRES) if "all" in protocols else tuple(dict.fromkeys(protocols)),
        cors_origins=tuple(origin.strip() for origin in cors_origins.split(",") if origin.strip()),
        allowed_hosts=allowed_hosts,
        root_path=root_path,
        log_level=log_level,
        log_format=log_format,
        debug=debug,
        open_browser=open_browser,
        banner=banner,
        uds=uds,
        insecure_no_auth=insecure_no_auth,
        worker=msgspec.json.decode(seat, type=WorkerSeat) if (seat := os.environ.pop(WORKER_VARIABLE, "")) else None,
    )
    if workers > 1 and options.worker is None:
        ended: int = import_module("holodeck.cli.workers").serve_with(workers, sys.argv[1:], options)
        return ended
    gc.disable()  # imports make only what stays; the server turns it on again when it is ready
    import_module("holodeck.server.main").serve(options)  # uvicorn and all, only when everything above is right
    return None
