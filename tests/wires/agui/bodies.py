"""Bodies as AG-UI clients post them, whole and with one thing changed."""

import json
from typing import Any

USER = {"id": "u1", "role": "user", "content": "Hello"}


def body(**changes: Any) -> bytes:
    """A body as HttpAgent posts it, with changes; `...` takes a member away."""
    members = {
        "threadId": "t1",
        "runId": "r1",
        "messages": [USER],
        "tools": [],
        "context": [],
        "forwardedProps": {},
        "state": {},
        "protocolVersion": "1.0",
        **changes,
    }
    return json.dumps({key: value for key, value in members.items() if value is not ...}).encode()


def with_message(**message: Any) -> bytes:
    return body(messages=[USER, {key: value for key, value in {"id": "m2", **message}.items() if value is not ...}])
