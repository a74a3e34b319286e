"""What schemathesis has to know about our document: it holds the schema of an event stream against every single event.

OpenAPI 3.1 can only say that the whole stream is a text. Here each event is declared as what it is: JSON under `data`, and
an id to come back with.
"""

from typing import Any

import schemathesis

STREAM = "text/event-stream"
EVENT = {
    "type": "object",
    "required": ["data"],
    "properties": {
        "data": {"type": "string", "contentMediaType": "application/json", "minLength": 2},
        "event": {"type": "string", "pattern": "^[a-z_.]+$"},
        "id": {"type": "string", "pattern": ".:[0-9]+$"},
    },
}


@schemathesis.check
def nothing_of_another_user(_context: Any, response: Any, _case: Any) -> None:
    """`fuzzing.SECRET_WORDS` were written by a user whose key schemathesis does not have."""
    assert b"bobs-words-of-a-conversation" not in response.content, "what another user said is in an answer"


@schemathesis.hook
def before_load_schema(_context: Any, document: dict[str, Any]) -> None:
    for operations in document["paths"].values():
        for operation in operations.values():
            for answer in operation.get("responses", {}).values():
                if STREAM in answer.get("content", {}):
                    answer["content"][STREAM]["schema"] = EVENT
