"""The `server.auth` block of agent.yaml: which credentials the server accepts, and what they mean.

This module defines the valid keys and values. `holodeck.config.auth` refuses those that would not be safe.
"""

from typing import Annotated, Literal, TypeAlias, TypeVar

from pydantic import Discriminator, Field, SecretStr, StringConstraints, Tag

from holodeck.access.issuer import Issuer, NameText, number_of
from holodeck.access.proxy import USER_HEADER
from holodeck.blocks import Block, FilePath, Identifier, Url

T = TypeVar("T")
Mode: TypeAlias = Literal["none", "api_key", "jwt", "proxy", "hook"]
PublicRoute: TypeAlias = Literal["health", "openapi", "metrics", "capabilities"]
ProxyHeader = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9-]+$")]
SecretText = Annotated[SecretStr, Field(max_length=4096)]


Modes: TypeAlias = Annotated[
    Annotated[Mode, Tag("one")] | Annotated[list[Mode], Field(min_length=1, max_length=4), Tag("several")],
    Discriminator(number_of),
]


class ApiKeySettings(Block):
    """Keys that `holodeck keys` creates."""

    file: FilePath = Field("keys.json", description="Made by `holodeck keys`; relative to agent.yaml; mode 0600")


class JwtKeysSettings(Block):
    """The source of the issuer's public keys. Exactly one of these."""

    url: Url | None = Field(None, description="A JWKS over https")
    discover: bool = Field(False, description="Ask the issuer's discovery document for the JWKS")
    file: FilePath | None = Field(None, description="A JWKS file, relative to agent.yaml")
    pem: FilePath | None = Field(None, description="One public key in PEM form, relative to agent.yaml")
    secret: SecretText | None = Field(None, description="A shared secret for HS256, HS384, HS512; at least 32 bytes")


class JwtSettings(Issuer):
    """One issuer of tokens."""

    keys: JwtKeysSettings = Field(description="Where the issuer's keys are")


Issuers: TypeAlias = Annotated[
    Annotated[JwtSettings, Tag("one")] | Annotated[list[JwtSettings], Field(max_length=10), Tag("several")],
    Discriminator(number_of),
]


class ProxyHeaderSettings(Block):
    """Names of the headers that the proxy sets."""

    user_id: ProxyHeader = Field(USER_HEADER, description="The user; a request must have it exactly once")
    tenant: ProxyHeader | None = Field(None, description="The tenant. Default: auth.tenant")
    scopes: ProxyHeader | None = Field(None, description="Scopes, separated by spaces or commas. Default: auth.scopes")


class ProxyAuthSettings(Block):
    """A proxy that signs users in and passes their identity in headers."""

    from_: list[Identifier] = Field(
        alias="from", min_length=1, max_length=50, description="Networks of the proxy, e.g. 127.0.0.1/32, or unix"
    )
    secret: SecretText | None = Field(
        None, description="What the proxy sends in X-HoloDeck-Proxy; needed unless `from` is unix only"
    )
    headers: ProxyHeaderSettings = Field(ProxyHeaderSettings(), description="The names of the headers")
    client_address: ProxyHeader | None = Field(
        None, description="Header with the client's address, e.g. X-Forwarded-For; the last entry not in `from` counts"
    )


class HookSettings(Block):
    """Your own function: async def who(headers, address) -> Principal | None."""

    file: FilePath = Field(description="A Python file in the agent's folder")
    function: Identifier = Field("who", description="The function's name")


class AuthSettings(Block):
    """Who may use the server."""

    mode: Modes | None = Field(
        None, description="none, api_key, jwt, proxy, hook, or a list. Default: none; with HOLODECK_API_KEY api_key"
    )
    tenant: NameText = Field("default", description="The tenant of credentials that name none")
    scopes: list[Identifier] = Field(
        default=["chat", "runs:read", "runs:stop", "sessions:read", "sessions:delete", "approve"],
        max_length=20,
        description="The scopes of credentials that name none",
    )
    public: list[PublicRoute] = Field(
        default=["health"],
        max_length=4,
        description="Routes that need no credential: health, openapi, metrics, capabilities",
    )
    api_key: ApiKeySettings | None = Field(None, description="Keys that `holodeck keys` creates")
    jwt: Issuers | None = Field(None, description="One issuer of tokens, or a list")
    proxy: ProxyAuthSettings | None = Field(None, description="A proxy that signs users in")
    hook: HookSettings | None = Field(None, description="A function of your own")

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The authentication modes, empty if the file names none."""
        return () if self.mode is None else _listed(self.mode)

    @property
    def issuers(self) -> tuple[JwtSettings, ...]:
        return () if self.jwt is None else _listed(self.jwt)


def _listed(value: T | list[T]) -> tuple[T, ...]:
    return tuple(value) if isinstance(value, list) else (value,)
