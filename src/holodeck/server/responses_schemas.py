"""What OpenAPI says about the Responses wire: the members that are read, and examples."""

from holodeck.core.json_schema import array, nullable, object_of, string
from holodeck.server.schemas import OBJECT, json_request, json_response, parameter
from holodeck.wires.body import MAX_NAME, MAX_TEXT
from holodeck.wires.openai_chat.parameters import MAX_TOOLS

_TEXT, _FLAG = nullable(string(maxLength=MAX_NAME)), {"type": ["boolean", "null"]}
_RESPONSE_REQUEST = object_of(
    {
        "model": {**_TEXT, "description": "The agent's name; without it, the agent that is served"},
        "input": {"description": "A text, or items: messages, results of functions, answers to approvals"},
        "instructions": nullable(string("Shown to the model beside the agent's own", maxLength=MAX_TEXT)),
        "previous_response_id": {**_TEXT, "description": "The response to go on from"},
        "conversation": {"description": "The session, as its id or as an object with it"},
        "stream": _FLAG,
        "store": {**_FLAG, "description": "false: nothing is kept, and `input` is the whole conversation"},
        "background": {**_FLAG, "description": "true: the answer comes at once, the run goes on by itself"},
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
    parameter("stream", "query", "Read its events again", type="boolean"),
    parameter("starting_after", "query", "The `sequence_number` of the last event that is known", **_NUMBER),
)
INPUT_PARAMETERS = (
    parameter("limit", "query", type="integer", minimum=1, maximum=100, default=20),
    parameter("order", "query", enum=["asc", "desc"], default="desc"),
    parameter("after", "query", "The id of an item", maxLength=MAX_NAME),
)
