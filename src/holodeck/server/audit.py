"""Log lines about access: refused credentials, missing scopes, actions of admins. Never a credential or its hash.

Refusals are summed by address and reason, so a client that sends a thousand wrong keys a second causes one line every
ten seconds.
"""

import asyncio
import logging
from contextvars import Context

from holodeck.access.failure import Failure
from holodeck.access.principal import Principal
from holodeck.core.owner import Owner

log = logging.getLogger(__name__)

SUMMED_SECONDS = 10.0
MAX_COUNTED = 1000  # pairs of address and reason that are counted; the rest is counted as one
OTHERS = "others"
HINTS = {"early": "the token is from the future: compare the clocks of this server and of the issuer"}


class Audit:
    def __init__(self) -> None:
        self._counts: dict[tuple[str | None, str], int] = {}  # refusals since the last line

    def refused(self, failure: Failure, route: str, address: str | None) -> None:
        key = address, failure.reason
        if key not in self._counts and len(self._counts) >= MAX_COUNTED:
            key = OTHERS, failure.reason
        if key in self._counts:
            self._counts[key] += 1
            return
        self._counts[key] = 0
        self._sum_up_later(key)
        details = {"reason": failure.reason, "route": route, "address": key[0]}
        if failure.credential_id is not None:
            details["credential_id"] = failure.credential_id
        if failure.reason in HINTS:
            details["hint"] = HINTS[failure.reason]
        log.warning("auth_refused", extra={"details": details})

    def _sum_up_later(self, key: tuple[str | None, str]) -> None:
        """Logs in an empty context: the sum covers many requests, and must not carry the id of the first."""
        asyncio.get_running_loop().call_later(SUMMED_SECONDS, self._sum_up, key, context=Context())

    def _sum_up(self, key: tuple[str | None, str]) -> None:
        count = self._counts.pop(key)
        if not count:
            return
        self._counts[key] = 0
        self._sum_up_later(key)
        details = {"reason": key[1], "address": key[0], "count": count, "seconds": SUMMED_SECONDS}
        log.warning("auth_refused", extra={"details": details})

    def denied(self, principal: Principal, scope: str, route: str) -> None:
        log.warning("auth_denied", extra={"details": {**_about(principal), "scope": scope, "route": route}})


def decided(event: str, owner: Owner, **details: object) -> None:
    """Logs what a person did to a conversation: `approval_decided`, `session_deleted`, `run_stopped`."""
    log.info(event, extra={"details": {"owner": owner.user, **details}})


def admin_access(principal: Principal, owner: Owner, route: str, named: str | None) -> None:
    """`named` is the id in the path: of a session, a run, a task."""
    details = {**_about(principal), "owner": owner.user, "route": route, "object": named}
    log.warning("admin_access", extra={"details": details})


def _about(principal: Principal) -> dict[str, str | None]:
    return {"tenant": principal.tenant, "user": principal.user, "credential_id": principal.credential_id}
