"""OpenAPI schemas of the REST and chat-stream wires: their own types, and examples that a test checks."""

from typing import Any

import msgspec

from holodeck.core.ids import MAX_ID_LENGTH
from holodeck.core.json_schema import array, object_of, string
from holodeck.server.schemas import REFERENCE, json_request, json_response
from holodeck.wires.body import MAX_TEXT
from holodeck.wires.chat_stream import request as chat_stream_request
from holodeck.wires.rest import request as rest_request
from holodeck.wires.rest.response import ChatResponse

(CHAT_REQUEST, CHAT_RESULT), CHAT_SCHEMAS = msgspec.json.schema_components(
    [rest_request.ChatRequest, ChatResponse], ref_template=REFERENCE
)
CHAT_STREAM_REQUEST = msgspec.json.schema(chat_stream_request.ChatStreamRequest)["$defs"]["ChatStreamRequest"]

# A request needs a message or a decision: a rule over two members, which a type cannot express.
CHAT_SCHEMAS["ChatRequest"]["anyOf"] = [
    {"required": ["message"], "properties": {"message": {"type": "string", "maxLength": rest_request.MAX_MESSAGE}}},
    {"required": ["resume"], "properties": {"resume": {"minItems": 1}}},
]

_SESSION = "From an earlier answer, or of your own: an unknown id begins a session, on every protocol the same"
_FORM_MEMBERS = {
    "message": CHAT_SCHEMAS["ChatRequest"]["properties"]["message"]["anyOf"][0],
    "session_id": string(_SESSION, maxLength=MAX_ID_LENGTH),
    "resume": string("The same list as in JSON, as JSON text", maxLength=MAX_TEXT),
    "files": array(string(format="binary"), maxItems=10),
}
CHAT_FORM = {**object_of(_FORM_MEMBERS), "anyOf": [{"required": ["message"]}, {"required": ["resume"]}]}
CHAT_BODY = json_request(
    CHAT_REQUEST, {"message": "What is due tomorrow?"}, **{"multipart/form-data": {"schema": CHAT_FORM}}
)
CHAT_RESPONSE = json_response("The answer", CHAT_RESULT)
CHAT_RESPONSE[200]["content"]["application/json"]["example"] = {
    "message_id": "01K9ZQ4W3V8N2R5T7Y9A1C3E5G",
    "content": "Buying eggs is due tomorrow at 15:00.",
    "session_id": "01K9ZQ4W3V0000000000000000",
    "tool_calls": [{"name": "list_todos", "arguments": {"due": "tomorrow"}, "status": "success"}],
    "tokens_used": {"prompt_tokens": 120, "completion_tokens": 14, "total_tokens": 134},
    "execution_time_ms": 812,
    "status": "completed",
    "files": [],
}
CHAT_STREAM_BODY = json_request(CHAT_STREAM_REQUEST, {"input": "Remind me to buy eggs tomorrow at 3pm"})


def _stream(description: str, *frames: tuple[str, str]) -> dict[int | str, dict[str, Any]]:
    example = "".join(f"event: {name}\ndata: {data}\n\n" for name, data in frames)
    content = {"text/event-stream": {"schema": {"type": "string"}, "example": example}}
    return {200: {"description": description, "content": content}}


_ID = '"message_id":"01K9ZQ4W3V8N2R5T7Y9A1C3E5G"'
CHAT_EVENTS = _stream(
    "Named events; the last is `stream_end` or `error`",
    ("stream_start", '{"session_id":"01K9ZQ4W3V0000000000000000",' + _ID + "}"),
    ("tool_call_start", '{"tool_call_id":"c1","name":"list_todos",' + _ID + "}"),
    ("tool_call_args", '{"tool_call_id":"c1","args_delta":"{}"}'),
    ("tool_call_end", '{"tool_call_id":"c1","status":"success","result":"buy eggs"}'),
    ("message_delta", '{"delta":"Buying eggs",' + _ID + "}"),
    ("stream_end", "{" + _ID + ',"tokens_used":null,"execution_time_ms":812,"status":"completed"}'),
)
_REQUEST = '"request_id":"req_0123456789ab"'
CHAT_STREAM_EVENTS = _stream(
    "Named events; the last is always `done`",
    ("thinking", '{"content":"The user wants a reminder.",' + _REQUEST + "}"),
    ("tool_call", '{"tool_name":"create_todo","arguments":{"title":"eggs"},"status":"in_progress",' + _REQUEST + "}"),
    ("tool_call", '{"tool_name":"create_todo","arguments":{"title":"eggs"},"status":"completed",' + _REQUEST + "}"),
    ("response_delta", '{"delta":"Done.","accumulated":"Done.",' + _REQUEST + "}"),
    ("done", '{"final_output":"Done.","tools_called":["create_todo"],"success":true,' + _REQUEST + "}"),
)
