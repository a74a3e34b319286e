"""Chooses the agent of a command: a path, the agent.yaml of this folder, or the bundled demo."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from holodeck.cli.paint import Paint
from holodeck.config.bundled import load_demo
from holodeck.config.load import DEFAULT_NAME, LoadedConfig, load_config
from holodeck.config.prompt_variables import misspelt_variables

IN_A_SHELL = "`holodeck init` writes one, and --demo runs the bundled agent"

Command = TypeVar("Command", bound=Callable[..., Any])

demo_option = click.option("--demo", is_flag=True, help="The bundled todo agent on the offline demo model.")


def agent_arguments(command: Command) -> Command:
    """Adds PATH and --demo, the same for every command that takes an agent."""
    return click.argument("path", required=False, metavar="[PATH]", shell_complete=_files)(demo_option(command))


def _files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes nothing: the shell completes paths by itself."""
    return [CompletionItem(incomplete, type="file")]


def chosen(path: str | None, *, demo: bool) -> LoadedConfig:
    """Returns the configuration, after showing its warnings."""
    if path and demo:
        raise click.UsageError("--demo runs the bundled agent; leave out the path")
    config = load_demo() if demo else load_config(path or DEFAULT_NAME, or_else=IN_A_SHELL)
    yellow = Paint.of(sys.stderr).yellow
    for warning in (*config.warnings, *misspelt_variables(config)):
        click.echo(f"{yellow('warning')}: {warning}", err=True)
    return config
