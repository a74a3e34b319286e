"""`holodeck-todo`: reads the options, checks the database, serves.

This module assembles the parts, and is the only one that imports late. It imports MCP after it has read the options, so
that `--help` and a wrong option answer immediately. It imports SQLModel, which is slow, at the first call of a tool: a
client that has just started this server asks only for its list of tools.
"""

from __future__ import annotations

import argparse
import gc
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from holodeck.todo.database import DatabaseError, check_database, default_file, engine_url, file_url
from holodeck.todo.due_dates import read_zone
from holodeck.todo.todo_values import TodoError, checked_user

if TYPE_CHECKING:
    from holodeck.todo.store import TodoStore

USAGE_ERROR = 2
INTERRUPTED = 130
HIGHEST_PORT = 65535
DEFAULT_FILE = "$HOLODECK_TODO_DB, else holodeck/todo.sqlite3 in $XDG_DATA_HOME or ~/.local/share"


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        _serve(options)
    except (DatabaseError, TodoError, OSError) as error:
        _say(str(error))
        return USAGE_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="holodeck-todo", description="A todo list as an MCP server, on stdio unless --http is given."
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--db", metavar="FILE", type=Path, help=f"SQLite file (default: {DEFAULT_FILE})")
    place.add_argument("--database-url", metavar="URL", help="postgresql://USER:PASSWORD@HOST/NAME or sqlite:///FILE")
    parser.add_argument("--http", action="store_true", help="serve streamable HTTP at /mcp instead of stdio")
    parser.add_argument("--host", default="127.0.0.1", help="address for --http (default: %(default)s)")
    parser.add_argument(
        "--port", type=_port, default=8765, help="port for --http, 0 for a free one (default: %(default)s)"
    )
    owners = parser.add_mutually_exclusive_group()
    owners.add_argument("--user", metavar="NAME", help="the only user; the tools then take no user_id")
    owners.add_argument(
        "--tenants", action="store_true", help='every call names a tenant too: bind: {tenant: "{tenant}"}'
    )
    parser.add_argument("--timezone", metavar="ZONE", default="UTC", help="zone of calls that name none (default: UTC)")
    return parser


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{port} is not between 0 and {HIGHEST_PORT}")
    return port


def _serve(options: argparse.Namespace) -> None:
    url = options.database_url
    if url is None:
        url = file_url(options.db or default_file(os.environ))
    url = engine_url(url)
    zone = read_zone(options.timezone)
    user = None if options.user is None else checked_user(options.user)
    check_database(url)
    listener = _listen(options.host, options.port) if options.http else None

    with _nothing_to_collect():
        from holodeck.todo.server import build_server, serve_http, serve_stdio  # noqa: PLC0415, see the module's docstring
        from holodeck.todo.toolbox import Toolbox  # noqa: PLC0415
    server = build_server(Toolbox(_opened_once(url), user=user, tenants=options.tenants, zone=zone))
    if listener:
        host = f"[{options.host}]" if ":" in options.host else options.host
        _say(f"listening on http://{host}:{listener.getsockname()[1]}/mcp")
        serve_http(server, listener, options.host)
    else:
        serve_stdio(server)


@contextmanager
def _nothing_to_collect() -> Iterator[None]:
    """Turns the garbage collector off during imports: they allocate much and leave nothing to collect."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _opened_once(url: str) -> Callable[[], TodoStore]:
    lock = threading.Lock()
    opened: list[TodoStore] = []

    def open_store() -> TodoStore:
        with lock:  # the first calls may come together, each in its own thread
            if not opened:
                with _nothing_to_collect():
                    from holodeck.todo.store import TodoStore  # noqa: PLC0415, see the module's docstring

                opened.append(TodoStore(url))
        return opened[0]

    return open_store


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise OSError(f"cannot listen on {host} port {port}: {error}") from error
    if not ip_address(listener.getsockname()[0]).is_loopback:
        _say("warning: there is no authentication; any client that reaches this address can name any user")
    return listener


def _say(sentence: str) -> None:
    sys.stderr.write(f"holodeck-todo: {sentence}\n")  # stdout belongs to the protocol


if __name__ == "__main__":
    sys.exit(main())
