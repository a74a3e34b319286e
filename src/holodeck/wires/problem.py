"""RFC 9457 problem details for errors before the first byte of a response (SRV-17).

It builds the body of a problem; it does not know routes.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from holodeck.core.text import clean, shorten
from holodeck.errors import PROBLEM_BASE, HoloDeckError, InvalidRequest

CONTENT_TYPE = "application/problem+json"
MAX_DETAIL = 2000


class ProblemDetail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body. Members after `instance` are extensions; unset members are omitted."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    reason: str | None = None
    retry_after: float | None = None
    field: str | None = None
    schema: Mapping[str, Any] | None = None
    session_id: str | None = None

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)


def problem(error: HoloDeckError, instance: str | None = None) -> ProblemDetail:
    """The problem document for this error; `instance` is the request's id."""
    field, schema = (error.field, error.schema) if isinstance(error, InvalidRequest) else (None, None)
    return ProblemDetail(
        type=PROBLEM_BASE + error.code,
        title=error.title,
        status=error.status,
        detail=shorten(clean(error.message), MAX_DETAIL),  # may quote the client: half a surrogate pair, an endless id
        instance=instance,
        reason=error.reason,
        retry_after=error.retry_after,
        field=None if field is None else clean(field),
        schema=schema,
        session_id=error.session_id,
    )
