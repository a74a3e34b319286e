"""The access that a route requires of a request's principal. Every operation declares one; there is no default."""

from typing import Literal, TypeAlias

import msgspec

AccessKind: TypeAlias = Literal["static", "open", "principal", "scope"]


class RouteAccess(msgspec.Struct, frozen=True, kw_only=True):
    """`open_as` is the word in `server.auth.public` that opens the route to strangers."""

    kind: AccessKind
    scope: str | None = None
    open_as: str | None = None
    takes_ticket: bool = False  # for a run, in the query (`holodeck.access.tickets`)


PUBLIC = RouteAccess(kind="static")
"""Static files, the same for everyone. The server does not even look for a credential."""

OPEN = RouteAccess(kind="open")
"""Open to strangers as well. A principal may see more."""

SIGNED_IN = RouteAccess(kind="principal")
"""Any principal."""


def needs(scope: str, *, open_as: str | None = None, takes_ticket: bool = False) -> RouteAccess:
    return RouteAccess(kind="scope", scope=scope, open_as=open_as, takes_ticket=takes_ticket)


def signed_in(*, open_as: str) -> RouteAccess:
    return RouteAccess(kind="principal", open_as=open_as)
