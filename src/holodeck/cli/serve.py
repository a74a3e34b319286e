"""`holodeck serve`: reads the options, checks the agent file, and calls `holodeck.server`."""

import gc
import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, get_args

import click
import msgspec

from holodeck.cli.agent_choice import CommandFunction, agent_arguments, chosen
from holodeck.config.serving import WORKER_VARIABLE, LogFormat, LogLevel, ServeOptions, WorkerSeat
from holodeck.server.wires import DEFAULT_WIRES, WIRES

_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")


def _setting(option: str, *more: str, default: Any, **rest: Any) -> Callable[[CommandFunction], CommandFunction]:
    """Defines an option that shows its default and has an environment variable: --log-level is HOLODECK_LOG_LEVEL."""
    variable = "HOLODECK_" + option.split("/", maxsplit=1)[0].removeprefix("--").replace("-", "_").upper()
    return click.option(option, *more, default=default, envvar=variable, show_default=bool(default), **rest)


def _root_path(_context: click.Context, _option: click.Parameter, value: str) -> str:
    path = value.rstrip("/")
    if not _ROOT_PATH.fullmatch(path) or ".." in path.split("/"):
        raise click.BadParameter("a path starts with / and has letters, digits and . _ ~ - between its slashes")
    return path


def _protocols(_context: click.Context, _option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(WIRES) if "all" in value else tuple(dict.fromkeys(value))


def _origins(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(origin.strip() for origin in value.split(",") if origin.strip())


def _log_format(_context: click.Context, _option: click.Parameter, value: str | None) -> str:
    return value or ("text" if sys.stdout.isatty() else "json")


@click.command("serve")
@agent_arguments
@_setting("--port", type=click.IntRange(0, 65535), default=8000, help="Port to listen on; 0 takes a free one.")
@_setting("--host", default="127.0.0.1", help="Address to listen on.")
@_setting(
    "--protocol",
    "protocols",
    type=click.Choice([*WIRES, "all"]),
    multiple=True,
    default=DEFAULT_WIRES,
    callback=_protocols,
    help="Which protocols to serve; may be given several times.",
)
@_setting(
    "--cors-origins",
    default="loopback",
    callback=_origins,
    help="Origins of web pages that may use the server, separated by commas; "
    "loopback: pages of this machine, *: any page.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    help="Another host name of this server, e.g. behind a proxy; may be given several times.",
)
@_setting(
    "--root-path",
    default="",
    callback=_root_path,
    metavar="PATH",
    help="The path under which a proxy serves this server, e.g. /agents/one.",
)
@click.option("--uds", metavar="PATH", help="Listen on a unix socket (mode 0600) instead of host and port.")
@click.option("--insecure-no-auth", is_flag=True, help="Serve other machines without authentication (server.auth).")
@_setting(
    "--log-level", type=click.Choice(get_args(LogLevel)), default="info", help="The lowest log level that is written."
)
@_setting(
    "--log-format",
    type=click.Choice(get_args(LogFormat)),
    default=None,
    callback=_log_format,
    help="JSON lines for machines, text lines for people; default: text on a terminal, else json.",
)
@click.option("--debug", is_flag=True, help="Log requests and answers in full; show tracebacks.")
@_setting(
    "--banner/--no-banner",
    default=None,
    help="Print the addresses when the server is ready; default: only on a terminal.",
)
@_setting(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    help="Server processes on one port, one for each core; they share the conversations of the file or database.",
)
@click.option("--reload", is_flag=True, help="Restart when the agent file or a file beside it changes.")
@click.option("--open", "open_browser", is_flag=True, help="Open the playground in the browser.")
def command(*, path: str | None, demo: bool, workers: int, reload: bool, **given: Any) -> int | None:
    """Serve an agent over HTTP.

    PATH is an agent file or its folder; without it, agent.yaml of this folder. Options can also be set in the environment:
    HOLODECK_HOST, HOLODECK_PORT, HOLODECK_PROTOCOL, HOLODECK_CORS_ORIGINS, HOLODECK_ROOT_PATH, HOLODECK_LOG_LEVEL,
    HOLODECK_LOG_FORMAT, HOLODECK_BANNER, HOLODECK_WORKERS.
    """
    if reload:
        code: int = import_module("holodeck.cli.reload").serve_again(sys.argv[1:], lambda: chosen(path, demo=demo))
        return code
    seat = os.environ.pop(WORKER_VARIABLE, "")
    worker = msgspec.json.decode(seat, type=WorkerSeat) if seat else None
    options = ServeOptions(config=chosen(path, demo=demo), worker=worker, **given)  # same names as its members
    if workers > 1 and worker is None:
        ended: int = import_module("holodeck.cli.workers").serve_with(workers, sys.argv[1:], options)
        return ended
    gc.disable()  # imports make only long-lived objects; the server enables the GC again when it is ready
    import_module("holodeck.server.process").serve(options)  # imports the whole server, so only after all checks
    return None
