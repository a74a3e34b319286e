"""Identifies the sender of a request, and checks whether it may use the operation. Routes have no other source.

The gate puts a `Principal` and the client's address into the scope of each request before a route sees it. Without
authentication the principal is the anonymous one. Limits count by these two (`spender_of`), never by what is logged. The
gate reads only the head of a request, so a client that is refused need not send its body. The router calls the gate with
the operation that matched, never with a path.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from urllib.parse import parse_qsl

from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

from holodeck.access.attempts import network_of
from holodeck.access.authenticator import Authenticator
from holodeck.access.failure import TWO_CREDENTIALS, Failure
from holodeck.access.key_file import is_user_of_key
from holodeck.access.principal import ACT_AS, ADMIN, ANONYMOUS_PRINCIPAL, Principal, RequestHead, is_user_name
from holodeck.access.route_access import SIGNED_IN, RouteAccess
from holodeck.access.tickets import Tickets
from holodeck.core.owner import Owner
from holodeck.core.request import Resume
from holodeck.core.text import from_header
from holodeck.errors import AuthUnavailable, Forbidden, HoloDeckError, InvalidRequest, RateLimited, Unauthorized
from holodeck.server.audit import Audit, admin_access, decided
from holodeck.server.connection import connection_of
from holodeck.server.quota import Spender
from holodeck.telemetry.log_context import current
from holodeck.telemetry.metrics import Metrics

_CODES = {"invalid": "invalid_token", "expired": "invalid_token", "two-credentials": "invalid_request"}
_REVOCABLE = frozenset({"api_key", "ticket"})
REVOKED_GRACE = 1.0  # seconds for the last event of a stopped run to reach its readers


# Keys in the scope.
PRINCIPAL = "holodeck.principal"
ADDRESS = "holodeck.address"  # the client's: the socket's or, behind a trusted proxy, the one that it reports (T31)

USER_HEADER = b"x-holodeck-user"
_MAY_NOT = "This credential may not act for another user."


def principal_of(request: HTTPConnection) -> Principal:
    principal: Principal | None = request.scope.get(PRINCIPAL)
    if principal is None:
        raise Unauthorized("This request needs a valid credential.")
    return principal


def owner_of(request: HTTPConnection, user_id: str | None = None) -> Owner:
    """Returns the owner of what a request reads or creates: the user of its credential.

    A credential with the scope `act-as` or `admin` may name another user of its tenant, in the header `X-HoloDeck-User`
    or, on the chat-stream wire, as `user_id` in the body. Any other credential gets 403, instead of being
    served silently as its own user. Every use by an admin is logged.
    """
    principal = principal_of(request)
    headers = _named_users(request.scope)
    names = {*headers, *(() if user_id is None else (user_id,))} - {principal.user}
    if not names:
        return Owner(principal.tenant, principal.user)
    as_admin = principal.may(ADMIN) and not principal.may(ACT_AS)
    if not principal.may(ACT_AS) and not as_admin:
        raise _mismatch(_MAY_NOT)
    if len(names) > 1 or len(headers) > 1:
        raise _mismatch("The request names more than one user.")
    name = names.pop()
    if not is_user_name(name) and not (as_admin and is_user_of_key(name)):
        raise InvalidRequest("user_id must be 1 to 255 printable characters, and no reserved name.", field="user_id")
    owner = Owner(principal.tenant, name)
    if as_admin:
        admin_access(principal, owner, _route(request.scope), ", ".join(request.path_params.values()) or None)
    return owner


def spender_of(request: HTTPConnection, owner: Owner) -> Spender:
    """Returns the parties whose limits a request uses, of what belongs to this owner."""
    principal = principal_of(request)
    return Spender(owner, network_of(request.scope[ADDRESS]), principal.key_id, principal.is_authenticated)


def check_named_user(principal: Principal, scope: Scope) -> None:
    """Raises 403 if the header names a user that the credential may not name, even on routes that ignore the user."""
    if principal.may(ACT_AS) or principal.may(ADMIN):
        return
    if any(name != principal.user for name in _named_users(scope)):
        raise _mismatch(_MAY_NOT)


def _named_users(scope: Scope) -> list[str]:
    return [from_header(value) for name, value in scope["headers"] if name == USER_HEADER]


def api_key_of(request: HTTPConnection) -> str | None:
    """Returns the id of the request's API key, or None: other credentials cannot be revoked here."""
    principal = principal_of(request)
    return principal.credential_id if principal.via == "api_key" else None


