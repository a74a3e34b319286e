"""A chat with an agent of a running server (`holodeck chat --url`): the server runs it, the terminal shows it.

The server has the conversation, its runs and its tools, and sends events. So there are no commands about models, tools
or saved chats.
"""

import asyncio
import base64
import mimetypes
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeAlias

from holodeck.agent.pending import OUTCOME_UNKNOWN
from holodeck.cli.conversation.attachments import dropped_files, file_bytes, named_file
from holodeck.cli.conversation.chat_loop import COMMAND, LONG_QUESTION, ChatIO, ChatLoop, ReplyCoroutine
from holodeck.cli.conversation.remote_run import RemoteRun
from holodeck.cli.conversation.remote_server import RemoteServer, RemoteSession
from holodeck.cli.conversation.session import NEW_ID, NO_ANSWER, UNKNOWN_OUTCOME, about_cut, counted
from holodeck.cli.lines import Lines
from holodeck.core.events import Ending, Interrupt
from holodeck.core.ids import new_ulid
from holodeck.core.request import Resume
from holodeck.core.text import one_line
from holodeck.errors import InvalidRequest
from holodeck.tools.names import suggestion

HELP = {
    "/attach": "add a file to the next message: /attach PATH",
    "/detach": "remove the attached files",
    "/history": "the conversation so far",
    "/retry": "get another answer to the last message",
    "/help": "this list",
    "/exit": "exit; the conversation stays on the server",
}
EXPIRED = "the server no longer has this conversation: it was deleted or has expired; a new one was started"
SHOWN_MESSAGES = 6  # messages of a resumed conversation: about its last three exchanges
AguiContent: TypeAlias = str | list[dict[str, Any]]
_MEDIA = ("image", "audio", "video")


