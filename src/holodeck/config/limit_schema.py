"""The `server.limits` block of agent.yaml: what clients may use, and how large and slow a request may be.

The server uses these values directly; there is no second form of them.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, field_validator

from holodeck.access.key_file import KeyLimits, Requests, TokenCount
from holodeck.blocks import Block, Identifier, Secret
from holodeck.core.sizes import KIB, MB

_SUBJECTS = ("tenant:", "user:", "key:", "address:")
OF_TENANT = "/user:"  # tenant:NAME/user:NAME
RunsAtATime = Annotated[int, Field(ge=1, le=100_000)]


class RequestLimits(Block):
    """Limits of one request: how large and how slow it may be, and how long its connection is kept (T15, T17)."""

    max_body_mb: float = Field(
        32, gt=0, le=1024, description="Largest JSON body; `files.max_request_mb` is for uploads"
    )
    max_unmeasured_body_mb: float = Field(1, gt=0, le=1024, description="Largest chunked body, which declares no size")
    max_bodies_mb: float = Field(
        512,
        ge=1,
        le=1_048_576,
        description="All bodies that the server is reading, together; above it, the slowest of more than 1 MB gets 503",
    )
    max_head_kb: float = Field(64, ge=1, le=1024, description="Largest request line and headers together")
    max_head_lines: int = Field(128, ge=16, le=10_000, description="Most headers of a request")
    head_seconds: float = Field(10, gt=0, le=600, description="Seconds for the request line and headers to arrive")
    body_seconds: float = Field(
        30, gt=0, le=3600, description="Seconds for a body to arrive; a body that takes longer needs `body_rate`"
    )
    body_rate: float = Field(
        1000, ge=0.001, le=10**9, description="Lowest rate of a body after `body_seconds`, in bytes per second"
    )
    idle_seconds: float = Field(
        5, gt=0, le=3600, description="Seconds that an idle connection is kept open between two requests"
    )
    flush_seconds: float = Field(
        30,
        gt=0,
        le=3600,
        description="Seconds before a client that reads nothing of a finished response is disconnected",
    )
    linger_seconds: float = Field(
        2,
        gt=0,
        le=600,
        description="Seconds to read the rest of a body after an early response, and as many more for each MB of it",
    )
    max_linger_mb: float = Field(
        16, ge=0, le=1024, description="MB of a body that are read and discarded after an early response"
    )
    max_refused_body_mb: float = Field(128, ge=0, le=4096, description="The same for a body with a Content-Length")

    # In bytes. Cached, since connections read them for every piece of data.

    @cached_property
    def max_body(self) -> int:
        return round(self.max_body_mb * MB)

    @cached_property
    def max_unmeasured_body(self) -> int:
        return round(self.max_unmeasured_body_mb * MB)

    @cached_property
    def max_bodies(self) -> int:
        return round(self.max_bodies_mb * MB)

    @cached_property
    def max_head(self) -> int:
        return round(self.max_head_kb * KIB)

    @cached_property
    def max_linger(self) -> int:
        return round(self.max_linger_mb * MB)

    @cached_property
    def max_refused_body(self) -> int:
        return round(self.max_refused_body_mb * MB)


class SubjectLimits(KeyLimits):
    """Limits of one key, user or tenant."""

    runs: RunsAtATime | None = Field(None, description="Concurrent runs")
    streams: RunsAtATime | None = Field(None, description="Concurrent responses, streamed or not")

    def changed_by(self, others: Mapping[str, object]) -> "SubjectLimits":
        """Returns these limits, replaced by those of `others` that are not None."""
        return self.model_copy(update={name: limit for name, limit in others.items() if limit is not None})


class TenantLimits(SubjectLimits):
    """Limits of all users of a tenant together."""

    stored_mb: float | None = Field(
        None, gt=0, le=1_048_576, description="All conversations of a tenant's users; above it no run starts (429)"
    )

    @property
    def stored_bytes(self) -> int | None:
        return None if self.stored_mb is None else round(self.stored_mb * MB)


class AddressLimits(SubjectLimits):
    """Limits of one address."""

    failures_per_minute: int = Field(
        30, ge=1, le=10_000, description="Requests with an invalid credential in a minute; further ones get 429"
    )
    connections: int | None = Field(
        None, ge=1, le=100_000, description="Concurrent connections. Default: 1,000, and no limit for loopback"
    )


class ServerLimits(Block):
    """Limits of addresses, keys, users and tenants (T17, T30). Requests beyond them get 429."""

    store: Secret | None = Field(
        None,
        description="A Valkey or Redis in which replicas share their counts, e.g. ${VALKEY_URL}; default: each process counts by itself",
    )
    when_store_is_down: Literal["local", "refuse"] = Field(
        "local", description="While the store is down: count in this process, or respond 503"
    )
    address: AddressLimits = Field(AddressLimits(), description="One address, or IPv6 network of 64 bits")
    key: SubjectLimits = Field(SubjectLimits(), description="One API key; a key may have limits of its own")
    user: SubjectLimits = Field(SubjectLimits(), description="One user; without a credential, one address")
    tenant: TenantLimits = Field(TenantLimits(), description="All users of a tenant together")
    overrides: dict[Identifier, TenantLimits] = Field(
        default={},
        max_length=1000,
        description="Other limits for one tenant:NAME, tenant:NAME/user:NAME, user:NAME (in every tenant), key:ID or address:ADDRESS",
    )
    request: RequestLimits = Field(RequestLimits(), description="How large and how slow one request may be")
    requests_per_minute: Requests | None = Field(None, description="The same as user.requests_per_minute")
    tokens_per_day: TokenCount | None = Field(None, description="The same as user.tokens_per_day")
    message_characters: int = Field(
        1_000_000,
        ge=1000,
        le=3_000_000,
        description="Text of one message; all text parts of a message may have twice as much. More is answered 413",
    )

    @field_validator("overrides")
    @classmethod
    def _are_of_subjects(cls, overrides: dict[str, TenantLimits]) -> dict[str, TenantLimits]:
        for name, limits in overrides.items():
            if not name.startswith(_SUBJECTS):
                raise ValueError(
                    f"{name} is not one of tenant:NAME, tenant:NAME/user:NAME, user:NAME, key:ID, address:ADDRESS"
                )
            if limits.stored_mb is not None and (not name.startswith("tenant:") or OF_TENANT in name):
                raise ValueError(f"stored_mb is a limit of tenants; {name} may have sessions.stored_mb for each user")
        return overrides

    @cached_property
    def by_kind(self) -> Mapping[str, SubjectLimits]:
        """The limits of an address, a key, a user and a tenant without overrides."""
        short = SubjectLimits(requests_per_minute=self.requests_per_minute, tokens_per_day=self.tokens_per_day)
        user = short.changed_by(self.user.model_dump())
        return {"address": self.address, "key": self.key, "user": user, "tenant": self.tenant}

    @cached_property
    def counts_streams(self) -> bool:
        return any(each.streams for each in (*self.by_kind.values(), *self.overrides.values()))

    @property
    def counts_anything(self) -> bool:
        counts = any(each.requests_per_minute or each.runs for each in self._known)
        return counts or self.counts_spending or self.counts_stored

    @property
    def counts_stored(self) -> bool:
        return any(each.stored_mb for each in (self.tenant, *self.overrides.values()))

    def stored_bytes(self, tenant: str) -> int | None:
        override = self.overrides.get(f"tenant:{tenant}")
        return self.tenant.stored_bytes if override is None or not override.stored_mb else override.stored_bytes

    @property
    def counts_spending(self) -> bool:
        return self.counts_money or any(each.tokens_per_day for each in self._known)

    @property
    def counts_money(self) -> bool:
        return any(each.money_per_day for each in self._known)

    @property
    def _known(self) -> Iterable[SubjectLimits]:
        return (*self.by_kind.values(), *self.overrides.values())
