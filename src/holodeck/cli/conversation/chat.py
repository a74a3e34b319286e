"""The conversation itself: read a line, dispatch it or have it answered, until the user leaves.

Knows lines and a display, not where they come from or lead to; signals are the terminal's way to say "stop".
"""

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from holodeck.agent.definition import AgentDefinition
from holodeck.cli.conversation.approvals import decide
from holodeck.cli.conversation.attachments import dropped_files
from holodeck.cli.conversation.chat_context import ChatContext
from holodeck.cli.conversation.commands import WORDS_THAT_LEAVE, Exit, Outcome, Retry, Send, dispatch
from holodeck.cli.conversation.validation import InputChecks
from holodeck.cli.lines import Interrupted, Lines
from holodeck.cli.plain_display import cost_text
from holodeck.core.events import Emit, Ending, Interrupt, RunFailed, RunFinished
from holodeck.core.messages import Message, PendingStep, UserMessage, now
from holodeck.core.request import FileNote, Resume, RunRequest
from holodeck.core.text import one_line
from holodeck.errors import HoloDeckError
from holodeck.runs.log import follow
from holodeck.runs.run import Run
from holodeck.runs.runs import Runs

PROMPT = "> "
INTERRUPTED = 130
ANSWER_FAILED = 4
NOT_APPROVED = 5
LEAVE_SECONDS = 2.0  # that a reply gets to stop when the user leaves
_COMMAND = re.compile(r"/[a-z?]+(\s|$)", re.IGNORECASE)  # not every line with a slash: "/etc/hosts is what?"


class Watch(Protocol):
    """Another reader of this chat's runs (traces)."""

    def run(self, *, run_id: str, session_id: str) -> Emit: ...


