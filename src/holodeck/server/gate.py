"""The gate in front of every operation: who sends a request, and whether the operation lets them in.

It sees the head of a request only, so a client that is refused need not send its body. The router asks it with the
operation that was matched, never with a path.
"""

import asyncio
import time
from collections.abc import Callable
from urllib.parse import parse_qsl

from starlette.types import Scope

from holodeck.access.authenticator import Authenticator
from holodeck.access.failure import TWO_CREDENTIALS, Failure
from holodeck.access.principal import ANONYMOUS_PRINCIPAL, Principal
from holodeck.access.request_head import RequestHead
from holodeck.access.route_access import RouteAccess
from holodeck.access.tickets import Tickets
from holodeck.errors import AuthUnavailable, Forbidden, HoloDeckError, InvalidRequest, RateLimited, Unauthorized
from holodeck.server.audit import Audit
from holodeck.server.connection import connection_of
from holodeck.server.identity import PRINCIPAL
from holodeck.telemetry.log_context import current
from holodeck.telemetry.metrics import Metrics

_CODES = {"invalid": "invalid_token", "expired": "invalid_token", "two-credentials": "invalid_request"}
_OWN_KEYS = frozenset({"api_key", "hook"})  # their credential ids are counted by `server.limits.key`
_REVOCABLE = frozenset({"api_key", "ticket"})
REVOKED_GRACE = 1.0  # seconds in which the last event of a stopped run reaches its readers


class Gate:
    """Knows the authenticator, what is open to strangers, and which requests each key has open."""

    def __init__(
        self,
        access: Authenticator,
        metrics: Metrics,
        *,
        realm: str,
        public: frozenset[str] = frozenset({"health"}),
        metadata_url: str | None = None,
    ) -> None:
        self._access, self._metrics, self._public = access, metrics, public
        name = realm.encode("ascii", "ignore").decode().replace("\\", "").replace('"', "")
        resource = f', resource_metadata="{metadata_url}"' if metadata_url else ""
        self._challenge = f'Bearer realm="{name}"{resource}'
        self.audit = Audit()
        self.tickets = Tickets(access.in_force)
        self._open: dict[str, set[Callable[[], None]]] = {}

    @property
    def enabled(self) -> bool:
        return self._access.enabled

    async def admit(self, scope: Scope, access: RouteAccess) -> Callable[[], None] | None:
        """Puts the principal into the scope, or raises. Returns what has to be called when the request has ended."""
        if not self._access.enabled:
            scope[PRINCIPAL] = ANONYMOUS_PRINCIPAL
            return None
        scope[PRINCIPAL] = None
        if access.kind == "static":
            return None
        begun = time.perf_counter()
        head = head_of(scope)
        ticket = _ticket_in(head) if access.takes_ticket else None
        if ticket is None:
            found = await self._access.identify(head)
        elif self._access.has_credential(head):
            found = TWO_CREDENTIALS
        else:
            found = self.tickets.check(ticket, scope["path_params"]["run_id"])
        self._metrics.auth_seconds.observe(time.perf_counter() - begun)
        open_to_all = access.kind == "open" or access.open_as in self._public
        if isinstance(found, Failure):
            if open_to_all:
                return None
            raise self._refused(found, scope, head)
        self._metrics.auth.add(found.via, "accepted")
        scope[PRINCIPAL] = found
        request = current()
        request.user_id, request.tenant, request.credential_id = found.user, found.tenant, found.credential_id
        request.key_id = found.credential_id if found.via in _OWN_KEYS else None
        request.client = self._access.client_address(head)
        if not open_to_all and access.scope is not None:
            self.require(found, access.scope, scope)
        return self._entered(found, scope)

    def require(self, principal: Principal, wanted: str, scope: Scope) -> None:
        """403 unless the principal has the scope `wanted`."""
        if principal.may(wanted):
            return
        self._metrics.auth.add(principal.via, "denied")
        self.audit.denied(principal, wanted, _route(scope))
        error = Forbidden(f"This needs the scope {wanted!r}, which the credential does not have.")
        error.reason = "insufficient-scope"
        error.challenge = f'{self._challenge}, error="insufficient_scope", scope="{wanted}"'
        raise error

    def is_flooding(self, scope: Scope) -> bool:
        """Whether the client sent so many bad credentials that its requests are logged for debugging only."""
        return self._access.enabled and self._access.is_exhausted(head_of(scope))

    def end(self, credentials: frozenset[str]) -> None:
        """Cuts the connections of revoked keys, after their runs had the time to end properly."""
        asyncio.get_running_loop().call_later(REVOKED_GRACE, self._cut, credentials)

    def _cut(self, credentials: frozenset[str]) -> None:
        for credential in credentials:
            for cut in tuple(self._open.get(credential, ())):
                cut()

    def _entered(self, principal: Principal, scope: Scope) -> Callable[[], None] | None:
        connection = connection_of(scope)
        credential = principal.credential_id
        if credential is None or connection is None or principal.via not in _REVOCABLE:
            return None
        transport = connection.transport
        cut = transport.abort
        self._open.setdefault(credential, set()).add(cut)

        def left() -> None:
            opened = self._open.get(credential)
            if opened is not None:
                opened.discard(cut)
                if not opened:
                    del self._open[credential]

        return left

    def _refused(self, failure: Failure, scope: Scope, head: RequestHead) -> HoloDeckError:
        self._metrics.auth.add("none", failure.reason)
        self.audit.refused(failure, _route(scope), self._access.client_address(head))
        error = _error_of(failure)
        error.retry_after = failure.retry_after
        if failure.kind == "forbidden":
            error.reason = "insufficient-scope"
            error.challenge = f'{self._challenge}, error="insufficient_scope"'
        elif failure.kind == "missing":
            error.challenge = self._challenge
        elif failure.kind in _CODES:
            expired = ', error_description="expired"' if failure.kind == "expired" else ""
            error.challenge = f'{self._challenge}, error="{_CODES[failure.kind]}"{expired}'
        return error


def _error_of(failure: Failure) -> HoloDeckError:
    match failure.kind:
        case "two-credentials":
            return InvalidRequest(failure.message, status=400)
        case "forbidden":
            return Forbidden(failure.message)
        case "limited":
            return RateLimited(failure.message)
        case "unavailable":
            return AuthUnavailable(failure.message)
    return Unauthorized(failure.message)


def _ticket_in(head: RequestHead) -> str | None:
    """The value of `ticket` in the query. Two of them are none that is valid."""
    if b"ticket=" not in head.query:
        return None
    found = [value for name, value in parse_qsl(head.query.decode("latin-1")) if name == "ticket"]
    return found[0] if len(found) == 1 else ""


def head_of(scope: Scope) -> RequestHead:
    client = scope.get("client")
    return RequestHead(scope["headers"], scope.get("query_string", b""), client[0] if client else None)


def _route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", ""))
