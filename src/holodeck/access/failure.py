"""Why a request has no principal: what its client is answered, and what the log says."""

from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["missing", "invalid", "expired", "two-credentials", "forbidden", "limited", "unavailable"]
"""What the client can do about it; each kind has one answer, whatever the reason."""

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
"""What exactly was wrong, for log lines only: a client could use it to guess."""

BAD_KEY = "This key is not valid."
BAD_TOKEN = "This token is not valid."  # noqa: S105  a sentence
BAD_PROXY = "The identity that the proxy sent is not valid."


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A request whose credential is absent or does not hold."""

    kind: Kind
    reason: Reason
    message: str
    credential_id: str | None = None  # for the log, when the credential names itself
    retry_after: float | None = None
    scope: str | None = None  # what the credential lacks, in the words of who issued it


NO_CREDENTIAL = Failure(
    kind="missing", reason="missing", message="Authentication is needed: send Authorization: Bearer <key or token>."
)
TWO_CREDENTIALS = Failure(
    kind="two-credentials", reason="malformed", message="Send exactly one credential, in one header."
)
IN_QUERY = Failure(
    kind="two-credentials",
    reason="malformed",
    message="A credential does not belong into a URL, which is logged; send Authorization: Bearer <key or token>.",
)
