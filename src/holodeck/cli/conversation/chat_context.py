"""What a chat and its commands share: the session, the agent behind it, where things are kept and shown."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from holodeck.agent.estimate import tokens_in
from holodeck.cli.conversation.attachments import Attachments
from holodeck.cli.conversation.chat_store import ChatStore
from holodeck.cli.conversation.model_menu import ModelMenu
from holodeck.cli.conversation.session import ChatConfig, ChatSession, SessionState
from holodeck.cli.conversation.start import StartingAgent
from holodeck.cli.paint import Paint
from holodeck.core.events import Event
from holodeck.core.text import one_line

NEARLY = 0.8  # of a limit: from here on the user is warned


class Display(Protocol):
    """Shows runs: a screen, lines, or JSON."""

    verbose: bool

    def emit(self, event: Event) -> None: ...

    def wait_for(self, what: str) -> None:
        """Shows work that is not part of a run."""

    def close(self) -> None:
        """Removes transient output; what is written next starts on a line of its own."""


@dataclass(kw_only=True)
class ChatContext:
    config: ChatConfig
    session: ChatSession
    starting: StartingAgent
    models: ModelMenu
    store: ChatStore
    attachments: Attachments
    display: Display
    say: Callable[[str], None]  # a line to the user; its text is safe
    complain: Callable[[str], None]  # the same about something that is not as it should be
    paint: Paint
    warned: bool = False

    def change_session(self, session: ChatSession) -> None:
        """Ends the session and goes on with another."""
        if self.session.state is not SessionState.TERMINATED:
            self.session.become(SessionState.TERMINATED)
        session.become(SessionState.ACTIVE)
        self.session, self.warned = session, False

    def tell_attachments(self) -> None:
        names = ", ".join(one_line(path.name) for path in self.attachments.paths)
        self.say(f"With the next message: {names}" if names else "No file is attached; /attach PATH adds one.")

    def warn_of_limits(self, max_tokens: int | None) -> None:
        """Once, when the model will soon not be shown the whole conversation any more (CHT-09)."""
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
