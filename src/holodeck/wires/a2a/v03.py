"""A2A 0.3 beside 1.0: the same values with other names. Requests become those of 1.0, answers those of 0.3.

Half of the frameworks still send 0.3. Objects have a `kind`, states and roles are lower case, and the last status of a
stream is marked `final`.
"""

from collections.abc import Mapping
from typing import Any

from holodeck.core.json_values import JsonObject
from holodeck.wires.a2a.card import OLD_VERSION
from holodeck.wires.a2a.request import PUSH_VERSION
from holodeck.wires.a2a.task import INPUT_REQUIRED, TERMINAL
from holodeck.wires.body import MAX_VALUES, rows, table

METHODS: Mapping[str, str] = {
    "message/send": "SendMessage",
    "message/stream": "SendStreamingMessage",
    "tasks/get": "GetTask",
    "tasks/cancel": "CancelTask",
    "tasks/resubscribe": "SubscribeToTask",
    "tasks/pushNotificationConfig/set": "CreateTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/get": "GetTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/list": "ListTaskPushNotificationConfigs",
    "tasks/pushNotificationConfig/delete": "DeleteTaskPushNotificationConfig",
    "agent/getAuthenticatedExtendedCard": "GetExtendedAgentCard",
}
"""Maps each method of 0.3 to the one of 1.0 that does the same."""


def params_of(method: str, given: JsonObject) -> JsonObject:
    if method.startswith("message/"):
        return _send(given)
    if method == "tasks/pushNotificationConfig/set":
        return {**push_params(given.get("pushNotificationConfig")), "taskId": given.get("taskId")}
    if method.startswith("tasks/pushNotificationConfig/"):
        return {"taskId": given.get("id"), "id": given.get("pushNotificationConfigId")}
    return given


def _send(given: JsonObject) -> JsonObject:
    message = dict(table(given.get("message"), "message"))
    parts = rows(message.get("parts"), "message.parts", MAX_VALUES)
    message["parts"] = [_part(_table(each, f"message.parts[{i}]")) for i, each in enumerate(parts)]
    message["role"] = {"user": "ROLE_USER", "agent": "ROLE_AGENT"}.get(str(message.get("role")), message.get("role"))
    options = _table(given.get("configuration"), "configuration")
    push = options.get("pushNotificationConfig")
    configuration = {
        "acceptedOutputModes": options.get("acceptedOutputModes"),
        "historyLength": options.get("historyLength"),
        "returnImmediately": options.get("blocking") is False,
        "taskPushNotificationConfig": None if push is None else push_params(push),
    }
    return {"message": message, "configuration": configuration}


def _table(value: Any, path: str) -> JsonObject:
    return {} if value is None else table(value, path)


def _part(part: JsonObject) -> JsonObject:
    if part.get("kind") != "file":
        return {key: part[key] for key in ("text", "data", "metadata") if key in part}
    file = _table(part.get("file"), "message.parts.file")
    about = {"raw": file.get("bytes"), "url": file.get("uri"), "mediaType": file.get("mimeType")}
    return {**about, "filename": file.get("name")}


def result_of(method: str, result: Any) -> Any:
    if method == "message/send":
        return task(result["task"])
    if method in ("tasks/get", "tasks/cancel"):
        return task(result)
    if method == "tasks/pushNotificationConfig/list":
        return [_push(each) for each in result["configs"]]
    if method in ("tasks/pushNotificationConfig/set", "tasks/pushNotificationConfig/get"):
        return _push(result)
    return None if method == "tasks/pushNotificationConfig/delete" else result


def update(payload: JsonObject) -> JsonObject:
    """Converts one frame of a stream."""
    if "task" in payload:
        return task(payload["task"])
    if "artifactUpdate" in payload:
        given = payload["artifactUpdate"]
        return {**given, "artifact": _artifact(given["artifact"]), "kind": "artifact-update"}
    given = payload["statusUpdate"]
    state = given["status"]["state"]
    final = state in TERMINAL or state == INPUT_REQUIRED
    return {**given, "status": _status(given["status"]), "kind": "status-update", "final": final}


def task(given: JsonObject) -> JsonObject:
    return {
        **given,
        "kind": "task",
        "status": _status(given["status"]),
        "artifacts": [_artifact(each) for each in given.get("artifacts", ())],
        "history": [_message(each) for each in given.get("history", ())],
    }


def _status(given: JsonObject) -> JsonObject:
    state = given["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")
    message = {"message": _message(given["message"])} if "message" in given else {}
    return {**given, "state": state, **message}


def _message(given: JsonObject) -> JsonObject:
    role = given["role"].removeprefix("ROLE_").lower()
    return {**given, "kind": "message", "role": role, "parts": [_old_part(each) for each in given["parts"]]}


def _artifact(given: JsonObject) -> JsonObject:
    return {**given, "parts": [_old_part(each) for each in given["parts"]]}


def _old_part(part: JsonObject) -> JsonObject:
    if "text" in part:
        return {"kind": "text", "text": part["text"]}
    if "data" in part:
        data = part["data"]
        return {"kind": "data", "data": data if isinstance(data, dict) else {"value": data}}
    file = {"bytes": part["raw"]} if "raw" in part else {"uri": part["url"]}
    about = {"mimeType": part.get("mediaType"), "name": part.get("filename")}
    return {"kind": "file", "file": file | {key: value for key, value in about.items() if value}}


def _push(given: JsonObject) -> JsonObject:
    return {"taskId": given["taskId"], "pushNotificationConfig": push_config(given)}


def push_params(given: Any) -> JsonObject:
    """Converts a configuration of 0.3 to 1.0. Of several authentication schemes, the first is used."""
    config = _table(given, "pushNotificationConfig")
    login = _table(config.get("authentication"), "authentication")
    schemes = rows(login.get("schemes"), "authentication.schemes", MAX_VALUES)
    authentication = {"scheme": schemes[0], "credentials": login.get("credentials")} if schemes else None
    return {**config, "authentication": authentication, PUSH_VERSION: OLD_VERSION}


def push_config(given: JsonObject) -> JsonObject:
    config = {key: value for key, value in given.items() if key != "taskId"}
    if "authentication" in config:
        config["authentication"] = {"schemes": [config["authentication"]["scheme"]]}
    return config
