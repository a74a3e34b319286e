"""AG-UI: `POST /awp`, and the runs that it and CopilotKit's routes start in the same way."""

import logging

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holodeck._version import __version__
from holodeck.access.principal import CHAT
from holodeck.access.route_access import needs
from holodeck.core.encoder import Encoder
from holodeck.core.events import RunStarted
from holodeck.core.ids import MAX_ID_LENGTH
from holodeck.core.json_schema import array, object_of, string
from holodeck.runs.port import RunKey
from holodeck.runs.run import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.identity import owner_of
from holodeck.server.intake import Arrival, begin, decoded, json_body, server_of
from holodeck.server.reading_stream import ReadingStream, ScanProgress, started_or_reading
from holodeck.server.routing import Routes
from holodeck.server.schemas import ANYTHING, EVENT_STREAM, OBJECT, PROBLEMS, json_request
from holodeck.server.streaming_response import EventStream, follow
from holodeck.wires.agui.capabilities import capabilities
from holodeck.wires.agui.client_events import CLIENT_HEADER, TERMINAL
from holodeck.wires.agui.decode import MAX_CONTEXT, MAX_RESUMES, decode
from holodeck.wires.agui.encode import encoder_for
from holodeck.wires.agui.profile import PROFILES, Profile
from holodeck.wires.body import MAX_NAME

log = logging.getLogger(__name__)

NAME = "ag-ui"
_AGENT_INPUT = {
    **object_of(
        {
            "threadId": string("The session", minLength=1, maxLength=MAX_ID_LENGTH),
            "runId": string(minLength=1, maxLength=MAX_ID_LENGTH),
            "parentRunId": string(maxLength=MAX_ID_LENGTH),
            "protocolVersion": string('"1.0"; absent for older clients', maxLength=MAX_NAME),
            "messages": array(OBJECT, maxItems=10_000),
            "tools": array(OBJECT, "Frontend tools", maxItems=128),
            "context": array(OBJECT, maxItems=MAX_CONTEXT),
            "state": {},
            "forwardedProps": {},
            "resume": array(OBJECT, "Answers to interrupts", maxItems=MAX_RESUMES),
        },
        required=["threadId", "runId", "messages"],
    ),
    "title": "RunAgentInput",
    "description": "AG-UI 1.0. What is not known is ignored; optional members may be null.",
    "example": {
        "threadId": "demo",
        "runId": "run-1",
        "protocolVersion": "1.0",
        "messages": [{"id": "m1", "role": "user", "content": "Hello"}],
    },
}
AGENT_INPUT_BODY = json_request(_AGENT_INPUT)
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


async def start(request: Request, body: bytes, accept: str | None = None) -> EventStream:
    """Starts the run of a RunAgentInput and streams it. The same runId again joins the same run.

    While a scan is being read, the stream shows which page it is at.
    """
    server, owner = server_of(request), owner_of(request)
    given = await decoded(decode, body, server.settings.block.limits.message_characters)
    for warning in given.warnings:
        log.warning("run %s: %s", given.run_id, warning)
    wanted, is_terminal = given.run, request.headers.get(CLIENT_HEADER) == TERMINAL
    if is_terminal:  # a terminal shows its own turns only, whatever came before
        wanted = msgspec.structs.replace(wanted, keeps_history=False)
    key = RunKey(NAME, owner, given.run_id, "runId", part=given.resumes)
    progress = ScanProgress() if given.has_files else None
    report = None if progress is None else progress.report
    starting = begin(
        Arrival(request, NAME, wanted, given.fingerprint, owner, key, is_cheap=progress is None, progress=report)
    )
    if progress is not None:
        run, reading = await started_or_reading(starting, progress)
        if run is None:
            started = RunStarted(given.run_id, given.thread_id, given.run.parent_run_id, server.agent.model.name)
            encoder = encoder_for(accept, given.profile, given.run_id)
            return ReadingStream(server, started, reading, progress, encoder)
    else:
        run = await starting
    return follow(
        server,
        server.runs.latest(run),
        accept=accept,
        first=run.beginning if key.part else 0,  # the request that began the run gets all of its parts
        returns=is_terminal,  # `holodeck chat --url` reconnects
    )


def open_encoder(_server: AgentServer, run: Run, accept: str | None) -> Encoder:
    return encoder_for(accept, PROFILES.get(run.request.encoding.get("profile"), Profile.FULL), run.run_id)


def capabilities_of(server: AgentServer) -> dict[str, object]:
    agent = server.agent
    return capabilities(
        name=agent.name,
        description=agent.description,
        version=__version__,
        tools=server.shown_tools(),
        max_iterations=agent.loop.max_iterations,
        timeout_seconds=agent.loop.run_timeout,
        state=agent.state is not None,
    )
