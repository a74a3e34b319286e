"""The operations of A2A, shared by all bindings: parameters and results are in the JSON of version 1.0.

A task continues when its client disconnects: A2A has a separate method that stops a task. A message to a task that
waits for input answers it. A message to a task that has ended is refused. A message to a task that is still working has
to wait for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from holodeck._version import __version__
from holodeck.access.principal import RUNS_READ, RUNS_STOP
from holodeck.core.encoder import Encoder
from holodeck.core.events import interrupts_of
from holodeck.core.ids import is_valid_id, new_ulid
from holodeck.core.json_values import JsonObject
from holodeck.core.messages import places_of
from holodeck.core.owner import Owner
from holodeck.core.request import RunRequest
from holodeck.errors import InvalidRequest, SessionNotFound, ShuttingDown
from holodeck.runs.kept_answers import withdraw
from holodeck.runs.port import RunRecord
from holodeck.runs.run import Run
from holodeck.server.a2a_tasks import (
    MAX_LISTED,
    TaskSubscription,
    UpdateForm,
    chain_of,
    changed_at,
    state_of,
    task_of,
    task_stream,
)
from holodeck.server.agent_server import AgentServer, slot_of
from holodeck.server.identity import owner_of, require
from holodeck.server.intake import Arrival, begin, server_of
from holodeck.server.sync_answer import ending_of
from holodeck.wires import sse
from holodeck.wires.a2a.card import agent_card
from holodeck.wires.a2a.error_form import not_cancelable, push_not_supported, task_not_found, unsupported_operation
from holodeck.wires.a2a.request import (
    ListRequest,
    PushConfig,
    SendRequest,
    history_length,
    list_request,
    push_config,
    send_request,
)
from holodeck.wires.a2a.task import TERMINAL, TaskEncoder, TaskReader
from holodeck.wires.body import valid_id

NAME = "a2a"


async def send(request: Request, params: JsonObject) -> JsonObject:
    """Waits until the run ends or asks for input. Returns immediately if the client wants to poll."""
    server, wanted = server_of(request), _wanted(request, params)
    chain = await _started(request, wanted, params)
    if not wanted.return_immediately:
        with suppress(ShuttingDown):  # another process continues the run; the client asks for the task there
            await ending_of(server.runs, chain[-1], request.receive)
    return {"task": await task_of(server, chain, history_length=wanted.history_length)}


async def stream(request: Request, params: JsonObject, form: UpdateForm) -> Response:
    wanted = _wanted(request, params)
    return await task_stream(server_of(request), await _started(request, wanted, params), form)


def _wanted(request: Request, params: JsonObject) -> SendRequest:
    server = server_of(request)
    wanted = send_request(params, server.settings.block.limits.message_characters)
    if wanted.push is not None and not server.push_sender.enabled:
        raise push_not_supported()
    return wanted


async def _started(request: Request, wanted: SendRequest, params: JsonObject) -> list[Run]:
    """Returns the task that the message belongs to. Its last run is the one that the message starts."""
    server, owner = server_of(request), owner_of(request)
    before = await _answered(server, wanted, owner)
    sender, session = server.push_sender, before[-1].session_id if before else wanted.run.session_id
    if wanted.push is not None:  # before the run starts: a refused request must leave nothing behind
        await sender.check(owner, before[0].run_id if before else None, wanted.push)

    async def prepare() -> RunRequest:
        messages = [replace(each, id=await _free_id(server, each.id, session, owner)) for each in wanted.run.messages]
        parent = before[-1].run_id if before else None
        return replace(wanted.run, messages=tuple(messages), session_id=session, parent_run_id=parent)

    sent = sha256(sse.json_bytes(params)).digest()
    run = await begin(Arrival(request, NAME, prepare, sent, owner, conversation=session))
    chain = [*before, run]
    if wanted.push is not None:
        await sender.add(owner, chain[0].run_id, _with_id(wanted.push), run.session_id)
    if sender.enabled:
        await sender.follow(run, chain[0].run_id, server.middleware())
    return chain


async def _answered(server: AgentServer, wanted: SendRequest, owner: Owner) -> list[Run]:
    """Returns the runs of the task that a message answers, if it names one. Raises unless the task waits for an answer."""
    if wanted.task_id is None:
        if wanted.run.resume:
            raise InvalidRequest("An approval needs the taskId of the task that waits.", field="message.taskId")
        return []
    chain = await chain_of(server, wanted.task_id, owner)
    last = chain[-1]
    if wanted.run.session_id not in (None, last.session_id):
        raise InvalidRequest("message.contextId does not match the task", field="message.contextId")
    if not last.log.has_ending:
        raise InvalidRequest(
            "The task is working; send the message when it waits or has ended.", field="message.taskId"
        )
    state = (await task_of(server, chain, history_length=0))["status"]["state"]
    if state in TERMINAL:
        raise unsupported_operation("The task has ended; leave out taskId to begin another in the same context.")
    return chain


async def _free_id(server: AgentServer, message_id: str, session: str | None, owner: Owner) -> str:
    """Returns the client's message id, made unique if the conversation has it: it would count as an edit."""
    if session is None:
        return message_id
    try:
        conversation = await server.store.open(session, owner=owner, last=server.agent.max_messages)
    except SessionNotFound:
        return message_id
    try:  # not `store.read`: a long history is cached from one turn to the next
        known = places_of(await conversation.history())
    finally:
        conversation.close()
    return f"{message_id}:{new_ulid()}" if message_id in known else message_id


