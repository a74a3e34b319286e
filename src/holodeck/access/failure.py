"""Reasons why a request has no principal: for the client's answer, and for the log."""

from typing import Literal, TypeAlias

import msgspec

FailureKind: TypeAlias = Literal[
    "missing", "invalid", "expired", "two-credentials", "forbidden", "limited", "unavailable"
]
"""The kinds of failure for the client. Each has one answer, whatever the reason."""

Reason: TypeAlias = Literal[
    "missing",
    "malformed",
    "unknown",
    "revoked",
    "expired",
    "early",
    "signature",
    "issuer",
    "audience",
    "type",
    "claims",
    "scope",
    "proxy",
    "refused",
    "limited",
    "unavailable",
]
"""The exact reasons, for log lines only: a client could use them to guess."""

BAD_KEY = "This key is not valid."
BAD_TOKEN = "This token is not valid."  # noqa: S105  a sentence
BAD_PROXY = "The identity that the proxy sent is not valid."


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A request whose credential is missing or invalid."""

    kind: FailureKind
    reason: Reason
    message: str
    credential_id: str | None = None  # for the log, if the credential contains an id
    retry_after: float | None = None
    scope: str | None = None  # the scope that the credential lacks, in the issuer's words


NO_CREDENTIAL = Failure(
    kind="missing", reason="missing", message="Authentication is required: send Authorization: Bearer <key or token>."
)
NOT_BEARER = Failure(
    kind="invalid",
    reason="malformed",
    message="This credential is not valid: send Authorization: Bearer <key or token>.",
)
TWO_CREDENTIALS = Failure(
    kind="two-credentials", reason="malformed", message="Send exactly one credential, in one header."
)
IN_QUERY = Failure(
    kind="two-credentials",
    reason="malformed",
    message="Do not put a credential into the URL: URLs are logged. Send Authorization: Bearer <key or token>.",
)
