"""A2A: the agent's card, JSON-RPC at `POST /a2a` for 1.0 and 0.3, and HTTP+JSON below it, that of 0.3 under `/a2a/v1`.

The wire is `holodeck.wires.a2a`.
"""

from collections.abc import Awaitable, Callable
from email.utils import formatdate
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from holodeck.access.principal import CHAT, RUNS_READ, RUNS_STOP
from holodeck.access.route_access import OPEN, needs
from holodeck.errors import HoloDeckError, InvalidRequest, RunNotFound, UnsupportedMediaType
from holodeck.server import rpc_schemas as schemas
from holodeck.server.a2a_calls import EXTENDED_CARD, NAME, OPERATIONS, STREAMS, card_of, open_encoder
from holodeck.server.a2a_tasks import UpdateForm
from holodeck.server.intake import json_body, server_of
from holodeck.server.problems import headers_of, known
from holodeck.server.push_sender import prepare_push
from holodeck.server.routing import Routes
from holodeck.server.wire import Wire
from holodeck.telemetry.log_context import current
from holodeck.wires import jsonrpc, sse
from holodeck.wires.a2a import v03, v03_http
from holodeck.wires.a2a.error_form import as_a2a, http_error, rpc_error, version_not_supported
from holodeck.wires.a2a.request import camel_case
from holodeck.wires.body import may_decide, parse, refuse_repeated_names
from holodeck.wires.jsonrpc import METHOD_NOT_FOUND, JsonRpcId, RpcError, RpcMessage

CARD_PATHS = (
    "/.well-known/agent-card.json",
    "/.well-known/agent.json",  # before 0.3
    "/a2a/.well-known/agent-card.json",  # for a client whose base URL is that of the bindings
)
METHODS = frozenset({*OPERATIONS, *STREAMS, EXTENDED_CARD})  # JSON-RPC methods of version 1.0
CACHE_SECONDS = 300
OWN_TYPE, PLAIN_TYPE = "application/a2a+json", "application/json"
_HEADER = "A2A-Version"
_ETAG, _IF_NONE_MATCH = "ETag", "If-None-Match"  # headers of the card's route
_NEW, _OLD = "1.0", "0.3"
_STARTED = formatdate(usegmt=True)  # Last-Modified of the card: a process reads the agent file once


HttpErrorForm: TypeAlias = Callable[[HoloDeckError, str | None], tuple[int, dict[str, Any]]]

# errors


def rpc_answer_error(error: Exception, request_id: JsonRpcId = None) -> Response:
    """Makes a JSON-RPC error. Only a refusal before the request is read has its own HTTP status."""
    failure = as_a2a(known(error))
    if isinstance(failure, RpcError) and request_id is None:
        request_id = failure.request_id
    body = jsonrpc.error_body(request_id, rpc_error(failure, current().request_id))
    of_protocol = isinstance(failure, InvalidRequest | RunNotFound)
    return Response(body, 200 if of_protocol else failure.status, headers_of(failure), media_type=PLAIN_TYPE)


def http_answer_error(error: Exception, form: HttpErrorForm = http_error) -> Response:
    failure = as_a2a(known(error))
    status, body = form(failure, current().request_id)
    return Response(sse.json_bytes(body), status, headers_of(failure), media_type=PLAIN_TYPE)


old_http_answer_error = partial(http_answer_error, form=v03_http.http_error_of)


# cards

cards = Routes(tag="A2A")


async def card(request: Request) -> Response:
    """What other agents read first. It names no tools: the extended card does, for clients that sign in."""
    body = sse.json_bytes(card_of(server_of(request), _url(request)))
    etag = f'"{sha256(body).hexdigest()[:32]}"'
    headers = {"Cache-Control": f"max-age={CACHE_SECONDS}", _ETAG: etag, "Last-Modified": _STARTED}
    if request.headers.get(_IF_NONE_MATCH) == etag:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=PLAIN_TYPE)


for _path in CARD_PATHS:
    cards.get(_path, "The agent's card", access=OPEN, responses={200: schemas.CARD, 304: {}})(card)


def _url(request: Request) -> str:
    """Returns the address of the bindings: the operator's, or else the name in `Host`, which was checked."""
    settings = server_of(request).settings
    asked = f"{request.scope['scheme']}://{request.headers.get('host', 'localhost')}{settings.root_path}"
    base = settings.block.public_url or asked
    return f"{base.rstrip('/')}/a2a"


# JSON-RPC

rpc = Routes("/a2a", tag="A2A", answer_error=rpc_answer_error)


