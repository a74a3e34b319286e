"""AG-UI: `POST /awp`, and reading a run again. The wire itself is `holodeck.wires.agui`."""

import logging
from functools import partial
from weakref import WeakKeyDictionary

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holodeck._version import __version__
from holodeck.access.principal import CHAT
from holodeck.access.route_access import needs
from holodeck.core.owner import Owner
from holodeck.runs.client_history import first_of_use
from holodeck.runs.idempotency import RunKey
from holodeck.runs.runs import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.identity import check_approval, owner_of
from holodeck.server.options import ProtocolType
from holodeck.server.routes.request_input import json_body, server_of
from holodeck.server.routing import Routes
from holodeck.server.schemas import AGENT_INPUT_BODY, ANYTHING, EVENT_STREAM, PROBLEMS
from holodeck.server.stream import Cursor, EventStream
from holodeck.wires.agui.capabilities import capabilities
from holodeck.wires.agui.decode import AguiInput, decode
from holodeck.wires.agui.middleware import Chain
from holodeck.wires.agui.negotiate import encoder_for
from holodeck.wires.agui.profile import Profile

log = logging.getLogger(__name__)
routes = Routes(tag="AG-UI", responses=PROBLEMS)


class AguiReaders:
    """Makes readers of runs. Remembers the dialect of the client that started each: who comes back, speaks it still."""

    def __init__(self, server: AgentServer) -> None:
        self._server = server
        self._profiles: WeakKeyDictionary[Run, Profile] = WeakKeyDictionary()

    async def start(self, given: AguiInput, owner: Owner, accept: str | None) -> EventStream:
        for warning in given.warnings:
            log.warning("run %s: %s", given.run_id, warning)
        self._server.enter()
        run = await self._server.start_run(
            partial(self._begin, given, owner),
            conversation=given.thread_id,
            key=RunKey(ProtocolType.AG_UI, owner, given.run_id, "runId", part=given.resumes),
            fingerprint=given.fingerprint,
        )
        self._profiles.setdefault(run, given.profile)
        return self.follow(self._server.runs.latest(run), accept, first=run.first_number, profile=given.profile)

    async def _begin(self, given: AguiInput, owner: Owner) -> Run:
        request = given.request
        self._server.admit(owner)
        sent, first = request.messages, first_of_use(request.messages)
        if first and await self._server.will_adopt(given.thread_id, owner=owner):
            first = 0
        messages, notes = await self._server.files.resolve(sent, first=first)
        return await self._server.runs.start(
            msgspec.structs.replace(request, owner=owner, messages=messages, files=notes)
        )

    def follow(
        self, run: Run, accept: str | None = None, *, first: int = 0, profile: Profile | None = None
    ) -> EventStream:
        """The run from event `first` on, and before it the parts that it continues under the same id."""
        encoder = encoder_for(accept, profile or self.profile_of(run), run.run_id)
        parts = [part for part in run.parts if part is run or part.events > first]
        return EventStream(
            self._server.runs,
            [Cursor(part, encoder, max(0, first - part.first_number), self._chain()) for part in parts],
            self._server.settings.streams,
            content_type=encoder.content_type,
        )

    def _chain(self) -> Chain | None:
        return self._server.chain() if self._server.chain else None

    def profile_of(self, run: Run) -> Profile:
        return self._profiles.get(run, Profile.FULL)


def readers_of(request: Request) -> AguiReaders:
    readers: AguiReaders = request.app.state.agui
    return readers


@routes.post("/awp", "Run the agent", access=needs(CHAT), body=AGENT_INPUT_BODY, responses={200: EVENT_STREAM})
async def run_agent(request: Request) -> Response:
    """Starts a run and streams its events. Posting the same runId again joins the same run."""
    given = decode(await json_body(request), server_of(request).settings.use.message_characters)
    check_approval(request, given.request.resume)
    return await readers_of(request).start(given, owner_of(request), request.headers.get("accept"))


@routes.get(
    "/awp/capabilities", "What the agent can do", access=needs(CHAT, open_as="capabilities"), responses=ANYTHING
)
async def agent_capabilities(request: Request) -> JSONResponse:
    return JSONResponse(capabilities_of(server_of(request)))


def capabilities_of(server: AgentServer) -> dict[str, object]:
    agent = server.agent
    return capabilities(
        name=agent.name,
        description=agent.description,
        version=__version__,
        tools=agent.tools.schemas(),
        max_iterations=agent.loop.max_iterations,
        timeout_seconds=agent.loop.run_timeout,
        state=agent.state is not None,
        images=True,  # as they are, or as the text in them
        documents=True,
    )
