"""`holodeck login`: signs in to a tool server that requires OAuth."""

import asyncio
import webbrowser
from importlib import import_module

import click

from holodeck.cli.agent_choice import chosen
from holodeck.config.build import mcp_settings
from holodeck.config.load import LoadedConfig
from holodeck.config.tool_schema import McpToolSettings
from holodeck.core.text import one_line
from holodeck.errors import InvalidRequest
from holodeck.tools.names import suggestion


@click.command("login")
@click.argument("tool", required=False, metavar="[TOOL]")
@click.option("-f", "--file", "path", metavar="PATH", help="The agent file or its folder; default: agent.yaml here.")
@click.option("--no-browser", is_flag=True, help="Only print the address to open.")
def command(*, tool: str | None, path: str | None, no_browser: bool) -> None:
    """Sign in to a tool server that requires OAuth.

    TOOL is the name of a server with `oauth` in the agent file; without it, the only one. The tokens are kept for all agents of
    this user that use the same address.
    """
    config = chosen(path, demo=False)
    settings = mcp_settings(config, _wanted(config, tool))

    def show(url: str) -> None:
        click.echo(f"Sign in here: {one_line(url, 4_000)}")
        if not no_browser:
            webbrowser.open(url)

    asyncio.run(import_module("holodeck.tools.mcp_oauth").sign_in(settings, show))
    click.echo(f"Signed in to {settings.name}.")


def _wanted(config: LoadedConfig, name: str | None) -> McpToolSettings:
    servers = {each.name: each for each in config.agent.tools if isinstance(each, McpToolSettings) and each.oauth}
    names = list(servers)
    if name is None and len(names) == 1:
        name = names[0]
    if name in servers:
        return servers[name]
    if not names:
        raise InvalidRequest("No tool server of this agent has `oauth: true`.")
    if name is None:
        raise InvalidRequest(f"Name the tool server to sign in to: {', '.join(names)}.")
    raise InvalidRequest(f"There is no tool server '{one_line(name)}' with `oauth`{suggestion(name, names)}")