@rpc.post(
    "",
    "Call the agent over JSON-RPC",
    access=needs(CHAT),
    parameters=(schemas.VERSION,),
    body=schemas.RPC_BODY,
    responses=schemas.RPC_RESULT,
)
async def json_rpc(request: Request) -> Response:
    """A2A 1.0, and by their method names the requests of 0.3."""
    message: RpcMessage | None = None
    try:
        message = jsonrpc.decode(await json_body(request))
        return await (_old(request, message) if message.method in v03.METHODS else _new(request, message))
    except ClientDisconnect:
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, it is answered with the id of its request
        return rpc_answer_error(error, None if message is None else message.id)


async def _new(request: Request, message: RpcMessage) -> Response:
    if message.method not in METHODS:
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {message.method}", status=404)
    _check_version(request, _NEW)
    return await _called(request, message, message.method, camel_case(message.params), lambda result: result)


async def _old(request: Request, message: RpcMessage) -> Response:
    _check_version(request, _OLD)
    method = message.method
    params = v03.params_of(method, message.params)
    convert = v03.update if v03.METHODS[method] in STREAMS else partial(v03.result_of, method)
    return await _called(request, message, v03.METHODS[method], params, convert)


async def _called(
    request: Request, message: RpcMessage, method: str, params: dict[str, Any], convert: Callable[[Any], Any]
) -> Response:
    """Handles one operation. `convert` turns its result, or each update, into the form of the client's version."""
    if method in STREAMS:
        form = UpdateForm(
            lambda update: jsonrpc.result_message(message.id, convert(update)),
            partial(rpc_answer_error, request_id=message.id),
        )
        return await STREAMS[method](request, params, form)
    if method == EXTENDED_CARD:
        is_old = message.method in v03.METHODS
        result: Any = card_of(server_of(request), _url(request), extended=True, also_old=is_old)
    else:
        result = await OPERATIONS[method](request, params)
    return Response(sse.json_bytes(jsonrpc.result_message(message.id, convert(result))), media_type=PLAIN_TYPE)


def _check_version(request: Request, wanted: str) -> None:
    """Reads the protocol version. A missing one means 0.3, as the protocol says. Patch numbers do not count."""
    given = request.headers.get(_HEADER) or request.query_params.get(_HEADER) or None
    if ".".join((given or _OLD).split(".")[:2]) != wanted:
        raise version_not_supported(given, wanted)


# HTTP+JSON

http = Routes("/a2a", tag="A2A", answer_error=http_answer_error)
old_http = Routes("/a2a/v1", tag="A2A", answer_error=old_http_answer_error)


class HttpForm(NamedTuple):
    """How a version of the protocol looks over HTTP+JSON. Parameters and results are converted from and to 1.0."""

    version: str
    params_of: Callable[[str, dict[str, Any]], dict[str, Any]]
    result_of: Callable[[str, Any], Any]
    update: Callable[[dict[str, Any]], dict[str, Any]]
    answer_error: Callable[[Exception], Response]


_NEW_FORM = HttpForm(_NEW, lambda _, params: params, lambda _, result: result, lambda update: update, http_answer_error)
_OLD_FORM = HttpForm(_OLD, v03_http.params_of, v03_http.result_of, v03_http.update, old_http_answer_error)


def _endpoint(name: str, form: HttpForm) -> Callable[[Request], Awaitable[Response]]:
    is_new = form is _NEW_FORM

    async def endpoint(request: Request) -> Response:
        _check_version(request, form.version)
        params = form.params_of(name, await _params(request, id_name="taskId" if "PushNotification" in name else "id"))
        if name in STREAMS:
            return await STREAMS[name](request, params, UpdateForm(form.update, form.answer_error))
        result = form.result_of(name, await OPERATIONS[name](request, params))
        return Response(sse.json_bytes(result), media_type=_media_type(request) if is_new else PLAIN_TYPE)

    endpoint.__name__ = name if is_new else f"Old{name}"
    return endpoint


async def _params(request: Request, *, id_name: str) -> dict[str, Any]:
    """Merges body, query and path into one object. The path wins: it is what was checked."""
    given: dict[str, Any] = dict(request.query_params)
    if request.method == "POST" and _may_have_body(request):
        try:
            body = await json_body(request)
        except UnsupportedMediaType as error:
            raise as_a2a(error) from error
        raw = parse(body) if body else {}
        if may_decide(raw):
            refuse_repeated_names(body)
        given |= camel_case(raw)
    names = {"task_id": id_name, "config_id": "id"}
    return given | {names[key]: value for key, value in request.path_params.items()}


