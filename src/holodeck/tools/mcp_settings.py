"""The agent file's settings for one MCP server, checked elsewhere. No live object, no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holodeck.core.secrets import Redactor

MAX_LINE_BYTES = 1_000_000
MAX_RESULT_CHARS = 50_000


@dataclass(frozen=True, kw_only=True)
class OAuthClient:
    """How to sign in to a server.

    Without a `client_id` the client registers itself; `file` stores tokens and registration.
    """

    file: Path
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None


@dataclass(frozen=True, kw_only=True)
class McpSettings:
    """One server: a `command` that speaks MCP on its standard streams, or the `url` of one that speaks it over HTTP.

    Times are seconds. `timeout` limits one call from the moment it is requested, including all waits; `max_line_bytes`
    limits one message of the server, over HTTP as well.
    """

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)  # added to the allow-list in holodeck.tools.stdio
    cwd: Path | None = None
    url: str | None = None
    sse: bool = False  # the url speaks the older HTTP+SSE transport
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # credentials are here
    oauth: OAuthClient | None = None
    timeout: float = 25
    start_timeout: float = 60  # npx and uvx download a server before they run it
    required: bool = True
    max_result_chars: int = MAX_RESULT_CHARS
    max_line_bytes: int = MAX_LINE_BYTES

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            raise ValueError(f"the tool server '{self.name}' needs either a command or a url")

    def masked(self, text: str) -> str:
        """Removes this server's credentials: its error messages may quote them, and users see those messages."""
        secret = [self.oauth.client_secret] if self.oauth and self.oauth.client_secret else []
        return Redactor([*self.env.values(), *self.headers.values(), *secret])(text)
