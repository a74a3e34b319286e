"""AG-UI as one value: `POST /awp` and CopilotKit's routes. The wire itself is `holodeck.wires.agui`."""

from holodeck.server import agui_run, copilotkit
from holodeck.server.wire import Wire
from holodeck.wires.agui.client_events import CLIENT_HEADER

WIRE = Wire(
    name=agui_run.NAME,
    title="AG-UI 1.0 over SSE and protobuf; CopilotKit's runtime contract",
    is_default=True,
    endpoints=(("AG-UI", "/awp"), ("CopilotKit", "/copilotkit")),
    # New ids each time it is pasted: the same run id again would only replay the same run.
    example="""{"threadId":"t1","runId":"r'$RANDOM'","messages":"""
    """[{"id":"m'$RANDOM'","role":"user","content":"Hello"}]}""",
    routes=(agui_run.routes, copilotkit.routes),
    open_encoder=agui_run.open_encoder,
    has_playground=True,
    request_headers=(CLIENT_HEADER,),
)
