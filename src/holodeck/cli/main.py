"""`holodeck`: finds the command, runs it, and turns every way of failing into one clear line and an exit code.

    0    done                 2    cannot start, or the command line is wrong     70   a defect of HoloDeck
    1    the agent file       3    the port is taken                              130  Ctrl+C
                              4    the last answer of a piped chat failed         143  SIGTERM, in a chat
                              5    a tool of a piped chat waits for approval

Commands are imported when they are called, so that `holodeck --help` waits for none of them.
"""

import importlib
import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from holodeck._version import __version__
from holodeck.cli.paint import Paint
from holodeck.core.text import terminal_safe
from holodeck.errors import HoloDeckError

FAILED, CANNOT_START, DEFECT, INTERRUPTED = 1, 2, 70, 130

COMMANDS = {
    "chat": "Talk to an agent in the terminal.",
    "serve": "Serve an agent over HTTP.",
    "mcp": "Serve an agent to an MCP client that starts it.",
    "call": "Call one tool of an agent, without a model.",
    "login": "Sign in to a tool server that requires OAuth.",
    "check": "Validate an agent file and connect to everything it names.",
    "models": "List the models that an agent's endpoint offers.",
    "sessions": "List, show, move, delete and back up stored conversations.",
    "keys": "Create, list, revoke and rotate API keys.",
    "init": "Create a project that is ready to run.",
    "schema": "Print the JSON Schema of agent files, for editors.",
    "completion": "Print the completion script of a shell.",
}


class LazyGroup(click.Group):
    """A group that knows its commands' names and one-line help without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  click's signature
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"holodeck.cli.{cmd_name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  click's signature
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="holodeck", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def cli(debug: bool) -> None:  # noqa: FBT001  read by main() from the arguments; click passes it so
    """One YAML file describes an agent; HoloDeck runs it in the terminal and as a server.

    \b
    Without a file or a key:   holodeck chat --demo
    Your own project:          holodeck init my-agent
    """  # noqa: D301  click wants the real \b


def main(argv: Sequence[str] | None = None) -> None:
    _open_what_is_closed()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # characters that its encoding lacks; stderr escapes them
    arguments = list(sys.argv[1:] if argv is None else argv)
    sys.exit(run(arguments))


def _open_what_is_closed() -> None:
    """Opens standard streams that the caller has closed (`2>&-`): a socket would get their number, and their text."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", errors="replace"))


def run(arguments: list[str]) -> int:
    """Runs one command. Only here are unexpected exceptions caught."""
    _set_up_logging(debug="--debug" in arguments)
    try:
        code = cli.main(arguments, prog_name="holodeck", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except HoloDeckError as error:
        _complain(error.message)
        return int(getattr(error, "exit_code", CANNOT_START))
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:  # `holodeck schema | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # a defect: one line and an exit code instead of a traceback
        if "--debug" in arguments:
            raise
        _complain(f"unexpected {type(error).__name__}: {error}; `holodeck --debug …` shows the traceback")
        return DEFECT
    return code if isinstance(code, int) else 0


def _set_up_logging(*, debug: bool) -> None:
    """Silences log lines in a terminal, where they would appear between the answers. The server sets up its own log."""
    if debug:
        logging.basicConfig(level=logging.DEBUG)
    else:
        logging.getLogger("holodeck").addHandler(logging.NullHandler())


def _complain(message: str) -> None:
    red = Paint.of(sys.stderr).red
    for line in terminal_safe(message).splitlines():
        click.echo(f"{red('error')}: {line}", err=True)