def note_approvals(owner: Owner, resume: Sequence[Resume]) -> None:
    """Logs answers that a run accepted. An answer to a question that is not open was refused earlier."""
    for answer in resume:
        decided("approval_decided", owner, interrupt_id=answer.interrupt_id, approved=answer.approved)


def require(request: Request, scope: str) -> None:
    """Checks a scope that a route needs because of what the body contains."""
    request.app.server.gate.require(principal_of(request), scope, request.scope)


def _mismatch(message: str) -> Forbidden:
    return Forbidden(message, reason="user-mismatch")


class Gate:
    """Holds the authenticator, the routes that are open to strangers, and the open requests of each key."""

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
        self.enabled = access.enabled
        name = realm.encode("ascii", "ignore").decode().replace("\\", "").replace('"', "")
        resource = f', resource_metadata="{metadata_url}"' if metadata_url else ""
        self.challenge = f'Bearer realm="{name}"{resource}'
        self.audit = Audit()
        self.tickets = Tickets(access.in_force)
        self._open: dict[str, set[Callable[[], None]]] = {}

    async def admit(self, scope: Scope, access: RouteAccess) -> Callable[[], None] | None:
        """Puts the principal into the scope, or raises. Returns a function to call when the request has ended."""
        if not self._access.enabled:
            client = scope.get("client")
            scope[PRINCIPAL], scope[ADDRESS] = ANONYMOUS_PRINCIPAL, client[0] if client else None
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
        scope[PRINCIPAL], scope[ADDRESS] = found, self._access.client_address(head)
        logged = current()
        logged.user_id, logged.tenant, logged.credential_id = found.user, found.tenant, found.credential_id
        if not open_to_all:
            if access.scope is not None:
                self.require(found, access.scope, scope)
            check_named_user(found, scope)
        return self._entered(found, scope)

    def require(self, principal: Principal, wanted: str, scope: Scope) -> None:
        """403 unless the principal has the scope `wanted`."""
        if principal.may(wanted):
            return
        self._metrics.auth.add(principal.via, "denied")
        self.audit.denied(principal, wanted, _route(scope))
        message = f"This needs the scope {wanted!r}, which the credential does not have."
        error = Forbidden(message, reason="insufficient-scope")
        words = self._access.scopes_for(wanted) if principal.via == "jwt" else [wanted]
        error.challenge = f'{self.challenge}, error="insufficient_scope"{_scope_of(words)}'
        raise error

    def is_flooding(self, scope: Scope) -> bool:
        """Returns whether the client sent so many bad credentials that its requests are logged at debug level only."""
        return self._access.enabled and self._access.is_exhausted(head_of(scope))

    def end(self, credentials: frozenset[str]) -> None:
        """Closes the connections of revoked keys, after their runs had time to end properly."""
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
        operation = scope.get("route")
        wanted = _scope_of(self._access.scopes_for(getattr(operation, "access", SIGNED_IN).scope))
        if failure.kind == "forbidden":
            error.challenge = f'{self.challenge}, error="insufficient_scope"{_scope_of([failure.scope or ""])}'
        elif failure.kind == "missing":
            error.challenge = self.challenge + wanted
        elif failure.kind in _CODES:
            expired = ', error_description="expired"' if failure.kind == "expired" else ""
            more = "" if failure.kind == "two-credentials" else expired + wanted
            error.challenge = f'{self.challenge}, error="{_CODES[failure.kind]}"{more}'
        return error


def _error_of(failure: Failure) -> HoloDeckError:
    match failure.kind:
        case "two-credentials":
            return InvalidRequest(failure.message, status=400)
        case "forbidden":
            return Forbidden(failure.message, reason="insufficient-scope")
        case "limited":
            return RateLimited(failure.message, reason="address-failures")
        case "unavailable":
            return AuthUnavailable(failure.message)
    return Unauthorized(failure.message)


def _scope_of(words: Sequence[str]) -> str:
    """The parameter of a challenge by which clients choose the scopes to request (RFC 6750, 3)."""
    named = " ".join(word for word in words if word.isascii() and word.isprintable() and not {'"', "\\"} & set(word))
    return f', scope="{named}"' if named else ""


def _ticket_in(head: RequestHead) -> str | None:
    """Returns the value of `ticket` in the query. Two tickets are invalid."""
    if b"ticket=" not in head.query:
        return None
    found = [value for name, value in parse_qsl(head.query.decode("latin-1")) if name == "ticket"]
    return found[0] if len(found) == 1 else ""


def head_of(scope: Scope) -> RequestHead:
    client = scope.get("client")
    return RequestHead(scope["headers"], scope.get("query_string", b""), client[0] if client else None)


def _route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", ""))
