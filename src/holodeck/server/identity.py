"""Who sends a request. Routes learn it here and nowhere else.

The gate puts a `Principal` into the scope of each request before a route sees it. Without authentication it is the
anonymous one.
"""

from collections.abc import Sequence
from typing import Protocol

from starlette.requests import HTTPConnection, Request

from holodeck.access.key_file import is_user_of_key
from holodeck.access.principal import ACT_AS, ADMIN, APPROVE, Principal, is_user_name
from holodeck.core.owner import Owner
from holodeck.errors import Forbidden, InvalidRequest, Unauthorized
from holodeck.server.audit import admin_access, decided
from holodeck.telemetry.log_context import current


class GivenAnswer(Protocol):
    """A person's answer to an approval, on any wire."""

    @property
    def interrupt_id(self) -> str: ...

    @property
    def approved(self) -> bool: ...


PRINCIPAL = "holodeck.principal"  # the key in the scope
USER_HEADER = b"x-holodeck-user"


def principal_of(request: HTTPConnection) -> Principal:
    principal: Principal | None = request.scope.get(PRINCIPAL)
    if principal is None:
        raise Unauthorized("This request needs a valid credential.")
    return principal


def owner_of(request: HTTPConnection, user_id: str | None = None) -> Owner:
    """The owner of what a request reads or creates: the user of its credential.

    A credential with the scope `act-as` or `admin` may name another user of its tenant, in the header `X-HoloDeck-User`
    or, on the chat-stream wire, as `user_id` in the body. From any other credential such a name is 403: a name that is
    ignored would look as if it had worked. Every use by an admin is logged.
    """
    principal = principal_of(request)
    current().authenticated = principal.via != "none"
    headers = [value.decode("latin-1") for name, value in request.scope["headers"] if name == USER_HEADER]
    names = {*headers, *(() if user_id is None else (user_id,))} - {principal.user}
    if not names:
        return principal.owner
    as_admin = principal.may(ADMIN) and not principal.may(ACT_AS)
    if not principal.may(ACT_AS) and not as_admin:
        raise _mismatch("This credential may not act for another user.")
    if len(names) > 1 or len(headers) > 1:
        raise _mismatch("The request names more than one user.")
    name = names.pop()
    if not is_user_name(name) and not (as_admin and is_user_of_key(name)):
        raise InvalidRequest("user_id has to be 1 to 255 printable characters, and no reserved name.", field="user_id")
    owner = Owner(principal.tenant, name)
    if as_admin:
        admin_access(principal, owner, str(getattr(request.scope.get("route"), "path", "")))
    return owner


def api_key_of(request: HTTPConnection) -> str | None:
    """The id of the API key that a request came with; None for other credentials, which cannot be revoked here."""
    principal = principal_of(request)
    return principal.credential_id if principal.via == "api_key" else None


def check_approval(request: Request, resume: Sequence[GivenAnswer]) -> None:
    """403 for an answer to an approval from a credential that may chat but not approve."""
    if not resume:
        return
    require(request, APPROVE)
    for answer in resume:
        details = {"interrupt_id": answer.interrupt_id, "approved": answer.approved}
        decided("approval_decided", owner_of(request), **details)


def require(request: Request, scope: str) -> None:
    """For routes that need a scope because of what is in the body."""
    request.app.state.server.gate.require(principal_of(request), scope, request.scope)


def _mismatch(message: str) -> Forbidden:
    error = Forbidden(message)
    error.reason = "user-mismatch"
    return error
