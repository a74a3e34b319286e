"""`holodeck schema`: prints the JSON Schema with which editors complete and check agent files."""

import json

import click

from holodeck.config.agent_schema import AgentFile


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of agent files, for editors.

    \b
    holodeck schema > agent.schema.json
    and as first line of agent.yaml:  # yaml-language-server: $schema=agent.schema.json
    """  # noqa: D301  click wants the real \b
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **AgentFile.model_json_schema()}
    click.echo(json.dumps(schema, indent=2))
