"""`holodeck call`: calls one tool as the agent would, without a model.

Arguments are checked, bound values are filled in and results are cut exactly as in a run. A tool that needs approval is
called only with `--yes`: this command does not ask.
"""

import asyncio
import json
from typing import Any

import click

from holodeck.agent.definition import AgentDefinition
from holodeck.cli.agent_choice import chosen
from holodeck.config.build import build_agent
from holodeck.core.ids import new_call_id, new_ulid
from holodeck.core.owner import ANONYMOUS
from holodeck.core.text import terminal_safe
from holodeck.core.tools import Approval, ToolResult, ToolSchema
from holodeck.core.zones import local_zone
from holodeck.errors import InvalidRequest
from holodeck.tools.arguments import BadArguments, read_arguments
from holodeck.tools.names import suggestion
from holodeck.tools.port import ToolContext

FAILED = 4


@click.command("call")
@click.argument("tool")
@click.argument("pairs", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("-f", "--file", "path", metavar="PATH", help="The agent file or its folder; default: agent.yaml here.")
@click.option("--demo", is_flag=True, help="The bundled todo agent.")
@click.option("--json", "as_json", metavar="OBJECT", help="All arguments as one JSON object.")
@click.option(
    "--user", "user_id", metavar="ID", default=ANONYMOUS, show_default=True, help="The user that calls the tool."
)
@click.option("--yes", is_flag=True, help="Call a tool that needs approval.")
def command(
    *, tool: str, pairs: tuple[str, ...], path: str | None, demo: bool, as_json: str | None, user_id: str, yes: bool
) -> int:
    """Call one tool of an agent, without a model.

    \b
    holodeck call convert miles=5
    holodeck call create_todo title="buy milk" tags='["home"]'

    Exit code 4: the tool failed, or its arguments are wrong.
    """  # noqa: D301  click wants the real \b
    if as_json is not None and pairs:
        raise click.UsageError("give arguments as NAME=VALUE or with --json, not both")
    agent = build_agent(chosen(path, demo=demo))
    result = asyncio.run(_called(agent, tool, pairs, as_json, user_id=user_id, yes=yes))
    click.echo(terminal_safe(result.text), err=result.failed)
    return FAILED if result.failed else 0


async def _called(
    agent: AgentDefinition, tool: str, pairs: tuple[str, ...], as_json: str | None, *, user_id: str, yes: bool
) -> ToolResult:
    async with agent:
        offered = agent.tools.offered()
        entry = offered.get(tool)
        if entry is None:
            advice = suggestion(tool, offered) or "; `holodeck check` lists them."
            raise InvalidRequest(f"The agent has no tool '{tool}'{advice}")
        if entry.schema.approval is Approval.ALWAYS and not yes:
            raise InvalidRequest(f"{tool} needs a person's approval; call it with --yes.")
        given = as_json if as_json is not None else json.dumps(_arguments(pairs, entry.schema))
        arguments = read_arguments(given, entry.schema, entry.bound)
        if isinstance(arguments, BadArguments):
            return ToolResult.failure(arguments.text)
        context = ToolContext(
            user_id=user_id,
            session_id=new_ulid(),
            run_id=new_ulid(),
            call_id=new_call_id(),
            timezone=local_zone(),
            emit=lambda _event: None,
        )
        return await entry.call(arguments, context)


def _arguments(pairs: tuple[str, ...], schema: ToolSchema) -> dict[str, Any]:
    """Parses NAME=VALUE pairs. A value is JSON unless the tool expects text."""
    properties: dict[str, Any] = schema.parameters.get("properties", {})
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            known = f"; {schema.name} takes {', '.join(properties)}" if properties else ""
            raise InvalidRequest(f"'{pair}' is not NAME=VALUE{known}; put values with spaces into quotes.")
        wanted = properties.get(name, {})
        arguments[name] = value if isinstance(wanted, dict) and wanted.get("type") == "string" else _value(value)
    return arguments


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
