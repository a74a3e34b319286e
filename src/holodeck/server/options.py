"""The settings of a server: who may use it, how large and how slow a request may be. Values only."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from holodeck.config.limit_schema import ServerLimits
from holodeck.config.schema import ClusterSettings, ServerBlock
from holodeck.core.sizes import MB
from holodeck.core.usage import Price
from holodeck.files.fetch import is_public
from holodeck.files.limits import FileLimits

RESOURCE_METADATA = "/.well-known/oauth-protected-resource"
CHAT_STREAM_SECONDS = 30.0  # seconds for one answer on that wire, unless `loop.run_timeout` is set (ORC-07)
MCP_WAIT_SECONDS = 50.0  # seconds for one answer over MCP: many clients give up after 60
DEFAULT_MAX_TOKENS = 4000  # reserved for a step if the agent file leaves the maximum to the model
_IN_FILE = ServerBlock()  # the defaults of an agent file are declared there


ProtocolType: TypeAlias = str
"""The name of a wire, as `--protocol` takes it; `holodeck.server.wires` lists them."""


@dataclass(frozen=True, kw_only=True)
class SpendingSettings:
    """Prices and sizes with which the server counts tokens and money against the limits."""

    price: Price | None = None  # the model's price
    max_tokens: int = DEFAULT_MAX_TOKENS  # the largest reply of a step; reserved before the model is called
    has_keys: bool = False  # there are API keys, which may get their own limits at any time


@dataclass(frozen=True, kw_only=True)
class StreamSettings:
    keepalive: float = _IN_FILE.keepalive  # seconds of silence before a comment is sent
    stall_timeout: float = _IN_FILE.runs.stall_timeout  # seconds after which a reader that takes nothing is dropped


@dataclass(frozen=True, kw_only=True)
class Access:
    """The names that the server answers to, and the web pages that may use it (T07, T08)."""

    bind_host: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    public: frozenset[str] = frozenset({"health"})  # what strangers may see, in the values of server.auth.public
    public_url: str | None = None  # the server's address for clients; never taken from a request
    cors_origins: tuple[str, ...] = ("loopback",)

    @property
    def metadata_url(self) -> str | None:
        """Returns the address at which clients learn which issuers are trusted (RFC 9728)."""
        return None if self.public_url is None else self.public_url.rstrip("/") + RESOURCE_METADATA


@dataclass(frozen=True, kw_only=True)
class PushSettings:
    """The hosts that the server may call when a client's task changes. Empty: it calls none (T14)."""

    allow_hosts: tuple[str, ...] = ()
    permit: Callable[[str], bool] = is_public  # decides which IP addresses a host may have
    attempts: int = 5
    wait: float = 1.0  # seconds before the second attempt; the pause doubles after each attempt


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    access: Access = field(default_factory=Access)
    limits: ServerLimits = field(default_factory=ServerLimits)
    spending: SpendingSettings = field(default_factory=SpendingSettings)
    max_connections: int = _IN_FILE.max_connections
    max_upload: int = 101 * MB  # bytes of a body on routes that accept files: the files, and the form around them
    files: FileLimits = field(default_factory=FileLimits)
    streams: StreamSettings = field(default_factory=StreamSettings)
    protocols: tuple[ProtocolType, ...] = ()  # empty: the default wires
    root_path: str = ""  # where a proxy mounts this server, such as /agents/one; addresses work with and without it
    max_concurrent_runs: int = _IN_FILE.runs.max_concurrent
    chat_stream_timeout: float = CHAT_STREAM_SECONDS
    mcp_wait: float = MCP_WAIT_SECONDS
    push: PushSettings = field(default_factory=PushSettings)
    remember_conversations: bool = False  # whether conversation_id of chat-stream keeps a session (ORC-03)
    shutdown_seconds: float = _IN_FILE.shutdown_timeout  # for runs in progress, under another ASGI server
    take_over_seconds: float = (
        ClusterSettings().take_over_seconds
    )  # after which another process takes over the runs of a silent one
    watchdog: bool = _IN_FILE.watchdog
    debug: bool = False
