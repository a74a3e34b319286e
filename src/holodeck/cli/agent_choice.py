"""Chooses the agent of a command: a path, the agent.yaml of this folder, or the bundled demo."""

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import click

from holodeck.cli.paint import Paint
from holodeck.config.agent_schema import InlineInstructions, InstructionsFile
from holodeck.config.environment import data_folder
from holodeck.config.load import DEFAULT_NAME, LoadedConfig, load_config
from holodeck.config.upstream_format import nearest

IN_A_SHELL = "`holodeck init` writes one, and --demo runs the bundled agent"

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])

demo_option = click.option("--demo", is_flag=True, help="The bundled todo agent on the offline demo model.")


def agent_arguments(command: CommandFunction) -> CommandFunction:
    """Adds PATH and --demo, the same for every command that takes an agent."""
    path = click.Path(readable=False)  # for completion: loading the file says what is wrong with it
    return click.argument("path", required=False, metavar="[PATH]", type=path)(demo_option(command))


def chosen(path: str | None, *, demo: bool) -> LoadedConfig:
    """Returns the configuration, after showing its warnings."""
    if path and demo:
        raise click.UsageError("--demo runs the bundled agent; leave out the path")
    config = load_demo() if demo else load_config(path or DEFAULT_NAME, or_else=IN_A_SHELL)
    yellow = Paint.of(sys.stderr).yellow
    for warning in (*config.warnings, *misspelt_variables(config)):
        click.echo(f"{yellow('warning')}: {warning}", err=True)
    return config


DATABASE_VARIABLE, SESSIONS_VARIABLE = "HOLODECK_DEMO_DB", "HOLODECK_DEMO_SESSIONS"


def load_demo(process: Mapping[str, str] = os.environ) -> LoadedConfig:
    """Loads the bundled todo agent. Its list and its conversations are stored in the user's data folder.

    So a demo leaves nothing in the current folder, and the list is the same in the terminal and on the server.
    """
    file = Path(str(files("holodeck.config") / "demo" / "agent.yaml"))
    folder = _folder(process)
    own = {DATABASE_VARIABLE: str(folder / "demo.sqlite3"), SESSIONS_VARIABLE: str(folder / "demo-sessions.db")}
    return load_config(file, environment={**own, **process})


def _folder(process: Mapping[str, str]) -> Path:
    folder = data_folder(process)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # the demo must also run where the home folder is read-only
        folder = Path(tempfile.gettempdir())
    return folder


VARIABLES = ("user_id", "now", "timezone")
OTHER_WORDS = {
    **dict.fromkeys(("user", "username", "user_name"), "user_id"),
    **dict.fromkeys(("time", "date", "today", "datetime", "current_time", "current_date"), "now"),
    **dict.fromkeys(("tz", "zone"), "timezone"),
}
_IN_BRACES = re.compile(r"(?<![{$])\{(\w{1,40})\}(?!\})")


def misspelt_variables(config: LoadedConfig) -> Iterator[str]:
    """Yields a warning for each misspelt variable in the instructions: the model would be shown `{usr_id}` unchanged.

    Only near misses are reported. Braces have other uses in a prompt: examples of JSON, patterns of an answer.
    """
    given, document = config.agent.instructions, config.document
    if isinstance(given, InstructionsFile):
        lines = _lines(config.folder / given.file)
        yield from _warnings("\n".join(lines), given.file, lines, 1)
    elif isinstance(given, InlineInstructions):
        mark = document.where(("instructions", "inline"))
        yield from _warnings(given.inline, document.file, _lines(Path(document.file)), mark.line)
    elif isinstance(given, str):
        mark = document.where(("instructions",))
        yield from _warnings(given, document.file, _lines(Path(document.file)), mark.line)


def _warnings(text: str, file: str, lines: Sequence[str], first: int) -> Iterator[str]:
    """`lines` are the lines of the file; the text begins in line `first`."""
    for name in dict.fromkeys(_IN_BRACES.findall(text)):
        close = OTHER_WORDS.get(name.lower()) or nearest(name, VARIABLES, cutoff=0.6)
        if name not in VARIABLES and close:
            number = next((i for i, line in enumerate(lines, 1) if i >= first and f"{{{name}}}" in line), first)
            yield f"{file}:{number}: {{{name}}} is not a variable, the model sees it as it is; did you mean {{{close}}}?"


def _lines(file: Path) -> list[str]:
    """Returns no lines for an unreadable file: building the agent reports it."""
    try:
        return file.read_text("utf-8").splitlines()
    except (OSError, UnicodeError):
        return []
