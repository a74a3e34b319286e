"""The wires. A new one is a folder in `holodeck.wires`, a module in `routes/` and a line here."""

from collections.abc import Iterable, Mapping

from holodeck.errors import StartError
from holodeck.server.agent_server import OpenEncoder
from holodeck.server.routes import a2a, agui, ai_sdk, chat_stream, mcp, openai_chat, openai_responses, rest
from holodeck.server.wire import Wire

WIRES: Mapping[str, Wire] = {
    wire.name: wire
    for wire in (
        agui.WIRE,
        rest.WIRE,
        chat_stream.WIRE,
        openai_chat.WIRE,
        openai_responses.WIRE,
        ai_sdk.WIRE,
        mcp.WIRE,
        a2a.WIRE,
    )
}

ENCODERS: Mapping[str, OpenEncoder] = {
    **{wire.name: wire.open_encoder for wire in WIRES.values()},
    "": agui.WIRE.open_encoder,  # for runs that Python code starts, or a wire that only an older server had
}


DEFAULT_WIRES = tuple(name for name, wire in WIRES.items() if wire.is_default)


def wires_of(names: Iterable[str]) -> list[Wire]:
    """Returns the wires of these names, in this order; without names, the default ones."""
    wanted = list(names) or DEFAULT_WIRES
    unknown = sorted(set(wanted) - set(WIRES))
    if unknown:
        raise StartError(f"There is no protocol {', '.join(unknown)}; there are {', '.join(WIRES)}.")
    return [WIRES[name] for name in wanted]
