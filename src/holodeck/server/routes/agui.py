"""AG-UI: `POST /awp`. The wire itself is `holodeck.wires.agui`."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holodeck.access.principal import CHAT
from holodeck.access.route_access import needs
from holodeck.server import copilotkit
from holodeck.server.agui_run import NAME, capabilities_of, open_encoder, start
from holodeck.server.intake import json_body, server_of
from holodeck.server.routing import Routes
from holodeck.server.schemas import AGENT_INPUT_BODY, ANYTHING, EVENT_STREAM, PROBLEMS
from holodeck.server.wire import Wire

routes = Routes(tag="AG-UI", responses=PROBLEMS)


@routes.post("/awp", "Run the agent", access=needs(CHAT), body=AGENT_INPUT_BODY, responses={200: EVENT_STREAM})
async def run_agent(request: Request) -> Response:
    """Starts a run and streams its events. Posting the same runId again joins the same run."""
    return await start(request, await json_body(request), request.headers.get("accept"))


@routes.get(
    "/awp/capabilities", "What the agent can do", access=needs(CHAT, open_as="capabilities"), responses=ANYTHING
)
async def agent_capabilities(request: Request) -> JSONResponse:
    return JSONResponse(capabilities_of(server_of(request)))


WIRE = Wire(
    name=NAME,
    title="AG-UI 1.0 over SSE and protobuf; CopilotKit's runtime contract",
    endpoints=(("AG-UI", "/awp"), ("CopilotKit", "/copilotkit")),
    # Fresh ids each time it is pasted: the same run id again would only replay the same run.
    example="""{"threadId":"t1","runId":"r'$RANDOM'","messages":"""
    """[{"id":"m'$RANDOM'","role":"user","content":"Hello"}]}""",
    routes=(routes, copilotkit.routes),
    open_encoder=open_encoder,
    has_playground=True,
)
