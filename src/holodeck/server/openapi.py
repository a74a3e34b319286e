"""The OpenAPI 3.1 document of the served routes, generated from `holodeck.server.routing` on the first request."""

import inspect
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, TypeAlias

import msgspec

from holodeck.server.routing import Operation
from holodeck.server.schemas import REFERENCE
from holodeck.wires.body import MAX_NAME
from holodeck.wires.problem import ProblemDetail

References: TypeAlias = Mapping[type, dict[str, Any]]
"""The JSON Schema reference of each of our types."""


SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key (hdk_…) or a JSON web token"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}


def document(
    *,
    title: str,
    description: str,
    version: str,
    operations: Iterable[Operation],
    secured: bool = False,
    root_path: str = "",
) -> dict[str, Any]:
    described = [each for each in operations if each.tag is not None]
    bodies = {body for each in described for body in each.responses.values() if isinstance(body, type)}
    types = [*sorted(bodies, key=lambda body: body.__name__), ProblemDetail]
    found, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    references = dict(zip(types, found, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in described:
        components |= each.schemas
        operation = _operation(each, references)
        paths.setdefault(each.shown_path, {})[each.method.lower()] = operation | (_security(each) if secured else {})
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "description": description, "version": version},
        **({"servers": [{"url": root_path}]} if root_path else {}),
        "paths": paths,
        "components": {
            "schemas": components,
            **({"securitySchemes": SCHEMES} if secured else {}),
        },
    }


def _operation(each: Operation, references: References) -> dict[str, Any]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "maxLength": MAX_NAME}}
        for name in each.path_parameters
    ]
    members = {
        "tags": [each.tag],
        "summary": each.summary,
        "description": inspect.getdoc(each.endpoint),
        "operationId": re.sub(r"\W+", "_", f"{each.endpoint.__name__}{each.shown_path}_{each.method.lower()}"),
        "parameters": [*in_path, *each.parameters],
        "requestBody": each.body,
        "responses": {str(status): _response(status, body, references) for status, body in each.responses.items()},
    }
    return {name: value for name, value in members.items() if value}


def _security(each: Operation) -> dict[str, Any]:
    """The security requirement of the operation. The scope is a role of the scheme (OpenAPI 3.1, 4.8.30)."""
    if each.access.kind in ("static", "open"):
        return {"security": []}
    roles = [each.access.scope] if each.access.scope else []
    return {"security": [{name: roles} for name in SCHEMES]}


def _response(status: int | str, body: Any, references: References) -> dict[str, Any]:
    if not isinstance(body, type):
        return {"description": _phrase(status), **body}
    described = inspect.getdoc(body) if body.__doc__ else None
    content = {"application/json": {"schema": references[body]}}
    return {"description": described or _phrase(status), "content": content}


def _phrase(status: int | str) -> str:
    return HTTPStatus(status).phrase if isinstance(status, int) else str(status)
