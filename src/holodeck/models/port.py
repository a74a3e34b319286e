"""The model port: the interface between the loop and a model.

A model turns a Prompt into a ModelReply and passes each delta to the Listener as it arrives, by plain calls that never
await. It knows nothing of runs, tool implementations or wires.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from holodeck.core.messages import Content, Message, ToolCall
from holodeck.core.tools import ToolSchema
from holodeck.core.usage import TokenUsage


class OutputSchema(msgspec.Struct, frozen=True, kw_only=True):
    """`schema` has an object at its root, because providers require one."""

    schema: dict[str, Any]
    name: str = "answer"

    @property
    def is_strict(self) -> bool:
        """Whether OpenAI's strict mode accepts the schema: every object closed, every member required."""
        return _is_strict(self.schema)


def _is_strict(node: Any) -> bool:
    if isinstance(node, list):
        return all(_is_strict(each) for each in node)
    if not isinstance(node, dict):
        return True
    properties = node.get("properties")
    if isinstance(properties, dict):
        closed = node.get("additionalProperties") is False
        if not closed or set(node.get("required") or ()) != set(properties):
            return False
    elif node.get("type") == "object" or "default" in node:
        return False
    return all(_is_strict(each) for each in node.values())


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    system: str = ""
    messages: Sequence[Message] = ()
    tools: Sequence[ToolSchema] = ()
    output: OutputSchema | None = None  # the schema of the final answer
    answers_now: bool = False  # the model has to answer with what it knows, and call no more tools
    timezone: str | None = None  # the user's, as an IANA name; only the demo model reads it
    tool_choice: str | None = None  # the client's: required, or the name of a tool; None leaves it to the settings
    max_output_tokens: int | None = None  # the client's limit; the lower of it and the settings' applies
    one_call_at_a_time: bool = False  # set by the client; the settings can set it too
    sums_up: bool = False  # the reply is a summary for the agent's own use; for models that do not read instructions


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer. A reply with tool calls is a tool-call reply, whatever `finish_reason` says.

    `finish_reason` is one of stop, length, tool_calls, content_filter, or the endpoint's own value.
    With `length`, the last call may be cut in the middle and must not be run.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    usage: TokenUsage | None = None
    model: str = ""  # the model that answered, if it may differ from the requested one (a fallback, a router)
    extra: dict[str, Any] = {}  # unknown members of the message, sent back unchanged


class Listener(Protocol):
    """Receives the reply delta by delta. The methods are on the hot path: they must not block, raise or copy."""

    def reasoning(self, delta: str) -> None: ...

    def text(self, delta: str) -> None: ...

    def call_started(self, call_id: str, name: str) -> None: ...

    def call_arguments(self, call_id: str, delta: str) -> None: ...

    def call_ended(self, call: ToolCall) -> None:
        """The call is complete. Called for every started call whose arguments are complete."""

    def call_answered(self, call_id: str, content: Content, *, failed: bool = False) -> None:
        """The result of an ended call that the provider ran itself. Such a call is not in the reply."""

    def timed_out_without_output(self) -> bool:
        """Whether the time of the step ran out before the model sent anything.

        A call whose time is over is cancelled exactly as one that a user stopped. A circuit breaker has to distinguish the
        two: a model that was silent for the whole step has failed, a model that was interrupted has not.
        """

    def warning(self, code: str, message: str) -> None: ...

    def raw(self, event: Any) -> None:
        """A provider's own event; only models built with `debug` emit it."""


class ContextWindow(Protocol):
    """The room for a conversation in a model's context window, if only the endpoint knows it."""

    @property
    def tokens(self) -> int | None:
        """Estimated tokens of a conversation; None while it is not known."""

    async def learn(self) -> None:
        """Asks the endpoint, once. Never raises."""


class Model(Protocol):
    """One model behind one endpoint."""

    @property
    def name(self) -> str:
        """Provider and model, for banners, logs and usage. Never a key."""

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        """Returns the reply, or raises a ModelError.

        The model retries only before the first delta. On a later failure the error's `started` is true, and the
        deltas so far stand. Cancellation closes the connection at once.
        """

    async def check(self) -> None:
        """Raises a ModelError unless the endpoint answers and accepts the key. Costs no tokens."""

    async def close(self) -> None: ...


class WrappedModel:
    def __init__(self, model: Model) -> None:
        self._model, self.name = model, model.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r})"

    async def check(self) -> None:
        await self._model.check()

    async def close(self) -> None:
        await self._model.close()
