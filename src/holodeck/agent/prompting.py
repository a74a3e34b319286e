"""What the model is shown at each step: instructions, the conversation's end, and the tools there are now."""

from collections.abc import Sequence
from typing import Any

from holodeck.agent.context import AgentContext
from holodeck.agent.definition import AgentDefinition, StateSettings
from holodeck.agent.estimate import tokens_in, tokens_of
from holodeck.agent.summary import recalled
from holodeck.core.messages import INTERRUPTED, AssistantMessage, Message, Summary, UserMessage
from holodeck.core.tools import ToolSchema
from holodeck.models.port import Prompt
from holodeck.sessions.port import Conversation
from holodeck.tools.shared_state import StateToolset

REFUSED = frozenset(
    {"context_overflow", "content_filter", "upstream_rejected"}
)  # how a reply is marked that never began


def prompt_for(
    agent: AgentDefinition,
    context: AgentContext,
    tools: Sequence[ToolSchema],
    state: StateToolset | None,
    *,
    added: Sequence[Message] = (),
    most_tokens: int | None = None,
    answers_now: bool = False,
) -> Prompt:
    """`added` are shown after the conversation and are no part of it, `most_tokens` bounds what is shown of it."""
    options = context.options
    return Prompt(
        system=_system(agent, context, state),
        messages=(*shown(agent, context.conversation, most_tokens), *added),
        tools=tools,
        output=agent.output.schema if agent.output is not None else None,
        answers_now=answers_now or options.tool_choice == "none",
        tool_choice=options.tool_choice,
        max_output_tokens=options.max_output_tokens,
        timezone=context.timezone,
    )


def shown(agent: AgentDefinition, conversation: Conversation, most_tokens: int | None = None) -> Sequence[Message]:
    """The end of the conversation; in front of it a summary of the beginning, if there is one."""
    summary, rest, max_tokens = unsummarized(agent, conversation)
    if rest and isinstance(rest[-1], AssistantMessage) and rest[-1].cut == INTERRUPTED:
        rest = rest[:-1]  # a crash cut it; the model answers anew
    if most_tokens is not None:
        max_tokens = most_tokens if max_tokens is None else min(most_tokens, max_tokens)
    return [*recalled(summary), *latest(_without_refused(rest), agent.max_messages, max_tokens)]


def tokens_of_half(messages: Sequence[Message]) -> int | None:
    """A limit that leaves out about half of them; None if there is only one turn, which is never cut."""
    half = tokens_in(messages) // 2
    return half if len(latest(messages, len(messages), half)) < len(messages) else None


def _without_refused(messages: Sequence[Message]) -> Sequence[Message]:
    """Leaves out turns that the provider refused: shown again, they would have every later request refused as well."""
    if not any(map(_is_refusal, messages)):
        return messages
    kept: list[Message] = []
    turn: list[Message] = []
    for message in messages:
        if isinstance(message, UserMessage):
            kept += turn
            turn = []
        turn.append(message)
        if _is_refusal(message):
            turn = []
    return [*kept, *turn]


def _is_refusal(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and message.cut in REFUSED and not message.content


def unsummarized(
    agent: AgentDefinition, conversation: Conversation
) -> tuple[Summary | None, Sequence[Message], int | None]:
    """The summary, the messages that it does not cover, and how many tokens of those may be shown beside it."""
    summary, messages = conversation.summary, conversation.messages
    rest = summary.rest_of(messages) if summary is not None else None
    if rest is None and summary is not None and 0 < summary.messages <= conversation.earlier:
        rest = messages  # all that it covers lies before what was read
    if summary is None or rest is None:
        return None, messages, agent.history_tokens
    room = None if agent.history_tokens is None else max(1, agent.history_tokens - tokens_in(recalled(summary)))
    return summary, rest, room


def latest(messages: Sequence[Message], limit: int, max_tokens: int | None = None) -> Sequence[Message]:
    """At most `limit` messages of about `max_tokens`, cut only where a user speaks: calls and results stay together.

    The last turn is kept whole even if it is longer than the limits: half a turn is worse than a long one.
    """
    if len(messages) <= limit and max_tokens is None:
        return messages
    start = len(messages)
    tokens = 0
    for index in range(len(messages) - 1, -1, -1):
        tokens += tokens_of(messages[index]) if max_tokens is not None else 0
        fits = len(messages) - index <= limit and (max_tokens is None or tokens <= max_tokens)
        if not fits and start < len(messages):
            break
        if isinstance(messages[index], UserMessage) or (fits and index == 0):
            start = index
    return messages[start:] if start < len(messages) else messages


def initial_state(settings: StateSettings, context: AgentContext) -> Any:
    """The client's state if it sent one, else what the session kept, else what the agent file says."""
    if context.state is not None:
        return context.state
    kept = context.conversation.state
    return settings.initial if kept is None else kept


def _system(agent: AgentDefinition, context: AgentContext, state: StateToolset | None) -> str:
    sections = [agent.instructions.render(user_id=context.user_id, timezone=context.timezone)]
    if context.notes:
        notes = "\n".join(f"- {description}: {value}" for description, value in context.notes)
        sections.append(f"What the application says about the situation:\n{notes}")
    withdrawn = agent.catalogue.withdrawn()
    if withdrawn:
        sections.append(f"The tools {', '.join(withdrawn)} are not available at the moment.")
    if state is not None:
        sections.append(f"The state that you share with the user interface (JSON):\n{state.as_json()}")
    return "\n\n".join(filter(None, sections))
