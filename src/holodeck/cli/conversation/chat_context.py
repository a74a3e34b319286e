"""What a chat and its commands share: the session, its agent, the store and the display."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holodeck.agent.definition import AgentDefinition
from holodeck.agent.estimate import tokens_in
from holodeck.agent.prompting import latest, unsummarized
from holodeck.cli.conversation.attachments import Attachments
from holodeck.cli.conversation.chat_loop import Around
from holodeck.cli.conversation.chat_store import ChatStore
from holodeck.cli.conversation.session import ChatConfig, ChatSession, SessionState
from holodeck.cli.conversation.start import ModelMenu, StartingAgent
from holodeck.core.events import TextAdded, TextEnded
from holodeck.core.messages import AssistantMessage, Content, Message, text_of
from holodeck.core.request import FileNote
from holodeck.core.text import one_line
from holodeck.runs.middleware import Chain

LONG_QUESTION = 300
NEARLY = 0.8  # share of a limit from which on the user is warned


@dataclass(kw_only=True)
class ChatContext(Around):
    config: ChatConfig
    session: ChatSession
    starting: StartingAgent
    models: ModelMenu
    store: ChatStore
    attachments: Attachments
    clipboard: Callable[[str], None]
    new_chain: Callable[[], Chain] = Chain  # the agent's event middleware, for one reader
    warned: bool = False

    @property
    def shown_messages(self) -> list[Message]:
        """The conversation without what the agent's middleware hides."""
        return self.new_chain().shown_messages(self.session.transcript.messages)

    @property
    def last_reply(self) -> AssistantMessage | None:
        """The last answer that has a text."""
        replies = (each for each in reversed(self.shown_messages) if isinstance(each, AssistantMessage))
        return next((each for each in replies if each.content), None)

    def change_session(self, session: ChatSession) -> None:
        if self.session.state is not SessionState.TERMINATED:
            self.session.become(SessionState.TERMINATED)
        session.become(SessionState.ACTIVE)
        self.session, self.warned = session, False
        self.allowed.clear()

    async def with_attachments(self, text: str) -> tuple[Content, Sequence[FileNote]]:
        """Returns the message with the content of its files. The display shows which page of a scan is being read."""
        if not self.attachments.any:
            return text, ()
        self.display.wait_for("reading files")
        try:
            return await self.attachments.with_text(text, self._reading)
        finally:
            self.display.close()

    def _reading(self, name: str, page: int, pages: int) -> None:
        self.display.wait_for(f"{name}: reading scanned page {page} of {pages}")

    def show_last_exchange(self) -> None:
        """Shows the last question and its answer, so that the user sees where a resumed chat stopped."""
        question, reply = self.session.last_question, self.last_reply
        if question is not None:
            self.say(self.paint.dim(f"> {one_line(text_of(question.content), LONG_QUESTION)}"))
        if reply is not None:
            self.display.emit(TextAdded(message_id="", delta=reply.content))
            self.display.emit(TextEnded(message_id=""))
            self.display.close()
            if reply.cut:
                self.say(self.paint.dim(f"({one_line(reply.cut)})"))

    def length(self, agent: AgentDefinition | None) -> str:
        """Describes how long the conversation is, and what of it the model no longer sees."""
        count, limit = self.session.message_count, self.config.max_messages
        if agent is None:
            return f"{count} messages"
        summary, rest, max_tokens = unsummarized(agent, self.session.transcript)
        seen = len(latest(rest, agent.max_messages, max_tokens))
        if seen == count:
            return f"{count}/{limit} messages" if count <= limit else f"{count} messages"
        return f"{count} messages, the model sees the last {seen}{' and a summary of the rest' if summary else ''}"

    def show_attachments(self) -> None:
        names = ", ".join(one_line(name) for name in self.attachments.names)
        if names:
            self.say(f"With the next message: {names} {self.paint.dim('(/detach takes them out)')}")
        else:
            self.say("No file is attached; /attach PATH adds one.")

    def warn_of_limits(self, max_tokens: int | None) -> None:
        """Warns once before the model no longer sees the whole conversation (CHT-09); never with --quiet."""
        if self.config.quiet:
            return
        limit = self.config.max_messages
        tokens = tokens_in(self.session.transcript.messages) if max_tokens else 0
        if self.session.message_count >= NEARLY * limit:
            fact = f"{self.session.message_count} of {limit} messages (--max-messages)"
        elif max_tokens and tokens >= NEARLY * max_tokens:
            fact = (
                f"about {tokens:,} of {max_tokens:,} tokens (sessions.history.max_tokens, or what the model can read)"
            )
        else:
            return
        if not self.warned:
            self.warned = True
            self.complain(
                f"! {fact}: the oldest will soon be left out. /save keeps this chat, /clear starts a new one."
            )
