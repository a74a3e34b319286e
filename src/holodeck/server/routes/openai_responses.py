"""OpenAI's Responses: `/v1/responses`. The wire is `holodeck.wires.openai_responses`.

A response is a run, and `conversation` is the session of every other wire. `previous_response_id` is a position in a
tree. After the session's last run, the session continues. After an earlier run, the conversation branches into a new
session.
"""

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from time import time
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from holodeck.access.principal import CHAT, RUNS_READ, RUNS_STOP, SESSIONS_DELETE
from holodeck.access.route_access import needs
from holodeck.agent.definition import AgentDefinition
from holodeck.agent.tool_calls import server_tools
from holodeck.core.encoder import Encoder
from holodeck.core.events import Interrupt, RunFinished, interrupts_of, questions_of
from holodeck.core.ids import new_ulid
from holodeck.core.messages import AssistantMessage, Message, ToolMessage
from holodeck.core.owner import Owner
from holodeck.core.request import RunRequest
from holodeck.core.tools import Approval
from holodeck.errors import InvalidRequest, NotFound, RunNotFound
from holodeck.runs.branches import Branch, branch_after
from holodeck.runs.log import ReplayGone
from holodeck.runs.port import RunState
from holodeck.runs.run import Run
from holodeck.server import intake
from holodeck.server import openai_schemas as schemas
from holodeck.server.agent_server import AgentServer, slot_of
from holodeck.server.audit import decided
from holodeck.server.identity import owner_of
from holodeck.server.routes import openai_conversations, openai_models
from holodeck.server.routes.openai_conversations import item_page
from holodeck.server.routes.openai_models import SDK_HEADERS, answer_error, check_model, own_tools
from holodeck.server.routing import Routes
from holodeck.server.schemas import PROBLEMS, REPEAT_KEY
from holodeck.server.streaming_response import Cursor, EventStream
from holodeck.server.sync_answer import ending_of
from holodeck.server.wire import Wire
from holodeck.wires.openai_chat.error_form import DO_NOT_RETRY, previous_not_found
from holodeck.wires.openai_responses.builder import ResponseBuilder, ResponseEncoder, ResponseHead, ToolsSeen
from holodeck.wires.openai_responses.echo import RequestEcho, not_default
from holodeck.wires.openai_responses.input_list import input_items, may_be_missing, run_of
from holodeck.wires.openai_responses.request import PREFIX, ResponsesRequest, decode

NAME = "responses"
NUMBERS = range(10**15)
MAX_REFERRED = 256  # responses whose items one input may refer to

# Clients of other wires choose the run ids, which may contain a slash, hence `:path`. The bare id comes last.
routes = Routes("/v1/responses", tag="OpenAI Responses", responses=PROBLEMS, answer_error=answer_error)


class ResponseOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a response has to know of its request: `RunRequest.encoding` of this wire's runs."""

    created: int = 0  # seconds since 1970; a store has the time at which it stored the run
    echo: dict[str, Any] = {}  # members of `RequestEcho` that are not the default
    client_tools: tuple[str, ...] = ()
    client_calls: tuple[str, ...] = ()
    asked: tuple[Interrupt, ...] = ()  # open interrupts of the previous run
    names_conversation: bool = False


def _builder(server: AgentServer, run: Run, options: ResponseOptions) -> ResponseBuilder:
    head = ResponseHead(
        id=PREFIX + run.run_id,
        created_at=options.created or int(run.created_at.timestamp()),
        model=server.agent.name,
        conversation=None if run.request.throw_away else run.session_id,
        echo=msgspec.convert(options.echo, RequestEcho),
        names_conversation=options.names_conversation,
    )
    tools = ToolsSeen(
        client_tools=options.client_tools,
        client_calls=options.client_calls,
        asked={each.call_id: each for each in options.asked},
        needs_approval=partial(_needs_approval, server.agent),
        label_of=partial(_label_of, server.agent),
    )
    return ResponseBuilder(head, tools, completed_at=partial(_completed_at, run))


def _encoder(server: AgentServer, run: Run, _accept: str | None) -> Encoder:
    return ResponseEncoder(_builder(server, run, msgspec.convert(run.request.encoding, ResponseOptions)))


def _needs_approval(agent: AgentDefinition, name: str) -> bool:
    entry = agent.tools.rows().get(name)
    return entry is not None and entry.schema.approval is Approval.ALWAYS


def _label_of(agent: AgentDefinition, name: str) -> str:
    entry = agent.tools.rows().get(name)
    return "holodeck" if entry is None else entry.label


def _completed_at(run: Run) -> int | None:
    return None if run.finished_at is None else int(run.finished_at.timestamp())


