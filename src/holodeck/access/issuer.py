"""The issuers whose tokens are accepted, as the agent file describes them."""

from typing import Annotated, TypeAlias

from pydantic import Discriminator, Field, StringConstraints, Tag

from holodeck.blocks import Block, Identifier

ScopeWord = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^\S+$")]
NameText = Annotated[str, StringConstraints(min_length=1, max_length=255)]
ClaimPath = Annotated[str, StringConstraints(min_length=1, max_length=255)]


def number_of(value: object) -> str:
    """Whether a key that takes a value or a list has one or several."""
    return "several" if isinstance(value, list) else "one"


Audiences: TypeAlias = Annotated[
    Annotated[NameText, Tag("one")] | Annotated[list[NameText], Field(max_length=20), Tag("several")],
    Discriminator(number_of),
]


class ClaimNames(Block):
    """The claims that hold the user, the tenant and so on; a name or a dotted path such as `realm_access.roles`."""

    user_id: ClaimPath = Field("sub", description="The user")
    tenant: ClaimPath | None = Field(
        None, description="The tenant; a token without it is refused. Default: auth.tenant"
    )
    scopes: ClaimPath | None = Field(None, description="Scopes, as a list or separated by spaces. Default: scope")


class Issuer(Block):
    """One issuer of tokens, and what they mean."""

    name: Identifier | None = Field(None, description="With several issuers: users are called name|sub")
    issuer: Annotated[str, StringConstraints(min_length=1, max_length=2048)] = Field(
        description="The exact value of `iss`"
    )
    audience: Audiences = Field([], description="A value that `aud` must contain; a list means any of them")
    algorithms: list[Identifier] = Field(
        default=["RS256"], max_length=10, description="All of one family: HS*, RS* and PS*, ES*, or Ed25519"
    )
    leeway: float = Field(60, ge=0, le=300, description="Seconds by which the issuer's clock may differ from ours")
    max_lifetime: float = Field(86_400, ge=60, le=31_536_000, description="Longest token lifetime, in seconds")
    types: list[Identifier] = Field(
        default=["JWT", "at+jwt"], min_length=1, max_length=10, description="Accepted `typ`; absent counts as JWT"
    )
    claims: ClaimNames = Field(ClaimNames(), description="The names of the claims")
    grant: dict[ScopeWord, Annotated[list[Identifier], Field(max_length=20)]] | None = Field(
        None, max_length=200, description="Maps the issuer's scope names to scopes. Default: the same names"
    )
    required: list[ScopeWord] = Field(
        default=[],
        max_length=20,
        description="The issuer's scopes that every token needs; a token without them gets 403",
    )

    @property
    def audiences(self) -> list[str]:
        return self.audience if isinstance(self.audience, list) else [self.audience]

    def accepts_type(self, kind: str) -> bool:
        """Whether tokens of this `typ` are accepted. Upper and lower case are the same."""
        return kind.lower().removeprefix("application/") in {each.lower() for each in self.types}
