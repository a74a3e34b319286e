"""`holodeck mcp`: the agent for an MCP client that starts it, such as Claude Desktop, Cursor or VS Code."""

from importlib import import_module

import click

from holodeck.cli.agent_choice import agent_arguments, chosen


@click.command("mcp")
@agent_arguments
@click.option("--debug", is_flag=True, help="Log requests and answers in full to standard error.")
def command(*, path: str | None, demo: bool, debug: bool) -> None:
    """Serve an agent to an MCP client that starts it.

    It uses standard input and output. PATH is an agent file or its folder; without it, agent.yaml of this folder. In the client's settings give the command
    `holodeck` and the arguments `mcp /path/to/agent.yaml`. A server of the same agent may run beside it.
    """
    import_module("holodeck.server.mcp_stdio").serve(chosen(path, demo=demo), debug=debug)
