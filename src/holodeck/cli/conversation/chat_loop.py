"""The loop of every chat: read a line, get it answered, ask about calls that wait, until the user leaves.

Subclasses decide where the agent runs: in this process or on a server. A signal from the terminal stops the answer.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holodeck.cli.lines import Interrupted, Lines
from holodeck.cli.paint import Paint
from holodeck.cli.plain_display import call_text
from holodeck.core.events import Ending, Event, Interrupt, RunFailed, TextAdded, TextEnded, interrupts_of
from holodeck.core.request import Resume
from holodeck.core.text import one_line
from holodeck.errors import HoloDeckError

PROMPT = "> "
QUESTION = "  allow? [y/n/e = edit/a = always] "
YES, NO, EDIT = frozenset({"y", "yes"}), frozenset({"", "n", "no"}), frozenset({"e", "edit"})
ALWAYS = frozenset({"a", "always"})
WORDS_THAT_LEAVE = frozenset({"exit", "quit"})
INTERRUPTED = 130
ANSWER_FAILED = 4
NOT_APPROVED = 5
LONG_QUESTION = 300
COMMAND = re.compile(r"/[a-z?]+(\s|$)", re.IGNORECASE)  # not every line with a slash: "/etc/hosts is what?"
LEAVE_SECONDS = 2.0  # time for a reply to stop when the user leaves


class Display(Protocol):
    """Shows runs: a screen, lines, or JSON."""

    verbose: bool

    def emit(self, event: Event) -> None: ...

    def wait_for(self, what: str) -> None:
        """Shows work that is not part of a run."""

    def close(self) -> None:
        """Removes transient output. The next output starts on its own line."""


@dataclass(kw_only=True)
class ChatIO:
    display: Display
    say: Callable[[str], None]  # prints a line to the user; its text is safe
    complain: Callable[[str], None]  # the same for problems
    paint: Paint
    allowed: set[str] = field(default_factory=set)  # tools that run without a question in this conversation

    def show_question(self, text: str) -> None:
        self.say(self.paint.dim(f"> {one_line(text, LONG_QUESTION)}"))

    def show_answer(self, text: str) -> None:
        """Shows a stored answer as if it arrived now."""
        self.display.emit(TextAdded(message_id="", delta=text))
        self.display.emit(TextEnded(message_id=""))
        self.display.close()


ReplyCoroutine = Coroutine[Any, Any, Ending | None]


class ChatLoop(ABC):
    def __init__(self, io: ChatIO, lines: Lines, *, interactive: bool) -> None:
        """`interactive`: a user types at a terminal. Otherwise a script waits for an exit code."""
        self._io = io
        self._lines = lines
        self._interactive = interactive
        self._failed = False
        self._waits = False  # the last answer needs an approval that the script has not given
        self._has_refused = False  # a line of the pipe was no answer to the question before it
        self._leaving = False

    # what a kind of chat adds

    @abstractmethod
    async def _begin(self) -> Sequence[Interrupt]:
        """Prepares the agent as far as needed now. Returns calls that wait since before the chat began."""

    @property
    @abstractmethod
    def _starting(self) -> "asyncio.Task[None] | None":
        """The agent's start-up task, or None. If it fails while the user types, the prompt ends."""

    @abstractmethod
    async def _follow(self, line: str) -> bool:
        """Runs a command or answers a message. Returns whether the user leaves."""

    @abstractmethod
    def _resumed(self, answers: Sequence[Resume]) -> ReplyCoroutine:
        """Continues with the calls that the user has decided about."""

    @abstractmethod
    def _stop(self, reply: "asyncio.Task[Ending | None]") -> None:
        """Stops the run, whose reader then shows its ending, or the wait for the agent if there is no run yet."""

    @abstractmethod
    async def _show_state(self, seconds: float) -> None:
        """Shows, after an answer, its time and the state of the conversation."""

    @abstractmethod
    def _files(self) -> int:
        """Returns how many files go with the next message."""

    # the loop

    async def go(self) -> int:
        """Runs until the user leaves. Returns the exit code.

        It is 0, or 130 after Ctrl+C twice; for a script 4 if its last answer failed or a line was refused, 5 if it needs
        an approval.
        """
        questions = await self._begin()
        if questions and not await self._answer_questions(questions) and not self._interactive:
            return NOT_APPROVED  # a message would continue without the calls, which the script did not ask for
        interrupted = False
        while not self._leaving:
            try:
                line = await self._line()
            except Interrupted as press:
                if interrupted and not press.typed:
                    return INTERRUPTED
                interrupted = True
                self._io.say(self._io.paint.dim("(Ctrl+C again exits)"))
                continue
            interrupted = False
            is_word = self._interactive and line is not None and line.strip().lower() in WORDS_THAT_LEAVE
            if line is None or is_word or await self._take(line):
                return 0 if self._interactive else self._exit_code()
        return INTERRUPTED

    def _exit_code(self) -> int:
        if self._failed:
            return ANSWER_FAILED
        if self._waits:
            return NOT_APPROVED
        return ANSWER_FAILED if self._has_refused else 0

    async def _line(self) -> str | None:
        """Returns the next line. Raises immediately what the start of the agent raised while the user was typing."""
        starting = self._starting
        reading = asyncio.create_task(self._lines.read(self._prompt()))
        try:
            if starting is not None:
                await asyncio.wait({reading, starting}, return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    starting.result()
            return await reading
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    def _prompt(self) -> str:
        files = self._files()
        return f"[{files} file{'s' * (files > 1)}] {PROMPT}" if files else PROMPT

    async def _take(self, line: str) -> bool:
        try:
            return await self._follow(line)
        except HoloDeckError as error:
            starting = self._starting
            if starting is not None and starting.done() and (starting.cancelled() or starting.exception() is not None):
                raise  # there is no agent to talk to
            self._complain(error.message)
            return False

    def _complain(self, text: str) -> None:
        self._failed = True
        self._io.complain(f"✗ {one_line(text, 500)}")

    # answers

    async def _answer_questions(self, questions: Sequence[Interrupt]) -> bool:
        """Asks the user about calls that wait since before the chat began, on whatever wire they were made.

        Returns False if the user, or the pipe, left one open.
        """
        answers = await self._decide(questions)
        if len(answers) < len(questions):
            self._leave_open(questions, "no message was sent")
            return False
        try:
            await self._conclude(await self._run(self._resumed(answers)), time.monotonic())
        except HoloDeckError as error:  # another client has answered in the meantime
            self._complain(error.message)
        return True

    async def _conclude(self, ending: Ending | None, begun: float) -> None:
        """Continues until no call waits for the user, then shows time and usage."""
        io, self._waits = self._io, False
        while interrupts := interrupts_of(ending):
            answers = await self._decide(interrupts)
            if len(answers) < len(interrupts):
                self._leave_open(interrupts)  # the next message continues without them
                break
            ending = await self._run(self._resumed(answers))
        self._failed = isinstance(ending, RunFailed)
        if ending is None:
            io.say(io.paint.dim("(stopped)"))
        await self._show_state(time.monotonic() - begun)

    def _leave_open(self, interrupts: Sequence[Interrupt], consequence: str = "") -> None:
        self._waits = True
        for name in dict.fromkeys(one_line(interrupt.tool, 100) for interrupt in interrupts):
            if self._interactive:
                self._io.say(self._io.paint.dim(f"({name} was not run; your next message continues without it)"))
            else:
                self._io.complain(
                    f"✗ {name} was not run: it needs approval; answer on a terminal or with --lines"
                    + (f"; {consequence}" if consequence else "")
                )

    async def _decide(self, interrupts: Sequence[Interrupt]) -> list[Resume]:
        answers = []
        for interrupt in interrupts:
            answer = await decide(interrupt, self._lines, self._io.say, self._io.allowed, self._refuse)
            if answer is None:
                break
            answers.append(answer)
        return answers

    def _refuse(self, line: str) -> None:
        """Reports a line that does not answer the question. The next line may."""
        words = f"“{one_line(line.strip(), 60)}” is not an answer: y = yes, n = no, e = edit the arguments, a = always"
        if self._lines.is_typed:
            self._io.say(f"  {words}")
        else:
            self._has_refused = True
            self._io.complain(f"✗ {words}; it was not sent")

    async def _run(self, work: ReplyCoroutine) -> Ending | None:
        """Performs one run, which Ctrl+C stops; a second Ctrl+C leaves. None if it was stopped before it began."""
        reply = asyncio.create_task(work)
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
                self._io.display.close()
        return reply.result() if reply.done() and not reply.cancelled() else None

    @contextlib.contextmanager
    def _interrupts(self, reply: "asyncio.Task[Ending | None]") -> Iterator[asyncio.Event]:
        """While this is entered, Ctrl+C cancels the reply. The event is set by a second Ctrl+C: the user does not wait."""
        loop, enough = asyncio.get_running_loop(), asyncio.Event()

        def stop() -> None:
            if self._leaving:
                enough.set()
                # A tool that does not stop must not block the user.
                loop.call_later(LEAVE_SECONDS, os._exit, INTERRUPTED)
            self._leaving = True
            self._stop(reply)

        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            yield enough
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            if self._interactive and not enough.is_set():
                self._leaving = False  # one Ctrl+C only stops the answer


async def decide(
    interrupt: Interrupt,
    lines: Lines,
    say: Callable[[str], None],
    allowed: set[str],
    refuse: Callable[[str], None],
) -> Resume | None:
    """Asks a person about a tool call: yes, no, yes with other arguments, or always in this chat.

    Returns None if the person left the question open: Ctrl+C, Ctrl+D, the end of a pipe. `allowed` has the tools that
    run without a question; the answer "always" adds this one. `refuse` gets each line that is no answer.
    """
    shown = call_text(interrupt.tool, interrupt.arguments, short=False)
    if interrupt.tool in allowed:
        say(f"? {shown} (always allowed in this chat)")
        return Resume(interrupt_id=interrupt.id, approved=True)
    say(f"? {shown}")
    while True:
        answer = await _answer(lines, QUESTION)
        if answer is None:
            return None
        word = answer.strip().lower()
        if word in YES:
            return Resume(interrupt_id=interrupt.id, approved=True)
        if word in ALWAYS:
            allowed.add(interrupt.tool)
            return Resume(interrupt_id=interrupt.id, approved=True)
        if word in NO:
            return Resume(interrupt_id=interrupt.id, approved=False)
        if word not in EDIT:
            refuse(answer)
        elif (arguments := await _edited(interrupt, lines, say)) is not None:
            return Resume(interrupt_id=interrupt.id, approved=True, payload={"arguments": arguments})


async def _edited(interrupt: Interrupt, lines: Lines, say: Callable[[str], None]) -> dict[str, Any] | None:
    text = interrupt.arguments or "{}"
    while True:
        answer = await _answer(lines, "  arguments: ", text)
        if answer is None:
            return None
        try:
            arguments = json.loads(answer)
        except (ValueError, RecursionError) as error:
            say(f"  That is not JSON: {error}")
        else:
            if isinstance(arguments, dict):
                return arguments
            say("  Arguments must be a JSON object: {…}")
        text = answer


async def _answer(lines: Lines, question: str, default: str = "") -> str | None:
    try:
        return await lines.ask(question, default)
    except Interrupted:
        return None
