"""Decodes what A2A clients send, in the JSON of 1.0. `v03` converts requests of 0.3 first."""

import re
from datetime import datetime
from typing import Any

import msgspec

from holodeck.core.messages import MediaPart, Part, TextPart, UserMessage
from holodeck.core.request import Resume, RunRequest, is_approval
from holodeck.errors import InvalidRequest
from holodeck.wires import body as read
from holodeck.wires import sse
from holodeck.wires.a2a.card import OLD_VERSION, VERSION
from holodeck.wires.a2a.error_form import content_type_not_supported
from holodeck.wires.client_values import UNKNOWN_TYPE, base64_text

MAX_PARTS = 256
MAX_MODES = 100
MAX_TYPE = 255
MAX_PAGE = 100
PAGE = 50
MAX_DIGITS = 9
PUSH_VERSION = "version"  # our own member of a push configuration, added to requests of 0.3
INTERRUPT, APPROVED, ARGUMENTS, REASON = "interruptId", "approved", "arguments", "reason"
_NAMES = """
    acceptedOutputModes configId contextId fileWithBytes fileWithUri historyLength includeArtifacts mediaType messageId
    mimeType pageSize pageToken pushNotification pushNotificationConfig returnImmediately statusTimestampAfter taskId
    taskPushNotificationConfig
"""
# The members that we read. Converting any name would let a client hold the event loop with thousands, or with long ones.
_CAMEL_CASE = {re.sub("[A-Z]", lambda upper: f"_{upper[0].lower()}", name): name for name in _NAMES.split()}
STATES = ("SUBMITTED", "WORKING", "COMPLETED", "FAILED", "CANCELED", "INPUT_REQUIRED", "REJECTED", "AUTH_REQUIRED")


class PushConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The address to call when a task changes. `version` is that of the JSON which the client reads."""

    id: str
    url: str
    version: str = VERSION
    token: str | None = None
    scheme: str | None = None
    credentials: str | None = None


class SendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A message for the agent: the run that it asks for, whose files are not read yet, and how to answer."""

    run: RunRequest
    task_id: str | None = None
    return_immediately: bool = False
    history_length: int | None = None
    push: PushConfig | None = None


class ListRequest(msgspec.Struct, frozen=True, kw_only=True):
    context_id: str | None = None
    state: str | None = None
    page_size: int = PAGE
    page_token: str = ""
    history_length: int | None = None
    after: datetime | None = None
    include_artifacts: bool = False


def camel_case(given: dict[str, Any], depth: int = read.MAX_DEPTH) -> dict[str, Any]:
    """Returns the object with names in camel case. Protobuf parsers accept snake case too, and clients rely on it.

    `data` and `metadata` are the client's own and keep their names. Raises InvalidRequest for objects nested too deeply, and
    for one that has a name in both spellings: which of them counts differs between parsers, and they may be decisions.
    """
    if depth == 0:
        raise InvalidRequest(f"The body is nested more than {read.MAX_DEPTH} levels deep")
    renamed: dict[str, Any] = {}
    for key, value in given.items():
        name = _CAMEL_CASE.get(key, key)
        renamed[name] = value if name in ("data", "metadata") else _camel_value(value, depth - 1)
    if len(renamed) < len(given):
        raise InvalidRequest("An object has a name twice, in snake case and in camel case")
    return renamed


def _camel_value(value: Any, depth: int) -> Any:
    if isinstance(value, list):
        return [camel_case(each, depth) if isinstance(each, dict) else each for each in value]
    return camel_case(value, depth) if isinstance(value, dict) else value


def send_request(given: dict[str, Any], max_text: int) -> SendRequest:
    """Reads a SendMessageRequest. Raises InvalidRequest with the member's path, or an error of the protocol."""
    message = read.table(given.get("message"), "message")
    if message.get("role") not in ("ROLE_USER", None, "ROLE_UNSPECIFIED"):
        raise InvalidRequest("message.role must be ROLE_USER", field="message.role")
    parts, decisions = _parts(message.get("parts"), max_text)
    options = {} if given.get("configuration") is None else read.table(given["configuration"], "configuration")
    _check_modes(read.rows(options.get("acceptedOutputModes"), "configuration.acceptedOutputModes", MAX_MODES))
    push = options.get("taskPushNotificationConfig")
    message_id = read.name(message.get("messageId"), "message.messageId")
    only = parts[0] if len(parts) == 1 else None
    user = UserMessage(id=message_id, content=only.text if isinstance(only, TextPart) else parts)
    run = RunRequest(
        session_id=_id(message.get("contextId"), "message.contextId"),
        messages=(user,) if parts else (),
        resume=decisions,
        detached=True,
    )
    return SendRequest(
        run=run,
        task_id=_id(message.get("taskId"), "message.taskId"),
        return_immediately=options.get("returnImmediately") is True,
        history_length=history_length(options.get("historyLength"), "configuration.historyLength"),
        push=None if push is None else push_config(read.table(push, "configuration.taskPushNotificationConfig")),
    )


def _id(value: Any, path: str) -> str | None:
    """Reads an id. An empty string counts as absent, as in protobuf's JSON."""
    return None if value in (None, "") else read.valid_id(value, path)


def _parts(given: Any, max_text: int) -> tuple[tuple[Part, ...], tuple[Resume, ...]]:
    parts: list[Part] = []
    decisions: list[Resume] = []
    for path, part in read.tables(given, "message.parts", MAX_PARTS):
        decision = _decision(part.get("data"), path)
        if decision is not None:
            decisions.append(decision)
        else:
            parts.append(_part(part, path, max_text))
    if not parts and not decisions:
        raise InvalidRequest("message.parts is empty", field="message.parts")
    return tuple(parts), tuple(decisions)