def open_encoder(_server: AgentServer, run: Run, _accept: str | None) -> Encoder:
    """Encodes a run of this wire for readers that follow it by its id: the updates, in the form of HTTP+JSON."""
    return TaskEncoder(TaskReader(run.root, run.session_id, run.run_id), lambda update: update)


async def get(request: Request, params: JsonObject) -> JsonObject:
    server = server_of(request)
    require(request, RUNS_READ)
    chain = await chain_of(server, valid_id(params.get("id"), "id"), owner_of(request))
    return await task_of(server, chain, history_length=history_length(params.get("historyLength"), "historyLength"))


async def cancel(request: Request, params: JsonObject) -> JsonObject:
    """Stops a task that is working, and abandons one that waits for input."""
    server, task_id = server_of(request), valid_id(params.get("id"), "id")
    require(request, RUNS_STOP)
    chain = await chain_of(server, task_id, owner_of(request))
    last = chain[-1]
    (result,) = await server.stop_runs(last)
    waits = bool(interrupts_of(last.log.ending))
    if result.has_ended and not result.by_this and not (waits and await withdraw(server.runs, last)):
        raise not_cancelable(task_id)
    return await task_of(server, chain)


async def subscribe(request: Request, params: JsonObject, form: UpdateForm) -> Response:
    server, task_id = server_of(request), valid_id(params.get("id"), "id")
    require(request, RUNS_READ)
    chain = await chain_of(server, task_id, owner_of(request))
    position = len(chain[-1].log)
    task = await task_of(server, chain)
    if task["status"]["state"] in TERMINAL:
        raise unsupported_operation("The task has ended; there is nothing to subscribe to.")
    await slot_of(request).take(request, owner_of(request))
    return TaskSubscription(server, chain, position, task, form)


async def list_tasks(request: Request, params: JsonObject) -> JsonObject:
    """The caller's tasks, most recently changed first. Looks at the newest thousand runs only.

    Records of runs decide which tasks are on a page; only those are read as a whole.
    """
    server, wanted, owner = server_of(request), list_request(params), owner_of(request)
    require(request, RUNS_READ)
    records = server.runs.records
    found = (
        [] if records is None else await records.runs_of(owner=owner, session_id=wanted.context_id, limit=MAX_LISTED)
    )
    newest: dict[str, RunRecord] = {}
    for record in map(server.runs.unstored.seen, found):
        if not record.request.throw_away:
            newest.setdefault(record.root or record.run_id, record)
    roots = [root for root, record in newest.items() if await _is_wanted(server, root, record, wanted)]
    roots.sort(key=lambda root: changed_at(newest[root]), reverse=True)
    start = int(wanted.page_token or 0)
    after = min(start + wanted.page_size, len(roots))
    page = []
    for root in roots[start:after]:
        page.append(await _listed(server, root, owner, wanted))
        await asyncio.sleep(0)  # a store in memory never waits: a hundred tasks would hold the event loop
    return {
        "tasks": [each for each in page if each is not None],
        "nextPageToken": str(after) if after < len(roots) else "",
        "pageSize": wanted.page_size,
        "totalSize": len(roots),
    }


