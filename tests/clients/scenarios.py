"""What AG-UI clients do in the tests: for each scenario the runs that `agui_driver.mjs` plays. See there for the words."""

from collections.abc import Iterator
from typing import Any

from tests.clients.driving import Json
from tests.clients.scenes import PIXEL

BACKGROUND: Json = {
    "name": "change_background",
    "description": "Changes the colour of the page",
    "parameters": {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]},
}
LETTER = "RGVhciBtb2RlbCwgYWxsIGlzIHdlbGwu"  # base64 of "Dear model, all is well."
PARTS: list[Json] = [
    {"type": "text", "text": "look at this"},
    {"type": "image", "source": {"type": "data", "value": PIXEL, "mimeType": "image/png"}},
    {"type": "document", "source": {"type": "data", "value": LETTER, "mimeType": "text/plain"}},
]
APPROVE: Json = {"status": "resolved", "payload": {"approved": True}}
REFUSE: Json = {"status": "resolved", "payload": {"approved": False}}
EDIT: Json = {"status": "resolved", "payload": {"approved": True, "arguments": {"name": "b.txt"}}}
CANCEL: Json = {"status": "cancelled"}


def once(say: Any, **fields: Any) -> list[Json]:
    return [{"say": say, **fields}]


def when(event: str, do: str) -> Json:
    return {"event": event, "do": do}


PLAIN: dict[str, list[Json]] = {
    "text": once("hello"),
    "tool": once("weather"),
    "parallel tools": once("weather twice"),
    "text and tool": once("think aloud"),
    "broken tool": once("break a tool"),
    "wrong arguments": once("misuse a tool"),
    "tool with a picture": once("show a picture"),
    "reasoning": once("reason"),
    "reasoning and tool": once("reason and look"),
    "frontend tool": [{"say": "paint it blue", "tools": [BACKGROUND]}, {"answer": "painted", "tools": [BACKGROUND]}],
    "frontend tool beside ours": [{"say": "paint and look", "tools": [BACKGROUND]}, {"answer": "painted"}],
    "approve": [{"say": "delete it"}, {"resume": [APPROVE]}],
    "edit and approve": [{"say": "delete it"}, {"resume": [EDIT]}],
    "refuse": [{"say": "delete it"}, {"resume": [REFUSE]}],
    "cancel the question": [{"say": "delete it"}, {"resume": [CANCEL]}],
    "approve one of two": [{"say": "delete both"}, {"resume": [APPROVE, REFUSE]}],
    "foreign resume": [{"say": "hello"}, {"resume": [{"interruptId": "not-ours", **APPROVE}]}],
    "error": once("fail"),
    "error at once": once("fail at once"),
    "abort": once("wait", on=when("TEXT_MESSAGE_CONTENT", "abort")),
    "leave and come back": once("speak slowly", on=when("TEXT_MESSAGE_CONTENT", "abort")),
    "stop": once("stop me", on=when("TEXT_MESSAGE_CONTENT", "stop")),
    "stop a tool": once("wait for a tool", on=when("TOOL_CALL_END", "stop")),
    "multimodal": once(PARTS),
    "empty reply": once("say nothing"),
    "long reply": once("talk on"),
    "unicode": once("unicode"),
    "two turns": [{"say": "hello"}, {"say": "what did I say"}],
    "activity, custom and raw": once("work"),
    "cut reply": once("run out of tokens"),
    "too many steps": once("go in circles"),
    "context": once("where am I", context=[{"description": "page", "value": "/invoices"}], props={"any": "thing"}),
    "client that forgot": [{"say": "weather"}, {"say": "what did I say", "fresh": True}],
}

STATE: dict[str, list[Json]] = {
    "state": once("plan"),
    "state of two runs": [{"say": "plan"}, {"say": "plan"}],
    "state kept for a client that forgot": [{"say": "plan"}, {"say": "hello", "fresh": True}],
    "patch that does not fit": once("plan badly"),
    "predictive state": once("write"),
}

NOT_READ_AGAIN = {"abort", "long reply", "foreign resume"}  # still running; costly; never a run


def scenarios(addresses: dict[str, str], wire: str, label: str, replay: tuple[str, ...] = ()) -> Iterator[Json]:
    for agent, table in (("plain", PLAIN), ("state", STATE)):
        for name, runs in table.items():
            again = [] if name in NOT_READ_AGAIN else list(replay)
            yield {
                "name": name,
                "url": f"{addresses[agent]}/awp",
                "wire": wire,
                "thread": f"{label}-{wire}-{name.replace(' ', '-')}",
                "state": {},
                "runs": [{**run, "replay": again} for run in runs],
            }
