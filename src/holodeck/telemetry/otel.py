"""Runs as OpenTelemetry spans, by the GenAI conventions (CHT-11).

    chat {session}                      one conversation in the terminal; a server has none of these
    └── invoke_agent {agent}            one run
        ├── chat {model}                one model call
        └── execute_tool {tool}         one tool call

A reader like all others. It needs only OpenTelemetry's API, knows no exporter and does not know who runs the agent. Messages,
arguments and results are in the spans only with `content`.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from holodeck.core import events as e
from holodeck.core.messages import text_of
from holodeck.core.usage import TokenUsage

SCOPE = "holodeck"
PROVIDER_NAMES = {  # our names → OpenTelemetry's, where they differ
    "azure_openai": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
}
MAX_CONTENT = 16_000  # characters of one attribute

Attributes: TypeAlias = dict[str, Any]


class Tracing:
    """Makes the readers. `content`: spans also contain messages, arguments and results."""

    def __init__(self, tracer: Tracer, *, agent: str, content: bool = False) -> None:
        self._tracer = tracer
        self._agent = agent
        self._content = content

    def run(
        self,
        *,
        run_id: str,
        session_id: str,
        kept: Callable[[], Sequence[e.Event]],
        parent: Span | None = None,
        user_id: str | None = None,
    ) -> "RunSpans":
        """Makes an observer of one run. `kept` returns the events so far: observers do not see the text as it comes."""
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": self._agent,
            "gen_ai.conversation.id": session_id,
            "holodeck.run.id": run_id,
        }
        if user_id is not None:
            attributes["enduser.id"] = user_id
        span = self._tracer.start_span(f"invoke_agent {self._agent}", _in(parent), attributes=attributes)
        return RunSpans(self._tracer, span, kept if self._content else None)

    @contextmanager
    def chat(self, session_id: str) -> Iterator[Span]:
        """Opens the span of a conversation, the parent of its runs' spans."""
        attributes = {"gen_ai.agent.name": self._agent, "gen_ai.conversation.id": session_id}
        span = self._tracer.start_span("chat_session", attributes=attributes)
        try:
            yield span
        finally:
            span.end()


class RunSpans(e.Observer):
    """Reads one run. The model's span ends with the last part of its reply. The tools' spans are its siblings.

    Without `kept`, spans have no content.
    """

    def __init__(self, tracer: Tracer, span: Span, kept: Callable[[], Sequence[e.Event]] | None) -> None:
        self._tracer = tracer
        self._run = span
        self._kept = kept
        self._model = ""
        self._step: Span | None = None
        self._reply_ended = 0
        self._tools: dict[str, Span] = {}

    def run_started(self, event: e.RunStarted) -> None:
        self._model = event.model or ""
        self._run.set_attributes(_model_attributes(self._model))

    def step_started(self, _event: e.StepStarted) -> None:
        attributes = {"gen_ai.operation.name": "chat", **_model_attributes(self._model)}
        name = f"chat {attributes.get('gen_ai.request.model', '')}".strip()
        self._step = self._tracer.start_span(name, _in(self._run), kind=SpanKind.CLIENT, attributes=attributes)
        self._reply_ended = time.time_ns()

    def text_ended(self, _event: e.TextEnded | e.ReasoningEnded) -> None:
        self._reply_ended = time.time_ns()

    reasoning_ended = text_ended

    def tool_call_ended(self, event: e.ToolCallEnded) -> None:
        self._reply_ended = time.time_ns()
        attributes = {"gen_ai.tool.call.id": event.call_id, "gen_ai.tool.type": "function"}
        if self._kept is not None:
            attributes["gen_ai.tool.call.arguments"] = event.arguments[:MAX_CONTENT]
        self._tools[event.call_id] = self._tool_span(event.name, attributes)

    def _tool_span(self, tool: str, more: Attributes, begun: int | None = None) -> Span:
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, **more}
        return self._tracer.start_span(f"execute_tool {tool}", _in(self._run), attributes=attributes, start_time=begun)

    def tool_finished(self, event: e.ToolFinished) -> None:
        span = self._tools.pop(event.call_id, None)
        if span is None:  # the previous run asked for it, and a person has approved it since
            span = self._tool_span(event.name, {}, time.time_ns() - round(event.seconds * 1e9))
        if self._kept is not None:
            span.set_attribute("gen_ai.tool.call.result", text_of(event.content)[:MAX_CONTENT])
        if event.failed:
            span.set_attribute("error.type", "tool-failed")
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def step_finished(self, event: e.StepFinished) -> None:
        if self._step is None:
            return
        self._step.set_attributes({**_usage_attributes(event.usage), **_answered_by(event.model)})
        if self._kept is not None and (text := _reply_in(self._kept())):
            part = {"type": "text", "content": text[:MAX_CONTENT]}
            message = [{"role": "assistant", "parts": [part]}]
            self._step.set_attribute("gen_ai.output.messages", json.dumps(message, ensure_ascii=False))
        self._step.end(end_time=self._reply_ended)
        self._step = None

    def run_finished(self, event: e.RunFinished) -> None:
        self._run.set_attributes({**_usage_attributes(event.usage), **_answered_by(event.model)})
        self._run.set_attribute("gen_ai.response.finish_reasons", [event.finish_reason])
        self._run.set_attribute("holodeck.run.outcome", event.outcome.value)
        self._end()

    def run_failed(self, event: e.RunFailed) -> None:
        self._run.set_attributes({**_usage_attributes(event.usage), **_answered_by(event.model)})
        self._run.set_attribute("error.type", event.reason or event.code)
        self._run.set_status(Status(StatusCode.ERROR, event.message))
        self._end()

    def _end(self) -> None:
        """Ends open spans: a call that waits for approval has no result in this run."""
        for span in self._tools.values():
            span.set_attribute("holodeck.tool.waits", True)
            span.end()
        self._tools.clear()
        self._run.end()


def _reply_in(events: Sequence[e.Event]) -> str:
    """The text of the last model call."""
    deltas = []
    for event in reversed(events):
        if isinstance(event, e.StepStarted):
            break
        if isinstance(event, e.TextAdded):
            deltas.append(event.delta)
    return "".join(reversed(deltas))


def _in(parent: Span | None) -> Any:
    return None if parent is None else set_span_in_context(parent)


def _model_attributes(model: str) -> Attributes:
    """Splits `provider/model`, our form: the conventions have two attributes."""
    provider, slash, name = model.partition("/")
    if not model:
        return {}
    known = PROVIDER_NAMES.get(provider, provider)
    return {"gen_ai.provider.name": known, "gen_ai.request.model": name if slash else model}


def _answered_by(model: str | None) -> Attributes:
    return {} if model is None else {"gen_ai.response.model": model.partition("/")[2] or model}


def _usage_attributes(usage: TokenUsage | None) -> Attributes:
    if usage is None:
        return {}
    counts = {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
    return {name: count for name, count in counts.items() if count is not None}
