"""What the model is shown at each step: instructions, the conversation's end, and the tools there are now."""

from collections.abc import Sequence
from typing import Any

from holodeck.agent.agent import Agent, StateSettings
from holodeck.agent.context import AgentContext
from holodeck.core.messages import Message, UserMessage
from holodeck.core.tools import ToolSchema
from holodeck.models.port import Prompt
from holodeck.tools.state import StateToolset


def prompt_for(agent: Agent, context: AgentContext, tools: Sequence[ToolSchema], state: StateToolset | None) -> Prompt:
    return Prompt(
        system=_system(agent, context, state),
        messages=tuple(latest(context.conversation.messages, agent.max_messages)),
        tools=tools,
        timezone=context.timezone,
    )


def latest(messages: Sequence[Message], limit: int) -> Sequence[Message]:
    """At most about `limit` messages, cut only where a user speaks, so that calls and results stay together.

    A single turn that is longer than the limit is kept whole: half a turn is worse than a long one.
    """
    if len(messages) <= limit:
        return messages
    turns = [index for index, message in enumerate(messages) if isinstance(message, UserMessage)]
    fitting = [index for index in turns if len(messages) - index <= limit]
    start = fitting[0] if fitting else (turns[-1] if turns else 0)
    return messages[start:]


def initial_state(settings: StateSettings, context: AgentContext) -> Any:
    """The client's state if it sent one, else what the session kept, else what the agent file says."""
    if context.state is not None:
        return context.state
    kept = context.conversation.state
    return settings.initial if kept is None else kept


def _system(agent: Agent, context: AgentContext, state: StateToolset | None) -> str:
    sections = [agent.instructions.render(user_id=context.user_id, timezone=context.timezone)]
    if context.notes:
        notes = "\n".join(f"- {description}: {value}" for description, value in context.notes)
        sections.append(f"What the application says about the situation:\n{notes}")
    if state is not None:
        sections.append(f"The state that you share with the user interface (JSON):\n{state.as_json()}")
    return "\n\n".join(section for section in sections if section)
