"""Routes about the caller: the principal of a credential, and where clients learn how to get one."""

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holodeck.access.principal import SCOPES
from holodeck.access.route_access import PUBLIC, SIGNED_IN
from holodeck.errors import NotFound
from holodeck.server.identity import owner_of, principal_of, spender_of
from holodeck.server.intake import json_answer, server_of
from holodeck.server.options import RESOURCE_METADATA
from holodeck.server.routing import Routes
from holodeck.server.schemas import ANYTHING, PROBLEMS

routes = Routes(tag="Access", responses=PROBLEMS)


class LimitLevel(msgspec.Struct, frozen=True, kw_only=True):
    """How much is left of one limit, and the seconds until it is full again. Money is in millionths.

    `window_seconds` is 0 where time does not free the limit: for storage (`tenant-stored`, in bytes) and for work in
    progress (`user-runs`, `user-streams` and the like).
    """

    name: str
    limit: int
    left: int
    window_seconds: float
    reset_seconds: float


class MeResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The principal of the request. `expires` is in seconds since 1970."""

    tenant: str
    user: str
    scopes: list[str]
    via: str
    credential_id: str | None
    expires: float | None
    limits: list[LimitLevel]


@routes.get("/me", "The current user and their scopes", access=SIGNED_IN, responses={200: MeResponse})
async def me(request: Request) -> Response:
    principal = principal_of(request)
    levels = await server_of(request).quotas.levels(spender_of(request, owner_of(request)))
    return json_answer(
        MeResponse(
            tenant=principal.tenant,
            user=principal.user,
            scopes=sorted(scope for scope in SCOPES if principal.may(scope)),
            via=principal.via,
            credential_id=principal.credential_id,
            expires=principal.expires,
            limits=[
                LimitLevel(
                    name=each.window.name,
                    limit=each.window.limit,
                    left=each.left,
                    window_seconds=each.window.seconds,
                    reset_seconds=round(each.reset, 3),
                )
                for each in levels
            ],
        )
    )


@routes.get(RESOURCE_METADATA, "Protected resource metadata (RFC 9728)", access=PUBLIC, responses=ANYTHING)
async def protected_resource(request: Request) -> Response:
    return resource_metadata(request)


def resource_metadata(request: Request, path: str = "") -> Response:
    """Returns RFC 9728's document about the server, or about the part of it at `path`."""
    server = server_of(request)
    public_url = server.settings.block.public_url
    if public_url is None or not server.access.issuers:
        raise NotFound("There is no metadata: it needs server.public_url and mode jwt.")
    return JSONResponse(
        {
            "resource": public_url.rstrip("/") + path,
            "authorization_servers": server.access.issuers,
            "scopes_supported": server.access.scopes_supported,
            "bearer_methods_supported": ["header"],
        }
    )