class Chat:
    def __init__(
        self,
        talk: ChatContext,
        lines: Lines,
        *,
        interactive: bool,
        checks: InputChecks | None = None,
        watch: Watch | None = None,
    ) -> None:
        """`interactive`: a user types at a terminal; otherwise a script waits for an exit code."""
        self._context = talk
        self._lines = lines
        self._interactive = interactive
        self._checks = checks or InputChecks()
        self._watch = watch
        self._runs: Runs | None = None
        self._active: Run | None = None
        self._failed = False
        self._waits = False  # the last answer needs an approval that the script has not given
        self._leaving = False

    async def go(self) -> int:
        """Until the user leaves: 0, or 130 after Ctrl+C twice; 4 if a script's last answer failed, 5 if it needs an approval."""
        if not self._interactive:  # a script has to learn at once that the agent cannot start
            await self._context.starting.get()
        elif questions := _open_questions(self._context.session.transcript.pending):
            await self._answer_questions(questions)
        interrupted = False
        while not self._leaving:
            try:
                line = await self._line()
            except Interrupted as press:
                if interrupted and not press.typed:
                    return INTERRUPTED
                interrupted = True
                self._context.say(self._context.paint.dim("(Ctrl+C again leaves)"))
                continue
            interrupted = False
            if line is None or self._leaves(line) or isinstance(await self._take(line), Exit):
                return 0 if self._interactive else self._exit_code()
        return INTERRUPTED

    def _exit_code(self) -> int:
        if self._failed:
            return ANSWER_FAILED
        return NOT_APPROVED if self._waits else 0

    def _leaves(self, line: str) -> bool:
        return self._interactive and line.strip().lower() in WORDS_THAT_LEAVE

    async def _line(self) -> str | None:
        """The next line; raises at once what the start of the agent raised while the user was typing."""
        starting = self._context.starting.task
        reading = asyncio.create_task(self._lines.read(self._prompt()))
        try:
            await asyncio.wait({reading, starting}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
            return await reading
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    def _prompt(self) -> str:
        files = len(self._context.attachments.names)
        return f"[{files} file{'s' * (files > 1)}] {PROMPT}" if files else PROMPT

    # what a line means

    async def _take(self, line: str) -> Outcome:
        try:
            return await self._follow(line)
        except HoloDeckError as error:
            if self._context.starting.failed:
                raise  # there is no agent to talk to
            self._complain(error.message)
            return None

    async def _follow(self, line: str) -> Outcome:
        """Carries out a command or answers a message. Piped text is never a command: it may come from anywhere."""
        if not self._interactive:
            await self._message(line)
            return None
        if paths := dropped_files(line.strip()):
            for path in paths:
                self._context.attachments.add(path)
            self._context.tell_attachments()
            return None
        if _COMMAND.match(line):
            talk = self._context
            outcome = await dispatch(talk, line.strip())
            if isinstance(outcome, Retry):
                await self._answer(talk.session.until(outcome.message))
            elif isinstance(outcome, Send):
                await self._message(outcome.text)
            return outcome
        await self._message(line)
        return None

    async def _message(self, line: str) -> None:
        if (text := self._checked(line)) is not None:
            content, notes = await self._context.with_attachments(text)
            await self._answer([UserMessage(content=content)], notes)

    def _checked(self, line: str) -> str | None:
        try:
            return self._checks(line)
        except ValueError as error:
            if line.strip():  # a blank line is no attempt to say something
                self._complain(str(error))
            return None

    def _complain(self, text: str) -> None:
        self._failed = True
        self._context.complain(f"✗ {one_line(text, 500)}")

    # answers

    async def _answer(self, messages: Sequence[Message], notes: Sequence[FileNote] = ()) -> None:
        """Has the last message answered. Messages before it: what stays of the conversation if the user went back."""
        talk, begun = self._context, time.monotonic()
        for note in notes:
            talk.say(talk.paint.dim(f"{note.name}: {note.characters:,} characters as {note.read_as}"))
        await self._conclude(await self._run(messages=messages, files=notes), begun)

    async def _answer_questions(self, questions: Sequence[Interrupt]) -> None:
        """Has the user decide about calls that wait since before the chat began, on whatever wire they were made."""
        try:
            answers = await self._decide(questions)
            if len(answers) == len(questions):
                await self._conclude(await self._run(resume=answers), time.monotonic())
        except HoloDeckError as error:  # another client has answered meanwhile
            self._complain(error.message)

    async def _conclude(self, ending: Ending | None, begun: float) -> None:
        """Goes on until no call waits for the user, then shows what it took."""
        talk, self._waits = self._context, False
        while interrupts := _waiting(ending):
            answers = await self._decide(interrupts)
            if len(answers) < len(interrupts):
                self._leave_open(interrupts)  # the next message goes on without them
                break
            ending = await self._run(resume=answers)
        self._failed = isinstance(ending, RunFailed)
        if ending is None:
            talk.say(talk.paint.dim("(stopped)"))
        agent = await talk.starting.get() if talk.starting.task.done() else None
        self._status(time.monotonic() - begun, agent)
        talk.warn_of_limits(agent.max_tokens if agent else None)

    def _leave_open(self, interrupts: Sequence[Interrupt]) -> None:
        """Reports to a script what was not done; a user at the prompt has just left the question open."""
        if self._interactive:
            return
        self._waits = True
        for name in dict.fromkeys(interrupt.tool for interrupt in interrupts):
            self._context.complain(
                f"✗ {one_line(name, 100)} was not run: it needs approval; answer on a terminal or with --lines"
            )

    async def _decide(self, interrupts: Sequence[Interrupt]) -> list[Resume]:
        answers = []
        for interrupt in interrupts:
            answer = await decide(interrupt, self._lines, self._context.say, self._context.allowed)
            if answer is None:
                break
            answers.append(answer)
        return answers

    async def _run(
        self,
        messages: Sequence[Message] = (),
        resume: Sequence[Resume] = (),
        files: Sequence[FileNote] = (),
    ) -> Ending | None:
        """One run, which Ctrl+C stops; a second one leaves. None if it was stopped before it began."""
        session = self._context.session
        request = RunRequest(
            session_id=session.session_id,
            owner=self._context.store.owner,
            messages=tuple(messages),
            resume=tuple(resume),
            files=tuple(files),
        )
        reply = asyncio.create_task(self._reply(request))
        with self._interrupts(reply) as enough:
            leaving = asyncio.create_task(enough.wait())
            try:
                await asyncio.wait({reply, leaving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                leaving.cancel()
                if not reply.done():
                    self._stop(reply)
                    if not enough.is_set():  # the program ends; the run still gets its ending
                        await asyncio.wait({reply}, timeout=LEAVE_SECONDS)
                if reply.done() and not reply.cancelled():
                    reply.exception()  # retrieved, also if closing fails for the same reason: standard output is closed
                self._context.display.close()
        return reply.result() if reply.done() and not reply.cancelled() else None

    async def _reply(self, request: RunRequest) -> Ending | None:
        """Starts a run and shows what it writes to its log."""
        talk = self._context
        if not talk.starting.task.done():
            talk.display.wait_for("starting")
        runs = await self._runs_of_agent()
        self._active = run = await runs.start(request)
        readers: list[Emit] = [talk.display.emit]
        if self._watch is not None:
            readers.append(self._watch.run(run_id=run.run_id, session_id=run.session_id))
        try:
            with runs.attached(run):
                async for event in follow(run.log):
                    for read in readers:
                        read(event)
            await run.done()
        finally:
            self._active = None
            runs.stop(run)  # does nothing after the ending
        if run.is_new_session and talk.session.message_count:
            talk.complain("! this conversation has expired (sessions.ttl_seconds); a new one has begun")
        await talk.store.refresh(talk.session)
        last = run.log.kept[-1]
        return last if isinstance(last, Ending) else None

    async def _runs_of_agent(self) -> Runs:
        """The runs of this chat. `/model` may have changed the agent since the last one, and `/save` the store.

        They are not recorded in the store of runs: a server that starts meanwhile would take them for runs that a crash
        cut. What a run has done is in its session all the same.
        """
        talk = self._context
        agent, store = await talk.starting.get(), await talk.store.opened()
        if self._runs is None or self._runs.store is not store:
            self._runs = Runs(agent, store)
        self._runs.agent = agent
        return self._runs

    def _stop(self, reply: "asyncio.Task[Ending | None]") -> None:
        """Stops the run, whose reader then shows its ending; or the wait for the agent, if there is no run yet."""
        if self._runs is not None and self._active is not None:
            self._runs.stop(self._active)
        else:
            reply.cancel()

    async def close(self) -> None:
        """Ends what still runs."""
        if self._runs is not None:
            await self._runs.close(0)

    @contextlib.contextmanager
    def _interrupts(self, reply: "asyncio.Task[Ending | None]") -> Iterator[asyncio.Event]:
        """While it is entered, Ctrl+C cancels the reply. The event: the user does not want to wait even for that."""
        loop, enough = asyncio.get_running_loop(), asyncio.Event()

        def stop() -> None:
            if self._leaving:
                enough.set()
                loop.call_later(
                    LEAVE_SECONDS, os._exit, INTERRUPTED
                )  # a tool that does not stop must not keep the user
            self._leaving = True
            self._stop(reply)

        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            yield enough
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            if self._interactive and not enough.is_set():
                self._leaving = False  # one Ctrl+C only stops the answer

    def _status(self, seconds: float, agent: AgentDefinition | None) -> None:
        talk = self._context
        if not self._interactive or talk.config.quiet or self._leaving:
            return
        usage, is_complete = talk.session.known_usage
        facts = [talk.length(agent)]
        facts += [f"{'' if is_complete else '≥ '}{usage.total_tokens:,} tokens"] if usage else []
        facts += [cost_text(usage.cost)] if usage and is_complete and usage.cost is not None else []
        talk.say(talk.paint.dim(" · ".join([*facts, f"{seconds:.1f} s"])))


def _open_questions(pending: PendingStep | None) -> list[Interrupt]:
    """The calls that a person may still decide about; none where the step needs an application's answer as well."""
    if pending is None or pending.client_calls or (pending.expires_at is not None and pending.expires_at <= now()):
        return []
    calls = {call.id: call for call in pending.waiting}
    return [
        Interrupt(id=id_, call_id=call_id, tool=calls[call_id].name, arguments=calls[call_id].arguments, message="")
        for id_, call_id in pending.approvals.items()
        if call_id in calls
    ]


def _waiting(ending: Ending | None) -> Sequence[Interrupt]:
    return ending.interrupts if isinstance(ending, RunFinished) else ()
