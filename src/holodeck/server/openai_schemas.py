"""OpenAPI schemas of the Chat Completions and the Responses wire: the members that are read, and examples."""

import msgspec

from holodeck.core.json_schema import array, nullable, object_of, string
from holodeck.server.schemas import ID_IN_HEADER, OBJECT, REFERENCE, json_request, json_response, parameter
from holodeck.wires.body import MAX_NAME, MAX_TEXT
from holodeck.wires.openai_chat.parameters import MAX_TOOLS
from holodeck.wires.openai_chat.request import MAX_MESSAGES
from holodeck.wires.openai_chat.response import ChatCompletion, ModelList, OpenAIModel

(_COMPLETION,), COMPLETION_SCHEMAS = msgspec.json.schema_components([ChatCompletion], ref_template=REFERENCE)
(_MODEL, _MODELS), MODEL_SCHEMAS = msgspec.json.schema_components([OpenAIModel, ModelList], ref_template=REFERENCE)

_TEXT, _FLAG = nullable(string(maxLength=MAX_NAME)), {"type": ["boolean", "null"]}
_MESSAGE = object_of(
    {
        "role": {"enum": ["user", "assistant", "tool", "system", "developer"]},
        "content": {"description": "A text, or parts of the types text, image_url and file"},
        "tool_calls": {"description": "Of an assistant message: calls of the client's own tools"},
        "tool_call_id": {**_TEXT, "description": "Of a tool message: the call that it answers"},
    },
    required=["role"],
)
_KEPT = "true: the conversation is kept, and recognised when its messages come again"
_SESSION_IN_METADATA = "`session_id` in it names a session, as X-Session-Id does"
_COMPLETION_REQUEST = object_of(
    {
        "model": {**_TEXT, "description": "The agent's name; without it, the agent that is served"},
        "messages": array(_MESSAGE, minItems=1, maxItems=MAX_MESSAGES),
        "stream": _FLAG,
        "stream_options": nullable(object_of({"include_usage": _FLAG})),
        "tools": nullable(array(OBJECT, "Functions that the client carries out", maxItems=MAX_TOOLS)),
        "store": {**_FLAG, "description": _KEPT},
        "metadata": {"type": ["object", "null"], "description": _SESSION_IN_METADATA},
    },
    required=["messages"],
)
COMPLETION_BODY = json_request(
    _COMPLETION_REQUEST, {"messages": [{"role": "user", "content": "What is due tomorrow?"}]}
)
COMPLETION = json_response("The completion, or its chunks where `stream` is true", _COMPLETION, streams=True)
MODEL = json_response("The agent", _MODEL)
MODELS = json_response("A list of one", _MODELS)
SESSION_HEADER = "X-Session-Id"
CONVERSATION_HEADER = "X-Conversation-Id"
HINT_HEADER = "X-OpenWebUI-Chat-Id"
_NAMED_SESSION = "The session to continue, on whichever wire it began; without one, only `messages` counts"
SESSION_PARAMETERS = tuple(
    parameter(header, "header", _NAMED_SESSION, **ID_IN_HEADER) for header in (SESSION_HEADER, CONVERSATION_HEADER)
)


_RESPONSE_REQUEST = object_of(
    {
        "model": {**_TEXT, "description": "The agent's name; without it, the agent that is served"},
        "input": {"description": "A text, or items: messages, results of functions, answers to approvals"},
        "instructions": nullable(string("Shown to the model beside the agent's own", maxLength=MAX_TEXT)),
        "previous_response_id": {**_TEXT, "description": "The response to continue"},
        "conversation": {"description": "The session, as its id or as an object with it"},
        "stream": _FLAG,
        "store": {**_FLAG, "description": "false: nothing is kept, and `input` is the whole conversation"},
        "background": {**_FLAG, "description": "true: the answer comes immediately, the run continues by itself"},
        "tools": nullable(array(OBJECT, "Functions that the client carries out", maxItems=MAX_TOOLS)),
        "tool_choice": {"description": "auto, none, required, or a function"},
        "max_output_tokens": {"type": ["integer", "null"], "minimum": 1},
        "metadata": nullable(OBJECT),
    },
    required=["input"],
)
RESPONSE_BODY = json_request(_RESPONSE_REQUEST, {"input": "What is due tomorrow?"})
RESPONSE = json_response("The response, or its events where `stream` is true", streams=True)
CONVERSATION_BODY = json_request(
    object_of({"metadata": nullable(OBJECT), "items": {"maxItems": 0}}), {"metadata": {"topic": "todos"}}
)
CONVERSATION = json_response("The conversation")
INPUT_ITEMS = json_response("A page of items")
DELETED = json_response("It is deleted")
_NUMBER = {"type": "integer", "minimum": 0, "maximum": 10**15 - 1}
READ_PARAMETERS = (
    parameter("stream", "query", "Replay its events", type="boolean"),
    parameter("starting_after", "query", "The `sequence_number` of the last event that is known", **_NUMBER),
)
INPUT_PARAMETERS = (
    parameter("limit", "query", type="integer", minimum=1, maximum=100, default=20),
    parameter("order", "query", enum=["asc", "desc"], default="desc"),
    parameter("after", "query", "The id of an item", maxLength=MAX_NAME),
)