@routes.post(
    "",
    "Create a response, whole or streamed",
    access=needs(CHAT),
    parameters=(REPEAT_KEY,),
    body=schemas.RESPONSE_BODY,
    responses=schemas.RESPONSE,
)
async def create(request: Request) -> Response:
    """With `background`, the answer comes immediately and the run continues without readers; read it by its id."""
    server, owner, body = intake.server_of(request), owner_of(request), await intake.json_body(request)
    asked = await intake.decoded(decode, body, server.settings.block.limits.message_characters)
    check_model(server, asked.model)
    tools = own_tools(server, asked.run)

    async def prepare() -> RunRequest:
        branch, wanted = await _branch(server, owner, asked), await _with_items(server, owner, asked, body)
        questions = await _questions(server, owner, branch.session_id) if asked.run.resume else ()
        encoding = _encoding(asked, tools, questions)
        return replace(wanted, session_id=branch.session_id, follows=branch.follows, encoding=encoding)

    sent, attempt = sha256(body).digest(), intake.attempt_of(request)
    arrival = intake.Arrival(request, NAME, prepare, sent, owner, conversation=asked.conversation, attempt=attempt)
    run = await intake.begin(arrival)
    try:
        builder = _builder(server, run, await _options_of(server, run))
        if asked.stream:
            return _follow(server, run, builder)
        if not asked.run.detached:
            await ending_of(server.runs, run, request.receive)
        return _whole(server, run, builder, raises=not asked.run.detached)
    except ClientDisconnect:
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, the client must not start a second run by itself
        return answer_error(error, begun=True)


def _encoding(asked: ResponsesRequest, tools: frozenset[str], questions: tuple[Interrupt, ...]) -> dict[str, Any]:
    echo, names = not_default(asked.echo), tuple(sorted(tools))
    options = ResponseOptions(
        created=int(time()),
        echo=echo,
        client_tools=names,
        asked=questions,
        names_conversation=asked.conversation is not None,
    )
    encoding: dict[str, Any] = msgspec.to_builtins(options)
    return encoding


async def _branch(server: AgentServer, owner: Owner, asked: ResponsesRequest) -> Branch:
    previous = asked.run.parent_run_id
    if previous is None:
        return Branch(asked.conversation or new_ulid())
    session_id = await server.stored_runs.session_of(previous, owner=owner)
    message = f"There is no response {PREFIX}{previous}, or it is no longer stored: send the whole input."
    if session_id is None:
        raise previous_not_found(message)
    going = await server.stored_runs.active(session_id, owner=owner)
    try:
        return await branch_after(
            previous, session_id, server.store, owner=owner, in_progress=going, resume=asked.run.resume
        )
    except RunNotFound:
        raise previous_not_found(message) from None


async def _with_items(server: AgentServer, owner: Owner, asked: ResponsesRequest, body: bytes) -> RunRequest:
    """Returns the run with the items that its input refers to. A conversation that continues has them already."""
    if not asked.references or asked.run.parent_run_id is not None or asked.conversation is not None:
        return asked.run
    found = await _referenced(server, owner, asked.references)
    limit = server.settings.block.limits.message_characters
    return (await intake.decoded(partial(decode, stored=found), body, limit)).run


