"""The settings of a server: who may use it, how large and how slow a request may be. Values only."""

from dataclasses import dataclass, field
from typing import TypeAlias

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
    max_upload: int = 100 * MB  # where files may come along
    max_unmeasured_body: int = 1 * MB  # sent in chunks, its size not said beforehand
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


@dataclass(frozen=True, kw_only=True)
class UseLimits:
    """What one user, or one client, may take of the server (T17, T30). None is no limit but for connections."""

    requests_per_minute: int | None = None
    tokens_per_day: int | None = None
    streams_per_client: int | None = None
    connections_per_client: int | None = None  # see `ConnectionLimit`
    message_characters: int = 1_000_000


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
