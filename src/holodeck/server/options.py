"""The settings of a server: who may use it, how large and how slow a request may be. Values only."""

from collections.abc import Callable
from dataclasses import dataclass, field

from holodeck.config.agent_schema import ClusterSettings, ServerBlock
from holodeck.config.serving import AppOptions
from holodeck.core.sizes import MB
from holodeck.files.fetch import is_public
from holodeck.files.limits import FileLimits
from holodeck.models.price import Price

RESOURCE_METADATA = "/.well-known/oauth-protected-resource"
CHAT_STREAM_SECONDS = 30.0  # seconds for one answer on that wire, unless `loop.run_timeout` is set (ORC-07)
MCP_WAIT_SECONDS = 50.0  # seconds for one answer over MCP: many clients give up after 60
DEFAULT_MAX_TOKENS = 4000  # reserved for a step if the agent file leaves the maximum to the model


@dataclass(frozen=True, kw_only=True)
class SpendingSettings:
    """Prices and sizes with which the server counts tokens and money against the limits."""

    price: Price | None = None  # the model's price
    max_tokens: int = DEFAULT_MAX_TOKENS  # the largest reply of a step; reserved before the model is called
    has_keys: bool = False  # there are API keys, which may get their own limits at any time


@dataclass(frozen=True, kw_only=True)
class Access:
    """The names that the server answers to, and the web pages that may use it (T07, T08)."""

    bind_host: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ("loopback",)


@dataclass(frozen=True, kw_only=True)
class PushSettings:
    """How the server calls the hosts of `server.push` when a client's task changes (T14)."""

    permit: Callable[[str], bool] = is_public  # decides which IP addresses a host may have
    attempts: int = 5
    wait: float = 1.0  # seconds before the second attempt; the pause doubles after each attempt


@dataclass(frozen=True, kw_only=True)
class ServerSettings(AppOptions):
    """The `server:` block of the agent file, and what comes from other blocks and from the command line."""

    block: ServerBlock = field(default_factory=ServerBlock)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    access: Access = field(default_factory=Access)
    spending: SpendingSettings = field(default_factory=SpendingSettings)
    max_upload: int = 101 * MB  # bytes of a body on routes that accept files: the files, and the form around them
    files: FileLimits = field(default_factory=FileLimits)
    chat_stream_timeout: float = CHAT_STREAM_SECONDS
    mcp_wait: float = MCP_WAIT_SECONDS
    push: PushSettings = field(default_factory=PushSettings)
    remember_conversations: bool = False  # whether conversation_id of chat-stream keeps a session (ORC-03)

    @property
    def metadata_url(self) -> str | None:
        """Returns the address at which clients learn which issuers are trusted (RFC 9728)."""
        url = self.block.public_url  # never taken from a request
        return None if url is None else url.rstrip("/") + RESOURCE_METADATA
