"""Routes: an address, its endpoint, and its OpenAPI description, in one place.

The router finds fixed addresses by one dictionary access and those with parameters by a few patterns. An endpoint takes
a request and returns a response. The application turns its errors into problems.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from holodeck.access.route_access import RouteAccess
from holodeck.core.text import one_line
from holodeck.errors import MethodNotAllowed, NotFound
from holodeck.server.problems import answer_to

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
AnswerError: TypeAlias = Callable[[Exception], Response]
ResponseSchemas: TypeAlias = dict[int | str, Any]
"""Answers by status: an object of OpenAPI, or the type of a JSON body."""

_PARAMETER = re.compile(r"{(\w+)(:path)?}")
_ESCAPED_SLASH = re.compile("%2F", re.IGNORECASE)
_SLASH = "\ud800"  # replaces `%2F` while a path is split; not valid Unicode, so no path contains it
_MAX_SHOWN = 200
_MAX_COMPARED = 64


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method at one address. Without a tag it is not documented."""

    method: str
    path: str
    endpoint: Endpoint
    access: RouteAccess
    summary: str = ""
    tag: str | None = None
    parameters: Sequence[Mapping[str, Any]] = ()
    body: Mapping[str, Any] | None = None
    responses: ResponseSchemas
    schemas: Mapping[str, Any] = field(default_factory=dict)  # components that `body` and `responses` refer to by name
    before_ready: bool = False  # answered while the agent is starting
    is_probe: bool = False  # monitors call it every few seconds: logged at debug level only
    takes_files: bool = False  # its body may be as large as an upload
    answer_error: AnswerError = answer_to  # makes the answer to a request that is refused or fails

    @property
    def path_parameters(self) -> list[str]:
        return [name for name, _ in _PARAMETER.findall(self.path)]

    @property
    def shown_path(self) -> str:
        return _PARAMETER.sub(r"{\1}", self.path)

    @property
    def pattern(self) -> re.Pattern[str]:
        """Compiles a path. A parameter is one segment; with `:path`, any number of them.

        `:path` is for ids whose slashes are not escaped. The router then guesses which slashes belong to the id; `%2F`
        always does.
        """
        parts = _PARAMETER.split(self.path)
        fixed, names, kinds = parts[::3], parts[1::3], parts[2::3]
        found = [f"(?P<{name}>{'.*' if kind else '[^/]+'})" for name, kind in zip(names, kinds, strict=True)]
        pattern = "".join(re.escape(part) + group for part, group in zip(fixed, [*found, ""], strict=True))
        return re.compile(pattern, re.DOTALL)  # the endpoint refuses an id with a line break


class Routes:
    """The operations of one subject, collected by decorators."""

    def __init__(
        self,
        prefix: str = "",
        *,
        responses: ResponseSchemas | None = None,
        answer_error: AnswerError = answer_to,
        **common: Any,
    ) -> None:
        """The arguments after the prefix are those of `Operation`, and apply to every operation of these routes."""
        self.operations: list[Operation] = []
        self.prefix, self.answer_error = prefix, answer_error
        self._responses, self._common = responses or {}, common

    def get(self, path: str, summary: str = "", **described: Any) -> Callable[[Endpoint], Endpoint]:
        return self.add("GET", path, summary, **described)

    def post(self, path: str, summary: str = "", **described: Any) -> Callable[[Endpoint], Endpoint]:
        return self.add("POST", path, summary, **described)

    def delete(self, path: str, summary: str = "", **described: Any) -> Callable[[Endpoint], Endpoint]:
        return self.add("DELETE", path, summary, **described)

    def add(
        self,
        method: str,
        path: str,
        summary: str,
        *,
        access: RouteAccess,
        responses: ResponseSchemas | None = None,
        **described: Any,
    ) -> Callable[[Endpoint], Endpoint]:
        def describe(endpoint: Endpoint) -> Endpoint:
            self.operations.append(
                Operation(
                    method=method,
                    path=self.prefix + path,
                    endpoint=endpoint,
                    access=access,
                    summary=summary,
                    responses={**(responses or {}), **self._responses},
                    answer_error=self.answer_error,
                    **self._common,
                    **described,
                )
            )
            return endpoint

        return describe


class Match(NamedTuple):
    """The result for an address: an operation and the parameters in the path, or the error that answers instead."""

    operation: Operation | None
    parameters: dict[str, str]
    error: NotFound | MethodNotAllowed | None = None
    answer_error: AnswerError = answer_to  # makes the answer to that error


class Router:
    def __init__(self, operations: Iterable[Operation]) -> None:
        self._fixed: dict[str, dict[str, Operation]] = {}
        self._patterns: dict[re.Pattern[str], dict[str, Operation]] = {}  # in the order of registration
        for each in operations:
            found = self._patterns.setdefault(each.pattern, {}) if each.path_parameters else self._at(each.path)
            found[each.method] = each

    def match(self, scope: Scope) -> Match:
        method, path = scope["method"], _path_of(scope)
        operations, parameters = self._find(path)
        if operations is None:
            shown = one_line(path.replace(_SLASH, "%2F"), _MAX_SHOWN)
            return Match(None, parameters, NotFound(f"There is nothing at {shown}."))
        operation = operations.get("GET" if method == "HEAD" else method)  # the server drops a HEAD's body (RFC 9110)
        if operation is None:
            allowed = _allowed(operations)
            shown = one_line(scope["path"], _MAX_SHOWN)
            error = MethodNotAllowed(f"{one_line(method)} is not allowed at {shown}; use {allowed}.")
            error.headers = {"Allow": allowed}
            there = next(iter(operations.values()))
            return Match(None, parameters, error, there.answer_error)
        return Match(operation, parameters)

    def near(self, path: str) -> str | None:
        """Returns the route's address that a wrong path is probably a typo of. Long paths are not compared: clients choose them."""
        found = get_close_matches(path, self._fixed, n=1, cutoff=0.8) if len(path) <= _MAX_COMPARED else []
        return found[0] if found else None

    def _at(self, path: str) -> dict[str, Operation]:
        return self._fixed.setdefault(path, {})

    def _find(self, path: str) -> tuple[dict[str, Operation] | None, dict[str, str]]:
        fixed = self._fixed.get(path)
        if fixed is not None:
            return fixed, {}
        for pattern, operations in self._patterns.items():
            found = pattern.fullmatch(path)
            if found is not None:
                return operations, {name: text.replace(_SLASH, "/") for name, text in found.groupdict().items()}
        return None, {}


def _path_of(scope: Scope) -> str:
    """Returns the path below the mount point, decoded except for slashes inside a segment, without a trailing slash."""
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or b""
    if b"%2" in raw:
        path = unquote(_ESCAPED_SLASH.sub(_SLASH, raw.decode("ascii")))
    root: str = scope.get("root_path", "")
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return path.rstrip("/") or path or "/"


def _allowed(operations: Iterable[str]) -> str:
    methods = set(operations)
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))
