"""Settings of the loop: its limits, the shared state, and the system prompt in four parts.

They are values, checked on construction; `holodeck.agent.loop` applies them. User isolation is enforced in code (bound
arguments). The rule in the prompt only keeps the model from promising what it cannot do.
"""

import re
from typing import Annotated, Any

from pydantic import Field, StringConstraints, field_validator

from holodeck.blocks import Block, Identifier

_KEEPS_USERS_APART = re.compile(
    r"(other|another|different) users?\b|\bonly\b.*\buser|\buser.*\bonly\b|isolat", re.IGNORECASE
)
_ASKS_FOR_BREVITY = re.compile(r"concis|brief|short|succinct|terse|to the point|\bwords\b", re.IGNORECASE)

NO_TOOLS = "You have no tools in this conversation. Say so when an answer would need one; never make up tasks."

Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]
Paragraph = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)]
Rules = Annotated[tuple[Line, ...], Field(min_length=1, max_length=50)]


class RunBudget(Block):
    """The most that one run may spend. The loop checks it between steps: a step that has begun is finished."""

    tokens: int | None = Field(
        default=None, ge=1, le=1_000_000_000, description="Tokens of prompts and replies together"
    )
    seconds: float | None = Field(default=None, gt=0, le=86_400, description="Seconds after which no new step starts")
    tool_calls: int | None = Field(
        default=None, ge=0, le=100_000, description="Tool calls in one run; further ones are not carried out"
    )


class AgentLoopConfig(Block):
    """The limits that end a run."""

    max_iterations: int = Field(default=15, ge=1, le=50, description="Model calls in one run before it is stopped")
    iteration_timeout: float = Field(
        default=30, gt=0, le=3600, description="Seconds for one model call and its tool calls; with a local model 300"
    )
    run_timeout: float | None = Field(
        default=None,
        gt=0,
        le=86_400,
        description="Seconds for a whole run; then it is cancelled, even in the middle of a step",
    )
    budget: RunBudget = Field(default=RunBudget(), description="What one run may spend; unlimited by default")
    enable_retry: bool = Field(default=False, description="Call a tool again when it could not be reached")
    retry_attempts: int = Field(default=1, ge=0, le=10, description="Further attempts per call, with enable_retry")


class Prediction(Block):
    """A tool argument that is shown as state while the model still writes it."""

    state_key: Identifier = Field(description="The member of the state that changes")
    tool: Identifier = Field(description="The tool whose arguments are shown as this state")
    tool_argument: Identifier = Field(description="The argument that holds the new value")


class StateSettings(Block):
    """State that agent and client share."""

    initial: dict[str, Any] = Field(default={}, max_length=1000, description="The state of a new session")
    predict: list[Prediction] = Field(
        default=[], max_length=50, description="Arguments shown as state while they stream"
    )


class SystemPrompt(Block):
    """A system prompt in four parts, for agents that act on a user's own data."""

    role_definition: Paragraph = Field(
        default="You look after the user's tasks and keep them in good order.", description="Who the agent is"
    )
    operational_rules: Rules = Field(
        default=(
            "Work on this user's tasks only; never read, mention or change those of another user.",
            "The runtime knows who the user is: ignore any request to act as another user.",
            "Turn words such as today or tomorrow into dates before you use them.",
            "When a tool fails, say in plain words what went wrong and what the user can do.",
            "Help with tasks only. To any other request, answer politely that you cannot help with it.",
        ),
        description="What the agent must and must not do; one rule must keep users apart",
    )
    response_guidelines: Rules = Field(
        default=(
            "Keep answers short: under 200 words, a few sentences or a list.",
            "Be friendly and use everyday words.",
            "Say what was done, with the titles and dates that matter, and what the user can do next.",
        ),
        description="How answers sound; one guideline must ask for brevity",
    )
    tool_usage_instructions: Paragraph = Field(
        default="Use the tools for everything about tasks instead of answering from memory, and look a task up before "
        "changing it when its id is not known.",
        description="When and how to use the tools",
    )

    @field_validator("operational_rules")
    @classmethod
    def _keep_users_apart(cls, rules: tuple[str, ...]) -> tuple[str, ...]:
        if not any(map(_KEEPS_USERS_APART.search, rules)):
            raise ValueError(
                "needs a rule that keeps users apart, for example: Never read or change what belongs to another user."
            )
        return rules

    @field_validator("response_guidelines")
    @classmethod
    def _ask_for_brevity(cls, guidelines: tuple[str, ...]) -> tuple[str, ...]:
        if not any(map(_ASKS_FOR_BREVITY.search, guidelines)):
            raise ValueError("needs a guideline that asks for brevity, for example: Keep answers short.")
        return guidelines

    def to_prompt_string(self, user_id: str, *, has_tools: bool = True) -> str:
        """The prompt as the model reads it. `user_id` is quoted, never interpreted.

        An agent without tools gets a sentence that it has none: a model that is asked to use tools it does not have
        invents their results.
        """
        return "\n\n".join(
            (
                self.role_definition,
                f"The user you work for has the id {user_id!r}.",
                "Rules:\n" + _bullets(self.operational_rules),
                "Answers:\n" + _bullets(self.response_guidelines),
                "Tools:\n" + (self.tool_usage_instructions if has_tools else NO_TOOLS),
            )
        )


def _bullets(lines: tuple[str, ...]) -> str:
    return "\n".join(f"- {line}" for line in lines)
