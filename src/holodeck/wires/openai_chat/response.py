"""The pieces of a completion → one `chat.completion`, or its chunks; and the list of models, whose only entry is the agent.

Frames have no `id` line: the protocol has no way to resume a stream, and some clients read `data` lines only.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from holodeck.core.events import Event
from holodeck.core.usage import TokenUsage
from holodeck.errors import InternalError
from holodeck.wires import sse
from holodeck.wires.openai_chat.completion_pieces import (
    CompletionPiece,
    CompletionReader,
    Delta,
    FailedPiece,
    Finish,
    FinishReason,
    FunctionCall,
    NewSession,
)
from holodeck.wires.openai_chat.error_form import error_member

PREFIX = "chatcmpl-"
NEW_SESSION: Mapping[str, Any] = {"session_is_new": True}


class CompletionHead(msgspec.Struct, frozen=True, kw_only=True):
    """The members that all chunks of a completion share. The id is the run's, with OpenAI's prefix."""

    id: str
    created: int  # seconds since 1970
    model: str


class TokenDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class CompletionUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of all model calls of a run."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: TokenDetails | UnsetType = UNSET
    completion_tokens_details: TokenDetails | UnsetType = UNSET


class AnsweredCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the client runs. A plain answer gives it no index."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class CompletionMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: tuple[AnsweredCall, ...] | UnsetType = UNSET


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int = 0
    message: CompletionMessage
    logprobs: None = None
    finish_reason: FinishReason


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer.

    `holodeck.interrupts` are calls that wait for a person, if there are any. `holodeck.session_is_new` is true if the
    session that the client named is unknown, or has expired.
    """

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: tuple[CompletionChoice, ...]
    usage: CompletionUsage | UnsetType = UNSET
    holodeck: dict[str, Any] | UnsetType = UNSET


class OpenAIModel(msgspec.Struct, frozen=True, kw_only=True):
    """The agent as a model in OpenAI's list."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "holodeck"


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: tuple[OpenAIModel, ...]


def completion(head: CompletionHead, pieces: Iterable[CompletionPiece]) -> ChatCompletion:
    """Sums up the pieces of a run. Raises the error of a run that failed."""
    content: list[str] = []
    reasoning: list[str] = []
    calls: list[AnsweredCall] = []
    extra: dict[str, Any] = {}
    for piece in pieces:
        if isinstance(piece, FailedPiece):
            raise piece.error
        if isinstance(piece, Finish):
            whole = _completion(head, piece, "".join(content), "".join(reasoning), tuple(calls))
            return msgspec.structs.replace(whole, holodeck={**extra, **(whole.holodeck or {})} or UNSET)
        if isinstance(piece, NewSession):
            extra |= NEW_SESSION
        else:
            _add(piece, content, reasoning, calls)
    raise InternalError("The run has no answer.")


def _add(delta: Delta, content: list[str], reasoning: list[str], calls: list[AnsweredCall]) -> None:
    content.append(delta.content or "")
    reasoning.append(delta.reasoning_content or "")
    calls += (AnsweredCall(id=call.id, function=call.function) for call in delta.tool_calls)


def _completion(
    head: CompletionHead, finish: Finish, content: str, reasoning: str, calls: tuple[AnsweredCall, ...]
) -> ChatCompletion:
    message = CompletionMessage(
        content=None if calls and not content else content,
        reasoning_content=reasoning or UNSET,
        tool_calls=calls or UNSET,
    )
    return ChatCompletion(
        id=head.id,
        created=head.created,
        model=head.model,
        choices=(CompletionChoice(message=message, finish_reason=finish.finish_reason),),
        usage=token_counts(finish.usage) or UNSET,
        holodeck={"interrupts": finish.interrupts} if finish.interrupts else UNSET,
    )


def token_counts(usage: TokenUsage | None) -> CompletionUsage | None:
    """Returns the counts, or None if the model did not report them."""
    if usage is None:
        return None
    cached, written, reasoning = usage.cached_tokens, usage.cache_write_tokens, usage.reasoning_tokens
    of_prompt = TokenDetails(cached_tokens=cached, cache_write_tokens=written)
    return CompletionUsage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=UNSET if cached is None and written is None else of_prompt,
        completion_tokens_details=UNSET if reasoning is None else TokenDetails(reasoning_tokens=reasoning),
    )


class ChunkEncoder(sse.FrameEncoder):
    """`chat.completion.chunk` frames. The last frame is always `data: [DONE]`."""

    def __init__(self, head: CompletionHead, reader: CompletionReader, *, include_usage: bool = False) -> None:
        self._head = {"id": head.id, "object": "chat.completion.chunk", "created": head.created, "model": head.model}
        self._read, self._include_usage = reader.read, include_usage
        self._before_delta = b'data: %b,"choices":[{"index":0,"delta":' % sse.json_bytes(self._head)[:-1]

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes:
        return b"".join([self._frame(piece) for _, event in batch for piece in self._read(event)])

    def _frame(self, piece: CompletionPiece) -> bytes:
        if isinstance(piece, Delta):
            return b'%b%b,"finish_reason":null}]}\n\n' % (self._before_delta, sse.json_bytes(piece))
        if isinstance(piece, FailedPiece):
            return sse.frame({"error": error_member(piece.error)}) + sse.DONE
        if isinstance(piece, NewSession):
            choice = {"index": 0, "delta": {}, "finish_reason": None}
            return sse.frame({**self._head, "choices": [choice], "holodeck": NEW_SESSION})
        return self._finish(piece)

    def _finish(self, piece: Finish) -> bytes:
        choice = {"index": 0, "delta": {}, "finish_reason": piece.finish_reason}
        last: dict[str, Any] = {**self._head, "choices": [choice]}
        if piece.interrupts:
            last["holodeck"] = {"interrupts": piece.interrupts}
        counts = token_counts(piece.usage) if self._include_usage else None
        usage = b"" if counts is None else sse.frame({**self._head, "choices": [], "usage": counts})
        return sse.frame(last) + usage + sse.DONE
