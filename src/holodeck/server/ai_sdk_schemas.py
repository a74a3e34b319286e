"""What OpenAPI says about the AI SDK wire: the members that are read, and examples."""

from typing import Any

from holodeck.server.schemas import OBJECT, json_request, json_response
from holodeck.wires.ai_sdk.request import MAX_CONTEXT, MAX_PARTS, MAX_TOOLS
from holodeck.wires.body import MAX_NAME

UI_MESSAGE: dict[str, Any] = {
    "type": "object",
    "required": ["id", "role", "parts"],
    "properties": {
        "id": {"type": "string", "maxLength": MAX_NAME},
        "role": {"enum": ["user", "assistant", "system"]},
        "parts": {"type": "array", "maxItems": MAX_PARTS, "items": {"type": "object"}},
    },
}
_EXAMPLE = {"id": "chat-1", "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}]}
UI_BODY = json_request(
    {
        "type": "object",
        "description": "As DefaultChatTransport sends it; tools, context, state and timezone come from its `body`",
        "required": ["id", "messages"],
        "properties": {
            "id": {"type": "string", "minLength": 1, "maxLength": 128, "description": "The session"},
            "messages": {"type": "array", "minItems": 1, "maxItems": 10_000, "items": UI_MESSAGE},
            "trigger": {"enum": ["submit-message", "regenerate-message", None]},
            "messageId": {"type": ["string", "null"], "maxLength": MAX_NAME},
            "tools": {
                "type": ["array", "null"],
                "maxItems": MAX_TOOLS,
                "items": OBJECT,
                "description": "Tools that the client carries out: name, description, parameters",
            },
            "context": {"type": ["array", "null"], "maxItems": MAX_CONTEXT, "items": OBJECT},
            "state": {},
            "timezone": {"type": ["string", "null"], "maxLength": MAX_NAME},
        },
    },
    _EXAMPLE,
)
UI_MESSAGES = json_response("The conversation, for `useChat({messages})`", {"type": "array", "items": UI_MESSAGE})
