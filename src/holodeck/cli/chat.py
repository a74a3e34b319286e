"""`holodeck chat`: a conversation in the terminal, or through a pipe."""

import asyncio
import signal
import sys
from collections.abc import Sequence

import click

from holodeck.agent.agent import Agent
from holodeck.agent.context import AgentContext
from holodeck.agent.loop import run
from holodeck.cli.agent_choice import agent_arguments, chosen
from holodeck.cli.lines import Lines, open_lines
from holodeck.cli.paint import Paint
from holodeck.cli.story import Story, call_text
from holodeck.config.build import build_agent
from holodeck.config.load import LoadedConfig
from holodeck.core.events import Interrupt
from holodeck.core.ids import new_ulid
from holodeck.core.messages import UserMessage
from holodeck.core.request import Resume
from holodeck.core.text import clean, one_line, strip_controls
from holodeck.sessions.transcript import Transcript

MAX_INPUT = 10_000
LEAVE = frozenset({"exit", "quit", "/exit", "/quit"})
INTERRUPTED = 130
PROMPT = "> "


@click.command("chat")
@agent_arguments
@click.option("-v", "--verbose", is_flag=True, help="Full arguments, results and token counts.")
@click.option("-q", "--quiet", is_flag=True, help="Answers only.")
def command(*, path: str | None, demo: bool, verbose: bool, quiet: bool) -> int:
    """Talk to an agent in the terminal.

    PATH is an agent file or its folder; without it, agent.yaml of this folder. Ctrl+C stops a reply, Ctrl+D leaves.
    """
    config = chosen(path, demo=demo)
    return asyncio.run(talk(config, verbose=verbose, quiet=quiet))


async def talk(config: LoadedConfig, *, verbose: bool, quiet: bool) -> int:
    async with build_agent(config) as agent:
        if not config.agent.model.fallback:  # else another one will answer
            await agent.model.check()
        chat = Chat(agent, open_lines(), verbose=verbose, quiet=quiet)
        if sys.stdout.isatty() and not quiet:
            chat.greet()
        return await chat.go()


class Chat:
    """One conversation. Kept in memory and gone with the process."""

    def __init__(self, agent: Agent, lines: Lines, *, verbose: bool, quiet: bool) -> None:
        self._agent = agent
        self._lines = lines
        self._verbose = verbose
        self._quiet = quiet
        self._paint = Paint.of(sys.stdout)
        self._transcript = Transcript()
        self._session_id = new_ulid()

    def greet(self) -> None:
        tools = len(self._agent.tools.schemas())
        about = f"{self._agent.model.name}, {tools} tool{'s' * (tools != 1)}; Ctrl+D or exit leaves"
        click.echo(f"{self._paint.bold(one_line(self._agent.name))} {self._paint.dim(f'({one_line(about)})')}")

    async def go(self) -> int:
        """Until the user leaves: 0, or 130 after Ctrl+C twice at the prompt."""
        interrupted = False
        while True:
            try:
                line = await self._lines.read(PROMPT)
            except KeyboardInterrupt:
                if interrupted:
                    return INTERRUPTED
                interrupted = True
                click.echo(self._paint.dim("(Ctrl+C again leaves)"))
                continue
            interrupted = False
            if line is None or line.strip().lower() in LEAVE:
                return 0
            await self._take(strip_controls(clean(line)).strip())

    async def _take(self, text: str) -> None:
        if len(text) > MAX_INPUT:
            click.echo(f"That is {len(text)} characters; at most {MAX_INPUT} can be sent.", err=True)
        elif text:
            await self._answer(text)

    async def _answer(self, text: str) -> None:
        waiting = await self._run(input=[UserMessage(content=text)])
        while waiting:
            waiting = await self._run(resume=[await self._decide(interrupt) for interrupt in waiting])

    async def _decide(self, interrupt: Interrupt) -> Resume:
        asked = call_text(interrupt.tool, interrupt.arguments, short=False)
        click.echo(f"{self._paint.yellow('?')} {asked}")
        answer = await self._lines.read("  allow? [y/N] ")
        return Resume(interrupt_id=interrupt.id, approved=(answer or "").strip().lower() in ("y", "yes"))

    async def _run(self, input: Sequence[UserMessage] = (), resume: Sequence[Resume] = ()) -> Sequence[Interrupt]:  # noqa: A002  AgentContext's word
        """One run, which Ctrl+C stops. Returns what it waits for."""
        story = Story(sys.stdout, self._paint, verbose=self._verbose, quiet=self._quiet)
        context = AgentContext(
            conversation=self._transcript,
            input=input,
            resume=resume,
            session_id=self._session_id,
        )
        reply = asyncio.create_task(run(self._agent, context, story.emit))
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, reply.cancel)
        try:
            await asyncio.wait({reply})
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        if not reply.cancelled():
            reply.result()
        return story.interrupts