def _part(part: dict[str, Any], path: str, max_text: int) -> Part:
    contents = [key for key in ("text", "raw", "url", "data") if part.get(key) is not None]
    if len(contents) != 1:
        raise InvalidRequest(f"{path} must have exactly one of text, raw, url and data", field=path)
    (kind,) = contents
    if kind == "text":
        return TextPart(read.short_text(part["text"], f"{path}.text", max_text))
    if kind == "data":
        return TextPart(sse.json_bytes(read.opaque(part["data"], f"{path}.data")).decode())
    mime_type, filename = part.get("mediaType"), part.get("filename")
    return MediaPart(
        mime_type=read.short_text(mime_type, f"{path}.mediaType", MAX_TYPE) if mime_type else UNKNOWN_TYPE,
        data=base64_text(part["raw"], f"{path}.raw") if kind == "raw" else None,
        url=read.text(part["url"], f"{path}.url") if kind == "url" else None,
        filename=read.text(filename, f"{path}.filename") if filename else None,
    )


def _decision(data: Any, path: str) -> Resume | None:
    """Reads a person's answer to an approval; None for other data. Refuses anything but yes and no (ACC-07)."""
    if not isinstance(data, dict) or INTERRUPT not in data:
        return None
    answer = {key: data[key] for key in (APPROVED, ARGUMENTS) if key in data}
    approved = is_approval(answer)
    if approved is None:
        raise InvalidRequest(f"{path}.data.{APPROVED} must be true or false", field=f"{path}.data.{APPROVED}")
    payload = read.opaque(answer, f"{path}.data")
    return Resume(
        interrupt_id=read.name(data[INTERRUPT], f"{path}.data.{INTERRUPT}"),
        approved=approved,
        payload=payload,
        reason=read.refusal_reason(data.get(REASON), f"{path}.data.{REASON}"),
    )


def _check_modes(modes: list[Any]) -> None:
    """Checks that the client accepts text, the agent's only output. Raises before a run starts."""
    if modes and not any(isinstance(mode, str) and mode.startswith(("text/", "*/*", "text")) for mode in modes):
        raise content_type_not_supported("The agent answers with text/plain, which acceptedOutputModes does not list.")


def history_length(value: Any, path: str) -> int | None:
    """Returns how many messages of the history to show; None means all. A query has the number as text."""
    if value is None or value == "":
        return None
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < MAX_PARTS else value
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise InvalidRequest(f"{path} must be a whole number, 0 or more", field=path)
    return number


def push_config(given: dict[str, Any]) -> PushConfig:
    authentication = given.get("authentication")
    login = {} if authentication is None else read.table(authentication, "authentication")
    config_id, token = given.get("id"), given.get("token")
    return PushConfig(
        id=read.valid_id(config_id, "id") if config_id else "",
        url=read.short_text(given.get("url"), "url", 2000),
        version=OLD_VERSION if given.get(PUSH_VERSION) == OLD_VERSION else VERSION,
        token=_header_text(token, "token", 1000),
        scheme=_header_text(login.get("scheme"), "authentication.scheme"),
        credentials=_header_text(login.get("credentials"), "authentication.credentials"),
    )


def _header_text(value: Any, path: str, limit: int = 8000) -> str | None:
    """Reads text for a header. Refuses line breaks: they could begin another header."""
    if value in (None, ""):
        return None
    given = read.short_text(value, path, limit)
    if not given.isascii() or not given.isprintable():
        raise InvalidRequest(f"{path} must be printable ASCII", field=path)
    return given


def list_request(given: dict[str, Any]) -> ListRequest:
    """Reads a ListTasksRequest, from a body or from a query."""
    size = history_length(given.get("pageSize"), "pageSize")
    if size is not None and not 1 <= size <= MAX_PAGE:
        raise InvalidRequest(f"pageSize must be from 1 to {MAX_PAGE}", field="pageSize")
    state, after = given.get("status"), given.get("statusTimestampAfter")
    return ListRequest(
        context_id=_id(given.get("contextId"), "contextId"),
        state=None if state in (None, "", "TASK_STATE_UNSPECIFIED") else _state(state),
        page_size=size or PAGE,
        page_token=_token(given.get("pageToken")),
        history_length=history_length(given.get("historyLength"), "historyLength"),
        after=None if after in (None, "") else _time(after),
        include_artifacts=given.get("includeArtifacts") in (True, "true"),
    )


def _state(value: Any) -> str:
    if not isinstance(value, str) or value.removeprefix("TASK_STATE_") not in STATES:
        raise InvalidRequest("status is not a state of a task", field="status")
    return value


def _token(value: Any) -> str:
    if value in (None, ""):
        return ""
    if not isinstance(value, str) or not value.isdecimal() or len(value) > MAX_DIGITS:
        raise InvalidRequest("pageToken was not issued by this server", field="pageToken")
    return value


def _time(value: Any) -> datetime:
    try:
        moment = msgspec.convert(value, datetime)
    except (msgspec.ValidationError, UnicodeError) as error:  # UnicodeError: half a surrogate pair
        raise InvalidRequest(
            "statusTimestampAfter must be a time such as 2026-11-16T12:00:00Z", field="statusTimestampAfter"
        ) from error
    if moment.tzinfo is None:
        raise InvalidRequest("statusTimestampAfter needs a time zone", field="statusTimestampAfter")
    return moment
