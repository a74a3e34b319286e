"""Routes: an address, who answers there, and what OpenAPI says about it, in one place.

Fixed addresses are found in one look, those with parameters by a few patterns: a request with tokens behind it pays for
no more. An endpoint takes a request and gives an answer; errors pass through, and become problems further out.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from holodeck.access.route_access import RouteAccess
from holodeck.core.text import one_line
from holodeck.errors import MethodNotAllowed, NotFound
from holodeck.server.gate import Gate
from holodeck.server.identity import PRINCIPAL
from holodeck.server.problems import problem_response

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
Described: TypeAlias = Mapping[int | str, Any]
"""Answers by status: an object of OpenAPI, or the type of a JSON body."""

_PARAMETER = re.compile(r"{(\w+)(:path)?}")
_ESCAPED_SLASH = re.compile("%2F", re.IGNORECASE)
_SLASH = "\ud800"  # for one within a segment, until the segments are found; no path can hold it: it is no Unicode
_MAX_SHOWN = 200


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method at one address. Without a tag it is not described."""

    method: str
    path: str
    endpoint: Endpoint
    access: RouteAccess
    summary: str = ""
    tag: str | None = None
    parameters: Sequence[Mapping[str, Any]] = ()
    body: Mapping[str, Any] | None = None
    responses: Described

    @property
    def path_parameters(self) -> list[str]:
        return [name for name, _ in _PARAMETER.findall(self.path)]

    @property
    def shown_path(self) -> str:
        return _PARAMETER.sub(r"{\1}", self.path)

    @property
    def pattern(self) -> re.Pattern[str]:
        """A parameter is one segment of the path; with `:path`, any number of them.

        That is for ids whose slashes are not escaped. Which of them are the id's, is then guessed; `%2F` always is.
        """
        parts = _PARAMETER.split(self.path)
        fixed, names, kinds = parts[::3], parts[1::3], parts[2::3]
        found = [f"(?P<{name}>{'.*' if kind else '[^/]+'})" for name, kind in zip(names, kinds, strict=True)]
        pattern = "".join(re.escape(part) + group for part, group in zip(fixed, [*found, ""], strict=True))
        return re.compile(pattern, re.DOTALL)  # an id with a line break is for the endpoint to refuse


class Routes:
    """The operations of one subject, collected by decorators."""

    def __init__(self, prefix: str = "", *, tag: str | None = None, responses: Described | None = None) -> None:
        self.operations: list[Operation] = []
        self._prefix, self._tag, self._responses = prefix, tag, responses or {}

    def get(self, path: str, summary: str = "", **described: Any) -> Callable[[Endpoint], Endpoint]:
        return self._add("GET", path, summary, **described)

    def post(self, path: str, summary: str = "", **described: Any) -> Callable[[Endpoint], Endpoint]:
        return self._add("POST", path, summary, **described)

    def delete(self, path: str, summary: str = "", **described: Any) -> Callable[[Endpoint], Endpoint]:
        return self._add("DELETE", path, summary, **described)

    def _add(
        self,
        method: str,
        path: str,
        summary: str,
        *,
        access: RouteAccess,
        responses: Described | None = None,
        parameters: Sequence[Mapping[str, Any]] = (),
        body: Mapping[str, Any] | None = None,
    ) -> Callable[[Endpoint], Endpoint]:
        def add(endpoint: Endpoint) -> Endpoint:
            self.operations.append(
                Operation(
                    method=method,
                    path=self._prefix + path,
                    endpoint=endpoint,
                    access=access,
                    summary=summary,
                    tag=self._tag,
                    parameters=parameters,
                    body=body,
                    responses={**(responses or {}), **self._responses},
                )
            )
            return endpoint

        return add


class Router:
    """Finds the operation that answers a request, and asks the gate whether it may. The innermost of the layers."""

    def __init__(self, operations: Iterable[Operation], gate: Gate) -> None:
        self._gate = gate
        self._fixed: dict[str, dict[str, Operation]] = {}
        self._patterns: dict[re.Pattern[str], dict[str, Operation]] = {}  # in the order in which they were given
        for each in operations:
            found = self._patterns.setdefault(each.pattern, {}) if each.path_parameters else self._at(each.path)
            found[each.method] = each

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        operations, parameters = self._find(_segments(scope))
        operation = operations.get(
            "GET" if method == "HEAD" else method
        )  # what answers a HEAD sends no body (RFC 9110)
        if operation is None:
            told = MethodNotAllowed(f"{one_line(method)} is not allowed at {one_line(path, _MAX_SHOWN)}.")
            await problem_response(told, headers={"Allow": _allowed(operations)})(scope, receive, send)
            return
        scope["route"], scope["path_params"] = operation, parameters
        left = await self._gate.admit(scope, operation.access)
        if scope[PRINCIPAL] is not None and self._gate.enabled:
            send = private(send)
        try:
            answer = await operation.endpoint(Request(scope, receive))
            await answer(scope, receive, send)
        finally:
            if left is not None:
                left()

    def _at(self, path: str) -> dict[str, Operation]:
        return self._fixed.setdefault(path, {})

    def _find(self, path: str) -> tuple[dict[str, Operation], dict[str, str]]:
        fixed = self._fixed.get(path)
        if fixed is not None:
            return fixed, {}
        for pattern, operations in self._patterns.items():
            found = pattern.fullmatch(path)
            if found is not None:
                return operations, {name: text.replace(_SLASH, "/") for name, text in found.groupdict().items()}
        raise NotFound(f"There is nothing at {one_line(path.replace(_SLASH, '%2F'), _MAX_SHOWN)}.")


def private(send: Send) -> Send:
    """`send` for an answer that only its principal may see: no cache keeps it."""

    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [pair for pair in message["headers"] if pair[0].lower() != b"cache-control"]
            message["headers"] = [*kept, (b"cache-control", b"no-store")]
        await send(message)

    return marked


def _segments(scope: Scope) -> str:
    """The path, decoded, but for slashes that are part of a name; without one at its end, as many a URL is written."""
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or b""
    if b"%2" in raw:
        path = unquote(_ESCAPED_SLASH.sub(_SLASH, raw.decode("ascii")))
    return path.rstrip("/") or path


def _allowed(operations: Iterable[str]) -> str:
    methods = set(operations)
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))