async def _referenced(server: AgentServer, owner: Owner, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Reads the stored items that an input refers to. The AI SDK's provider refers to every earlier answer."""
    wanted: dict[str, set[str]] = {}
    for each in ids:
        if run_id := run_of(each):
            wanted.setdefault(run_id, set()).add(each)
    if len(wanted) > MAX_REFERRED:
        raise InvalidRequest(
            f"input refers to items of {len(wanted)} responses; at most {MAX_REFERRED} are allowed", field="input"
        )
    of_session: dict[str, set[str]] = {}  # a session is read once, however many of its runs are referred to
    for run_id, items in wanted.items():
        session_id = await server.stored_runs.session_of(run_id, owner=owner)
        if session_id is not None:
            of_session.setdefault(session_id, set()).update(items)
    found: dict[str, dict[str, Any]] = {}
    for session_id, items in of_session.items():
        found |= await _items_of_session(server, owner, session_id, items)
    missing = next((each for each in ids if each not in found and not may_be_missing(each)), None)
    if missing is not None:
        raise NotFound(f"There is no item {missing!r}, or it is no longer stored: send the item itself.")
    return found


async def _items_of_session(
    server: AgentServer, owner: Owner, session_id: str, wanted: set[str]
) -> dict[str, dict[str, Any]]:
    """Returns the wanted items of a session. They are usually of its last run, so its end is read first."""
    found: dict[str, dict[str, Any]] = {}
    for last in (1, None):
        stored = await server.store.read(session_id, owner=owner, last=last)
        items = () if stored is None else openai_conversations.items_of(server, stored)
        found = {item["id"]: item for item in items if item["id"] in wanted}
        if len(found) == len(wanted):
            break
    return found


async def _questions(server: AgentServer, owner: Owner, session_id: str) -> tuple[Interrupt, ...]:
    """Returns the open interrupts of a session, as the request keeps them: no item shows their messages."""
    stored = await server.store.read(session_id, owner=owner, last=1)
    if stored is None or stored.pending is None:
        return ()
    return tuple(replace(each, message="") for each in questions_of(stored.pending))


@routes.post("/{run_id:path}/cancel", "Stop a response", access=needs(RUNS_STOP), responses=schemas.RESPONSE)
async def cancel(request: Request) -> Response:
    """Idempotent: a response that has ended stays as it is."""
    server, run = intake.server_of(request), await _run_of(request)
    await server.stop_runs(run)
    return _whole(server, run, _builder(server, run, await _options_of(server, run)))


@routes.get(
    "/{run_id:path}/input_items",
    "The input items of a response",
    access=needs(RUNS_READ),
    parameters=schemas.INPUT_PARAMETERS,
    responses=schemas.INPUT_ITEMS,
)
async def listed(request: Request) -> Response:
    server, run = intake.server_of(request), await _run_of(request)
    return item_page(
        request, input_items(_asked_of(server, run, await server.history(run.session_id, owner=run.owner)))
    )


@routes.get(
    "/{run_id:path}",
    "A response, or a replay of its events",
    access=needs(RUNS_READ),
    parameters=schemas.READ_PARAMETERS,
    responses=schemas.RESPONSE,
)
async def show(request: Request) -> Response:
    """With `stream=true`, its events from the first on, or after `starting_after`; the same frames each time."""
    streams, after = (
        request.query_params.get("stream") == "true",
        intake.whole_number(request, "starting_after", NUMBERS),
    )
    server, run = intake.server_of(request), await _run_of(request)
    builder = _builder(server, run, await _options_of(server, run))
    if not streams:
        return _whole(server, run, builder)
    if run.is_rebuilt:
        raise ReplayGone("The events of this response are no longer stored; ask for it without stream.")
    await slot_of(request).take(request, run.owner)
    return _follow(server, run, builder, after=-1 if after is None else after)


@routes.delete("/{run_id:path}", "Delete a response", access=needs(SESSIONS_DELETE), responses=schemas.DELETED)
async def delete(request: Request) -> Response:
    """Stops the run first, if it is in progress. Its conversation keeps its messages; `DELETE /sessions/{id}` deletes those."""
    server, run = intake.server_of(request), await _run_of(request)
    await server.stop_runs(run)
    await run.done()
    await server.runs.remove(run)
    decided("response_deleted", run.owner, run_id=run.run_id)
    return intake.json_answer({"id": PREFIX + run.run_id, "object": "response", "deleted": True})


async def _run_of(request: Request) -> Run:
    given = request.path_params["run_id"]
    try:
        return await intake.server_of(request).stored_runs.find(given.removeprefix(PREFIX), owner=owner_of(request))
    except RunNotFound:
        raise RunNotFound(f"There is no response {given!r}, or it is no longer stored.") from None


async def _options_of(server: AgentServer, run: Run) -> ResponseOptions:
    """Returns the options of the request. For a run of another wire, or without stored options, what is known of it."""
    if run.request.wire == NAME and run.request.encoding:
        return msgspec.convert(run.request.encoding, ResponseOptions)
    parent = run.request.parent_run_id
    before = None if parent is None else await server.stored_runs.ending_of(parent, owner=run.owner)
    ending = await server.stored_runs.ending_of(run.run_id, owner=run.owner)
    return ResponseOptions(
        echo={} if parent is None else {"previous_response_id": PREFIX + parent},
        client_tools=tuple(sorted({tool.name for tool in run.request.client_tools} - server_tools(server.agent))),
        client_calls=tuple(ending.pending_calls) if isinstance(ending, RunFinished) else (),
        asked=interrupts_of(before),
    )


def _follow(server: AgentServer, run: Run, builder: ResponseBuilder, *, after: int = -1) -> EventStream:
    encoder = ResponseEncoder(builder, after=after)
    cursors = [Cursor(part, encoder, 0, server.middleware()) for part in run.request_parts]
    return EventStream(server.runs, cursors, server.settings.block, content_type=encoder.content_type)


def _whole(server: AgentServer, run: Run, builder: ResponseBuilder, *, raises: bool = False) -> Response:
    """Returns the response object as it is now. `raises`: the error of a failed run answers the request."""
    for event in server.shown_events(*run.request_parts):
        builder.read(event)
    if builder.status == "queued" and run.state is not RunState.QUEUED:
        builder.status = "in_progress"
    if raises and builder.error is not None:
        raise builder.error
    return intake.json_answer(builder.response())


def _asked_of(server: AgentServer, run: Run, history: Sequence[Message]) -> list[Message]:
    ours = server_tools(server.agent)
    own = [message for message in history if message.run_id == run.run_id] or run.request.messages
    shown = server.middleware().shown_messages(own)
    return [
        message
        for message in shown
        if not isinstance(message, AssistantMessage) and not (isinstance(message, ToolMessage) and message.name in ours)
    ]


WIRE = Wire(
    name=NAME,
    title="OpenAI's Responses: whole, streamed, in the background; approvals; retrieval by id",
    is_default=True,
    base=openai_models.routes.prefix,
    endpoints=(("OpenAI Responses", "/v1/responses"),),
    example='{"input":"Hello"}',
    routes=(routes, openai_conversations.routes, openai_models.routes),
    open_encoder=_encoder,
    request_headers=SDK_HEADERS,
    response_headers=tuple(DO_NOT_RETRY),
)
