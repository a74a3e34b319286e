"""What OpenAPI says about the Responses wire: the members that are read, and examples."""

from typing import Any

from holodeck.wires.body import MAX_NAME, MAX_TEXT
from holodeck.wires.openai_chat.parameters import MAX_TOOLS

_NULLABLE_TEXT = {"type": ["string", "null"], "maxLength": MAX_NAME}
_FLAG = {"type": ["boolean", "null"]}
_OBJECT = {"type": "object"}

RESPONSE_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["input"],
                "properties": {
                    "model": {
                        **_NULLABLE_TEXT,
                        "description": "The agent's name; without it, the agent that is served",
                    },
                    "input": {"description": "A text, or items: messages, results of functions, answers to approvals"},
                    "instructions": {
                        **_NULLABLE_TEXT,
                        "maxLength": MAX_TEXT,
                        "description": "Shown to the model beside the agent's own",
                    },
                    "previous_response_id": {**_NULLABLE_TEXT, "description": "The response to go on from"},
                    "conversation": {"description": "The session, as its id or as an object with it"},
                    "stream": _FLAG,
                    "store": {**_FLAG, "description": "false: nothing is kept, and `input` is the whole conversation"},
                    "background": {**_FLAG, "description": "true: the answer comes at once, the run goes on by itself"},
                    "tools": {
                        "type": ["array", "null"],
                        "maxItems": MAX_TOOLS,
                        "items": _OBJECT,
                        "description": "Functions that the client carries out",
                    },
                    "tool_choice": {"description": "auto, none, required, or a function"},
                    "max_output_tokens": {"type": ["integer", "null"], "minimum": 1},
                    "metadata": {"type": ["object", "null"]},
                },
            },
            "example": {"input": "What is due tomorrow?"},
        }
    },
}
RESPONSE: dict[int | str, Any] = {
    200: {
        "description": "The response, or its events where `stream` is true",
        "content": {"application/json": {"schema": _OBJECT}, "text/event-stream": {"schema": {"type": "string"}}},
    }
}
INPUT_ITEMS: dict[int | str, Any] = {
    200: {"description": "A page of items", "content": {"application/json": {"schema": _OBJECT}}}
}
DELETED: dict[int | str, Any] = {
    200: {"description": "It is deleted", "content": {"application/json": {"schema": _OBJECT}}}
}
READ_PARAMETERS = (
    {"name": "stream", "in": "query", "description": "Read its events again", "schema": {"type": "boolean"}},
    {
        "name": "starting_after",
        "in": "query",
        "description": "The `sequence_number` of the last event that is known",
        "schema": {"type": "integer", "minimum": 0, "maximum": 10**15 - 1},
    },
)
INPUT_PARAMETERS = (
    {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}},
    {"name": "order", "in": "query", "schema": {"enum": ["asc", "desc"], "default": "desc"}},
    {
        "name": "after",
        "in": "query",
        "description": "The id of an item",
        "schema": {"type": "string", "maxLength": MAX_NAME},
    },
)
