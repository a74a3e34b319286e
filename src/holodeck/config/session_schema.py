"""The `sessions` block of agent.yaml: what is stored, for how long, and how much of it the model sees."""

from typing import Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from holodeck.config.tool_schema import Block


class HistorySettings(Block):
    """How much of a long conversation the model is shown. The session keeps all of it."""

    max_messages: int | None = Field(None, ge=2, le=10_000, description="Default: sessions.max_messages")
    max_tokens: int | None = Field(
        None, ge=100, le=10_000_000, description="Estimated, four characters a token; images count 1,000"
    )
    strategy: Literal["trim", "summarize"] = Field(
        "trim", description="Whole turns are left out, oldest first, or replaced by a summary that the model writes"
    )


class SessionSettings(Block):
    """Where and how long conversations are stored."""

    store: Literal["memory", "sqlite", "postgres"] | None = Field(
        None, description="Where conversations are kept; default: sqlite for `holodeck serve`"
    )
    url: SecretStr | None = Field(
        None,
        max_length=2048,
        validate_default=True,
        description="The database of store postgres: postgresql://user:password@host/name",
    )
    path: str | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description="The file of store sqlite, relative to agent.yaml; default: .holodeck/sessions.db",
    )
    durability: Literal["full", "process"] = Field(
        "full",
        description="What a stored message survives: a power failure too, or only the end of the process."
        " PostgreSQL has its own setting, synchronous_commit",
    )
    ttl_seconds: float | None = Field(
        None,
        ge=1,
        le=31_536_000,
        description="Deleted after this long without a message; default: 30 days in a file or database, 30 minutes in memory",
    )
    max_per_user: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Conversations of one user; the one unused for longest makes room. Default: 10,000,"
        " and no limit for clients without a credential, who are one user together",
    )
    max_mb: float = Field(
        4, gt=0, le=1024, description="Size of one conversation; beyond it a message is refused (413)"
    )
    stored_mb: float = Field(
        1024, gt=0, le=1_048_576, description="All conversations of one user; those unused for longest make room"
    )
    max_messages: int = Field(200, ge=2, le=10_000, description="Older messages are left out of the model's view")
    history: HistorySettings = Field(HistorySettings(), description="The same in more detail")
    client_history: Literal["adopt", "ignore"] = Field(
        "adopt",
        description="Whether to use the history that a client sends for a session that the server does not know",
    )
    busy: Literal["queue", "reject"] = Field(
        "queue", description="A second message while a run is active: wait, or respond 409"
    )

    @field_validator("url")
    @classmethod
    def _fits_the_store(cls, url: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        store = info.data.get("store")
        if store == "postgres" and (url is None or not url.get_secret_value()):
            raise ValueError("store postgres needs an address: url: ${DATABASE_URL}")
        if url is not None and store != "postgres":
            raise ValueError("only store postgres has a url; set store: postgres, or leave url out")
        return url


class ClusterSettings(Block):
    """Several servers that share one database (sessions.store: postgres): any of them serves any request."""

    valkey: SecretStr | None = Field(
        None,
        max_length=2048,
        description="A Valkey that carries streams and stops from server to server: valkey://host:6379, valkeys:// with TLS,"
        " valkey+sentinel://host,host,host/name",
    )
    take_over_seconds: float = Field(
        10, ge=2, le=300, description="Seconds without a sign of life before another server takes over a server's runs"
    )
