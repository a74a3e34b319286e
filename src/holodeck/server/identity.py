"""Who sends a request. Routes learn it here and nowhere else.

The application puts a `Principal` into the scope of each request before a route sees it. Without authentication it is
the anonymous one.
"""

from collections.abc import Callable
from typing import TypeAlias

from starlette.requests import HTTPConnection
from starlette.types import Scope

from holodeck.access.principal import ACT_AS, ANONYMOUS_PRINCIPAL, Principal, is_user_name
from holodeck.core.owner import Owner
from holodeck.errors import Forbidden, InvalidRequest, Unauthorized
from holodeck.telemetry.context import current

Identify: TypeAlias = Callable[[Scope], Principal | None]

PRINCIPAL = "holodeck.principal"  # the key in the scope
USER_HEADER = b"x-holodeck-user"


def anonymous(_scope: Scope) -> Principal:
    """Identifies nobody: every request has the same principal, which may do everything."""
    return ANONYMOUS_PRINCIPAL


def principal_of(request: HTTPConnection) -> Principal:
    principal: Principal | None = request.scope.get(PRINCIPAL)
    if principal is None:
        raise Unauthorized("This request needs a valid credential.")
    return principal


def owner_of(request: HTTPConnection, user_id: str | None = None) -> Owner:
    """The owner of what a request reads or creates: the user of its credential.

    A credential with the scope `act-as` may name another user of its tenant, in the header `X-HoloDeck-User` or, on the
    chat-stream wire, as `user_id` in the body. From any other credential such a name is 403: a name that is ignored
    would look as if it had worked.
    """
    principal = principal_of(request)
    current().authenticated = principal is not ANONYMOUS_PRINCIPAL
    headers = [value.decode("latin-1") for name, value in request.scope["headers"] if name == USER_HEADER]
    names = {*headers, *(() if user_id is None else (user_id,))} - {principal.user}
    if not names:
        return principal.owner
    if not principal.may(ACT_AS):
        raise _mismatch("This credential may not act for another user.")
    if len(names) > 1 or len(headers) > 1:
        raise _mismatch("The request names more than one user.")
    name = names.pop()
    if not is_user_name(name):
        raise InvalidRequest("user_id has to be 1 to 255 printable characters, and no reserved name.", field="user_id")
    return Owner(principal.tenant, name)


def _mismatch(message: str) -> Forbidden:
    error = Forbidden(message)
    error.reason = "user-mismatch"
    return error
