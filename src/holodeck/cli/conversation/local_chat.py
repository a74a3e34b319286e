"""A chat with an agent of this process: its commands, its runs, and what is stored of them."""

import asyncio
import time
from collections.abc import Callable, Sequence

from holodeck.agent.definition import AgentDefinition
from holodeck.cli.conversation.attachments import dropped_files
from holodeck.cli.conversation.chat_context import ChatContext
from holodeck.cli.conversation.chat_loop import COMMAND, ChatLoop, ReplyCoroutine
from holodeck.cli.conversation.commands import Exit, Retry, Send, dispatch
from holodeck.cli.conversation.validation import InputChecks
from holodeck.cli.lines import Lines
from holodeck.cli.plain_display import cost_text
from holodeck.core.events import Ending, Interrupt, Observer, questions_of
from holodeck.core.messages import Message, PendingStep, UserMessage, now
from holodeck.core.request import FileNote, Resume, RunRequest
from holodeck.errors import RequestError
from holodeck.runs.log import follow
from holodeck.runs.run import Run
from holodeck.runs.runs import Runs


class Chat(ChatLoop):
    def __init__(
        self,
        context: ChatContext,
        lines: Lines,
        *,
        interactive: bool,
        checks: InputChecks | None = None,
        trace: Callable[[Run], Observer] | None = None,
    ) -> None:
        """`interactive`: a user types at a terminal. Otherwise a script waits for an exit code.

        `trace` makes the spans of one run.
        """
        super().__init__(context, lines, interactive=interactive)
        self._context = context
        self._checks = checks or InputChecks()
        self._observe = None if trace is None else lambda run: (trace(run),)
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
        context = self._context
        if self._interactive and (paths := dropped_files(line.strip())):
            for path in paths:
                context.attachments.add(path)
            context.show_attachments()
        elif self._interactive and COMMAND.match(line):
            outcome = await dispatch(context, line.strip())
            if isinstance(outcome, Retry):
                await self._answer(context.session.until(outcome.message))
            elif isinstance(outcome, Send):
                await self._message(outcome.text)
            return isinstance(outcome, Exit)
        else:
            await self._message(line)
        return False

    async def _message(self, line: str) -> None:
        if (text := self._checked(line)) is not None:
            try:
                content, notes = await self._context.with_attachments(text)
            except RequestError as error:  # a file cannot be read: without /detach, no message can be sent
                self._complain(error.message)
                if self._interactive:
                    self._context.show_attachments()
                return
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
        context = self._context
        request = RunRequest(
            session_id=context.session.session_id,
            owner=context.store.owner,
            messages=tuple(messages),
            resume=tuple(resume),
            files=tuple(files),
        )
        if not context.starting.task.done():
            context.display.wait_for("starting")
        runs = await self._runs_of_agent()
        self._active = run = await runs.start(request)
        middleware = context.new_middleware()
        try:
            with runs.attached(run):
                async for event in follow(run.log):
                    for shown in middleware.shown(event):
                        context.display.emit(shown)
            await run.done()
        finally:
            self._active = None
            runs.stop(run)  # does nothing after the ending
        if run.is_new_session and context.session.message_count:
            context.complain(
                "! this conversation has expired (sessions.ttl_seconds) or was deleted; a new one was started"
            )
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
            self._runs = Runs(agent, store, observe=self._observe)
        self._runs.use(agent)
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


def _open_questions(pending: PendingStep | None) -> Sequence[Interrupt]:
    """The calls that a person may still allow: none if the step also needs an application's answer."""
    if pending is None or pending.client_calls or pending.has_expired(now()):
        return ()
    return questions_of(pending)
