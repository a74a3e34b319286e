"""Structured output for endpoints, by the best way that each supports.

Three ways, from the best to the last resort: the API's own member for it, a tool that takes the answer as its arguments,
instructions in the system prompt. A model client begins with the best one that its API has and changes to the next when
the endpoint refuses it. The agent validates the answer.
"""

import json
import re
from enum import Enum
from typing import Any

import msgspec

from holodeck.core.messages import ToolCall
from holodeck.core.tools import ToolSchema
from holodeck.models.port import Listener, ModelReply, OutputSchema, Prompt

ANSWER_TOOL = "give_answer"
_BY_TOOL = f"Give your final answer by calling the tool {ANSWER_TOOL}, with nothing before or after it."
_BY_PROMPT = (
    "Your final answer must be one JSON object and nothing else: no introduction, no Markdown. It must match this "
    "JSON Schema:\n"
)
_FORMAT = re.compile(
    r"response.?format|json.?schema|text\.format|response.?mime|response.?schema|structured.?output"
    r"|output_?(format|config)(?!\.effort)|text_?format"
    r"|grammar",
    re.IGNORECASE,
)
_TOOLS = re.compile(r"\btools?\b|tool_choice|function.?call", re.IGNORECASE)


class OutputMode(Enum):
    NATIVE = "its own structured output"
    TOOL = "a tool for the answer"
    PROMPT = "instructions"


def shown_by(mode: OutputMode, prompt: Prompt) -> Prompt:
    """The prompt for the endpoint in this mode. In NATIVE mode it is unchanged: the request body carries the schema."""
    output = prompt.output
    if output is None or mode is OutputMode.NATIVE:
        return prompt
    if mode is OutputMode.TOOL:
        tool = ToolSchema(name=ANSWER_TOOL, description="Takes the final answer.", parameters=output.schema)
        others = () if prompt.answers_now else prompt.tools
        return msgspec.structs.replace(
            prompt, output=None, answers_now=False, tools=[*others, tool], system=_added(prompt, _BY_TOOL)
        )
    words = _BY_PROMPT + json.dumps(output.schema, ensure_ascii=False)
    return msgspec.structs.replace(prompt, output=None, system=_added(prompt, words))


def _added(prompt: Prompt, words: str) -> str:
    return f"{prompt.system}\n\n{words}" if prompt.system else words


def after_refusal(mode: OutputMode, text: str) -> OutputMode | None:
    """The next mode to try; None if the refusal is about something else."""
    if mode is OutputMode.NATIVE and _FORMAT.search(text):
        return OutputMode.TOOL
    if mode is OutputMode.TOOL and _TOOLS.search(text):
        return OutputMode.PROMPT
    return None


def as_openai_names_it(output: OutputSchema) -> dict[str, Any]:
    return {"name": output.name, "schema": output.schema, "strict": output.is_strict}


class AnswerListener:
    """Passes the arguments of the answer tool on as text, so that the answer streams in every mode."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._answers: set[str] = set()
        self.text, self.reasoning = listener.text, listener.reasoning
        self.call_answered, self.warning, self.raw = listener.call_answered, listener.warning, listener.raw
        self.timed_out_without_output = listener.timed_out_without_output

    def call_started(self, call_id: str, name: str) -> None:
        if name == ANSWER_TOOL:
            self._answers.add(call_id)
        else:
            self._listener.call_started(call_id, name)

    def call_arguments(self, call_id: str, delta: str) -> None:
        if call_id in self._answers:
            self._listener.text(delta)
        else:
            self._listener.call_arguments(call_id, delta)

    def call_ended(self, call: ToolCall) -> None:
        if call.id not in self._answers:
            self._listener.call_ended(call)


def with_answer_as_text(reply: ModelReply) -> ModelReply:
    """The reply with the answer tool's call turned into text, as the listener got it."""
    answers = [call for call in reply.tool_calls if call.name == ANSWER_TOOL]
    if not answers:
        return reply
    others = tuple(call for call in reply.tool_calls if call.name != ANSWER_TOOL)
    reason = "stop" if reply.finish_reason == "tool_calls" and not others else reply.finish_reason
    text = reply.text + "".join(call.arguments for call in answers)
    return msgspec.structs.replace(reply, text=text, tool_calls=others, finish_reason=reason)
