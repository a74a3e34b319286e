"""The tools that represent the agent: `ask`, and for clients that need them `continue` and `wait`.

`ask` sends a message and returns the answer. `continue` decides approvals, for clients that cannot show a form. `wait`
returns an answer that took longer than the client waited, for clients without support for tasks.
"""

from typing import Any

from holodeck.core.ids import MAX_ID_LENGTH
from holodeck.core.json_schema import array, object_of, string
from holodeck.core.messages import MediaPart, TextPart, UserMessage
from holodeck.core.request import Resume, RunRequest
from holodeck.errors import InvalidRequest
from holodeck.wires import body as read
from holodeck.wires.client_values import UNKNOWN_TYPE, base64_text
from holodeck.wires.mcp.envelope import Caller

ASK, CONTINUE, WAIT = "ask", "continue", "wait"
MAX_FILES = 64
MAX_DECISIONS = 64
MAX_TYPE = 255

_ID = {"minLength": 1, "maxLength": MAX_ID_LENGTH}
_SESSION = string("The conversation to continue, from an earlier answer; without it, a new one", **_ID)
_FILE = object_of(
    {
        "name": string(),
        "mime_type": string(),
        "data": string("The content in base64"),
        "url": string("Where the content is, instead of data"),
    }
)
_DECISION = object_of(
    {
        "id": string("The approval's id"),
        "approved": {"type": "boolean"},
        "arguments": {"type": "object", "description": "Arguments in place of those that the agent chose"},
        "reason": string("Why it is not approved; the agent reads it"),
    },
    required=["id", "approved"],
)
_STATUS = {
    "enum": ["completed", "waiting", "working", "failed"],
    "description": "waiting: a person must approve; working: not finished yet",
}
_CALL = object_of({"name": string(), "arguments": {"type": "object"}, "status": string()}, required=["name", "status"])
_APPROVAL = object_of(
    {"id": string(), "tool": string(), "arguments": {"type": "object"}, "message": string()}, required=["id", "tool"]
)
ANSWER_SCHEMA = object_of(
    {
        "status": _STATUS,
        "session": string("The conversation: pass it to the next call to continue"),
        "session_is_new": {
            "type": "boolean",
            "description": "true if the session that was named is unknown or expired",
        },
        "run": string(),
        "answer": string(),
        "output": {"description": "The answer as a JSON value, if the agent has an output type"},
        "tool_calls": array(_CALL),
        "approvals": array(_APPROVAL),
        "error": string("Why it failed, as a code"),
    },
    required=["status", "session", "run"],
)
_CHANGES = {"readOnlyHint": False, "openWorldHint": True}


def tool_list(agent: str, description: str, caller: Caller) -> list[dict[str, Any]]:
    """Returns the tools for this client, always in the same order."""
    offered = [_ask(agent, description)]
    if not (caller.is_modern and caller.answers_forms):
        offered.append(_continue(agent))
    if not caller.takes_tasks:
        offered.append(_wait(agent))
    return offered


def _ask(agent: str, description: str) -> dict[str, Any]:
    properties = {"message": string(minLength=1), "session": _SESSION, "files": array(_FILE, maxItems=MAX_FILES)}
    about = f" {description}" if description else ""
    return {
        "name": ASK,
        "title": f"Ask {agent}",
        "description": f"Sends a message to the agent {agent} and returns its answer.{about}",
        "inputSchema": object_of(properties, required=["message"]),
        "outputSchema": ANSWER_SCHEMA,
        "annotations": _CHANGES,
    }


def _continue(agent: str) -> dict[str, Any]:
    properties = {
        "session": string("The session of the answer that waits", **_ID),
        "decisions": array(_DECISION, minItems=1, maxItems=MAX_DECISIONS),
    }
    return {
        "name": CONTINUE,
        "title": f"Approve or refuse what {agent} wants to do",
        "description": (
            f"Answers approvals that {agent} waits for (status: waiting) and returns its next answer. "
            "Only a person may decide: show them the tool and its arguments first."
        ),
        "inputSchema": object_of(properties, required=["session", "decisions"]),
        "outputSchema": ANSWER_SCHEMA,
        "annotations": {**_CHANGES, "destructiveHint": True},
    }


def _wait(agent: str) -> dict[str, Any]:
    return {
        "name": WAIT,
        "title": f"Wait for {agent}",
        "description": f"Returns the answer of {agent} to an earlier call that was not finished (status: working).",
        "inputSchema": object_of({"run": string("The run of that call", **_ID)}, required=["run"]),
        "outputSchema": ANSWER_SCHEMA,
        "annotations": {"readOnlyHint": True, "openWorldHint": True},
    }


def ask_request(given: dict[str, Any], max_text: int) -> RunRequest:
    """Makes the run that `ask` asks for; its files are not read yet. Raises InvalidRequest with the member's path."""
    text = read.short_text(given.get("message"), "message", max_text)
    if not text.strip():
        raise InvalidRequest("message is empty", field="message")
    files = [_file(file, path) for path, file in read.tables(given.get("files"), "files", MAX_FILES)]
    message = UserMessage(content=(TextPart(text), *files) if files else text)
    session = read.optional(read.valid_id, given.get("session"), "session")
    return RunRequest(session_id=session, messages=(message,))


def _file(given: dict[str, Any], path: str) -> MediaPart:
    mime_type, data, url = given.get("mime_type"), given.get("data"), given.get("url")
    if (data is None) == (url is None):
        raise InvalidRequest(f"{path} needs data or url", field=path)
    return MediaPart(
        mime_type=UNKNOWN_TYPE if mime_type is None else read.short_text(mime_type, f"{path}.mime_type", MAX_TYPE),
        data=read.optional(base64_text, data, f"{path}.data"),
        url=read.optional(read.text, url, f"{path}.url"),
        filename=read.optional(read.text, given.get("name"), f"{path}.name"),
    )


def continue_request(given: dict[str, Any]) -> RunRequest:
    """Makes the run that `continue` asks for. Raises InvalidRequest with the member's path."""
    decisions = tuple(
        _decision(raw, path) for path, raw in read.tables(given.get("decisions"), "decisions", MAX_DECISIONS)
    )
    if not decisions:
        raise InvalidRequest("decisions is empty", field="decisions")
    return RunRequest(session_id=read.valid_id(given.get("session"), "session"), resume=decisions)


def _decision(given: dict[str, Any], path: str) -> Resume:
    approved, arguments = read.decided(given.get("approved"), f"{path}.approved"), given.get("arguments")
    payload = None
    if arguments is not None:
        payload = {"arguments": read.opaque(read.table(arguments, f"{path}.arguments"), f"{path}.arguments")}
    why = read.refusal_reason(given.get("reason"), f"{path}.reason")
    return Resume(interrupt_id=read.name(given.get("id"), f"{path}.id"), approved=approved, payload=payload, reason=why)


def run_to_wait_for(given: dict[str, Any]) -> str:
    return read.valid_id(given.get("run"), "run")