async def _is_wanted(server: AgentServer, root: str, record: RunRecord, wanted: ListRequest) -> bool:
    """Whether a list shows the task whose newest run has this record."""
    if wanted.after is not None and changed_at(record) <= wanted.after:
        return False
    if wanted.state is None:
        return True
    state = state_of(record, server.runs.find(record.run_id, owner=record.owner))
    if state is None:
        task = await _listed(server, root, record.owner, wanted)
        state = None if task is None else task["status"]["state"]
    return state == wanted.state


async def _listed(server: AgentServer, root: str, owner: Owner, wanted: ListRequest) -> JsonObject | None:
    """Returns the task of a chain, or None if it was deleted meanwhile."""
    try:
        chain = await chain_of(server, root, owner)
    except type(task_not_found(root)):
        return None
    return await task_of(server, chain, history_length=wanted.history_length or 0, artifacts=wanted.include_artifacts)


# push notifications


async def create_push(request: Request, params: JsonObject) -> JsonObject:
    server, owner, task_id = await _own_task(request, params)
    config = _with_id(push_config(params))
    sender, chain = server.push_sender, await chain_of(server, task_id, owner)
    is_going = not chain[-1].log.ended
    await sender.add(owner, task_id, config, chain[0].session_id)
    if is_going:
        await sender.follow(chain[-1], task_id, server.middleware(), only=config.id)
    return _push_json(config, task_id)


def _with_id(config: PushConfig) -> PushConfig:
    return config if config.id else replace(config, id=new_ulid())


async def get_push(request: Request, params: JsonObject) -> JsonObject:
    server, owner, task_id = await _own_task(request, params)
    configs, wanted = await server.push_sender.of_task(owner, task_id), params.get("id")
    config = next(iter(configs.values()), None) if wanted in (None, "") else configs.get(str(wanted))
    if config is None:
        raise task_not_found(task_id)
    return _push_json(config, task_id)


async def list_push(request: Request, params: JsonObject) -> JsonObject:
    server, owner, task_id = await _own_task(request, params)
    configs = await server.push_sender.of_task(owner, task_id)
    return {"configs": [_push_json(each, task_id) for each in configs.values()], "nextPageToken": ""}


async def delete_push(request: Request, params: JsonObject) -> JsonObject:
    """Idempotent."""
    server, owner, task_id = await _own_task(request, params)
    if is_valid_id(config_id := str(params.get("id") or "")):  # a database may reject a value that is not an id
        await server.push_sender.remove(owner, task_id, config_id)
    return {}


async def _own_task(request: Request, params: JsonObject) -> tuple[AgentServer, Owner, str]:
    """Returns the task that push notifications are about. It has to belong to the caller."""
    server, owner = server_of(request), owner_of(request)
    require(request, RUNS_READ)
    task_id = valid_id(params.get("taskId"), "taskId")
    await chain_of(server, task_id, owner)
    if not server.push_sender.enabled:
        raise push_not_supported()
    return server, owner, task_id


def _push_json(config: PushConfig, task_id: str) -> JsonObject:
    """Returns the configuration as the client gave it, without the client's credentials."""
    shown: JsonObject = {"id": config.id, "taskId": task_id, "url": config.url}
    if config.scheme:
        shown["authentication"] = {"scheme": config.scheme}
    return shown


# cards


def card_of(server: AgentServer, url: str, *, extended: bool = False, also_old: bool = True) -> JsonObject:
    agent = server.agent
    return agent_card(
        name=agent.name,
        description=agent.description,
        version=__version__,
        url=url,
        push=server.push_sender.enabled,
        secured=server.gate.enabled,
        issuers=server.access.issuers,
        tools=server.shown_tools() if extended else (),
        also_old=also_old,
    )


TaskOperation = Callable[[Request, JsonObject], Awaitable[Any]]
StreamOperation = Callable[[Request, JsonObject, UpdateForm], Awaitable[Response]]
OPERATIONS: Mapping[str, TaskOperation] = {
    "SendMessage": send,
    "GetTask": get,
    "ListTasks": list_tasks,
    "CancelTask": cancel,
    "CreateTaskPushNotificationConfig": create_push,
    "GetTaskPushNotificationConfig": get_push,
    "ListTaskPushNotificationConfigs": list_push,
    "DeleteTaskPushNotificationConfig": delete_push,
}
STREAMS: Mapping[str, StreamOperation] = {"SendStreamingMessage": stream, "SubscribeToTask": subscribe}
EXTENDED_CARD = "GetExtendedAgentCard"
