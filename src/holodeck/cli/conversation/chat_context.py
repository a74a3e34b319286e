"""What a chat and its commands share: the session, its agent, the store and the display."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from holodeck.agent.budget import tokens_in
from holodeck.agent.definition import AgentDefinition
from holodeck.agent.pending import OUTCOME_UNKNOWN
from holodeck.agent.prompting import latest, unsummarized
from holodeck.cli.conversation.attachments import Attachments
from holodeck.cli.conversation.chat_loop import ChatIO
from holodeck.cli.conversation.chat_store import ChatStore
from holodeck.cli.conversation.session import (
    NO_ANSWER,
    UNKNOWN_OUTCOME,
    ChatConfig,
    ChatSession,
    SessionState,
    about_cut,
    counted,
)
from holodeck.config.build import build_agent
from holodeck.config.build_model import build_model, offered_models, shown_tokens
from holodeck.config.load import LoadedConfig, with_model
from holodeck.config.model_schema import ModelChoice
from holodeck.core.messages import AssistantMessage, Content, Message, ToolMessage, UserMessage, text_of
from holodeck.core.request import FileNote
from holodeck.core.text import one_line
from holodeck.errors import HoloDeckError
from holodeck.models.offered import OfferedModel
from holodeck.runs.middleware import EventMiddleware


class ModelMenu:
    """The models of the agent file's endpoint. A failure is not cached: the next request tries again."""

    def __init__(self, config: LoadedConfig) -> None:
        self._config = config
        self._offered: tuple[OfferedModel, ...] | None = None
        self._asking = asyncio.Lock()

    @property
    def is_fixed(self) -> bool:
        """Whether the file's provider has only one model."""
        return self._config.agent.model.provider == "demo"

    async def offered(self) -> tuple[OfferedModel, ...]:
        """Returns the models. Raises ModelError if the endpoint has no list."""
        async with self._asking:
            if self._offered is None:
                self._offered = await offered_models(self._config)
            return self._offered

    async def names(self) -> tuple[str, ...]:
        """Returns names for completion: none if the endpoint has no list."""
        try:
            return tuple(each.id for each in await self.offered())
        except HoloDeckError:
            return ()


class StartingAgent:
    def __init__(self, config: LoadedConfig, *, max_messages: int, after: Callable[[], Awaitable[object]]) -> None:
        """`after` is awaited first, so that imports do not delay the prompt."""
        self.config = config
        self.choice: ModelChoice = config.agent.model  # as it is now
        self._max_messages = max_messages
        self._after = after
        self.task = asyncio.create_task(self._start(), name="start of the agent")
        self._agent: AgentDefinition | None = None

    async def get(self) -> AgentDefinition:
        """Returns the agent as soon as it is ready. Raises what its start raised."""
        await asyncio.shield(self.task)
        if self._agent is None:
            raise RuntimeError("the start ended without an agent")
        return self._agent

    async def use_model(self, name: str) -> AgentDefinition:
        """Switches the model: `name` or `provider/name`. Raises ConfigError, ModelError; then nothing changes."""
        before = await self.get()
        changed = with_model(self.config, name)
        model = build_model(changed, before.breakers)
        try:
            await model.check()
        except BaseException:
            await model.close()
            raise
        self._agent, self.choice = replace(before, model=model, max_tokens=shown_tokens(changed)), changed.agent.model
        await before.model.close()
        return self._agent

    async def close(self) -> None:
        if not self.task.done():
            self.task.cancel()
            await asyncio.wait({self.task})
        if self._agent is not None:
            await self._agent.close()

    async def _start(self) -> None:
        await self._after()
        # In a thread, because it imports what the agent needs, which takes long for a tool server over HTTP.
        agent = await asyncio.to_thread(build_agent, self.config)
        try:
            await agent.start()
            if not self.config.agent.model.fallback:  # otherwise a fallback will answer
                await agent.model.check()
        except BaseException:
            await agent.close()
            raise
        self._agent = replace(agent, max_messages=min(agent.max_messages, self._max_messages))


NEARLY = 0.8  # share of a limit from which on the user is warned


@dataclass(kw_only=True)
class ChatContext(ChatIO):
    config: ChatConfig
    session: ChatSession
    starting: StartingAgent
    models: ModelMenu
    store: ChatStore
    attachments: Attachments
    clipboard: Callable[[str], None]
    new_middleware: Callable[[], EventMiddleware] = EventMiddleware  # the agent's event middleware, for one reader
    warned: bool = False

    @property
    def shown_messages(self) -> list[Message]:
        """The conversation without what the agent's middleware hides."""
        return self.new_middleware().shown_messages(self.session.transcript.messages)

    @property
    def last_reply(self) -> AssistantMessage | None:
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

    def _answer(self) -> AssistantMessage | None:
        """The answer to the last question; None if there is none: the process that wrote it was killed."""
        for message in reversed(self.shown_messages):
            if isinstance(message, AssistantMessage) and message.content:
                return message
            if isinstance(message, UserMessage):
                break
        return None

    def _calls_of_unknown_outcome(self) -> list[str]:
        """The tools at the end of the conversation whose results a crash prevented, whether or not a server has noted that."""
        step = self.session.transcript.pending
        if step is None:
            results = takewhile(lambda message: isinstance(message, ToolMessage), reversed(self.shown_messages))
            return [each.name for each in results if isinstance(each, ToolMessage) and each.content == OUTCOME_UNKNOWN]
        begun = {call.id for call in step.waiting} & set(step.begun)
        shown = self.new_middleware().shown_messages([step.assistant])
        asked = [call for message in shown if isinstance(message, AssistantMessage) for call in message.tool_calls]
        return [call.name for call in asked if call.id in begun]

    def show_last_exchange(self) -> None:
        """Shows the last question and its answer, so that the user sees where a resumed chat stopped."""
        question, reply = self.session.last_question, self._answer()
        if question is not None:
            self.show_question(text_of(question.content))
        if reply is not None:
            self.show_answer(reply.content)
            if reply.cut:
                self.say(self.paint.dim(about_cut(reply.cut)))
        if unknown := self._calls_of_unknown_outcome():
            self.say(self.paint.dim(UNKNOWN_OUTCOME.format(tools=", ".join(map(one_line, unknown)))))
        elif reply is None and self.session.is_unanswered:
            self.say(self.paint.dim(NO_ANSWER))

    def length(self, agent: AgentDefinition | None) -> str:
        """Describes how long the conversation is, and what of it the model no longer sees."""
        count, limit = self.session.message_count, self.config.max_messages
        if agent is None:
            return counted(count)
        summary, rest, max_tokens = unsummarized(agent, self.session.transcript)
        seen = len(latest(rest, agent.max_messages, max_tokens))
        if seen == count:
            return f"{count}/{limit} messages" if count <= limit else counted(count)
        return f"{count} messages, the model sees the last {seen}{' and a summary of the rest' if summary else ''}"

    def show_attachments(self) -> None:
        names = ", ".join(one_line(name) for name in self.attachments.names)
        if names:
            self.say(f"With the next message: {names} {self.paint.dim('(/detach NAME removes one, /detach all)')}")
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
