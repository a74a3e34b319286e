"""The chat-stream wire's ChatStreamRequest → RunRequest (ORC-01). Its shape and its limits differ from REST's."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from holodeck.core.ids import MAX_ID_LENGTH, new_ulid
from holodeck.core.messages import UserMessage
from holodeck.core.request import RunRequest
from holodeck.core.text import strip_controls
from holodeck.errors import InvalidRequest
from holodeck.wires.body import optional, parse, short_text, valid_id

MAX_INPUT = 5_000
MAX_TYPED = 10 * MAX_INPUT  # including control characters, which are dropped before the length is checked

ValidId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_ID_LENGTH)]


class ChatStreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A user's message. Control characters are dropped before its length is checked."""

    input: Annotated[
        str,
        Meta(min_length=1, max_length=MAX_INPUT, pattern=r"\S", examples=["Remind me to buy eggs tomorrow at 3pm"]),
    ]
    conversation_id: Annotated[
        ValidId | None,
        Meta(
            description="Continues the conversation with this id if the agent file names a session store; else it is only logged"
        ),
    ] = None
    user_id: Annotated[
        ValidId | None, Meta(description="The user whose data the tools use, while the server has no authentication")
    ] = None


def decode(body: bytes) -> ChatStreamRequest:
    """Reads a body. Raises InvalidRequest (400: not JSON, 422: not a ChatStreamRequest)."""
    raw = parse(body)
    if raw.get("input") is None:
        raise InvalidRequest("input is missing", field="input")
    text = strip_controls(short_text(raw["input"], "input", MAX_TYPED))
    if not text.strip():
        raise InvalidRequest("input is empty", field="input")
    if len(text) > MAX_INPUT:
        raise InvalidRequest(f"input has {len(text):,} characters; {MAX_INPUT:,} are allowed", field="input")
    return ChatStreamRequest(
        input=text,
        conversation_id=optional(valid_id, raw.get("conversation_id"), "conversation_id"),
        user_id=optional(valid_id, raw.get("user_id"), "user_id"),
    )


def run_request(
    chat: ChatStreamRequest, session_id: str | None, *, time_limit: float | None = None, encoding: Mapping[str, Any]
) -> RunRequest:
    """Makes the run that this request asks for. Without a session it gets one that is deleted with the run."""
    return RunRequest(
        session_id=session_id or new_ulid(),
        messages=(UserMessage(content=chat.input),),
        time_limit=time_limit,
        throw_away=session_id is None,
        encoding=encoding,
    )
