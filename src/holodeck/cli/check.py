"""`holodeck check`: finds everything that can go wrong at a start.

Starts exactly what `serve` and `chat` would start, the model endpoint and all tool servers in parallel, and stops them.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Iterator
from importlib.util import find_spec

import click

from holodeck.agent.definition import AgentDefinition
from holodeck.cli.agent_choice import agent_arguments, chosen
from holodeck.cli.paint import Paint
from holodeck.config.auth import build_access
from holodeck.config.build import build_agent
from holodeck.config.build_stores import durability_of, reach_link
from holodeck.config.load import LoadedConfig
from holodeck.config.tool_schema import McpToolSettings
from holodeck.core.owner import ANONYMOUS
from holodeck.core.text import one_line, terminal_safe
from holodeck.core.tools import Approval
from holodeck.core.zones import local_zone
from holodeck.errors import HoloDeckError, StartError
from holodeck.server.process import reach_limits_store
from holodeck.sessions.port import Durability


@click.command("check")
@agent_arguments
@click.option("-v", "--verbose", is_flag=True, help="Show the system prompt and the tools as the model sees them.")
def command(*, path: str | None, demo: bool, verbose: bool) -> int:
    """Validate an agent file and connect to everything it names.

    Exit code 1: the file is wrong; 2: something that it needs cannot be reached.
    """
    config = chosen(path, demo=demo)
    agent = build_agent(config)
    report = Report()
    report.good(f"{config.document.file} is valid")
    if not all(find_spec(name) is not None for name in ("pypdfium2", "rapidocr")):
        report.note('PDF and images cannot be read: pip install "holodeck-agents[files]"')
    for line in commands_of(config):
        report.note(f"runs {line}")
    can_serve = report.attempt_access(config)
    code = asyncio.run(connect(agent, report, config, verbose=verbose))
    return code if can_serve else StartError.exit_code


def commands_of(config: LoadedConfig) -> list[str]:
    """Lists the programs that this agent starts: read it before you start an agent file from others."""
    return [
        one_line(" ".join([tool.command, *_arguments(config, number, tool)]), 200)
        for number, tool in enumerate(config.agent.tools)
        if isinstance(tool, McpToolSettings) and tool.command
    ]


def _arguments(config: LoadedConfig, number: int, tool: McpToolSettings) -> list[str]:
    """Leaves out values from variables: a database's URL contains its password."""
    hidden = config.document.substituted
    return ["${…}" if ("tools", number, "args", i) in hidden else each for i, each in enumerate(tool.args)]


async def connect(agent: AgentDefinition, report: "Report", config: LoadedConfig, *, verbose: bool = False) -> int:
    report.note(f"connecting to {agent.model.name} and the tools …")
    try:
        reached = await asyncio.gather(
            report.attempt(_endpoint_answers(agent)),
            report.attempt_tools(agent),
            report.attempt(durability_of(config)),
            *[report.attempt(each) for each in _valkeys_answer(config)],
        )
        report.tools(agent, are_available=reached[1])
        if verbose:
            report.what_the_model_sees(agent)
    finally:
        await agent.close()
    return 0 if all(reached) else StartError.exit_code


async def _endpoint_answers(agent: AgentDefinition) -> str:
    """Claims no more than was tried: an endpoint that answers may still not have a model of this name."""
    await agent.model.check()
    return "the demo model is ready" if agent.model.name == "demo" else f"the endpoint of {agent.model.name} answers"


def _valkeys_answer(config: LoadedConfig) -> Iterator[Awaitable[str]]:
    if config.agent.cluster.valkey is not None and config.agent.sessions.store == "postgres":
        yield reach_link(config, config.agent.cluster.valkey.get_secret_value())
    if config.agent.server.limits.store is not None:
        yield reach_limits_store(config)


class Report:
    def __init__(self) -> None:
        self._paint = Paint.of(sys.stdout)

    def good(self, text: str) -> None:
        click.echo(f"{self._paint.green('✓')} {one_line(text, 300)}")

    def bad(self, text: str) -> None:
        click.echo(f"{Paint.of(sys.stderr).red('✗')} {one_line(text, 500)}", err=True)

    def note(self, text: str) -> None:
        click.echo(self._paint.dim(f"  {one_line(text, 300)}"))

    async def attempt(self, work: Awaitable[str | Durability]) -> bool:
        """Prints the result of the work, or why it failed. Returns whether it worked."""
        try:
            found = await work
        except HoloDeckError as error:
            self.bad(error.message)
            return False
        sentence, is_doubtful = (found, False) if isinstance(found, str) else found
        (self.warn if is_doubtful else self.good)(sentence)
        return True

    def attempt_access(self, config: LoadedConfig) -> bool:
        """Returns whether `serve` could authenticate its clients. Prints only failures."""
        try:
            build_access(config)
        except HoloDeckError as error:
            self.bad(error.message)
            return False
        return True

    async def attempt_tools(self, agent: AgentDefinition) -> bool:
        """Continues after a server that cannot be started: a person wants to see all problems together."""
        problems = await agent.tools.start_each()
        for problem in problems:
            self.bad(problem)
        return not problems

    def tools(self, agent: AgentDefinition, *, are_available: bool) -> None:
        if are_available:
            self.good("the tools are available" if agent.tools.schemas() else "the agent has no tools")
        for health in agent.tools.health():
            if not health.ready and not health.required:
                self.note(f"! {health.name} is not available (not required): {health.detail}")
        for tool in agent.tools.schemas():
            asks = " (asks first)" if agent.tools.approval_in_file(tool.name) is Approval.ALWAYS else ""
            click.echo(f"  {self._paint.bold(tool.name)}{asks}  {self._paint.dim(one_line(tool.description, 70))}")
        for name in agent.tools.without_tools():
            self.warn(f"{name}: include and exclude leave none of its tools.")
        for tool in agent.tools.schemas():
            if not tool.description.strip():
                self.warn(f"{tool.name} has no description: the model must guess from its name. Write a docstring.")

    def warn(self, text: str) -> None:
        click.echo(f"{Paint.of(sys.stderr).yellow('warning')}: {one_line(text, 300)}", err=True)

    def what_the_model_sees(self, agent: AgentDefinition) -> None:
        prompt = agent.instructions.render(user_id=ANONYMOUS, timezone=local_zone())
        self._title("System prompt")
        click.echo(terminal_safe(prompt) or self._paint.dim("(none)"))
        for tool in agent.tools.schemas():
            self._title(f"Tool {tool.name}")
            click.echo(terminal_safe(tool.description) or self._paint.dim("(no description)"))
            click.echo(terminal_safe(json.dumps(tool.parameters, indent=2, ensure_ascii=False)))

    def _title(self, text: str) -> None:
        click.echo(f"\n{self._paint.bold(one_line(text))}")