def _may_have_body(request: Request) -> bool:
    """Returns whether there is a body to read. A body in chunks, or over HTTP/2, may have no length."""
    length = request.headers.get("content-length")
    if length is not None:
        return length != "0"
    return "transfer-encoding" in request.headers or "content-type" in request.headers


def _media_type(request: Request) -> str:
    """Returns the protocol's own media type for clients that use it, JSON for the others."""
    asks = (request.headers.get("accept", ""), request.headers.get("content-type", ""))
    return OWN_TYPE if any(OWN_TYPE in each for each in asks) else PLAIN_TYPE


_CONFIGS = "/tasks/{task_id}/pushNotificationConfigs"
_CONFIG = f"{_CONFIGS}/{{config_id}}"
_OPERATIONS = (
    ("POST", "/message:send", "SendMessage", "Send a message", CHAT, schemas.TASK),
    ("POST", "/message:stream", "SendStreamingMessage", "Send a message and stream the task", CHAT, schemas.STREAM),
    ("GET", "/tasks", "ListTasks", "Your tasks", RUNS_READ, schemas.LIST),
    ("POST", "/tasks/{task_id}:cancel", "CancelTask", "Cancel a task", RUNS_STOP, schemas.TASK),
    ("POST", "/tasks/{task_id}:subscribe", "SubscribeToTask", "Subscribe to a task", RUNS_READ, schemas.STREAM),
    ("GET", "/tasks/{task_id}:subscribe", "SubscribeToTask", "Subscribe to a task", RUNS_READ, schemas.STREAM),
    ("POST", _CONFIGS, "CreateTaskPushNotificationConfig", "Register for push notifications", RUNS_READ, schemas.EMPTY),
    ("GET", _CONFIGS, "ListTaskPushNotificationConfigs", "List push notification configs", RUNS_READ, schemas.EMPTY),
    ("GET", _CONFIG, "GetTaskPushNotificationConfig", "A push notification config", RUNS_READ, schemas.EMPTY),
    (
        "DELETE",
        _CONFIG,
        "DeleteTaskPushNotificationConfig",
        "Delete a push notification config",
        RUNS_READ,
        schemas.EMPTY,
    ),
    ("GET", "/tasks/{task_id}", "GetTask", "A task", RUNS_READ, schemas.TASK),
)
_BODIES = {  # in 1.0, and in 0.3
    **dict.fromkeys(("SendMessage", "SendStreamingMessage"), (schemas.MESSAGE_BODY, schemas.OLD_BODY)),
    "CreateTaskPushNotificationConfig": (schemas.PUSH_BODY, schemas.OLD_PUSH_BODY),
}


def _add_operations() -> None:
    for method, path, name, summary, scope, responses in _OPERATIONS:
        body, old_body = _BODIES.get(name, (None, None))
        about: dict[str, Any] = {"access": needs(scope), "responses": responses}
        new = http.add(method, path, summary, parameters=(schemas.VERSION,), body=body, **about)
        new(_endpoint(name, _NEW_FORM))
        if name != "ListTasks":  # not in 0.3
            old_http.add(method, path, f"{summary} (0.3)", body=old_body, **about)(_endpoint(name, _OLD_FORM))


_add_operations()


@http.get(
    "/extendedAgentCard",
    "The card with the agent's tools",
    access=needs(CHAT),
    parameters=(schemas.VERSION,),
    responses=schemas.CARD_OR_ERROR,
)
async def extended_card(request: Request) -> Response:
    _check_version(request, _NEW)
    body = sse.json_bytes(card_of(server_of(request), _url(request), extended=True, also_old=False))
    return Response(body, media_type=_media_type(request))


@old_http.get("/card", "The card with the agent's tools (0.3)", access=needs(CHAT), responses=schemas.CARD_OR_ERROR)
async def old_card(request: Request) -> Response:
    _check_version(request, _OLD)
    body = sse.json_bytes(card_of(server_of(request), _url(request), extended=True, also_old=True))
    return Response(body, media_type=PLAIN_TYPE)


WIRE = Wire(
    name=NAME,
    title="A2A 1.0 and 0.3 for other agents, over JSON-RPC and HTTP+JSON",
    endpoints=(("A2A", "/a2a"), ("A2A, card", "/.well-known/agent-card.json")),
    example='{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m1",'
    '"role":"user","parts":[{"kind":"text","text":"Hello"}]}}}',
    routes=(cards, rpc, http, old_http),
    open_encoder=open_encoder,
    prepare=prepare_push,
    request_headers=(_HEADER, "A2A-Extensions", _IF_NONE_MATCH),
    response_headers=(_ETAG,),
)
