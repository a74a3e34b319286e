"""A chat with an agent of a running server (`holodeck chat --url`): the server runs it, the terminal shows it.

The server has the conversation, its runs and its tools, and sends events. So there are no commands about models, tools
or saved chats.
"""

import asyncio
import base64
import mimetypes
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holodeck.cli.conversation.attachments import dropped_files, file_bytes, named_file
from holodeck.cli.conversation.chat_loop import Around, ChatLoop, Reply
from holodeck.cli.conversation.remote_server import RemoteServer, RemoteSession
from holodeck.cli.lines import Lines
from holodeck.core.events import Ending, Event, Interrupt, TextAdded, TextEnded
from holodeck.core.ids import new_ulid
from holodeck.core.request import Resume
from holodeck.core.text import one_line
from holodeck.errors import InvalidRequest
from holodeck.tools.names import suggestion

HELP = {
    "/attach": "add a file to the next message: /attach PATH",
    "/detach": "remove the attached files",
    "/history": "the conversation so far",
    "/help": "this list",
    "/exit": "exit; the conversation stays on the server",
}
SHOWN_MESSAGES = 6  # messages of a resumed conversation: about its last three exchanges
LONG_QUESTION = 300
_COMMAND = re.compile(r"/[a-z?]+(\s|$)", re.IGNORECASE)
_MEDIA = ("image", "audio", "video")


@dataclass(kw_only=True)
class RemoteContext(Around):
    """What a chat with a server needs besides the server."""

    server: RemoteServer
    session_id: str
    quiet: bool = False
    files: list[Path] = field(default_factory=list)
    piped: bytes = b""  # standard input, sent with the first message

    def take_input(self, data: bytes) -> None:
        self.piped = data if data.strip() else b""

    def attach(self, text: str) -> None:
        """Attaches a file. Raises InvalidRequest with a sentence for the user."""
        path = named_file(text)
        if path not in self.files:
            self.files.append(path)


class RemoteChat(ChatLoop):
    def __init__(self, context: RemoteContext, lines: Lines, *, interactive: bool) -> None:
        super().__init__(context, lines, interactive=interactive)
        self._context = context
        self._run_id: str | None = None  # of the run that is being shown
        self._stopping: asyncio.Task[None] | None = None  # referenced, so that the request is not garbage-collected

    async def _begin(self) -> Sequence[Interrupt]:
        context = self._context
        agent = await context.server.connect()
        found = await context.server.session(context.session_id)
        if self._interactive and not context.quiet:
            context.say(f"{context.paint.bold(one_line(agent))} {context.paint.dim(f'at {context.server.url}; /help')}")
            if found.messages:
                context.say(context.paint.dim(f"{len(found.messages)} messages"))
                self._show(found, SHOWN_MESSAGES)
        return found.questions

    @property
    def _starting(self) -> None:
        return None

    def _files(self) -> int:
        return len(self._context.files)

    # what a line means

    async def _follow(self, line: str) -> bool:
        """Handles a line. Piped text is never a command: it may come from anywhere."""
        text = line.strip()
        if self._interactive and (paths := dropped_files(text)):
            for path in paths:
                self._context.attach(path)
            self._show_files()
        elif self._interactive and _COMMAND.match(text):
            name, _, rest = text.partition(" ")
            return await self._command(name, rest.strip())
        elif text:
            begun = time.monotonic()
            await self._conclude(await self._run(self._answered(content=self._content(line))), begun)
        return False

    async def _command(self, name: str, rest: str) -> bool:
        context = self._context
        match name.lower():
            case "/exit" | "/quit":
                return True
            case "/attach" if rest:
                context.attach(rest)
                self._show_files()
            case "/attach":
                self._show_files()
            case "/detach":
                context.files.clear()
                self._show_files()
            case "/history":
                self._show(await context.server.session(context.session_id))
            case "/help" | "/?":
                width = max(map(len, HELP))
                for command, text in HELP.items():
                    context.say(f"{command:<{width}}  {context.paint.dim(text)}")
            case _:
                near = suggestion(name.lower(), HELP) or "; /help lists them."
                raise InvalidRequest(f"{one_line(name, 50)} is not a command in a chat with a server{near}")
        return False

    def _show_files(self) -> None:
        names = ", ".join(one_line(path.name) for path in self._context.files)
        self._context.say(f"With the next message: {names}" if names else "No file is attached; /attach PATH adds one.")

    def _content(self, text: str) -> str | list[dict[str, Any]]:
        """Returns the message with its files, and detaches them. If one cannot be read, they stay attached."""
        context = self._context
        parts = [_part(path.name, file_bytes(path)) for path in context.files]
        if context.piped:
            parts.append(_part("stdin.txt", context.piped))
        context.files.clear()
        context.piped = b""
        return [{"type": "text", "text": text}, *parts] if parts else text

    # answers

    def _resumed(self, answers: Sequence[Resume]) -> Reply:
        return self._answered(resume=answers)

    async def _answered(self, content: object = None, resume: Sequence[Resume] = ()) -> Ending | None:
        context, self._run_id = self._context, new_ulid()
        context.display.wait_for("waiting")
        try:
            return await context.server.run(
                context.session_id, self._run_id, content=content, resume=resume, emit=self._emit
            )
        finally:
            self._run_id = None

    def _emit(self, event: Event) -> None:
        self._context.display.emit(event)

    def _stop(self, reply: "asyncio.Task[Ending | None]") -> None:
        """Asks the server to end the run. Its last event arrives like any other."""
        if self._run_id is None:
            reply.cancel()
        else:
            self._stopping = asyncio.create_task(self._context.server.stop(self._run_id))

    async def _show_state(self, seconds: float) -> None:
        context = self._context
        if self._interactive and not context.quiet and not self._leaving:
            context.say(context.paint.dim(f"session {one_line(context.session_id)} · {seconds:.1f} s"))

    def _show(self, session: RemoteSession, last: int | None = None) -> None:
        """Shows questions and answers, oldest first. Tool calls are left out."""
        context = self._context
        shown = [each for each in session.messages if each.get("role") in ("user", "assistant") and _text(each)]
        for message in shown if last is None else shown[-last:]:
            if message["role"] == "user":
                context.say(context.paint.dim(f"> {one_line(_text(message), LONG_QUESTION)}"))
            else:
                context.display.emit(TextAdded(message_id="", delta=_text(message)))
                context.display.emit(TextEnded(message_id=""))
                context.display.close()


def _text(message: Any) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _part(name: str, data: bytes) -> dict[str, Any]:
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    media = kind.partition("/")[0]
    source = {"type": "data", "value": base64.b64encode(data).decode(), "mimeType": kind}
    return {"type": media if media in _MEDIA else "document", "source": source, "metadata": {"filename": name}}
