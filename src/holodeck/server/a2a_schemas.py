"""What OpenAPI says about A2A. Its own schemas are the protocol's; here are the members that are read, and examples."""

from typing import Any

from holodeck.core.ids import MAX_FOREIGN_ID
from holodeck.wires.a2a.request import MAX_PARTS
from holodeck.wires.body import MAX_NAME
from holodeck.wires.jsonrpc import MAX_ID, MAX_METHOD

_OBJECT = {"application/json": {"schema": {"type": "object"}}}
_MESSAGE: dict[str, Any] = {
    "type": "object",
    "required": ["messageId", "role", "parts"],
    "properties": {
        "messageId": {"type": "string", "minLength": 1, "maxLength": MAX_NAME},
        "role": {"enum": ["ROLE_USER"]},
        "parts": {"type": "array", "minItems": 1, "maxItems": MAX_PARTS, "items": {"type": "object"}},
        "contextId": {"type": "string", "maxLength": MAX_FOREIGN_ID, "description": "The session"},
        "taskId": {
            "type": "string",
            "maxLength": MAX_FOREIGN_ID,
            "description": "A task that waits for this message",
        },
    },
}
_EXAMPLE = {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "What is due tomorrow?"}]}}
MESSAGE_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["message"],
                "properties": {"message": _MESSAGE, "configuration": {"type": "object"}},
            },
            "example": _EXAMPLE,
        }
    },
}
OLD_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["message"],
                "properties": {"message": {"type": "object"}, "configuration": {"type": "object"}},
            },
            "example": {"message": {"messageId": "m1", "role": "ROLE_USER", "content": [{"text": "Hello"}]}},
        }
    },
}
RPC_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["jsonrpc", "method"],
                "properties": {
                    "jsonrpc": {"const": "2.0"},
                    "id": {"type": ["string", "integer"], "maxLength": MAX_ID},
                    "method": {"type": "string", "maxLength": MAX_METHOD},
                    "params": {"type": "object"},
                },
            },
            "example": {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": _EXAMPLE},
        }
    },
}
PUSH_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["url"],
                "properties": {"id": {"type": "string", "maxLength": MAX_FOREIGN_ID}},
            }
        }
    },
}
OLD_PUSH_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["pushNotificationConfig"],
                "properties": {"pushNotificationConfig": {"type": "object", "required": ["url"]}},
            }
        }
    },
}
_STREAMED = {"text/event-stream": {"schema": {"type": "string"}}}
_FAILED = {"description": "An error as the protocol has it", "content": _OBJECT}
CARD: dict[str, Any] = {"description": "The card", "content": _OBJECT}
CARD_OR_ERROR: dict[int | str, Any] = {200: CARD, "default": _FAILED}
TASK: dict[int | str, Any] = {200: {"description": "The task", "content": _OBJECT}, "default": _FAILED}
LIST: dict[int | str, Any] = {200: {"description": "A page of tasks", "content": _OBJECT}, "default": _FAILED}
EMPTY: dict[int | str, Any] = {200: {"description": "What is registered", "content": _OBJECT}, "default": _FAILED}
STREAM: dict[int | str, Any] = {
    200: {"description": "The task, then its updates", "content": _STREAMED},
    "default": _FAILED,
}
RPC_RESULT: dict[int | str, Any] = {
    200: {"description": "The response, or a stream of them", "content": {**_OBJECT, **_STREAMED}},
    "default": _FAILED,
}
VERSION = {
    "name": "A2A-Version",
    "in": "header",
    "description": "1.0; without it a request is one of 0.3",
    "schema": {"type": "string", "maxLength": MAX_NAME},
}
