"""What OpenAPI says about the Chat Completions wire: the members that are read, and examples."""

from typing import Any

import msgspec

from holodeck.server.schemas import ID_IN_HEADER, json_request, json_response, parameter
from holodeck.wires.body import MAX_NAME
from holodeck.wires.openai_chat.parameters import MAX_TOOLS
from holodeck.wires.openai_chat.request import MAX_MESSAGES
from holodeck.wires.openai_chat.response import ChatCompletion, ModelList, OpenAIModel

(_COMPLETION, _MODEL, _MODELS), OPENAI_SCHEMAS = msgspec.json.schema_components(
    [ChatCompletion, OpenAIModel, ModelList], ref_template="#/components/schemas/{name}"
)

_NULLABLE_TEXT = {"type": ["string", "null"], "maxLength": MAX_NAME}
_MESSAGE: dict[str, Any] = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"enum": ["user", "assistant", "tool", "system", "developer"]},
        "content": {"description": "A text, or parts of the types text, image_url and file"},
        "tool_calls": {"description": "Of an assistant message: calls of the client's own tools"},
        "tool_call_id": {**_NULLABLE_TEXT, "description": "Of a tool message: the call that it answers"},
    },
}
COMPLETION_BODY = json_request(
    {
        "type": "object",
        "required": ["messages"],
        "properties": {
            "model": {
                **_NULLABLE_TEXT,
                "description": "The agent's name; without it, the agent that is served",
            },
            "messages": {"type": "array", "minItems": 1, "maxItems": MAX_MESSAGES, "items": _MESSAGE},
            "stream": {"type": ["boolean", "null"]},
            "stream_options": {
                "type": ["object", "null"],
                "properties": {"include_usage": {"type": ["boolean", "null"]}},
            },
            "tools": {
                "type": ["array", "null"],
                "maxItems": MAX_TOOLS,
                "items": {"type": "object"},
                "description": "Functions that the client carries out",
            },
            "store": {
                "type": ["boolean", "null"],
                "description": "true: the conversation is kept, and recognised when its messages come again",
            },
            "metadata": {
                "type": ["object", "null"],
                "description": "`session_id` in it names a session, as X-Session-Id does",
            },
        },
    },
    {"messages": [{"role": "user", "content": "What is due tomorrow?"}]},
)
COMPLETION = json_response("The completion, or its chunks where `stream` is true", _COMPLETION, streams=True)
MODEL = json_response("The agent", _MODEL)
MODELS = json_response("A list of one", _MODELS)
SESSION_HEADER = "X-Session-Id"
CONVERSATION_HEADER = "X-Conversation-Id"
HINT_HEADER = "X-OpenWebUI-Chat-Id"
SESSION_PARAMETERS = tuple(
    parameter(
        header,
        "header",
        "The session to go on with, on whichever wire it began; without one, only `messages` counts",
        **ID_IN_HEADER,
    )
    for header in (SESSION_HEADER, CONVERSATION_HEADER)
)
