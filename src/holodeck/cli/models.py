"""`holodeck models`: lists the models of an agent's endpoint, and marks the one that the agent uses."""

import asyncio
import json
import sys

import click

from holodeck.cli.agent_choice import agent_arguments, chosen
from holodeck.cli.paint import Paint
from holodeck.config.build_model import offered_models
from holodeck.models.offered import OfferedModel
from holodeck.tools.names import suggestion


@click.command("models")
@agent_arguments
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each model.")
def command(*, path: str | None, demo: bool, as_json: bool) -> None:
    """List the models that an agent's endpoint offers.

    A star marks the model that the agent uses. Exit code 2: the endpoint cannot be reached, or has no list.
    """
    config = chosen(path, demo=demo)
    model = config.agent.model
    offered = asyncio.run(offered_models(config))
    for each in offered:
        members = {"id": each.id, "context_window": each.context_window, "configured": each.id == model.name}
        click.echo(json.dumps(members) if as_json else model_line(each, model.name, Paint.of(sys.stdout)))
    if all(each.id != model.name for each in offered):
        near = suggestion(model.name, [each.id for each in offered])
        click.echo(f"! the endpoint does not list {model.provider}/{model.name}{near}", err=True)


def model_line(offered: OfferedModel, used: str, paint: Paint) -> str:
    window = f"  {offered.context_window:,} tokens" if offered.context_window else ""
    is_used = offered.id == used
    return f"{'*' if is_used else ' '} {paint.bold(offered.id) if is_used else offered.id}{paint.dim(window)}"
