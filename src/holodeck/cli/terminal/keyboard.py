"""The user's keyboard: a line editor at the prompt.

Enter sends, Alt+Enter (or Ctrl+J) starts a new line, Ctrl+C clears the line, Ctrl+X Ctrl+E opens it in $EDITOR. Tab
completes commands, paths and models. The history is kept across sessions in a file that only its owner may read.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from holodeck.cli.lines import Interrupted

TAKES_A_PATH = frozenset({"/attach", "/load", "/save", "/export"})
TAKES_A_MODEL = frozenset({"/model"})

Names: TypeAlias = Callable[[], Awaitable[Sequence[str]]]


class Keyboard:
    """Reads lines that a person types. Ctrl+C on an empty line raises Interrupted; Ctrl+D returns None."""

    is_typed = True

    def __init__(self, history: Path, commands: Mapping[str, str], models: Names, *, keeps: bool = True) -> None:
        """`commands` maps names to help, for completion. `models` returns the names that complete /model.

        Without `keeps`, what is typed is not added to the history file.
        """
        self.ready = asyncio.Event()  # the first prompt is on the screen
        self._session: PromptSession[str] = PromptSession(
            history=_history(history, keeps=keeps),
            completer=Commands(commands, models),
            complete_while_typing=True,
            multiline=True,
            key_bindings=_keys(),
            prompt_continuation="  ",
            reserve_space_for_menu=4,
            enable_open_in_editor=True,
            tempfile_suffix=".md",
        )
        self._typed = False
        self._session.default_buffer.on_text_changed += self._notice_typing
        self._session.app.after_render += self._shown
        self._plain: PromptSession[str] = PromptSession(history=InMemoryHistory())
        self._plain.app.after_render += self._shown  # a chat may begin with a question

    async def read(self, prompt: str) -> str | None:
        self._typed = False
        try:
            return await _line(self._session, prompt)
        except KeyboardInterrupt:
            raise Interrupted(typed=self._typed) from None

    async def ask(self, question: str, default: str = "") -> str | None:
        """Asks for a short answer, which does not enter the history."""
        try:
            return await _line(self._plain, question, default)
        except KeyboardInterrupt:
            raise Interrupted from None

    def _notice_typing(self, buffer: Buffer) -> None:
        self._typed = self._typed or bool(buffer.text)

    def _shown(self, _app: "Application[str]") -> None:
        self.ready.set()


async def _line(session: "PromptSession[str]", prompt: str, default: str = "") -> str | None:
    try:
        return await session.prompt_async(ANSI(prompt), default=default)
    except EOFError:
        return None


class Commands(Completer):
    """Completes commands at the start of a line, and paths or models after commands that take one."""

    def __init__(self, commands: Mapping[str, str], models: Names) -> None:
        self._commands = commands
        self._models = models
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        command, space, argument = text.partition(" ")
        if not text.startswith("/") or "\n" in text:
            return
        if not space:
            for name, meaning in self._commands.items():
                if name.startswith(text):
                    yield Completion(name, start_position=-len(text), display_meta=meaning)
        elif command in TAKES_A_PATH:
            yield from self._paths.get_completions(Document(argument), complete_event)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Also completes names of models, which the endpoint lists."""
        command, space, argument = document.text_before_cursor.partition(" ")
        if space and command in TAKES_A_MODEL and "\n" not in argument:
            for name in await self._models():
                if name.startswith(argument):
                    yield Completion(name, start_position=-len(argument))
            return
        for completion in self.get_completions(document, complete_event):
            yield completion


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("c-c")
    def _clear_or_leave(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


class _ReadOnlyHistory(FileHistory):
    def store_string(self, string: str) -> None:
        """Keeps the line in memory only."""


def _history(file: Path, *, keeps: bool) -> History:
    """Opens the history file. If it cannot be written, the history is kept in memory."""
    if not keeps:
        return _ReadOnlyHistory(str(file)) if os.access(file, os.R_OK) else InMemoryHistory()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
        with file.open("ab"):
            return FileHistory(str(file))
    except OSError:
        return InMemoryHistory()
