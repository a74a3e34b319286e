"""Bodies of the routes that belong to no wire, and OpenAPI helpers for those that do."""

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from holodeck.core.ids import MAX_ID_LENGTH
from holodeck.server.routing import ResponseSchemas
from holodeck.wires.problem import CONTENT_TYPE as PROBLEM

StateName: TypeAlias = Literal["queued", "running", "finished", "failed", "cancelled", "interrupted"]

OBJECT: dict[str, Any] = {"type": "object"}
REFERENCE = "#/components/schemas/{name}"  # to a type that OpenAPI lists by its name


def json_request(schema: dict[str, Any], example: Any = None, **more_content: Any) -> dict[str, Any]:
    """Describes a JSON body. `more_content` are other types that it may have."""
    described = {"schema": schema} if example is None else {"schema": schema, "example": example}
    return {"required": True, "content": {"application/json": described, **more_content}}


def json_response(description: str, schema: dict[str, Any] = OBJECT, *, streams: bool = False) -> ResponseSchemas:
    """Describes a JSON answer. `streams`: or as server-sent events."""
    stream = {"text/event-stream": {"schema": {"type": "string"}}} if streams else {}
    return {200: {"description": description, "content": {"application/json": {"schema": schema}, **stream}}}


def parameter(name: str, where: Literal["query", "header"], description: str = "", **schema: Any) -> dict[str, Any]:
    """Describes a parameter: a text, unless the schema names another type."""
    described = {"description": description} if description else {}
    kind = {} if "enum" in schema else {"type": "string"}
    return {"name": name, "in": where, **described, "schema": kind | schema}


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

ANYTHING = json_response("JSON", {})
_PROBLEM = {
    "description": "A problem",
    "content": {PROBLEM: {"schema": {"$ref": REFERENCE.format(name="ProblemDetail")}}},
}
REPEAT_HEADER = "Idempotency-Key"
ID_IN_HEADER = {"maxLength": MAX_ID_LENGTH, "pattern": f"^[!-~]([ -~]{{0,{MAX_ID_LENGTH - 2}}}[!-~])?$"}
REPEAT_KEY = parameter(
    REPEAT_HEADER,
    "header",
    "A name for this request, such as a UUID. The same request under it again joins the run, or gets the "
    "answer again for as long as runs can be read; another request under it is 422",
    **ID_IN_HEADER,
)
LAST_EVENT_ID = parameter("last-event-id", "header", "`<run>:<number>`", maxLength=200)
PROBLEMS: ResponseSchemas = {"4XX": _PROBLEM, "5XX": _PROBLEM, 422: _PROBLEM}
REFUSALS: ResponseSchemas = {"4XX": _PROBLEM}

Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with a zone: in OpenAPI, `format: date-time`."""


class HealthResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the agent can serve (SRV-10). A client that may not see more gets `status` alone."""

    status: Literal["healthy", "degraded", "unhealthy"]
    reasons: Annotated[list[str], msgspec.Meta(description="Why it is not healthy")] | UnsetType = UNSET
    agent_name: str | UnsetType = UNSET
    agent_ready: bool | UnsetType = UNSET
    active_sessions: int | UnsetType = UNSET
    uptime_seconds: float | UnsetType = UNSET


class ToolServerHealth(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    ready: bool
    required: bool
    detail: str = ""


class RunResponse(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    session_id: str
    state: StateName
    created_at: Moment
    finished_at: Moment | None
    events: Annotated[int, msgspec.Meta(description="The number of events so far")]
    readers: int


class StopResponse(msgspec.Struct, frozen=True, kw_only=True):
    stopped: Annotated[
        bool, msgspec.Meta(description="Whether this request stopped the run; false if it had already ended")
    ]


class RunStopResponse(StopResponse, frozen=True, kw_only=True):
    """`queued` and `running`: the stop is noted, and the run has not ended within five seconds."""

    state: StateName


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
    client_calls: Annotated[list[str], msgspec.Meta(description="Calls that the client must carry out")]
    expires_at: Moment | None


class SummaryResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A summary, written by the model, that it is shown instead of the oldest messages."""

    content: str
    until: Annotated[str, msgspec.Meta(description="The id of the last message that the summary replaces")]
    messages: Annotated[int, msgspec.Meta(description="How many messages it replaces")]
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
    cut_run: Annotated[
        str | None,
        msgspec.Meta(description="The last run, if the server ended in the middle of it; it can be continued"),
    ] = None
