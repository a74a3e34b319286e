"""Two parsers of server-sent events that share nothing: the WHATWG rules, and what @ag-ui/client 1.0.0 really does."""

import re
from typing import NamedTuple


class Parsed(NamedTuple):
    data: str
    event: str = "message"
    id: str = ""


def whatwg(stream: bytes) -> list[Parsed]:
    """https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation."""
    found: list[Parsed] = []
    data: list[str] = []
    event, last_id = "", ""
    for line in re.split(r"\r\n|\n|\r", stream.decode().removeprefix("\ufeff")):
        if not line:
            if data:
                found.append(Parsed("\n".join(data), event or "message", last_id))
            data, event = [], ""
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            event = value
        elif name == "id" and "\0" not in value:
            last_id = value
    return found


def agui_client(stream: bytes) -> list[str]:
    """Splits at two LFs, takes `data:` lines, ignores everything else."""
    found = []
    for block in stream.decode().split("\n\n"):
        lines = [line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:")]
        if lines:
            found.append("\n".join(lines))
    return found
