"""Counts what a run spends and compares it with `loop.budget`.

A tool call counts when the model asks for it: the first call beyond the budget is not made. The tokens of a model call
are known only afterwards, so a run stops after the step that used up the budget. A step also does not begin if its
prompt alone is estimated to cost more than is left. A finished answer is never taken back: a budget ends a run only
when the run would need another step.
"""

import time
from collections.abc import Callable, Iterable

from holodeck.agent.settings import RunBudget
from holodeck.core.messages import AssistantMessage, Content, MediaPart, Message
from holodeck.core.usage import TokenUsage
from holodeck.errors import BudgetExceeded
from holodeck.models.port import ModelReply, Prompt

# Estimates, for limits where no exact count is available. Current tokenizers average four characters per token in English
# text; code and other scripts need more tokens. A limit a quarter below the model's window is safe. Usage never contains
# these estimates: it is what the endpoint reported.
CHARACTERS_PER_TOKEN = 4
TOKENS_OF_A_MESSAGE = 4  # its role and what separates it from the next
TOKENS_OF_AN_IMAGE = 1000  # what providers bill for an image of ordinary size, however many bytes it has


def tokens_in(messages: Iterable[Message]) -> int:
    return sum(map(tokens_of, messages))


def tokens_of(message: Message) -> int:
    tokens = TOKENS_OF_A_MESSAGE + _tokens_of_content(message.content)
    if isinstance(message, AssistantMessage):
        tokens += sum(tokens_of_text(call.name + call.arguments) for call in message.tool_calls)
    return tokens


def tokens_of_text(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def _tokens_of_content(content: Content) -> int:
    if isinstance(content, str):
        return tokens_of_text(content)
    return sum(TOKENS_OF_AN_IMAGE if isinstance(part, MediaPart) else tokens_of_text(part.text) for part in content)


NOT_PAID_FOR = "Not carried out: the run has used up its tool calls (loop.budget.tool_calls)."


class Spending:
    def __init__(self, budget: RunBudget, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget = budget
        self._clock = clock
        self._started_at = clock()
        self._tokens = self._calls = 0
        self._all_known = True
        self.usage: TokenUsage | None = None  # the sum of all model calls; None if one is unknown

    def model_call(self, prompt: Prompt, reply: ModelReply) -> None:
        """Counts the tokens that the endpoint reports. If it reports none, they are estimated, not free."""
        usage = reply.usage
        self._all_known = self._all_known and usage is not None
        if not self._all_known or usage is None:
            self.usage = None
        else:
            self.usage = usage if self.usage is None else self.usage + usage
        if usage is not None:
            self._tokens += usage.total_tokens
        elif self._budget.tokens is not None:
            self._tokens += estimate(prompt, reply)

    def pays_for_call(self) -> bool:
        """Counts one tool call, and returns whether the budget covers it.

        Called once for each call, before it is made.
        """
        self._calls += 1
        return self._budget.tool_calls is None or self._calls <= self._budget.tool_calls

    def check(self, next_prompt: Callable[[], Prompt] = Prompt) -> None:
        """Raises BudgetExceeded when too little is left for another step.

        `next_prompt` returns the prompt of that step.
        """
        budget = self._budget
        if budget.tool_calls is not None and self._calls > budget.tool_calls:
            raise BudgetExceeded("tool_calls", budget.tool_calls)
        if budget.tokens is not None and self._tokens + max(1, estimate_prompt(next_prompt())) > budget.tokens:
            raise BudgetExceeded("tokens", budget.tokens)
        if budget.seconds is not None and self._clock() - self._started_at >= budget.seconds:
            raise BudgetExceeded("seconds", budget.seconds)


def estimate(prompt: Prompt, reply: ModelReply) -> int:
    """Estimates the tokens of one model call, for endpoints that report no usage."""
    written = (reply.text, reply.reasoning, *(call.name + call.arguments for call in reply.tool_calls))
    return estimate_prompt(prompt) + sum(map(tokens_of_text, written))


def estimate_prompt(prompt: Prompt) -> int:
    return tokens_of_text(prompt.system) + tokens_in(prompt.messages)
