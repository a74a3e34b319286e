"""JSON-RPC 2.0, for the wires that use it: one message in a body, one response to it.

Each wire defines its own methods, parameters and results. Batches are refused: no protocol that is served here has
them.
"""

from typing import Any, TypeAlias

import msgspec

from holodeck.core.text import clean, shorten
from holodeck.errors import HoloDeckError, InvalidRequest, RequestError
from holodeck.wires import sse
from holodeck.wires.body import may_decide, parse, refuse_repeated_names
from holodeck.wires.problem import MAX_DETAIL, problem

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
REFUSED = -32000  # our own code for access, limits, a busy session; `data` has the problem
MAX_ID = 1024
MAX_METHOD = 200

JsonRpcId: TypeAlias = str | int | None
_BAD_JSON = 400  # the status of a body that is not JSON; an object of another shape is 422


class RpcMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A request, or a notification, which gets no response."""

    method: str
    params: dict[str, Any]
    id: JsonRpcId = None
    is_notification: bool = False


class RpcError(InvalidRequest):
    """An error with a code and data that a protocol defines. `status` is that of the HTTP answer."""

    def __init__(
        self, rpc_code: int, message: str, *, status: int = 400, data: Any = None, request_id: JsonRpcId = None
    ) -> None:
        super().__init__(message, status=status)
        self.rpc_code, self.data, self.request_id = rpc_code, data, request_id


class ErrorObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    code: int
    message: str
    data: Any = None


def decode(body: bytes) -> RpcMessage:
    """Reads one message. Raises RpcError, or PayloadTooLarge."""
    try:
        raw = parse(body)
    except InvalidRequest as error:
        code = PARSE_ERROR if error.status == _BAD_JSON else INVALID_REQUEST
        raise RpcError(code, error.message) from error
    request_id = raw.get("id")
    is_id = isinstance(request_id, str | int) and not isinstance(request_id, bool) and len(str(request_id)) <= MAX_ID
    if "id" in raw and not is_id:
        raise RpcError(INVALID_REQUEST, "id must be a string or a whole number.")
    method, params = raw.get("method"), raw.get("params", {})
    if raw.get("jsonrpc") != "2.0" or not isinstance(method, str) or not 0 < len(method) <= MAX_METHOD:
        raise RpcError(
            INVALID_REQUEST,
            'A message has "jsonrpc": "2.0" and a method of 1 to 200 characters.',
            request_id=request_id,
        )
    if not isinstance(params, dict | None):
        raise RpcError(INVALID_PARAMS, "params must be an object.", request_id=request_id)
    if may_decide(params):
        try:
            refuse_repeated_names(body)
        except InvalidRequest as error:
            raise RpcError(INVALID_PARAMS, error.message, request_id=request_id) from error
    return RpcMessage(method=clean(method), params=params or {}, id=request_id, is_notification="id" not in raw)


def result_message(request_id: JsonRpcId, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def notification(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def error_object(error: HoloDeckError, instance: str | None = None) -> ErrorObject:
    """Makes the member `error`. Errors that the protocol does not define have their problem (RFC 9457) as data."""
    message = shorten(clean(error.message), MAX_DETAIL)
    if isinstance(error, RpcError):
        return ErrorObject(code=error.rpc_code, message=message, data=error.data)
    code = INVALID_PARAMS if isinstance(error, InvalidRequest) else INTERNAL_ERROR
    if isinstance(error, RequestError) and not isinstance(error, InvalidRequest):
        code = REFUSED
    return ErrorObject(code=code, message=message, data=problem(error, instance))


def error_message(request_id: JsonRpcId, error: ErrorObject) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


def error_body(request_id: JsonRpcId, error: ErrorObject) -> bytes:
    return sse.json_bytes(error_message(request_id, error))
