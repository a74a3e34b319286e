"""OpenAPI schemas of the AI SDK wire: the members that are read, and examples."""

from holodeck.core.ids import MAX_FOREIGN_ID
from holodeck.core.json_schema import array, nullable, object_of, string
from holodeck.server.schemas import OBJECT, json_request, json_response
from holodeck.wires.ai_sdk.request import MAX_CONTEXT, MAX_PARTS, MAX_TOOLS
from holodeck.wires.body import MAX_NAME

_OWN_TOOLS = "Tools that the client carries out: name, description, parameters"
UI_MESSAGE = object_of(
    {
        "id": string(maxLength=MAX_NAME),
        "role": {"enum": ["user", "assistant", "system"]},
        "parts": array(OBJECT, maxItems=MAX_PARTS),
    },
    required=["id", "role", "parts"],
)
_EXAMPLE = {"id": "chat-1", "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}]}
_UI_REQUEST = object_of(
    {
        "id": string("The session", minLength=1, maxLength=MAX_FOREIGN_ID),
        "messages": array(UI_MESSAGE, minItems=1, maxItems=10_000),
        "trigger": {"enum": ["submit-message", "regenerate-message", None]},
        "messageId": nullable(string(maxLength=MAX_NAME)),
        "tools": nullable(array(OBJECT, _OWN_TOOLS, maxItems=MAX_TOOLS)),
        "context": nullable(array(OBJECT, maxItems=MAX_CONTEXT)),
        "state": {},
        "timezone": nullable(string(maxLength=MAX_NAME)),
    },
    required=["id", "messages"],
)
_SENT_BY = "As DefaultChatTransport sends it; tools, context, state and timezone come from its `body`"
UI_BODY = json_request({**_UI_REQUEST, "description": _SENT_BY}, _EXAMPLE)
UI_MESSAGES = json_response("The conversation, for `useChat({messages})`", array(UI_MESSAGE))
