"""The events of a run → the pieces of one completion, for both the stream and the plain answer.

Tools of the server appear as lines of `reasoning_content`, never as `tool_calls`: a client would try to run them
itself. Calls of the client's own tools are certain only when the run ends and waits for them. Then each is one whole
piece.
"""

from collections.abc import Collection, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from holodeck.core import events as e
from holodeck.core.messages import text_of
from holodeck.core.usage import TokenUsage
from holodeck.errors import HoloDeckError
from holodeck.wires.reply import PARAGRAPH, ReplyReader, approval_asked, error_of, excerpt, failure_of

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]


class FunctionCall(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class ToolCallPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the client runs."""

    index: int
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An addition to the answer."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCallPiece, ...] = ()


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a run that did not fail."""

    finish_reason: FinishReason
    usage: TokenUsage | None = None
    interrupts: tuple[dict[str, Any], ...] = ()  # calls that wait for an approval, which another wire can give


class NewSession(msgspec.Struct, frozen=True):
    """The session that the client named is unknown, or has expired: the agent does not remember it."""


class FailedPiece(msgspec.Struct, frozen=True):
    """The end of a run that failed or was stopped."""

    error: HoloDeckError


CompletionPiece: TypeAlias = Delta | NewSession | Finish | FailedPiece


class CompletionReader(ReplyReader[CompletionPiece]):
    """Reads one run from its first event on, in order.

    `client_tools` are the names of the client's own tools. `names_session`: the client has named the session.
    `throw_away`: the run's session ends with it, so no other wire can decide a pending approval.
    """

    def __init__(
        self, *, client_tools: Collection[str] = (), names_session: bool = False, throw_away: bool = False
    ) -> None:
        super().__init__()
        self._client_tools, self._names_session, self._throw_away = client_tools, names_session, throw_away
        self._has_text = self._in_line = False
        self._calls: dict[str, FunctionCall] = {}

    def run_started(self, event: e.RunStarted) -> Sequence[CompletionPiece]:
        new = (NewSession(),) if event.is_new_session and self._names_session else ()
        return (Delta(role="assistant", content=""), *new)

    def text_added(self, event: e.TextAdded) -> Sequence[CompletionPiece]:
        delta = self._reply.add(event)
        if not delta:
            return ()
        self._has_text = True
        return (Delta(content=delta),)

    def reasoning_added(self, event: e.ReasoningAdded) -> Sequence[CompletionPiece]:
        if not event.delta:
            return ()
        self._in_line = not event.delta.endswith("\n")
        return (Delta(reasoning_content=event.delta),)

    def tool_call_ended(self, event: e.ToolCallEnded) -> Sequence[CompletionPiece]:
        self._calls[event.call_id] = FunctionCall(event.name, event.arguments)
        return () if event.name in self._client_tools else self._line(f"→ {event.name} {excerpt(event.arguments)}")

    def tool_finished(self, event: e.ToolFinished) -> Sequence[CompletionPiece]:
        if event.name in self._client_tools:
            return ()
        failed = "failed: " if event.failed else ""
        return self._line(f"← {event.name} {failed}{excerpt(text_of(event.content))}")

    def _line(self, line: str) -> Sequence[CompletionPiece]:
        before = "\n" if self._in_line else ""
        self._in_line = False
        return (Delta(reasoning_content=f"{before}{line.rstrip()}\n"),)

    def run_finished(self, ending: e.RunFinished) -> Sequence[CompletionPiece]:
        error = failure_of(ending, self._reply.answer(ending))
        if error is not None:
            return (FailedPiece(error),)
        if ending.outcome is e.Outcome.INTERRUPTED:
            waiting = tuple(map(approval_asked, ending.interrupts))
            asked = Delta(content=(PARAGRAPH if self._has_text else "") + self._what_waits(ending))
            return asked, Finish(finish_reason="stop", usage=ending.usage, interrupts=waiting)
        pending = dict.fromkeys(ending.pending_calls) if ending.outcome is e.Outcome.CLIENT_TOOLS else ()
        known = [call_id for call_id in pending if call_id in self._calls]
        calls = tuple(ToolCallPiece(index=i, id=id_, function=self._calls[id_]) for i, id_ in enumerate(known))
        finish = Finish(finish_reason="tool_calls" if calls else _finish_reason(ending), usage=ending.usage)
        return (Delta(tool_calls=calls), finish) if calls else (finish,)

    def run_failed(self, ending: e.RunFailed) -> Sequence[CompletionPiece]:
        return (FailedPiece(error_of(ending)),)

    def _what_waits(self, ending: e.RunFinished) -> str:
        tools = ", ".join(each.tool for each in ending.interrupts)
        if self._throw_away:
            return (
                f"A person must approve {tools} first, and Chat Completions cannot ask. Name a session in the header "
                "X-Session-Id and ask again; then REST and AG-UI can approve it."
            )
        return (
            f"A person must approve {tools} first, and Chat Completions cannot ask. REST and AG-UI can approve it in "
            f"session {ending.session_id}."
        )


def _finish_reason(ending: e.RunFinished) -> FinishReason:
    if ending.outcome is e.Outcome.MAX_ITERATIONS or ending.finish_reason == "length":
        return "length"
    return "content_filter" if ending.finish_reason == "content_filter" else "stop"
