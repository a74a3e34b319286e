"""A2A 0.3 over HTTP+JSON.

Its JSON is that of 0.3's protobuf, which differs both from 1.0 and from 0.3 over JSON-RPC. Messages have `content`,
files and data are wrapped, `CANCELLED` is spelled with two l, and the last status of a stream is marked `final`.
Requests are converted to 1.0, answers to 0.3.
"""

from typing import Any

from holodeck.core.json_values import JsonObject
from holodeck.errors import HoloDeckError, InvalidRequest
from holodeck.wires.a2a import v03
from holodeck.wires.a2a.error_form import A2aError, http_error
from holodeck.wires.a2a.task import CANCELED, INPUT_REQUIRED, TERMINAL
from holodeck.wires.body import MAX_VALUES, rows, table
from holodeck.wires.jsonrpc import error_object

_CANCELLED = "TASK_STATE_CANCELLED"


def params_of(operation: str, given: JsonObject) -> JsonObject:
    if operation == "CreateTaskPushNotificationConfig":
        return _push_params(given)
    if operation not in ("SendMessage", "SendStreamingMessage"):
        return given
    sent = given.get("request") if given.get("message") is None else given["message"]  # the field, and its name in JSON
    message = dict(table(sent, "message"))
    parts = rows(message.pop("content", None), "message.content", MAX_VALUES)
    message["parts"] = [_part(table(each, f"message.content[{i}]")) for i, each in enumerate(parts)]
    return {"message": message, "configuration": _configuration(given.get("configuration"))}


def _configuration(given: Any) -> JsonObject:
    """Reads `blocking`. Protobuf's JSON omits a false value, but a request without a configuration does wait."""
    if given is None:
        return {}
    options = table(given, "configuration")
    push = options.get("pushNotification")
    return {
        "acceptedOutputModes": options.get("acceptedOutputModes"),
        "historyLength": options.get("historyLength"),
        "returnImmediately": options.get("blocking") is not True,
        "taskPushNotificationConfig": None if push is None else v03.push_params(push),
    }


def _push_params(given: JsonObject) -> JsonObject:
    """Reads the configuration: the body itself, or a member of it. The clients for JavaScript and Python differ."""
    config = table(given.get("config", given), "config")
    params = v03.push_params(config.get("pushNotificationConfig"))
    return {"id": given.get("configId"), **params, "taskId": given["taskId"]}


def _part(part: JsonObject) -> JsonObject:
    if part.get("file") is not None:
        file = table(part["file"], "message.content.file")
        about = {"raw": file.get("fileWithBytes"), "url": file.get("fileWithUri"), "mediaType": file.get("mimeType")}
        return {**about, "filename": file.get("name")}
    if part.get("data") is not None:
        return {"data": table(part["data"], "message.content.data").get("data")}
    return {"text": part.get("text")}


def result_of(operation: str, result: Any) -> Any:
    if operation == "SendMessage":
        return {"task": _task(result["task"])}
    if operation == "ListTaskPushNotificationConfigs":
        return {"configs": [_push(each) for each in result["configs"]]}
    if operation in ("CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig"):
        return _push(result)
    return result if operation == "DeleteTaskPushNotificationConfig" else _task(result)


def _push(given: JsonObject) -> JsonObject:
    name = f"tasks/{given['taskId']}/pushNotificationConfigs/{given['id']}"
    return {"name": name, "pushNotificationConfig": v03.push_config(given)}


def update(payload: JsonObject) -> JsonObject:
    """Converts one frame of a stream."""
    if "task" in payload:
        return {"task": _task(payload["task"])}
    if "artifactUpdate" in payload:
        given = payload["artifactUpdate"]
        return {"artifactUpdate": {**given, "artifact": _artifact(given["artifact"])}}
    given = payload["statusUpdate"]
    state = given["status"]["state"]
    final = state in TERMINAL or state == INPUT_REQUIRED
    return {"statusUpdate": {**given, "status": _status(given["status"]), "final": final}}


def _task(given: JsonObject) -> JsonObject:
    return {
        **given,
        "status": _status(given["status"]),
        "artifacts": [_artifact(each) for each in given.get("artifacts", ())],
        "history": [_message(each) for each in given.get("history", ())],
    }


def _status(given: JsonObject) -> JsonObject:
    state = _CANCELLED if given["state"] == CANCELED else given["state"]
    message = {"message": _message(given["message"])} if "message" in given else {}
    return {**given, "state": state, **message}


def _message(given: JsonObject) -> JsonObject:
    about = {key: value for key, value in given.items() if key != "parts"}
    return {**about, "content": [_old_part(each) for each in given["parts"]]}


def _artifact(given: JsonObject) -> JsonObject:
    return {**given, "parts": [_old_part(each) for each in given["parts"]]}


def _old_part(part: JsonObject) -> JsonObject:
    if "text" in part:
        return {"text": part["text"]}
    if "data" in part:
        data = part["data"]
        return {"data": {"data": data if isinstance(data, dict) else {"value": data}}}
    file = {"fileWithBytes": part["raw"]} if "raw" in part else {"fileWithUri": part["url"]}
    about = {"mimeType": part.get("mediaType"), "name": part.get("filename")}
    return {"file": file | {key: value for key, value in about.items() if value}}


def http_error_of(error: HoloDeckError, instance: str | None) -> tuple[int, JsonObject]:
    """Returns the status and the body of an error: clients of 0.3 look for the JSON-RPC code, or for a class name."""
    status, body = http_error(error, instance)
    return status, {"code": error_object(error, instance).code, "type": _class(error), "message": error.message, **body}


def _class(error: HoloDeckError) -> str:
    if isinstance(error, A2aError):
        return error.why.title().replace("_", "") + "Error"
    return "InvalidParamsError" if isinstance(error, InvalidRequest) else "InternalError"
