"""Bodies of the routes that are not a wire's own, and what OpenAPI says about those that are."""

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from holodeck.core.ids import MAX_FOREIGN_ID
from holodeck.wires.agui.decode import MAX_CONTEXT, MAX_RESUMES
from holodeck.wires.body import MAX_NAME
from holodeck.wires.problem import CONTENT_TYPE as PROBLEM

AGENT_INPUT: dict[str, Any] = {
    "type": "object",
    "title": "RunAgentInput",
    "description": "AG-UI 1.0. What is not known is ignored; optional members may be null.",
    "required": ["threadId", "runId", "messages"],
    "properties": {
        "threadId": {"type": "string", "minLength": 1, "maxLength": 128, "description": "The session"},
        "runId": {"type": "string", "minLength": 1, "maxLength": 128},
        "parentRunId": {"type": "string", "maxLength": MAX_FOREIGN_ID},
        "protocolVersion": {"type": "string", "maxLength": MAX_NAME, "description": '"1.0"; absent for older clients'},
        "messages": {"type": "array", "maxItems": 10_000, "items": {"type": "object"}},
        "tools": {"type": "array", "maxItems": 128, "items": {"type": "object"}, "description": "Frontend tools"},
        "context": {"type": "array", "maxItems": MAX_CONTEXT, "items": {"type": "object"}},
        "state": {},
        "forwardedProps": {},
        "resume": {
            "type": "array",
            "maxItems": MAX_RESUMES,
            "items": {"type": "object"},
            "description": "Answers to interrupts",
        },
    },
    "example": {
        "threadId": "demo",
        "runId": "run-1",
        "protocolVersion": "1.0",
        "messages": [{"id": "m1", "role": "user", "content": "Hello"}],
    },
}
AGENT_INPUT_BODY: dict[str, Any] = {"required": True, "content": {"application/json": {"schema": AGENT_INPUT}}}
SSE_STREAM: dict[str, Any] = {
    "description": "The events of the run, to its end",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}
EVENT_STREAM: dict[str, Any] = {
    **SSE_STREAM,
    "content": {
        **SSE_STREAM["content"],
        "application/vnd.ag-ui.event+proto": {"schema": {"type": "string", "format": "binary"}},
    },
}

ANYTHING: dict[int | str, dict[str, Any]] = {
    200: {"description": "JSON", "content": {"application/json": {"schema": {}}}}
}
_PROBLEM = {
    "description": "A problem",
    "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/ProblemDetail"}}},
}
REPEAT_HEADER = "Idempotency-Key"
REPEAT_KEY = {
    "name": REPEAT_HEADER,
    "in": "header",
    "description": "A name for this request, such as a UUID. The same request under it again joins the run, or gets the "
    "answer again for as long as runs can be read; another request under it is 422",
    "schema": {
        "type": "string",
        "maxLength": MAX_FOREIGN_ID,
        "pattern": f"^[!-~]([ -~]{{0,{MAX_FOREIGN_ID - 2}}}[!-~])?$",
    },
}
LAST_EVENT_ID = {
    "name": "last-event-id",
    "in": "header",
    "description": "`<run>:<number>`",
    "schema": {"type": "string", "maxLength": 200},
}
PROBLEMS: dict[int | str, dict[str, Any]] = {"4XX": _PROBLEM, "5XX": _PROBLEM, 422: _PROBLEM}
REFUSALS: dict[int | str, dict[str, Any]] = {"4XX": _PROBLEM}

Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time that says its zone: in OpenAPI, `format: date-time`."""


class HealthResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the agent can serve (SRV-10). A client that may not see more gets `status` alone."""

    status: Literal["healthy", "unhealthy"]
    agent_name: str | UnsetType = UNSET
    agent_ready: bool | UnsetType = UNSET
    active_sessions: int | UnsetType = UNSET
    uptime_seconds: float | UnsetType = UNSET


class ToolServerHealth(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    ready: bool
    required: bool
    detail: str = ""


class AgentHealthResponse(HealthResponse, frozen=True, kw_only=True):
    """The same, with what it depends on."""

    state: str
    model: str
    active_runs: int
    tool_servers: list[ToolServerHealth]


class RunResponse(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    session_id: str
    state: Literal["queued", "running", "finished", "failed", "cancelled", "interrupted"]
    created_at: Moment
    finished_at: Moment | None
    events: Annotated[int, msgspec.Meta(description="How many events there are so far")]
    readers: int


class StopResponse(msgspec.Struct, frozen=True, kw_only=True):
    stopped: Annotated[bool, msgspec.Meta(description="False if it had ended before")]


class TicketResponse(msgspec.Struct, frozen=True, kw_only=True):
    """For `GET /runs/{id}/events?ticket=…`. `expires` is in seconds since 1970."""

    ticket: str
    expires: float


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that a person has to allow. `interrupt_id` is what a `resume` names."""

    interrupt_id: str
    call_id: str
    tool: str
    arguments: Annotated[str, msgspec.Meta(description="The model's own text, JSON or not")]


class PendingResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A step that waits for approvals or client results; it joins the history when it has them."""

    message: dict[str, Any]
    results: list[dict[str, Any]]
    questions: list[Question]
    client_calls: Annotated[list[str], msgspec.Meta(description="Calls that the client has to carry out")]
    expires_at: Moment | None


class SummaryResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What the model is shown instead of the oldest messages. It wrote it itself."""

    content: str
    until: Annotated[str, msgspec.Meta(description="The id of the last message that it stands for")]
    messages: Annotated[int, msgspec.Meta(description="How many it stands for")]
    timestamp: Moment


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One session in a list."""

    session_id: str
    created_at: Moment
    last_activity: Moment
    message_count: int
    title: Annotated[str, msgspec.Meta(description="The beginning of the user's first text; empty if there is none")]
    active_runs: Annotated[list[str], msgspec.Meta(description="Runs to follow, oldest first")]


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of sessions, the one used last first."""

    sessions: list[SessionEntry]
    next: Annotated[str | None, msgspec.Meta(description="For `after`, to get the next page; null if there is none")]


class SessionResponse(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    created_at: Moment
    last_activity: Moment
    message_count: int
    messages: Annotated[list[dict[str, Any]], msgspec.Meta(description="Oldest first, as they are kept")]
    pending: PendingResponse | None = None
    summary: SummaryResponse | None = None
    state: Annotated[Any, msgspec.Meta(description="What agent and client share")] = None
    active_runs: Annotated[list[str], msgspec.Meta(description="Runs to follow, oldest first")]
