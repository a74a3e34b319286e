"""The settings of a server: who may use it, how large and how slow a request may be. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from holodeck.core.usage import Price
from holodeck.files.limits import FileLimits

KB = 1024
MB = 1024 * KB
RESOURCE_METADATA = "/.well-known/oauth-protected-resource"
CHAT_STREAM_SECONDS = 30.0  # for one answer on that wire, unless `loop.run_timeout` says otherwise (ORC-07)


ProtocolType: TypeAlias = str
"""The name of a wire, as `--protocol` takes it; `holodeck.server.wires` lists them."""


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """How large and how slow a request may be (T15, T17): `server.limits.request`. uvicorn has none of these."""

    max_body: int = 32 * MB
    max_upload: int = 100 * MB  # on routes that accept files
    max_unmeasured_body: int = 1 * MB  # chunked, without a Content-Length
    max_connections: int = 10_000
    max_head: int = 64 * KB
    max_head_lines: int = 128
    head_seconds: float = 10.0
    body_seconds: float = 30.0  # and then at least …
    body_rate: float = 1000.0  # … this many bytes a second
    idle_seconds: float = 5.0  # of a connection between two requests
    flush_seconds: float = 30.0  # in which a client takes at least some of what is left of its answer
    linger_seconds: float = 2.0  # for a client that still sends when it has its answer, and again for each megabyte …
    max_linger: int = 16 * MB  # … of as many bytes as the server discards, …
    max_refused_body: int = 128 * MB  # … or as many of a body that states its size: many clients read after it only


class SubjectLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one address, key, user or tenant may use. None is no limit."""

    requests_per_minute: int | None = None
    tokens_per_day: int | None = None
    money_per_day: float | None = None
    runs: int | None = None  # at a time


NO_LIMITS = SubjectLimits()


@dataclass(frozen=True, kw_only=True)
class UseLimits:
    """What addresses, keys, users and tenants may use of the server (T17, T30)."""

    address: SubjectLimits = NO_LIMITS
    key: SubjectLimits = NO_LIMITS
    user: SubjectLimits = NO_LIMITS
    tenant: SubjectLimits = NO_LIMITS
    overrides: Mapping[str, SubjectLimits] = field(default_factory=dict)  # by "tenant:acme", "key:7Q2M9KXD"
    price: Price | None = None  # of the model, for limits of money
    max_tokens: int = 1000  # that a step may cost at most, besides its prompt: reserved before it
    key_limits: bool = False  # whether there are keys, which may have limits of their own
    streams_per_client: int | None = None
    connections_per_client: int | None = None  # see `ConnectionLimit`
    message_characters: int = 1_000_000

    @property
    def counts_spending(self) -> bool:
        """Whether any limit is about tokens or money. A key of the key file may bring one at any time."""
        known = (self.address, self.key, self.user, self.tenant, *self.overrides.values())
        return self.key_limits or any(each.tokens_per_day or each.money_per_day for each in known)


@dataclass(frozen=True, kw_only=True)
class StreamSettings:
    keepalive: float = 15.0  # seconds of silence before a comment is sent
    stall_timeout: float = 30.0  # seconds after which a reader that takes nothing is dropped


@dataclass(frozen=True, kw_only=True)
class Access:
    """Which names the server answers to, and which web pages may use it (T07, T08)."""

    bind_host: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    public: frozenset[str] = frozenset({"health"})  # what strangers may see, in the words of server.auth.public
    public_url: str | None = None  # the server's address for clients; never taken from a request
    cors_origins: tuple[str, ...] = ("loopback",)

    @property
    def metadata_url(self) -> str | None:
        """Where clients learn which issuers are trusted (RFC 9728)."""
        return None if self.public_url is None else self.public_url.rstrip("/") + RESOURCE_METADATA


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    access: Access = field(default_factory=Access)
    limits: RequestLimits = field(default_factory=RequestLimits)
    files: FileLimits = field(default_factory=FileLimits)
    use: UseLimits = field(default_factory=UseLimits)
    streams: StreamSettings = field(default_factory=StreamSettings)
    protocols: tuple[ProtocolType, ...] = ("ag-ui",)
    max_concurrent_runs: int = 1000
    chat_stream_timeout: float = CHAT_STREAM_SECONDS
    remember_conversations: bool = False  # whether a chat-stream's conversation_id gives memory (ORC-03)
    shutdown_seconds: float = 10.0  # for runs in progress, under a foreign ASGI server
    watchdog: bool = True
    debug: bool = False