@dataclass(kw_only=True)
class RemoteContext(ChatIO):
    """What a chat with a server needs besides the server."""

    server: RemoteServer
    session_id: str
    is_named: bool = False  # the user named the session
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
        self._reading: RemoteRun | None = None  # the run that is being shown
        self._sent: tuple[str, AguiContent] | None = None  # the id and the content of the last message
        self._is_known = False  # the server has had this conversation
        self._stopping: asyncio.Task[None] | None = None  # referenced, so that the request is not garbage-collected

    async def _begin(self) -> Sequence[Interrupt]:
        context = self._context
        agent = await context.server.connect()
        found = await context.server.session(context.session_id)
        self._is_known = bool(found.messages)
        if self._interactive and not context.quiet:
            context.say(f"{context.paint.bold(one_line(agent))} {context.paint.dim(f'at {context.server.url}; /help')}")
            if found.messages:
                context.say(context.paint.dim(counted(len(found.messages))))
                self._show(found, SHOWN_MESSAGES)
                if unknown := _calls_of_unknown_outcome(found):
                    context.say(context.paint.dim(UNKNOWN_OUTCOME.format(tools=", ".join(map(one_line, unknown)))))
                elif not (found.questions or found.is_active or found.messages[-1].get("role") == "assistant"):
                    context.say(context.paint.dim(NO_ANSWER))
            elif found.is_missing and context.is_named:
                context.say(context.paint.dim(NEW_ID))
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
        elif self._interactive and COMMAND.match(text):
            name, _, rest = text.partition(" ")
            return await self._command(name, rest.strip())
        elif text:
            self._sent = new_ulid(), self._content(line)
            await self._send(*self._sent)
        return False

    async def _send(self, message_id: str, content: AguiContent) -> None:
        begun = time.monotonic()
        await self._conclude(await self._run(self._answered(content=content, message_id=message_id)), begun)

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
                found = await context.server.session(context.session_id)
                self._show(found)
                if not found.messages:
                    context.say(context.paint.dim("The conversation is empty."))
            case "/retry":
                await self._send(*await self._last_message())
            case "/help" | "/?":
                width = max(map(len, HELP))
                for command, text in HELP.items():
                    context.say(f"{command:<{width}}  {context.paint.dim(text)}")
            case _:
                near = suggestion(name.lower(), HELP) or "; /help lists them."
                raise InvalidRequest(f"{one_line(name, 50)} is not a command in a chat with a server{near}")
        return False

    async def _last_message(self) -> tuple[str, AguiContent]:
        """Returns the session's last message, which may come from another client. The same id replaces its answer."""
        session = await self._context.server.session(self._context.session_id)
        stored = {str(each.get("id")): each.get("content") for each in session.messages if each.get("role") == "user"}
        if self._sent is not None and (self._sent[0] not in stored or self._sent[0] == list(stored)[-1]):
            return self._sent
        if not stored:
            raise InvalidRequest("There is no message to send again.")
        message_id, content = stored.popitem()
        if not isinstance(content, str):
            raise InvalidRequest("The last message has files that are not here; send it again with /attach.")
        return message_id, content

    def _show_files(self) -> None:
        names = ", ".join(one_line(path.name) for path in self._context.files)
        self._context.say(f"With the next message: {names}" if names else "No file is attached; /attach PATH adds one.")

    def _content(self, text: str) -> AguiContent:
        """Returns the message with its files, and detaches them. If one cannot be read, they stay attached."""
        context = self._context
        parts = [_part(path.name, file_bytes(path)) for path in context.files]
        if context.piped:
            parts.append(_part("stdin.txt", context.piped))
        context.files.clear()
        context.piped = b""
        return [{"type": "text", "text": text}, *parts] if parts else text

    # answers

    def _resumed(self, answers: Sequence[Resume]) -> ReplyCoroutine:
        return self._answered(resume=answers)

    async def _answered(self, **asked: Any) -> Ending | None:
        context, display = self._context, self._context.display
        self._reading = run = RemoteRun(
            context.server, context.session_id, emit=display.emit, wait_for=display.wait_for, **asked
        )
        display.wait_for("waiting")
        try:
            ending = await run.ending()
        finally:
            self._reading = None
        if run.is_new_session and self._is_known:
            context.complain(f"! {EXPIRED}")
        self._is_known = (self._is_known or run.is_stored) and not run.is_session_gone
        return ending

    def _stop(self, reply: "asyncio.Task[Ending | None]") -> None:
        """Asks the server to end the run, whose last event arrives like any other. Without a connection, leaves it."""
        run = self._reading
        if run is not None:
            self._stopping = asyncio.create_task(run.stop())
        if run is None or not run.is_connected:
            reply.cancel()

    async def _show_state(self, seconds: float) -> None:
        context = self._context
        if self._interactive and not context.quiet and not self._leaving:
            context.say(context.paint.dim(f"session {one_line(context.session_id)} · {seconds:.1f} s"))

    def _show(self, session: RemoteSession, last: int | None = None) -> None:
        """Shows questions and answers, oldest first. Tool calls are left out.

        With `last`, only so many from the end, and how to continue after an answer that was cut off.
        """
        context = self._context
        shown = [each for each in session.messages if each.get("role") in ("user", "assistant") and _text(each)]
        for message in shown if last is None else shown[-last:]:
            if message["role"] == "user":
                context.show_question(_text(message))
            else:
                context.show_answer(_text(message))
                if cut := message.get("cut"):
                    explains = last is not None and message is session.messages[-1] and not session.is_active
                    about = about_cut(str(cut)) if explains else f"({one_line(str(cut), LONG_QUESTION)})"
                    context.say(context.paint.dim(about))


def _calls_of_unknown_outcome(session: RemoteSession) -> list[str]:
    """The tools at the end of the conversation whose results a crash prevented."""
    messages = () if session.is_active else reversed(session.messages)
    results = takewhile(lambda message: message.get("role") == "tool", messages)
    return [str(each.get("name")) for each in results if each.get("content") == OUTCOME_UNKNOWN]


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
