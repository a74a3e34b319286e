"""`holodeck completion`: prints the script with which a shell completes commands, options and paths."""

import click
from click.shell_completion import shell_complete

from holodeck.cli.main import cli

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_HOLODECK_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(*, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash   eval "$(holodeck completion bash)"                                in ~/.bashrc
    zsh    eval "$(holodeck completion zsh)"                                 in ~/.zshrc
    fish   holodeck completion fish > ~/.config/fish/completions/holodeck.fish
    """  # noqa: D301  click wants the real \b
    shell_complete(cli, {}, "holodeck", VARIABLE, f"{shell}_source")
