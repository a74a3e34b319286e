"""A chat with an agent of this process: its commands, its runs, and what is stored of them."""

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Protocol

from holodeck.agent.definition import AgentDefinition
from holodeck.cli.conversation.attachments import dropped_files
from holodeck.cli.conversation.chat_context import ChatContext
from holodeck.cli.conversation.chat_loop import ChatLoop, ReplyCoroutine
from holodeck.cli.conversation.commands import Exit, Retry, Send, dispatch
from holodeck.cli.conversation.validation import InputChecks
from holodeck.cli.lines import Lines
from holodeck.cli.plain_display import cost_text
from holodeck.core.events import Emit, Ending, Interrupt
from holodeck.core.messages import Message, PendingStep, UserMessage, now
from holodeck.core.request import FileNote, Resume, RunRequest
from holodeck.runs.log import follow
from holodeck.runs.run import Run
from holodeck.runs.runs import Runs

_COMMAND = re.compile(r"/[a-z?]+(\s|$)", re.IGNORECASE)  # not every line with a slash: "/etc/hosts is what?"


class Watch(Protocol):
    """Another reader of this chat's runs (traces)."""

    def run(self, *, run_id: str, session_id: str) -> Emit: ...


class Chat(ChatLoop):
    def __init__(
        self,
        context: ChatContext,
        lines: Lines,
        *,
        interactive: bool,
        checks: InputChecks | None = None,
        watch: Watch | None = None,
    ) -> None:
        """`interactive`: a user types at a terminal. Otherwise a script waits for an exit code."""
        super().__init__(context, lines, interactive=interactive)
        self._context = context
        self._checks = checks or InputChecks()
        self._watch = watch
        self._runs: Runs | None = None
        self._active: Run | None = None

    async def _begin(self) -> Sequence[Interrupt]:
        if not self._interactive:  # a script has to know immediately that the agent cannot start
            await self._context.starting.get()
        return _open_questions(self._context.session.transcript.pending)

    @property
    def _starting(self) -> "asyncio.Task[None]":
        return self._context.starting.task

    def _files(self) -> int:
        return len(self._context.attachments.names)

    # what a line means

    async def _follow(self, line: str) -> bool:
        """Handles a line. Piped text is never a command: it may come from anywhere."""
        if not self._interactive:
            await self._message(line)
            return False
        if paths := dropped_files(line.strip()):
            for path in paths:
                self._context.attachments.add(path)
            self._context.show_attachments()
            return False
        if _COMMAND.match(line):
            context = self._context
            outcome = await dispatch(context, line.strip())
            if isinstance(outcome, Retry):
                await self._answer(context.session.until(outcome.message))
            elif isinstance(outcome, Send):
                await self._message(outcome.text)
            return isinstance(outcome, Exit)
        await self._message(line)
        return False

    async def _message(self, line: str) -> None:
        if (text := self._checked(line)) is not None:
            content, notes = await self._context.with_attachments(text)
            await self._answer([UserMessage(content=content)], notes)

    def _checked(self, line: str) -> str | None:
        try:
            return self._checks(line)
        except ValueError as error:
            if line.strip():  # a blank line is not a message
                self._complain(str(error))
            return None

    # answers

    async def _answer(self, messages: Sequence[Message], notes: Sequence[FileNote] = ()) -> None:
        """Answers the last message. The messages before it are the rest of the conversation if the user went back."""
        context, begun = self._context, time.monotonic()
        for note in notes:
            context.say(context.paint.dim(f"{note.name}: {note.characters:,} characters as {note.read_as}"))
        await self._conclude(await self._run(self._replied(messages, notes)), begun)

    def _resumed(self, answers: Sequence[Resume]) -> ReplyCoroutine:
        return self._replied(resume=answers)

    async def _replied(
        self, messages: Sequence[Message] = (), files: Sequence[FileNote] = (), resume: Sequence[Resume] = ()
    ) -> Ending | None:
        return await self._reply(
            RunRequest(
                session_id=self._context.session.session_id,
                owner=self._context.store.owner,
                messages=tuple(messages),
                resume=tuple(resume),
                files=tuple(files),
            )
        )

    async def _reply(self, request: RunRequest) -> Ending | None:
        context = self._context
        if not context.starting.task.done():
            context.display.wait_for("starting")
        runs = await self._runs_of_agent()
        self._active = run = await runs.start(request)
        chain, trace = context.new_chain(), None
        if self._watch is not None:
            trace = self._watch.run(run_id=run.run_id, session_id=run.session_id)
        try:
            with runs.attached(run):
                async for event in follow(run.log):
                    for shown in chain.shown(event):
                        context.display.emit(shown)
                    if trace is not None:
                        trace(event)
            await run.done()
        finally:
            self._active = None
            runs.stop(run)  # does nothing after the ending
        if run.is_new_session and context.session.message_count:
            context.complain("! this conversation has expired (sessions.ttl_seconds); a new one was started")
        await context.store.refresh(context.session)
        last = run.log.kept[-1]
        return last if isinstance(last, Ending) else None

    async def _runs_of_agent(self) -> Runs:
        """Returns the runs of this chat. `/model` may have changed the agent since the last one, and `/save` the store.

        They are not recorded in the store of runs: a server that starts meanwhile would take them for runs that a crash
        interrupted. Their results are in the session all the same.
        """
        context = self._context
        agent, store = await context.starting.get(), await context.store.opened()
        if self._runs is None or self._runs.store is not store:
            self._runs = Runs(agent, store)
        self._runs.agent = agent
        return self._runs

    def _stop(self, reply: "asyncio.Task[Ending | None]") -> None:
        if self._runs is not None and self._active is not None:
            self._runs.stop(self._active)
        else:
            reply.cancel()

    async def close(self) -> None:
        if self._runs is not None:
            await self._runs.close(0)

    async def _show_state(self, seconds: float) -> None:
        context = self._context
        agent = await context.starting.get() if context.starting.task.done() else None
        self._status(seconds, agent)
        context.warn_of_limits(agent.max_tokens if agent else None)

    def _status(self, seconds: float, agent: AgentDefinition | None) -> None:
        context = self._context
        if not self._interactive or context.config.quiet or self._leaving:
            return
        usage, is_complete = context.session.known_usage
        facts = [context.length(agent)]
        facts += [f"{'' if is_complete else '≥ '}{usage.total_tokens:,} tokens"] if usage else []
        facts += [cost_text(usage.cost)] if usage and is_complete and usage.cost is not None else []
        context.say(context.paint.dim(" · ".join([*facts, f"{seconds:.1f} s"])))


def _open_questions(pending: PendingStep | None) -> list[Interrupt]:
    """Returns the calls that a person may still decide about: none if the step also needs an application's answer."""
    if pending is None or pending.client_calls or (pending.expires_at is not None and pending.expires_at <= now()):
        return []
    calls = {call.id: call for call in pending.waiting}
    return [
        Interrupt(id=id_, call_id=call_id, tool=calls[call_id].name, arguments=calls[call_id].arguments, message="")
        for id_, call_id in pending.approvals.items()
        if call_id in calls
    ]
