"""Replaces the oldest turns of a long conversation with a summary that the model writes.

Active with `sessions.history.strategy: summarize`. It folds whole turns, so no call loses its result, and twice as many as
necessary, so that a conversation at its limit does not pay for a summary in every turn. The stored history does not
change. If the model cannot write a summary, the run continues: it drops the turns, as `trim` does, and emits a warning.
"""

from collections.abc import Sequence

from holodeck.agent.budget import Spending, estimate
from holodeck.agent.definition import AgentDefinition
from holodeck.agent.emitter import RunEmitter
from holodeck.agent.estimate import CHARACTERS_PER_TOKEN, tokens_in
from holodeck.agent.prompting import latest, unsummarized
from holodeck.agent.summary import LARGEST_REQUEST, SMALLEST_REQUEST, request_for, usable
from holodeck.core.events import HistoryCompacted
from holodeck.core.messages import Content, Message, Summary, ToolCall
from holodeck.errors import ModelError
from holodeck.models.port import ModelReply, Prompt
from holodeck.resilience.step_timeout import StepTimeout
from holodeck.sessions.port import KEEP, Conversation

NOT_SUMMARIZED = "history-not-summarized"


WORTH_ASKING = 1000  # tokens of a conversation; the smallest windows in use have 2,048


class Compaction:
    """For one run. After a failure it does not ask again until the next run."""

    def __init__(
        self, agent: AgentDefinition, conversation: Conversation, emitter: RunEmitter, spending: Spending
    ) -> None:
        self._agent, self._conversation = agent, conversation
        self._emitter, self._spending = emitter, spending
        self._given_up = not agent.summarize

    async def before_step(self) -> None:
        await self._learn_window()
        if self._given_up:
            return
        summary, rest, max_tokens = unsummarized(self._agent, self._conversation)
        if not (left_out := len(rest) - len(latest(rest, self._agent.max_messages, max_tokens))):
            return
        half_of_tokens = None if max_tokens is None else max_tokens // 2
        kept = latest(rest, self._agent.max_messages // 2, half_of_tokens)
        why_not = await self._fold(rest[: len(rest) - len(kept)], summary)
        if why_not is not None:
            self._given_up = True
            message = f"The model is not shown {left_out} older messages, and no summary of them: {why_not}"
            self._emitter.warning(NOT_SUMMARIZED, message)

    async def _learn_window(self) -> None:
        """Asks the endpoint how much its model can read before a conversation is long enough to matter."""
        agent = self._agent
        if agent.window is None or agent.history_tokens is not None:
            return
        if tokens_in(self._conversation.messages) > WORTH_ASKING:
            await agent.window.learn()

    async def _fold(self, old: Sequence[Message], before: Summary | None) -> str | None:
        """None if there is a summary of them now, else why not."""
        prompt = request_for(old, before, self._room())
        try:
            reply = await self._ask(prompt)
        except ModelError as error:
            return error.message
        except TimeoutError:
            return f"Writing it took longer than {self._agent.loop.iteration_timeout:g} s (loop.iteration_timeout)."
        self._spending.model_call(prompt, reply)
        content = usable(reply)
        if content:
            summary = Summary(
                content=content, until=old[-1].id, messages=self._place_after(old[-1]), tokens_used=reply.usage
            )
            await self._conversation.commit([], KEEP, summary=summary)
        event = HistoryCompacted(
            len(old), bool(content), reply.usage, estimate(prompt, reply), reply.model or self._agent.model.name
        )
        self._emitter.history_compacted(event)
        return None if content else "The model wrote nothing that can be used."

    def _place_after(self, last: Message) -> int:
        """How many messages of the whole history there are up to this one."""
        conversation = self._conversation
        return conversation.earlier + 1 + next(i for i, each in enumerate(conversation.messages) if each is last)

    async def _ask(self, prompt: Prompt) -> ModelReply:
        """In a time of its own, as long as that of a step."""
        listener = _DiscardedReply(self._emitter)
        async with StepTimeout(self._agent.loop.iteration_timeout, lambda: listener.silent):
            return await self._agent.model.reply(prompt, listener)

    def _room(self) -> int:
        tokens = self._agent.history_tokens
        if tokens is None:
            return LARGEST_REQUEST
        return min(max(tokens * CHARACTERS_PER_TOKEN, SMALLEST_REQUEST), LARGEST_REQUEST)


class _DiscardedReply:
    """Discards the deltas of a summary; passes warnings and raw events on."""

    def __init__(self, emitter: RunEmitter) -> None:
        self.silent = True
        self.warning, self.raw = emitter.warning, emitter.raw

    def text(self, _delta: str) -> None:
        self.silent = False

    reasoning = text

    def call_started(self, _call_id: str, _name: str) -> None:
        self.silent = False

    def call_arguments(self, call_id: str, delta: str) -> None: ...

    def call_ended(self, call: ToolCall) -> None: ...

    def call_answered(self, call_id: str, content: Content, *, failed: bool = False) -> None: ...
