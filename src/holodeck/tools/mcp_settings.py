"""The settings of one MCP server. No live object, no I/O."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from holodeck.blocks import Block, FilePath, Identifier, Seconds, Text, Url
from holodeck.core.secrets import Redactor
from holodeck.tools.port import CALL_SECONDS, MAX_RESULT_CHARS

MAX_LINE_BYTES = 1_000_000
ToolName = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]


class CalledTool(Block):
    """The name of a tool or tool server, and the time limit of a call."""

    name: ToolName = Field(description="Letters, digits, - and _; shown in messages")
    timeout: Seconds = Field(
        CALL_SECONDS,
        description="Seconds for one call; less than loop.iteration_timeout, so that the model gets the error",
    )


class McpServerBlock(CalledTool):
    """One server: a `command` that speaks MCP on its standard streams, or the `url` of one that speaks it over HTTP."""

    model_config = ConfigDict(hide_input_in_errors=True)  # it may be a credential

    transport: Literal["stdio", "http", "sse"] | None = Field(
        None, description="Default: stdio with command, http with url; sse: the older HTTP transport of MCP"
    )
    command: FilePath | None = Field(None, description="The program to run; no shell is involved")
    args: list[Text] = Field(default=[], max_length=100, description="Its arguments")
    env: dict[Identifier, Text] = Field(
        default={}, max_length=100, repr=False, description="Variables that it gets besides PATH, HOME, …"
    )
    url: Url | None = Field(None, description="A streamable HTTP endpoint, or with transport sse the older kind")
    headers: dict[Identifier, Text] = Field(
        default={}, max_length=50, repr=False, description="Sent with every request to url"
    )
    required: bool = Field(default=True, description="Whether the agent needs it to be ready")
    max_result_chars: int = Field(
        MAX_RESULT_CHARS, ge=100, le=1_000_000, description="Longest result that the model gets, in characters"
    )

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("give it either a command (a program) or a url (an HTTP endpoint)")
        if self.transport and (self.transport == "stdio") != (self.command is not None):
            raise ValueError(f"transport {self.transport} needs {'command' if self.transport == 'stdio' else 'url'}")
        for key, value, needs in (
            ("args", self.args, "command"),
            ("env", self.env, "command"),
            ("headers", self.headers, "url"),
        ):
            if value and getattr(self, needs) is None:
                raise ValueError(f"{key} needs {needs}, which is not set")
        return self


class McpDefaults(Block):
    """Defaults for MCP servers. A server's own settings replace them."""

    start_timeout: Seconds = Field(60, description="Seconds for a server to start; npx and uvx download it first")


class OAuthSettings(Block):
    """Sign-in at a server that requires OAuth."""

    model_config = ConfigDict(hide_input_in_errors=True)

    client_id: Text | None = Field(
        None, description="The id of a client that you registered; default: HoloDeck registers itself"
    )
    client_secret: Text | None = Field(None, repr=False, description="The client's secret, if it has one")
    scope: Text | None = Field(None, description="The scope to request; default: what the server names")


class OAuthClient(OAuthSettings):
    """How to sign in to a server. `file` stores tokens and registration."""

    file: Path


class McpSettings(McpServerBlock, McpDefaults):
    """The settings that the toolset takes, with the working folder of `command`.

    `timeout` limits one call from the moment it is requested, including all waits; `max_line_bytes` limits one message of
    the server, over HTTP as well. `env` is added to the allow-list in `holodeck.tools.stdio`.
    """

    cwd: Path | None = None
    oauth: OAuthClient | None = None
    max_line_bytes: int = MAX_LINE_BYTES

    def masked(self, text: str) -> str:
        """Removes this server's credentials: its error messages may quote them, and users see those messages."""
        secret = [self.oauth.client_secret] if self.oauth and self.oauth.client_secret else []
        return Redactor([*self.env.values(), *self.headers.values(), *secret])(text)
